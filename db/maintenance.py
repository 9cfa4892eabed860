"""How a database is doing: what is wrong with it, what is in it, and how its measured part is emptied for a rebuild."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, select, text

from scalewright.db import schema
from scalewright.db.copying import n_rows
from scalewright.db.engine import Database, schema_version_of

MEASURED = ("metrics", "layer_metrics", "evaluations", "checkpoints", "results", "ingested_files", "attempts")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `is_good` where nothing has to be done."""

    what: str
    found: str
    is_good: bool


def check(db: Database) -> list[Finding]:
    """Look for damage and for what a person should know; changes nothing."""
    with db.read() as connection:
        found = _check_sqlite(connection) if db.dialect == "sqlite" else []
        n_bad = n_rows(connection, schema.ingest_errors)
        orphans = (
            select(func.count())
            .select_from(schema.results)
            .where(schema.results.c.run.not_in(select(schema.runs.c.run)))
        )
        n_orphans = connection.execute(orphans).scalar_one()
    found.insert(0, Finding("schema", str(schema_version_of(db)), True))
    found.append(Finding("results without a run", str(n_orphans), n_orphans == 0))
    advice = "" if n_bad == 0 else "; see: scalewright query 'select * from ingest_errors'"
    found.append(Finding("journal lines that could not be read", f"{n_bad}{advice}", True))
    if db.notice:
        found.append(Finding("file system", db.notice, True))
    return found


def _check_sqlite(connection: Connection) -> list[Finding]:
    problems = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check(20)"))]
    broken = connection.execute(text("PRAGMA foreign_key_check")).fetchall()
    mode = connection.execute(text("PRAGMA journal_mode")).scalar_one()
    return [
        Finding("integrity", "; ".join(problems), problems == ["ok"]),
        Finding("references to rows that are missing", str(len(broken)), not broken),
        Finding("journal mode", str(mode), True),
    ]


def stats(db: Database) -> list[dict[str, Any]]:
    """Return rows by table, and where the database can tell, bytes on disk: table, n_rows, bytes."""
    with db.read() as connection:
        sizes = sizes_of(connection, db)
        rows = [(table.name, n_rows(connection, table)) for table in schema.METADATA.sorted_tables]
    listed = [
        {"table": name, "n_rows": n, "bytes": sizes.get(name)} for name, n in sorted(rows, key=lambda row: -row[1])
    ]
    return [*listed, {"table": "(everything)", "n_rows": sum(n for _, n in rows), "bytes": _total_bytes(db, sizes)}]


def sizes_of(connection: Connection, db: Database) -> dict[str, int]:
    """Return bytes by table, its indexes included, as far as the database knows them."""
    if db.dialect == "postgresql":
        query = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'"
        return {name: int(size) for name, size in connection.execute(text(query))}
    has_dbstat = connection.execute(text("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'")).scalar()
    if not has_dbstat:
        return {}
    query = (
        "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
        " WHERE s.aggregate GROUP BY m.tbl_name"
    )
    return {name: int(size) for name, size in connection.execute(text(query))}


def _total_bytes(db: Database, sizes: dict[str, int]) -> int:
    if db.path is None:
        return sum(sizes.values())
    files = [db.path.with_name(db.path.name + ending) for ending in ("", "-wal", "-shm")]
    return sum(file.stat().st_size for file in files if file.exists())


def forget_measured(connection: Connection) -> None:
    """Delete everything that journals can give back; imported points, plans, states, fits, tags and notes stay."""
    trained = select(schema.runs.c.run).where(schema.runs.c.source == "run")
    for name in MEASURED:
        table = schema.METADATA.tables[name]
        connection.execute(delete(table).where(table.c.run.in_(trained)))
    for table in (schema.ingest_errors, schema.codes, schema.environments, schema.metric_keys):
        connection.execute(delete(table))
