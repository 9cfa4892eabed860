"""How what jobs wrote enters the database: parts of journals, in one transaction each. Knows tables and tuples only.

An attempt speaks for the steps after the one it resumed from, up to where a later attempt resumed again; whatever
else it wrote is dropped. So the order in which journals arrive does not matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, delete, select

from scalewright.db import schema
from scalewright.db.attempts import (
    Attempts,
    JournalPart,
    Row,
    cut_attempts,
    first_own_step,
    first_row,
    last_own_step,
    news_of,
)
from scalewright.db.bulk import insert_metrics
from scalewright.db.rows import make_insert, upsert

BATCH = 500  # values in an IN (...)
KEY = itemgetter(1)  # of a row (run, key, step, ...)


def apply_parts(connection: Connection, parts: Sequence[JournalPart]) -> set[int]:
    """Store parts of journals; return the numbers of the runs that they touch.

    Parts of one journal come in their order, and each starts where the last one stored of that journal ended.
    """
    touched = {part.run for part in parts}
    if not parts:
        return touched
    attempts = attempts_of(connection, touched)
    before = {key: row["last_step"] for key, row in attempts.items()}
    note_attempts(connection, parts, attempts)
    store_series(connection, parts, attempts, before)
    store_places(connection, schema.evaluations, ["run", "split", "step"], _evaluations_of(parts, attempts))
    store_places(connection, schema.checkpoints, ["run", "step"], _checkpoints_of(parts, attempts))
    _store_attempts(connection, attempts)
    store_offsets(connection, parts)
    return touched


def attempts_of(connection: Connection, runs: Iterable[int]) -> Attempts:
    """Read the attempts of runs as rows by (run, attempt)."""
    table, found = schema.attempts, {}
    for batch in batches(sorted(runs)):
        for row in connection.execute(select(table).where(table.c.run.in_(batch))).mappings():
            found[row["run"], row["attempt"]] = dict(row)
    return found


def batches(values: Sequence[int]) -> Iterable[Sequence[int]]:
    """Split values into parts of BATCH at most."""
    return (values[i : i + BATCH] for i in range(0, len(values), BATCH))


def note_attempts(connection: Connection, parts: Sequence[JournalPart], attempts: Attempts) -> None:
    """Update what is known of each attempt; where one is new, drop what earlier ones did past its beginning."""
    new: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}
    for part in parts:
        key = (part.run, part.attempt)
        if key not in attempts and (part.start or part.first_step is not None):
            attempts[key] = first_row(connection, part, numbers)
            new.append(key)
        if key in attempts:
            attempts[key].update(news_of(part, attempts[key]))
    cut_attempts(attempts, {run for run, _ in new})
    for key in new:
        if any(run == key[0] and attempt != key[1] for run, attempt in attempts):
            drop_redone(connection, attempts[key])


def drop_redone(connection: Connection, row: Mapping[str, Any]) -> None:
    """Delete what earlier attempts stored of the steps that a new attempt speaks for."""
    first, last = first_own_step(row), last_own_step(row)
    for table in (schema.metrics, schema.layer_metrics, schema.evaluations, schema.checkpoints):
        statement = delete(table).where(table.c.run == row["run"], table.c.step >= first)
        if last is not None:
            statement = statement.where(table.c.step <= last)
        if "attempt" in table.c:
            statement = statement.where(table.c.attempt < row["attempt"])
        connection.execute(statement)


def store_series(
    connection: Connection,
    parts: Sequence[JournalPart],
    attempts: Attempts,
    before: Mapping[tuple[int, int], int | None],
) -> None:
    """Store the metrics of parts, those of a part by key: so neighbours in the table are written together."""
    for table in ("metrics", "layer_metrics"):
        rows: list[Row] = []
        for part in parts:
            series = part.metrics if table == "metrics" else part.layers
            if series:
                rows += sorted(own_rows(series, attempts[part.run, part.attempt]), key=KEY)
        insert_metrics(connection, table, rows, all_new=are_new(parts, before))


def own_rows(rows: list[Row], attempt: Mapping[str, Any]) -> list[Row]:
    """Keep the rows of the steps that the attempt speaks for."""
    first, last = first_own_step(attempt), last_own_step(attempt)
    if last is not None:
        return [row for row in rows if first <= row[2] <= last]
    return [row for row in rows if row[2] >= first] if first else rows


def are_new(parts: Sequence[JournalPart], before: Mapping[tuple[int, int], int | None]) -> bool:
    """Tell whether no row of the parts can be stored already, or stand in two of them."""
    newest = dict(before)
    for part in parts:
        if part.first_logged_step is None:
            continue
        seen = newest.get((part.run, part.attempt))
        if not part.is_ascending or (seen is not None and part.first_logged_step <= seen):
            return False
        newest[part.run, part.attempt] = part.newest_logged_step
    return True


def _evaluations_of(parts: Sequence[JournalPart], attempts: Attempts) -> list[dict[str, Any]]:
    return [row for part in parts if part.evaluations for row in own_places(part.evaluations, part, attempts)]


def _checkpoints_of(parts: Sequence[JournalPart], attempts: Attempts) -> list[dict[str, Any]]:
    return [row for part in parts if part.checkpoints for row in own_places(part.checkpoints, part, attempts)]


def own_places(rows: list[dict[str, Any]], part: JournalPart, attempts: Attempts) -> list[dict[str, Any]]:
    """Keep the rows that the attempt speaks for; it may measure again at the very step that it resumed from."""
    attempt = attempts[part.run, part.attempt]
    last = last_own_step(attempt)
    return [row for row in rows if attempt["resume_step"] <= row["step"] and (last is None or row["step"] <= last)]


def store_places(connection: Connection, table: Table, keys: list[str], rows: list[dict[str, Any]]) -> None:
    """Store rows that name their attempt: of two for the same place the newest attempt's counts."""
    if not rows:
        return
    statement = make_insert(connection, table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
    is_newer = statement.excluded["attempt"] >= table.c.attempt
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed, where=is_newer), rows)


def _store_attempts(connection: Connection, attempts: Attempts) -> None:
    names = [column.name for column in schema.attempts.c if column.name not in ("run", "attempt")]
    upsert(connection, schema.attempts, list(attempts.values()), ["run", "attempt"], change=names)


def store_offsets(connection: Connection, parts: Sequence[JournalPart]) -> None:
    """Remember how far each journal was read, and what could not be read of it."""
    table = schema.ingested_files
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for part in parts:
        old = rows.get((part.run, part.attempt), {"n_lines": 0})
        row = {"run": part.run, "attempt": part.attempt, "n_bytes": part.n_bytes}
        rows[part.run, part.attempt] = {**row, "n_lines": old["n_lines"] + part.n_lines}
    statement = make_insert(connection, table)
    added = {"n_bytes": statement.excluded.n_bytes, "n_lines": table.c.n_lines + statement.excluded.n_lines}
    connection.execute(
        statement.on_conflict_do_update(index_elements=["run", "attempt"], set_=added), list(rows.values())
    )
    errors = [
        {
            "run_id": part.run_id,
            "file": f"journal.a{part.attempt}.jsonl",
            "offset": at,
            "message": why,
            "excerpt": start,
        }
        for part in parts
        for at, why, start in part.errors
    ]
    store_errors(connection, errors)


def store_errors(connection: Connection, errors: list[dict[str, Any]]) -> None:
    """Record what could not be read: run_id, file, offset, message, excerpt."""
    upsert(connection, schema.ingest_errors, errors, ["run_id", "file", "offset"], change=("message", "excerpt"))
