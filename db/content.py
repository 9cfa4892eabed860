"""A hash of what jobs measured, the same in any database that was made from the same journals, in whatever order."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from scalewright.db import schema
from scalewright.db.engine import Database
from scalewright.db.rows import to_json

SURROGATES = frozenset({"run", "code_id", "environment_id"})
PER_RUN = ("attempts", "evaluations", "checkpoints", "results", "ingested_files")


def content_hash(db: Database) -> str:
    """Return the SHA-256, hex, of every run's spec and of all that was measured, numbers of rows left out."""
    digest = hashlib.sha256()
    with db.read() as connection:
        runs = connection.execute(select(schema.runs.c.run_id, schema.runs.c.run, schema.runs.c.spec))
        for run_id, run, spec in sorted(tuple(row) for row in runs):
            digest.update(f"{run_id} {spec}\n".encode())
            for line in measured_lines(connection, run):
                digest.update(line)
        table = schema.ingest_errors
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
            digest.update(to_json(list(row)).encode())
    return digest.hexdigest()


def measured_lines(connection: Connection, run: int) -> Iterator[bytes]:
    """Yield everything measured of one run, in an order that depends on the content alone."""
    for name in PER_RUN:
        yield from _row_lines(connection, name, run)
    for table in (schema.metrics, schema.layer_metrics):
        yield from series_lines(connection, table, run)
    for described in (schema.codes, schema.environments):
        key = next(iter(described.primary_key.columns))
        attempts = schema.attempts
        query = select(attempts.c.attempt, described.c.content_hash).join(described, attempts.c[key.name] == key)
        for row in connection.execute(query.where(attempts.c.run == run).order_by(attempts.c.attempt)):
            yield f"{described.name} {row[0]} {row[1]}\n".encode()


def _row_lines(connection: Connection, name: str, run: int) -> Iterable[bytes]:
    table = schema.METADATA.tables[name]
    columns = [column for column in table.c if column.name not in SURROGATES]
    query = select(*columns).where(table.c.run == run)
    lines = sorted(to_json(list(row)) for row in connection.execute(query))
    return [f"{name} {line}\n".encode() for line in lines]


def series_lines(connection: Connection, table: Any, run: int) -> Iterator[bytes]:
    """Yield the name of each metric of a run and its rows as bytes."""
    keys = schema.metric_keys
    used = select(table.c.key).where(table.c.run == run).distinct()
    names = connection.execute(select(keys.c.name, keys.c.key).where(keys.c.key.in_(used)))
    columns = [column for column in table.c if column.name not in ("run", "key")]
    for name, key in sorted(tuple(row) for row in names):
        query = select(*columns).where(table.c.run == run, table.c.key == key).order_by(*columns[:-1])
        rows = [tuple(row) for row in connection.execute(query)]
        yield f"{table.name} {name}\n".encode()
        yield np.array(rows, dtype=np.float64).tobytes()
