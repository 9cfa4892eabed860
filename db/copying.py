"""A whole database into another one, of either kind: every row, in one transaction, then compared by its content."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, text

from scalewright.db import schema
from scalewright.db.bulk import COLUMNS, insert_metrics
from scalewright.db.content import content_hash
from scalewright.db.engine import Database
from scalewright.db.errors import DbError

BATCH = 50_000
LEFT_OUT = frozenset({"schema_version", "leases"})


def copy_database(source: Database, target: Database) -> dict[str, int]:
    """Copy everything from `source` into the empty `target`; return the number of rows by table.

    Raises DbError where the target holds something, and where the content differs afterwards (nothing is kept then).
    """
    with target.read() as connection:
        if n_rows(connection, schema.runs) or n_rows(connection, schema.experiments):
            raise DbError(f"{target.name}: not empty; copy into a new database")
    counts: dict[str, int] = {}
    with source.read() as reading, target.write() as writing:
        for table in schema.METADATA.sorted_tables:
            if table.name not in LEFT_OUT:
                counts[table.name] = _copy_table(reading, writing, table)
        if target.dialect == "postgresql":
            continue_numbers(writing)
    if content_hash(source) != content_hash(target):
        raise DbError(f"{target.name}: the copy differs from {source.name}; was it written to meanwhile? Copy again")
    return counts


def _copy_table(reading: Connection, writing: Connection, table: Table) -> int:
    n_copied = 0
    for rows in batches_of(reading, table):
        if table.name in COLUMNS:
            insert_metrics(writing, table.name, rows, all_new=True)
        else:
            writing.execute(insert(table), [dict(zip(table.c.keys(), row, strict=True)) for row in rows])
        n_copied += len(rows)
    return n_copied


def batches_of(connection: Connection, table: Table) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Read a table in the order of its key, some rows at a time."""
    query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=BATCH)
    for rows in connection.execute(query).partitions(BATCH):
        yield [tuple(row) for row in rows]


def continue_numbers(connection: Connection) -> None:
    """Let PostgreSQL number new rows after the copied ones."""
    for table in schema.METADATA.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            newest = connection.execute(select(func.max(column))).scalar()
            sequence = {"table": table.name, "column": column.name, "newest": newest}
            if newest is not None:
                connection.execute(text("SELECT setval(pg_get_serial_sequence(:table, :column), :newest)"), sequence)


def n_rows(connection: Connection, table: Table) -> int:
    """Count the rows of a table."""
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())
