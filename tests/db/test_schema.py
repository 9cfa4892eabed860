"""The schema is the same from migrations and from the tables, on both databases; old ones upgrade."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError

from scalewright.db import frames, upgrade
from scalewright.db.engine import connect, open_database, schema_version_of
from scalewright.db.errors import DbError
from scalewright.db.schema import METADATA, SCHEMA_VERSION
from scalewright.db.views import VIEWS, create_views

# Databases as two versions made them from nothing: the first, and one whose migrations have been its tables since.
GOLDEN = sorted((Path(__file__).parent / "golden").glob("schema_*.sql"))
VERSIONS = sorted(script.revision for script in ScriptDirectory(str(upgrade.MIGRATIONS)).walk_revisions())


EXPERIMENT = """
experiment: x
data: {corpus: embedded, tokenizer: bytes}
sizes: {a: {width: 8, depth: 1, heads: 1}}
budgets: [4096]
methods: {pre-ln: pre-ln}
batch: 4
context: 64
lr: 0.005
"""


def difference(database):
    with database.read() as connection:
        options = {"version_table": "schema_version", "compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)


def migrate_from_nothing(url, target="head"):
    database = connect(url, create=True)
    with database.write() as connection:
        upgrade.migrate(connection, target)
        if target == "head":
            create_views(connection)
        else:  # older versions had older views
            connection.execute(text("CREATE VIEW final_losses AS SELECT run_id FROM runs"))
    return database


def test_a_fresh_database_is_what_the_tables_say(db):
    assert difference(db) == []


def test_migrations_lead_to_what_the_tables_say(url):
    database = migrate_from_nothing(url)
    assert difference(database) == []
    assert schema_version_of(database) == SCHEMA_VERSION
    open_database(url).close()


def test_the_comparison_would_see_a_missing_column(db):
    with db.write() as connection:
        connection.execute(text("ALTER TABLE notes ADD COLUMN mood TEXT"))
    assert [change[0] for change in difference(db)] == ["remove_column"]


def test_the_newest_migration_is_the_schema_version():
    assert ScriptDirectory(str(upgrade.MIGRATIONS)).get_heads() == [SCHEMA_VERSION]


def test_every_table_and_column_says_what_it_holds():
    silent = [f"{t.name}.{c.name}" for t in METADATA.sorted_tables for c in t.columns if not c.comment]
    assert silent == [] and all(table.comment for table in METADATA.sorted_tables)


def test_units_can_be_read_in_the_database_itself(db):
    with db.read() as connection:
        if db.dialect == "postgresql":
            comments = {column["name"]: column["comment"] for column in inspect(connection).get_columns("results")}
            assert "nats a token" in comments["loss_nats"]
        else:
            sql = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'results'")).scalar_one()
            assert "nats a token" in sql


def test_every_view_answers(db):
    with db.read() as connection:
        for name in VIEWS:
            assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() == 0


def test_opening_twice_changes_nothing(url):
    open_database(url).close()
    database = open_database(url)
    assert schema_version_of(database) == SCHEMA_VERSION


def test_a_missing_database_is_refused_where_none_may_be_made(tmp_path):
    with pytest.raises(DbError, match="no such database .*scalewright plan"):
        open_database(tmp_path / "none.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path):
    file = tmp_path / "runs.sqlite"
    file.write_bytes(b"not a database, but precious" * 100)
    with pytest.raises(DbError, match="not a runs database"):
        open_database(file)
    assert file.read_bytes().startswith(b"not a database")


def test_a_database_of_something_else_is_refused(tmp_path):
    other = connect(tmp_path / "other.sqlite", create=True)
    with other.write() as connection:
        connection.execute(text("CREATE TABLE recipes (name TEXT)"))
    with pytest.raises(DbError, match="something else .*recipes"):
        open_database(tmp_path / "other.sqlite")


@pytest.mark.parametrize("address", ["mysql://u@h/x", "postgresql+psycopg://u@/x?host=/no/such/socket", "://"])
def test_an_address_that_leads_nowhere_is_one_line(address):
    with pytest.raises(DbError) as refused:
        open_database(address)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:sesame29@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?user=me&password=sesame29",
        "postgresql://me:sesame29@127.0.0.1:port/x",
        "postgresql://127.0.0.1:port/x?user=me&password=sesame29",
        "postgre sql://me:sesame29@127.0.0.1/x",
        "mysql://me:sesame29@127.0.0.1/x",
    ],
)
def test_no_message_has_the_password_of_an_address(address):
    with pytest.raises(DbError) as refused:
        open_database(address)
    assert "sesame29" not in str(refused.value)


def test_plan_says_where_it_recorded_runs_without_the_password(second_postgresql, tmp_path):
    address = second_postgresql.replace("@", ":sesame29@")
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    command = [sys.executable, "-m", "scalewright", "plan", str(tmp_path / "x.yaml")]
    said = subprocess.run(
        command, env=os.environ | {"SCALEWRIGHT_DB": address}, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0 and ":***@/second" in said.stderr
    assert "sesame29" not in said.stdout + said.stderr


def test_a_newer_database_is_refused_with_the_command_to_run(url):
    database = open_database(url)
    with database.write() as connection:
        connection.execute(text("UPDATE schema_version SET version_num = '9999'"))
    for open_it in (open_database, upgrade.upgrade):
        with pytest.raises(DbError, match="9999 is newer .*run: pip install --upgrade scalewright"):
            open_it(url)


def database_of(golden, version, folder):
    """Make a golden database, and take it to a later version by the migrations in between."""
    import sqlite3

    file = folder / "runs.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript(golden.read_text())
    connection.close()
    database = connect(file)
    with database.write() as connection:
        upgrade.migrate(connection, version)
    assert schema_version_of(database) == version
    database.close()
    return file


@pytest.mark.parametrize(
    ("golden", "version"),
    [(golden, version) for golden in GOLDEN for version in VERSIONS if version >= golden.stem.removeprefix("schema_")],
    ids=lambda given: getattr(given, "stem", given),
)
def test_a_database_of_each_version_upgrades_with_a_backup(golden, version, tmp_path):
    file = database_of(golden, version, tmp_path)
    if version < SCHEMA_VERSION:
        with pytest.raises(DbError, match=f"{version} is older than {SCHEMA_VERSION}; run: scalewright db upgrade"):
            open_database(file)
    receipt = upgrade.upgrade(file)
    assert (receipt.before, receipt.after) == (version, SCHEMA_VERSION)
    if receipt.backup:
        assert schema_version_of(connect(receipt.backup)) == version
    database = open_database(file)
    assert difference(database) == []
    losses = frames.final_losses(database, "demo").set_index("seed")
    assert losses.loc[0, "loss_nats"] == 2.0 and losses.loc[0, "flops"] == 3072 * 3e4
    assert frames.curves(database, [losses.loc[0, "run_id"]])["value"].tolist() == [3.0, 1.5, 1.0]
    assert frames.tags(database, losses.loc[0, "run_id"]) == ["kept"]


def test_the_first_version_is_golden():
    assert GOLDEN[0].stem == f"schema_{VERSIONS[0]}"


def test_an_upgrade_in_steps_ends_where_one_from_nothing_does(url):
    migrate_from_nothing(url, "0001").close()
    with pytest.raises(DbError, match="older"):
        open_database(url)
    assert upgrade.upgrade(url).before == "0001"
    assert upgrade.upgrade(url).before == SCHEMA_VERSION
    assert difference(open_database(url)) == []


def test_the_tables_of_figures_can_be_had_back(url):
    database = migrate_from_nothing(url, "0005")
    with database.write() as connection:
        command.downgrade(upgrade.alembic_config(connection), "0004")
        row = {"id": "a", "kind": "frame"}
        connection.execute(text("INSERT INTO figures VALUES (:id, 'loss', 'demo', 'loss.png', NULL, 0)"), row)
        connection.execute(text("INSERT INTO figure_inputs VALUES (:id, :kind, 'final_losses')"), row)
    assert {change[1].name for change in difference(database) if change[0] == "remove_table"} == {
        "figures",
        "figure_inputs",
    }
    assert upgrade.upgrade(url).before == "0004"
    assert difference(open_database(url)) == []


def test_views_of_an_earlier_version_can_be_read_and_are_made_anew_without_a_new_schema(url):
    database = open_database(url)
    with database.write() as connection:
        connection.execute(text("DROP VIEW all_runs"))
        connection.execute(text("CREATE VIEW all_runs AS SELECT run_id, method, n_params, n_tokens_planned FROM runs"))
        connection.execute(text("CREATE VIEW mine AS SELECT count(*) FROM runs"))
    archive = open_database(url, read_only=True)
    assert "flop_convention" not in frames.runs(archive)
    if database.dialect == "postgresql":  # which would forget the grants of a view that is made anew
        assert "flop_convention" not in frames.runs(open_database(url))
        upgrade.upgrade(url)
    assert "flop_convention" in frames.runs(open_database(url))
    with database.read() as connection:
        assert connection.execute(text("SELECT * FROM mine")).scalar_one() == 0


def test_an_upgrade_that_fails_leaves_the_old_database(url, monkeypatch):
    migrate_from_nothing(url, "0001").close()

    def fail(connection):
        raise RuntimeError("no space left")

    monkeypatch.setattr(upgrade, "create_views", fail)
    with pytest.raises(RuntimeError):
        upgrade.upgrade(url)
    database = connect(url)
    assert schema_version_of(database) == "0001"
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM final_losses")).scalar_one() == 0


def test_events_cannot_be_changed_or_deleted(db):
    with db.write() as connection:
        row = {"run_id": "r", "time": 1.0, "state": "planned", "evidence": "{}"}
        connection.execute(METADATA.tables["events"].insert(), row)
    for statement in ("UPDATE events SET state = 'completed'", "DELETE FROM events"):
        with pytest.raises(DatabaseError, match="events are only added"), db.write() as connection:
            connection.execute(text(statement))


def test_what_a_job_imports_knows_no_database():
    program = (
        "import scalewright.orchestrator.runs.journal, sys;"
        "print([m for m in sys.modules if m.startswith(('scalewright.db', 'sqlalchemy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
