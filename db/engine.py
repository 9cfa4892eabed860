"""How a database is opened: URL or path, SQLite or PostgreSQL, at the one schema version that this code knows.

A job never comes here. Every SQLite connection may read while one writes (WAL), except on a network mount.
"""

import os
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.pool import NullPool

from scalewright.db.archive import LONGEST_PATH, READS_ONLY, address_of, readable_address, why_refused, why_unwritable
from scalewright.db.errors import CannotWrite, DbError, EmptyDatabaseError
from scalewright.db.filesystem import filesystem_type, is_network
from scalewright.db.schema import METADATA, SCHEMA_VERSION
from scalewright.db.triggers import create_triggers
from scalewright.db.views import are_views_of_this_code, create_views, drop_views

BUSY_TIMEOUT_S = 60
WRITE_LOCK = 0x5CA1E  # the number that every scalewright locks while it writes to PostgreSQL
WRITES = {"writes": True}
SECRETS = ("password", "sslpassword")  # that libpq takes in the query of a URL
FULL_DISK = "the disk of "


@dataclass(frozen=True)
class Database:
    """An open runs database; `notice` is a sentence that its user should see, or empty.

    archive: why it can only be read, or empty.
    """

    engine: Engine
    url: URL
    notice: str = ""
    archive: str = ""
    _pid: list[int] = field(default_factory=lambda: [os.getpid()])

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        return Path(self.url.database) if self.dialect == "sqlite" and self.url.database else None

    @property
    def name(self) -> str:
        """What a person calls it: the path, or the URL without its password."""
        return name_of(self.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Hold a connection that sees one state of the database."""
        self.leave_parent()
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Hold the write lock for one transaction: everything in it happens, or nothing.

        Raises CannotWrite where the disk is full or the place is for reading only.
        """
        if self.archive:
            raise CannotWrite(self.archive)
        self.leave_parent()
        with refusals_named(self), self.engine.connect().execution_options(**WRITES) as connection, connection.begin():
            if self.dialect == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": WRITE_LOCK})
            yield connection

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Hold a connection that does nothing: SQLite moves its log into the file whenever the last one is closed."""
        self.leave_parent()
        idle = self.engine.raw_connection()
        try:
            yield
        finally:
            idle.close()

    def shorten_log(self, most_bytes: int) -> None:
        """Move SQLite's write-ahead log into the file where it is longer than this; only for the holder of the lease.

        Two processes that do this at once can corrupt the file in SQLite before 3.51.3.
        """
        log = self.path.with_name(self.path.name + "-wal") if self.path else None
        if log is not None and log.exists() and log.stat().st_size > most_bytes:
            with self.engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def leave_parent(self) -> None:
        """Forget connections that came over a fork: they belong to the parent."""
        if self._pid[0] != os.getpid():
            self.engine.dispose(close=False)
            self._pid[0] = os.getpid()

    def close(self) -> None:
        """Close every connection; the next use opens them again."""
        self.engine.dispose()


def open_database(url_or_path: str | Path, *, read_only: bool = False, create: bool = True) -> Database:
    """Open a database at this code's schema version; a fresh one is made where `create` allows it.

    Raises DbError where it is missing, unreachable, no runs database, or of an older or newer schema.
    """
    database = connect(url_or_path, read_only=read_only, create=create and not read_only)
    path = database.path
    if path is not None and path.exists() and (why := why_unwritable(path)):
        return open_unwritable(database, path, why)
    with explained(database), refusals_named(database):
        require_version(database, may_create=create and not read_only)
        if not read_only:
            _renew_views(database)
    return database


def open_unwritable(database: Database, path: Path, why: str) -> Database:
    """Open a database that may not be writable: as it is where that goes, else as an archive."""
    if not why.startswith(FULL_DISK):
        return open_archive(path, why)
    try:  # on a full disk what is there may suffice
        require_version(database, may_create=False)
        with database.write():
            return database
    except (DatabaseError, CannotWrite):
        return open_archive(path, why)


def open_archive(path: Path, why: str) -> Database:
    """Open a SQLite file for reading where nothing can be written, not even what SQLite keeps beside a file."""

    def try_to_read(address: str) -> None:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    address = readable_address(path, try_to_read)
    words = f"{why}; {READS_ONLY}"
    url = URL.create("sqlite", database=str(path))
    database = Database(_sqlite_engine(path, True, address), url, words, words)
    with explained(database):
        require_version(database, may_create=False)
    return database


@contextmanager
def refusals_named(database: Database) -> Iterator[None]:
    """Say as CannotWrite which disk is full, or which place cannot be written, where that is why something failed."""
    try:
        yield
    except DatabaseError as trouble:
        said = first_line(trouble)
        why = why_refused(database.path, said) if database.path else "No space left" in said and said
        if not why:
            raise
        raise CannotWrite(f"{why}: nothing of this was stored in {database.name}") from None


@contextmanager
def explained(database: Database) -> Iterator[None]:
    """Say in one line, as a DbError, why a database cannot be looked at."""
    try:
        yield
    except OperationalError as trouble:
        raise DbError(f"{database.name}: {first_line(trouble)}") from None
    except DatabaseError as trouble:
        if "malformed" in first_line(trouble):
            raise DbError(f"{database.name}: the file is damaged; run: scalewright db rebuild") from None
        raise DbError(f"{database.name}: not a runs database ({first_line(trouble)})") from None


def connect(url_or_path: str | Path, *, read_only: bool = False, create: bool = False) -> Database:
    """Make the engine without looking at the schema."""
    url = parse_url(str(url_or_path))
    if url.get_backend_name() == "postgresql":
        return Database(_postgresql_engine(url, read_only), url)
    path = Path(str(url.database))
    if not path.exists() and not create:
        raise DbError(f"{path}: no such database (it is made by: scalewright plan experiments.yaml)")
    if len(os.fsencode(path)) > LONGEST_PATH:
        instead = "name a database in a shorter path with the variable SCALEWRIGHT_DB"
        raise DbError(f"{path}: its {len(os.fsencode(path))} bytes are more than SQLite takes as a path; {instead}")
    if create and not path.parent.is_dir():
        raise DbError(f"{path.parent}: no such folder for the database")
    return Database(_sqlite_engine(path, read_only), url, _network_notice(path))


def parse_url(text_: str) -> URL:
    """Read a URL, or a path as a SQLite URL; raises DbError for other kinds of database."""
    if "://" not in text_:
        return URL.create("sqlite", database=str(Path(text_).expanduser().absolute()))
    try:
        url = make_url(text_)
    except (ArgumentError, ValueError):
        shown = re.sub(r"//.*@|\?.*", lambda found: "//***@" if found[0].endswith("@") else "", text_)
        raise DbError(f"{shown}: not a database URL (expected postgresql+psycopg://user@host/name or a path)") from None
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database:
        return url.set(drivername="sqlite", database=str(Path(url.database).absolute()))
    kinds = "postgresql+psycopg://user@host/name, sqlite:///path or a path"
    raise DbError(f"{url.drivername}: not a kind of database that is known (expected {kinds})")


def name_of(url: URL) -> str:
    """Name a database as a person does: by its path, or by its URL without a password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.difference_update_query(SECRETS).render_as_string(hide_password=True)


def _network_notice(path: Path) -> str:
    if not is_network(path):
        return ""
    kind = filesystem_type(path)
    return f"{path} is on a network mount ({kind}): no write-ahead log there, so readers wait while sync writes"


def _sqlite_engine(path: Path, read_only: bool, address: str = "") -> Engine:
    address = address or address_of(path, "ro" if read_only else "rwc")

    def make_connection() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite://", creator=make_connection, poolclass=NullPool)
    wanted = "delete" if is_network(path) else "wal"
    event.listen(
        engine, "connect", lambda connection, _: prepare_sqlite(connection, path, None if read_only else wanted)
    )
    event.listen(engine, "begin", begin_sqlite)
    return engine


def begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once where the transaction writes: a lock taken later can lose the transaction."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def prepare_sqlite(connection: sqlite3.Connection, path: Path, wanted: str | None) -> None:
    """Set what SQLite keeps a connection; only the holder of the sync lease moves the log into the database.

    wanted: the journal mode, None for reading only. The mode that SQLite returns counts, not the one asked for.
    """
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -32000")
    if wanted is None:
        connection.execute("PRAGMA query_only = ON")
        return
    got = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if got != wanted:
        got = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    if got != wanted and wanted == "delete":
        raise DbError(f"{path}: a write-ahead log in use on a network mount; close every program that has it open")
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if got == 'wal' else 'FULL'}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def _postgresql_engine(url: URL, read_only: bool) -> Engine:
    options: dict[str, Any] = {"connect_timeout": 10, "application_name": "scalewright"}
    if read_only:
        options["options"] = "-c default_transaction_read_only=on"
    return create_engine(url, connect_args=options, poolclass=NullPool)


def require_version(database: Database, *, may_create: bool) -> None:
    """Raise unless the schema is the one that this code knows; make it in an empty database."""
    found = schema_version_of(database)
    if found is None and may_create:
        create_schema(database)
        found = schema_version_of(database)
    if found == SCHEMA_VERSION:
        return
    if found is None:
        raise EmptyDatabaseError(
            f"{database.name}: no runs database in it (it is made by: scalewright plan experiments.yaml)"
        )
    if found < SCHEMA_VERSION:
        command = f"scalewright db upgrade {shlex.quote(database.name)}"
        raise DbError(f"{database.name}: schema {found} is older than {SCHEMA_VERSION}; run: {command}")
    newer = f"schema {found} is newer than the {SCHEMA_VERSION} that this scalewright knows"
    raise DbError(f"{database.name}: {newer}; run: pip install --upgrade scalewright")


def schema_version_of(database: Database) -> str | None:
    """Return the schema version, None for an empty database; raises DbError for somebody else's tables."""
    with database.read() as connection:
        tables = set(inspect(connection).get_table_names())
        if "schema_version" in tables:
            return connection.execute(text("SELECT version_num FROM schema_version")).scalar()
    if tables & set(METADATA.tables):
        raise DbError(f"{database.name}: tables without a schema version; not a runs database")
    if tables and database.dialect == "sqlite":
        raise DbError(f"{database.name}: a database of something else (tables: {', '.join(sorted(tables)[:3])}, ...)")
    return None


def create_schema(database: Database) -> None:
    """Make every table and view at once, unless another process was first."""
    with database.write() as connection:
        if inspect(connection).has_table("schema_version"):
            return
        METADATA.create_all(connection, checkfirst=False)
        create_views(connection)
        create_triggers(connection)
        connection.execute(METADATA.tables["schema_version"].insert(), {"version_num": SCHEMA_VERSION})


def _renew_views(database: Database) -> None:
    """Make the views of a SQLite database anew where they are an earlier version's of the same tables.

    PostgreSQL would forget who may read them, so there it is left to `upgrade`.
    """
    if database.dialect != "sqlite":
        return
    with database.read() as connection:
        if are_views_of_this_code(connection):
            return
    with database.write() as connection:
        drop_views(connection)
        create_views(connection)


def first_line(trouble: DatabaseError) -> str:
    """Say what the driver said, without SQLAlchemy's frame around it."""
    lines = str(trouble.orig or trouble).strip().splitlines()
    return lines[0] if lines else type(trouble).__name__
