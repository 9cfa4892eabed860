"""What leaves the database: flat tables that others can refit, and copies of the whole."""

from pathlib import Path

from scalewright.db.engine import Database, open_database
from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.sync.table_files import SQLITE_ENDINGS, write_table


def export(db: Database, experiment: str | None, target: Path) -> str:
    """Write final losses (one row a run; units: its columns' comments) to a file, or the whole database to .sqlite.

    Returns a sentence. Raises UserError for another ending or an existing database.
    """
    if target.suffix in SQLITE_ENDINGS:
        return export_database(db, target)
    from scalewright.db.frames import final_losses

    frame = final_losses(db, experiment)
    write_table(frame, target)
    return f"{target}: {counted(len(frame), 'run')}, {counted(len(frame.columns), 'column')}"


def export_database(db: Database, target: Path) -> str:
    """Copy the whole database into a new SQLite file."""
    from scalewright.db.copying import copy_database
    from scalewright.db.upgrade import backup

    if target.exists():
        raise UserError(f"{target}: exists already; name another file")
    if db.path is not None:
        return f"{backup(db, target)}: a copy of {db.name}"
    counts = copy_database(db, open_database(target))
    return f"{target}: {counted(sum(counts.values()), 'row')} from {db.name}"
