"""SQL that a person types, on a connection that cannot write, attach another file or load an extension."""

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DatabaseError

from scalewright.db.engine import Database
from scalewright.db.errors import DbError

LIMIT_S = 60.0
STEPS_BETWEEN_LOOKS = 100_000  # of SQLite's machine: some milliseconds
HARMLESS_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list", "database_list"}
)
REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
PARAMETER = re.compile(r":([A-Za-z_]\w*)")
MISSING = re.compile(r"(?:binding parameter :|query parameter missing: )(\w+)")
TIME_IS_OVER = re.compile(r"^interrupted$|due to statement timeout")
LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|::", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """Rows of a query; `is_cut` where there were more than the limit."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    is_cut: bool

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping a row; columns of the same name are numbered."""
        names: list[str] = []
        for name in self.columns:
            again = sum(1 for known in names if known == name or re.fullmatch(rf"{re.escape(name)}:\d+", known))
            names.append(f"{name}:{again + 1}" if again else name)
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def run_query(
    db: Database, sql: str, parameters: Mapping[str, Any] | None = None, *, limit: int = 1000, limit_s: float = LIMIT_S
) -> Answer:
    """Run one SELECT with `:name` parameters and return at most `limit` rows, within `limit_s` seconds.

    db: opened with read_only=True. Raises DbError for anything that is not one reading statement, for bad SQL, and when
    the time is over.
    """
    assert limit > 0, limit
    statement = sql.strip().rstrip(";").strip()
    if not statement:
        raise DbError("query: nothing to run (expected something like: select run_id, loss_nats from all_runs)")
    ask = ask_postgresql if db.dialect == "postgresql" else _ask_sqlite
    try:
        columns, rows = ask(db, statement, dict(parameters or {}), limit + 1, limit_s)
    except driver_errors(db) as trouble:
        if TIME_IS_OVER.search(str(trouble)):
            raise DbError(
                f"query: no answer within {limit_s:g} s; give it more with --time-limit, or ask for less"
            ) from None
        raise DbError(f"query: {explained(trouble)}") from None
    return Answer(columns, rows[:limit], len(rows) > limit)


def driver_errors(db: Database) -> tuple[type[Exception], ...]:
    """Name what the driver raises for a bad statement."""
    if db.dialect == "sqlite":
        return (sqlite3.Error, sqlite3.Warning, DatabaseError)
    import psycopg

    return (psycopg.Error, DatabaseError)


def _ask_sqlite(
    db: Database, sql: str, parameters: dict[str, Any], n_rows: int, limit_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    deadline = time.monotonic() + limit_s
    with db.read() as connection:
        driver: Any = connection.connection.driver_connection
        driver.set_authorizer(permit)
        driver.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
        try:
            with closing(driver.cursor()) as cursor:
                cursor.execute(sql, parameters)
                names = [column[0] for column in cursor.description or []]
                if not names:
                    raise DbError("query: it asks for nothing")
                return names, cursor.fetchmany(n_rows)
        finally:
            driver.set_authorizer(None)
            driver.set_progress_handler(None, 0)


def permit(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """Allow what reads; everything else is denied, whatever it may be called in later versions of SQLite."""
    if action in READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second not in REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first in HARMLESS_PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def ask_postgresql(
    db: Database, sql: str, parameters: dict[str, Any], n_rows: int, limit_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Declare a cursor for the statement: PostgreSQL takes nothing but one query that changes nothing there.

    A parameter is always sent, so that the extended protocol is used, in which a second statement is an error.
    """
    spelled = with_percent_names(sql)
    with db.read() as connection:
        driver: Any = connection.connection.driver_connection
        try:
            with driver.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {max(1, int(limit_s * 1000))}")
                declared = f"DECLARE answer NO SCROLL CURSOR WITHOUT HOLD FOR {spelled}"
                cursor.execute(declared, parameters, prepare=True)
                cursor.execute(f"FETCH {int(n_rows)} FROM answer")
                return [column.name for column in cursor.description or []], cursor.fetchall()
        finally:
            driver.rollback()  # undoes what functions of a superuser may do even in a read-only transaction


def with_percent_names(sql: str) -> str:
    """Write `:name` as psycopg wants it, except inside literals, comments and casts."""
    pieces, end = [], 0
    for literal in LITERAL.finditer(sql):
        pieces += [PARAMETER.sub(r"%(\1)s", sql[end : literal.start()].replace("%", "%%"))]
        pieces += [literal[0].replace("%", "%%")]
        end = literal.end()
    return "".join([*pieces, PARAMETER.sub(r"%(\1)s", sql[end:].replace("%", "%%"))])


def explained(trouble: Exception) -> str:
    """Return a database's complaint in one line."""
    cause = getattr(trouble, "orig", None) or trouble
    message = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    if missing := MISSING.search(message):
        return f"no value for :{missing[1]} (give it with --param {missing[1]}=...)"
    if "not authorized" in message or "prohibited" in message:
        return f"it may only read ({message})"
    return message


def parse_parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `name=value` pairs; numbers become numbers. Raises DbError where a pair has no name."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise DbError(f"--param {pair!r}: expected name=value")
        parsed[name] = _number_or_text(value)
    return parsed


def _number_or_text(value: str) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
