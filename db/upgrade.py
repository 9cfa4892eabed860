"""How an older database becomes one of this version: a backup first, then Alembic's migrations in one transaction."""

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from scalewright.db.engine import Database, connect, explained, schema_version_of
from scalewright.db.errors import DbError
from scalewright.db.schema import SCHEMA_VERSION
from scalewright.db.views import create_views, drop_views

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True)
class UpgradeReceipt:
    """From which version to which, and where the copy of the old state lies (SQLite only)."""

    before: str
    after: str
    backup: Path | None


def upgrade(url_or_path: str | Path) -> UpgradeReceipt:
    """Bring a database to this code's schema version; a SQLite file is copied first. Safe to repeat.

    Raises DbError where the database is missing, is not one of ours, or is newer than this code.
    """
    db = connect(url_or_path)
    with explained(db):
        before = schema_version_of(db)
    if before is None:
        raise DbError(f"{db.name}: no runs database in it (it is made by: scalewright plan experiments.yaml)")
    if before > SCHEMA_VERSION:
        newer = f"schema {before} is newer than the {SCHEMA_VERSION} that this scalewright knows"
        raise DbError(f"{db.name}: {newer}; run: pip install --upgrade scalewright")
    saved = backup(db) if db.path and before != SCHEMA_VERSION else None
    with db.write() as connection:  # of the newest version too: its views may be an earlier one's
        drop_views(connection)
        migrate(connection)
        create_views(connection)
    db.close()
    return UpgradeReceipt(before, SCHEMA_VERSION, saved)


def migrate(connection: Connection, target: str = "head") -> None:
    """Apply migrations up to `target` within the caller's transaction."""
    from alembic import command

    command.upgrade(alembic_config(connection), target)


def alembic_config(connection: Connection) -> "Config":
    """Tell Alembic where the migrations are and on which connection to apply them."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def backup(db: Database, target: Path | None = None) -> Path:
    """Copy a SQLite database, also while others use it, to `target` or to a name with the time in it.

    Raises DbError for other databases and where the target exists.
    """
    if db.path is None:
        raise DbError(f"{db.name}: only a SQLite file can be copied here; use pg_dump, or: scalewright db copy")
    place = target or free_name(db.path)
    if place.exists():
        raise DbError(f"{place}: exists already; name another file for the copy")
    unfinished = place.with_name(place.name + ".unfinished")
    address = f"{db.path.as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as source, closing(sqlite3.connect(unfinished)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    unfinished.rename(place)
    return place


def free_name(path: Path) -> Path:
    """Name a copy beside `path` after the moment, with a number where that moment is taken."""
    stem = f"{path.stem}.{time.strftime('%Y%m%dT%H%M%S')}"
    names = (path.with_name(f"{stem}{f'.{n}' if n else ''}{path.suffix}") for n in range(1000))
    return next(name for name in names if not name.exists())
