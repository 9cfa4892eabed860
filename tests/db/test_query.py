"""SQL that a person types can read and do nothing else, on both databases."""

import pytest
from sqlalchemy import text

from scalewright.db import store
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.db.errors import DbError
from scalewright.db.query import parse_parameters, run_query


@pytest.fixture(scope="module")
def readable(shared_url):
    database = open_database(shared_url)
    run = {"model": {"method": "gpt+", "width": 64}, "data": {}, "training": {}, "parent": None}
    runs = [store.PlannedRun(f"{seed:016x}", run, f"label {seed}") for seed in range(5)]
    store.record_experiment(database, "demo", "a: 1", runs)
    return open_database(shared_url, read_only=True)


WRITES = [
    "DELETE FROM runs",
    "UPDATE runs SET state = 'completed'",
    "INSERT INTO leases VALUES ('x', 'y', 1)",
    "DROP TABLE runs",
    "CREATE TABLE mine (x INTEGER)",
    "CREATE TEMP TABLE mine (x INTEGER)",
    "ALTER TABLE runs ADD COLUMN x INTEGER",
    "SELECT 1; DROP TABLE runs",
    "SELECT 1; COMMIT; DROP TABLE runs",
    "WITH gone AS (DELETE FROM runs RETURNING run_id) SELECT * FROM gone",
    "WITH x AS (SELECT 1) DELETE FROM runs",
    "ATTACH DATABASE '{tmp}/other.sqlite' AS other",
    "VACUUM",
    "VACUUM INTO '{tmp}/copy.sqlite'",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA user_version = 7",
    "SELECT load_extension('{tmp}/evil')",
    "SELECT writefile('{tmp}/written', 'x')",
    "COMMIT",
    "ROLLBACK",
    "BEGIN IMMEDIATE",
    "SAVEPOINT x",
    "REINDEX",
    "ANALYZE",
    "SET default_transaction_read_only = off",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "COPY (SELECT 1) TO PROGRAM 'touch {tmp}/written'",
    "COPY runs TO '{tmp}/written'",
    "SELECT nextval('runs_run_seq')",
    "DO $$ BEGIN DELETE FROM runs; END $$",
    "SELECT 1 INTO mine",
    "SELECT * FROM runs FOR UPDATE",
    "EXECUTE gone",
    "",
    ";",
    "-- nothing",
    "selec run_id from runs",
]


@pytest.mark.parametrize("statement", WRITES)
def test_what_does_not_only_read_is_refused(readable, shared_url, tmp_path, statement):
    before = content_hash(readable)
    files = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(DbError) as refused:
        run_query(readable, statement.replace("{tmp}", str(tmp_path)))
    assert str(refused.value).startswith("query: ") and "\n" not in str(refused.value)
    after = open_database(shared_url)
    assert content_hash(after) == before
    with after.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM runs WHERE state = 'planned'")).scalar_one() == 5
    after.close()
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(("-wal", "-shm"))) == [
        name for name in files if not name.endswith(("-wal", "-shm"))
    ]


def test_a_query_returns_named_columns_with_parameters(readable):
    sql = "SELECT run_id, state FROM runs WHERE run_id > :low AND state = :state ORDER BY run_id;"
    answer = run_query(readable, sql, {"low": f"{2:016x}", "state": "planned"})
    assert answer.columns == ["run_id", "state"] and not answer.is_cut
    assert [row["run_id"] for row in answer.records()] == [f"{3:016x}", f"{4:016x}"]


@pytest.mark.parametrize(("limit", "n_rows", "is_cut"), [(3, 3, True), (5, 5, False), (9, 5, False)])
def test_the_limit_says_when_there_is_more(readable, limit, n_rows, is_cut):
    answer = run_query(readable, "SELECT * FROM runs", limit=limit)
    assert (len(answer.rows), answer.is_cut) == (n_rows, is_cut)


def test_parameters_are_values_and_never_sql(readable):
    evil = "x'; DELETE FROM runs; --"
    assert run_query(readable, "SELECT count(*) AS n FROM runs WHERE run_id = :id", {"id": evil}).rows == [(0,)]


def test_percent_and_colon_in_literals_are_left_alone(readable):
    answer = run_query(readable, "SELECT '50%' AS a, 'at 12:30 :x' AS b, run_id FROM runs WHERE run_id LIKE '%4'")
    assert answer.rows == [("50%", "at 12:30 :x", f"{4:016x}")]


def test_a_missing_parameter_is_one_line(readable):
    with pytest.raises(DbError, match="^query: "):
        run_query(readable, "SELECT * FROM runs WHERE run_id = :nobody")


def test_columns_of_one_name_are_all_returned(readable):
    assert list(run_query(readable, "SELECT 1 AS a, 2 AS a, 3 AS b").records()[0].values()) == [1, 2, 3]


def test_views_common_tables_and_window_functions_work(readable):
    sql = "WITH x AS (SELECT run_id, row_number() OVER (ORDER BY run_id) AS n FROM all_runs) SELECT max(n) FROM x"
    assert run_query(readable, sql).rows == [(5,)]


def test_a_read_only_database_cannot_be_written_by_anyone(readable):
    with pytest.raises(Exception, match="read-?only|readonly"):
        store.add_tag(readable, f"{1:016x}", "x")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [(["a=1", "b=2.5", "c=x=y"], {"a": 1, "b": 2.5, "c": "x=y"}), (["n=1e8"], {"n": 1e8}), ([], {})],
)
def test_parameters_are_read_as_numbers_where_they_are(pairs, expected):
    assert parse_parameters(pairs) == expected


@pytest.mark.parametrize("pair", ["a", "=1", "a b=1", "1=2"])
def test_a_parameter_without_a_name_is_refused(pair):
    with pytest.raises(DbError, match="expected name=value"):
        parse_parameters([pair])


def test_a_question_without_an_end_ends_at_its_time_limit_and_the_next_one_is_answered(readable):
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    with pytest.raises(DbError, match=r"^query: no answer within 0\.3 s; give it more with --time-limit"):
        run_query(readable, endless, limit_s=0.3)
    assert run_query(readable, "SELECT 1 AS a").rows == [(1,)]
    with pytest.raises(DbError, match="interrupted"):
        run_query(readable, "SELECT interrupted FROM runs")  # a column that is not there, no matter of time
