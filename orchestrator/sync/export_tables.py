"""What leaves the database: flat tables that others can refit, and copies of the whole."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scalewright.db.engine import Database, open_database
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import replacing

if TYPE_CHECKING:
    import pandas as pd

SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db")


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_csv(path, index=False)


def write_parquet(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_parquet(path, index=False)


def write_jsonl(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_json(path, orient="records", lines=True)


WRITERS: dict[str, Callable[["pd.DataFrame", Path], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".jsonl": write_jsonl,
}


def export(db: Database, experiment: str | None, target: Path) -> str:
    """Write final losses (one row a run; units: its columns' comments) to a file, or the whole database to .sqlite.

    Returns a sentence. Raises UserError for another ending or an existing database.
    """
    if target.suffix in SQLITE_ENDINGS:
        return export_database(db, target)
    from scalewright.db.frames import final_losses

    frame = final_losses(db, experiment)
    write_table(frame, target)
    return f"{target}: {len(frame)} runs, {len(frame.columns)} columns"


def write_table(frame: "pd.DataFrame", target: Path) -> None:
    """Write a frame under a temporary name and rename it, by the ending of the target's name."""
    write = WRITERS.get(target.suffix)
    if write is None:
        known = ", ".join([*WRITERS, *SQLITE_ENDINGS])
        raise UserError(f"{target}: unknown file format (endings: {known})")
    with replacing(target) as unfinished:
        write(frame, unfinished)


def export_database(db: Database, target: Path) -> str:
    """Copy the whole database into a new SQLite file."""
    from scalewright.db.copying import copy_database
    from scalewright.db.upgrade import backup

    if target.exists():
        raise UserError(f"{target}: exists already; name another file")
    if db.path is not None:
        return f"{backup(db, target)}: a copy of {db.name}"
    counts = copy_database(db, open_database(target))
    return f"{target}: {sum(counts.values())} rows from {db.name}"
