"""How millions of metric rows go in: tuples through the driver on SQLite, binary COPY on PostgreSQL."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

METRIC = ("run", "key", "step", "value")
LAYER_METRIC = ("run", "key", "step", "layer", "value")
COLUMNS = {"metrics": METRIC, "layer_metrics": LAYER_METRIC}
WIDTHS = {"run": ">i4", "key": ">i4", "step": ">i8", "layer": ">i4", "value": ">f8"}
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

Row = tuple[Any, ...]


def insert_metrics(connection: Connection, table: str, rows: Sequence[Row], *, all_new: bool) -> None:
    """Insert rows of `metrics` or `layer_metrics`; the last of rows with the same key wins, also over stored ones.

    rows: (run, key, step, [layer,] value), best sorted. all_new: the caller knows that no key repeats or exists.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copy_rows(connection, table, rows, all_new=all_new)
        return
    columns = COLUMNS[table]
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    connection.exec_driver_sql(statement, rows)


def _copy_rows(connection: Connection, table: str, rows: Sequence[Row], *, all_new: bool) -> None:
    if all_new:
        send(connection, table, table, rows)
        return
    keys = COLUMNS[table][:-1]
    last = {row[:-1]: row for row in rows}
    connection.exec_driver_sql(f"CREATE TEMP TABLE incoming (LIKE {table}) ON COMMIT DROP")
    send(connection, "incoming", table, list(last.values()))
    on_conflict = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET value = excluded.value"
    connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM incoming {on_conflict}")
    connection.exec_driver_sql("DROP TABLE incoming")


def send(connection: Connection, target: str, table: str, rows: Sequence[Row]) -> None:
    """Stream rows into `target`, which has the columns of `table`."""
    columns = COLUMNS[table]
    driver: Any = connection.connection.driver_connection
    statement = f"COPY {target} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(SIGNATURE)
        for block in binary_blocks(columns, rows):
            copy.write(block)
        copy.write(TRAILER)


def binary_blocks(columns: Sequence[str], rows: Sequence[Row]) -> list[bytes]:
    """Lay rows out as PostgreSQL's binary COPY wants them; rows whose value is NULL come last."""
    numbers = np.array(rows, dtype=np.float64)  # None becomes NaN; whole numbers are exact below 2**53
    is_null = np.isnan(numbers[:, -1])
    return [block(columns, numbers[~is_null], has_value=True), block(columns, numbers[is_null], has_value=False)]


def block(columns: Sequence[str], numbers: Any, *, has_value: bool) -> bytes:
    """Return rows in PostgreSQL's binary COPY format; without has_value the column `value` is NULL."""
    layout: list[tuple[str, str]] = [("n_columns", ">i2")]
    for name in columns:
        layout.append((f"{name}_bytes", ">i4"))
        if name != "value" or has_value:
            layout.append((name, WIDTHS[name]))
    records = np.zeros(len(numbers), dtype=layout)
    records["n_columns"] = len(columns)
    for place, name in enumerate(columns):
        records[f"{name}_bytes"] = np.dtype(WIDTHS[name]).itemsize if name != "value" or has_value else -1
        if name != "value" or has_value:
            records[name] = numbers[:, place]
    return records.tobytes()
