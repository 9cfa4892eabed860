"""What sync must know before it looks at the disk: which runs there are, and how far each journal was read."""

from dataclasses import dataclass

from sqlalchemy import select

from scalewright.db import schema
from scalewright.db.engine import Database


@dataclass(frozen=True)
class Tracked:
    """A run of the database: its number, whether DONE.json was read, and whether nothing more can come."""

    run: int
    has_done: bool
    is_whole: bool


def tracked_runs(db: Database) -> dict[str, Tracked]:
    """Return every run by its id."""
    r, s = schema.runs, schema.results
    query = select(r.c.run_id, r.c.run, s.c.done.is_not(None), s.c.is_whole).outerjoin(s, s.c.run == r.c.run)
    with db.read() as connection:
        rows = connection.execute(query).all()
    return {run_id: Tracked(run, bool(has_done), bool(is_whole)) for run_id, run, has_done, is_whole in rows}


def offsets_of(db: Database) -> dict[int, dict[int, int]]:
    """Return how many bytes of each journal were read, by run number and attempt."""
    files: dict[int, dict[int, int]] = {}
    table = schema.ingested_files.c
    with db.read() as connection:
        for run, attempt, n_bytes in connection.execute(select(table.run, table.attempt, table.n_bytes)):
            files.setdefault(run, {})[attempt] = n_bytes
    return files
