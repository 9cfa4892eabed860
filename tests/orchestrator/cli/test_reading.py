"""The reading verbs, as a person types them: answers on stdout, talk on stderr, exit codes by class."""

import json
import os
import pty
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from scalewright.db import store
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.sync import sync

PLANNED = {"n_params_non_embedding": 5000, "n_params_total": 9000, "flops_per_token": 3e4, "n_steps": 10}


def spec_of(seed):
    model = {"method": "gpt+", "gate": "none", "width": 64, "depth": 2, "heads": 4, "vocab_size": 256, "context": 128}
    training = {"n_tokens": 10240, "batch_sequences": 8, "context": 128, "seed": seed, "precision": "fp32"}
    optimizer = {"name": "adamw", "lr_peak": 0.01 * (seed + 1)}
    return RunSpec(model, {"fingerprint": "f"}, training | {"optimizer": optimizer, "schedule": {"name": "cosine"}})


@pytest.fixture
def ids(tmp_path, monkeypatch):
    """A study in the current folder with two completed runs of one experiment; returns their ids."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    planned = []
    for seed in range(2):
        spec = spec_of(seed)
        run_dir = tmp_path / "runs" / spec.run_id
        run_dir.mkdir(parents=True)
        content = {"format": 1, "run_id": spec.run_id, "identity": spec.to_dict(), "settings": {}, "planned": PLANNED}
        (run_dir / "spec.json").write_text(json.dumps(content))
        start = {"run_id": spec.run_id, "token": "t", "resume_step": 0, "resume_tokens": 0, "job": {}, "code": {}}
        with Journal.open(run_dir, start | {"environment": {"device": "cpu", "threads": 1}}) as journal:
            for step in range(1, 11):
                journal.metrics(step, step * 1024, {"loss_nats": 10 / step, "grad_norm": 1.0})
            journal.evaluation(10, 10240, {"loss_nats": 2.0 + seed, "bits_per_byte": 2.9}, n_tokens=9, final=True)
            journal.end("completed", 10, 10240, reason="all steps done")
        done = {"outcome": "completed", "attempt": 1, "step": 10, "n_tokens": 10240, "loss_nats": 2.0 + seed}
        (run_dir / "DONE.json").write_text(json.dumps(done | {"bits_per_byte": 2.9, "wall_s": 3.0}))
        planned.append(store.PlannedRun(spec.run_id, spec.to_dict(), f"gpt+ {seed}", PLANNED, size="tiny", budget="2x"))
    store.record_experiment(open_database("runs.sqlite"), "demo", "name: demo", planned)
    sync(Study.at(tmp_path))
    return [run.run_id for run in planned]


def test_runs_lists_what_fits(ids, say):
    code, out, _ = say("runs")
    assert code == 0 and all(run_id in out for run_id in ids)
    code, out, _ = say("runs", "demo", "--where", "loss > 2.5 and tokens > 1e4", "--json")
    assert code == 0 and [row["run_id"] for row in json.loads(out)] == [ids[1]]
    code, out, _ = say("runs", "--sort", "-loss_nats", "--columns", "run_id,loss", "--csv")
    assert out == f"run_id,loss_nats\n{ids[1]},3.0\n{ids[0]},2.0\n"
    assert say("runs", "--state", "failed")[1:] == ("", "no run fits\n")


def test_runs_go_to_parquet(ids, say, tmp_path):
    import pandas as pd

    assert say("runs", "demo", "--parquet", "out")[0] == 0
    assert sorted(pd.read_parquet(tmp_path / "out.parquet")["run_id"]) == sorted(ids)


def test_show_puts_a_run_on_a_page(ids, say):
    code, out, _ = say("show", ids[0][:6])
    assert code == 0
    for part in (ids[0], "demo", "completed", "optimizer.lr_peak", "attempt 1", "2 nats a token", "loss_nats", "●"):
        assert part in out
    page = json.loads(say("show", ids[0], "--json")[1])
    assert page["spec"]["training"]["seed"] == 0 and page["attempts"][0]["outcome"] == "completed"


def test_curve_plots_or_prints(ids, say):
    code, out, _ = say("curve", *ids, "--metric", "grad_norm")
    assert code == 0 and "grad_norm" in out and all(run_id in out for run_id in ids)
    rows = say("curve", ids[0][:8], "--csv")[1].splitlines()
    assert rows[0] == "run_id,step,n_tokens,value" and rows[1] == f"{ids[0]},1,1024,10.0" and len(rows) == 11
    assert "did you mean grad_norm" in say("curve", ids[0], "--metric", "grad_nrm")[2]


def test_diff_shows_what_differs_and_nothing_else(ids, say):
    rows = json.loads(say("diff", *ids, "--json")[1])
    assert [row["what"] for row in rows] == ["training.optimizer.lr_peak", "training.seed", "result.loss_nats"]
    assert say("diff", ids[0], ids[0])[1:] == ("", "nothing differs\n")


def test_query_reads_with_parameters_and_says_when_it_stops(ids, say):
    sql = "SELECT run_id FROM final_losses WHERE loss_nats > :low ORDER BY run_id"
    assert json.loads(say("query", sql, "--param", "low=2.5", "--json")[1]) == [{"run_id": ids[1]}]
    code, out, err = say("query", "SELECT * FROM curves", "--limit", "3", "--csv")
    assert code == 0 and len(out.splitlines()) == 4 and "only the first 3 rows" in err
    assert say("query", "SELECT run_id, spec FROM runs WHERE 1 = 0", "--csv")[1] == "run_id,spec\n"
    code, out, err = say("query", "DROP TABLE runs")
    assert (code, out) == (1, "") and err.startswith("scalewright: query: it may only read")


def test_export_writes_what_others_can_refit(ids, say, tmp_path):
    import pandas as pd

    lines = partial(pd.read_json, lines=True)
    for name, read in (("p.csv", pd.read_csv), ("p.parquet", pd.read_parquet), ("p.jsonl", lines)):
        assert say("export", name, "--of", "demo")[0] == 0
        assert read(tmp_path / name)["loss_nats"].tolist() == [2.0, 3.0]
    assert say("export", "all.sqlite")[0] == 0
    assert content_hash(open_database(tmp_path / "all.sqlite")) == content_hash(open_database(tmp_path / "runs.sqlite"))
    code, _, err = say("export", "p.xlsx")
    assert code == 1 and "endings: .csv, .parquet, .jsonl" in err
    assert sorted(path.name for path in tmp_path.glob(".*unfinished*")) == []


def test_a_copy_never_replaces_a_file(ids, say, tmp_path):
    (tmp_path / "all.sqlite").write_text("precious")
    code, out, err = say("export", "all.sqlite")
    assert (code, out) == (1, "") and "all.sqlite: exists already; name another file" in err
    assert (tmp_path / "all.sqlite").read_text() == "precious"


def test_what_was_exported_can_be_imported_as_it_is(ids, say, tmp_path):
    assert say("export", "points.csv", "--of", "demo")[0] == 0
    assert say("import", "points.csv", "--as", "again")[::2] == (0, "")
    losses = [
        json.loads(say("runs", name, "--json", "--columns", "loss", "--sort", "loss")[1]) for name in ("demo", "again")
    ]
    assert losses[0] == losses[1] != []


def test_tags_and_notes(ids, say):
    assert say("tag", ids[0][:5], "best", "for paper")[1] == f"{ids[0]}: best, for paper\n"
    assert [row["run_id"] for row in json.loads(say("runs", "--tag", "best", "--json")[1])] == [ids[0]]
    assert say("tag", ids[0], "best", "--remove")[1] == f"{ids[0]}: for paper\n"
    assert say("note", ids[0], "bad node")[0] == 0
    assert "bad node" in say("show", ids[0])[1]


def test_import_and_its_refusals(ids, say, tmp_path):
    (tmp_path / "points.csv").write_text("N,D,L\n1000,2000,3.0\nx,1,1\n")
    code, out, err = say("import", "points.csv", "--as", "theirs", "--columns", "n_params=N,n_tokens=D,loss=L")
    assert code == 3 and "1 new run," in out and "line 3: N is 'x', expected a number" in err
    assert [row["label"] for row in json.loads(say("runs", "theirs", "--json")[1])] == ["imported"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "abc"), "is not the id of a run"),
        (("show", "ffff0000"), "no run begins with ffff0000"),
        (("runs", "dmeo"), "no experiment 'dmeo' (experiments: demo)"),
        (("runs", "none.yaml"), "no such file"),
        (("runs", "--method", "gtp+"), "no run of method 'gtp+' (methods here: gpt+)"),
        (("runs", "--state", "done"), "no state 'done' (states: planned, claimed"),
        (("runs", "--where", "n_parms < 3"), "did you mean n_params"),
        (("runs", "--columns", "los"), "no column 'los'"),
        (("query", "SELECT colour"), "query: no such column: colour"),
        (("query", "SELECT 1", "-p", "x"), "expected name=value"),
        (("query", "SELECT :a, :b", "-p", "a=1"), "no value for :b (give it with --param b=...)"),
        (("import", "none.csv", "--as", "x"), "none.csv: no such file"),
        (("db", "copy", "mysql://x"), "not a kind of database"),
        (("db", "upgrade", "none.sqlite"), "no such database"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_1(ids, say, words, message):
    code, out, err = say(*words)
    assert (code, out) == (1, "") and message in err and err.startswith("scalewright: ") and err.count("\n") == 1


def test_a_folder_without_a_study_says_how_one_is_made(tmp_path, monkeypatch, say):
    monkeypatch.chdir(tmp_path)
    for verb in ("runs", "query"):
        code, _, err = say(verb, *(["SELECT 1"] if verb == "query" else []))
        assert code == 1 and "scalewright plan" in err
    assert list(tmp_path.iterdir()) == []


def test_what_jobs_and_people_named_cannot_steer_the_terminal(ids, say):
    store.add_note(open_database("runs.sqlite"), ids[0], "evil \x1b[2J\x1b]0;title\x07 note")
    identity = {"model": {"method": "\x1b[31mred"}, "data": {}, "training": {}, "parent": None}
    store.record_experiment(open_database("runs.sqlite"), "odd", "x", [store.PlannedRun("ab" * 8, identity, "\x1b[5m")])
    for words in (("show", ids[0]), ("runs", "odd"), ("query", "SELECT method FROM runs"), ("show", "abab")):
        assert "\x1b[31m" not in say(*words)[1].replace("\x1b[1m", "") and "\x07" not in say(*words)[1]


def test_db_verbs_look_after_the_database(ids, say, tmp_path):
    before = content_hash(open_database("runs.sqlite"))
    code, out, _ = say("db", "check")
    assert code == 0 and "integrity" in out
    assert {row["table"]: row["n_rows"] for row in json.loads(say("db", "stats", "--json")[1])}["metrics"] == 40
    assert say("db", "upgrade")[1].startswith("schema is ")
    assert say("db", "rebuild")[0] == 0
    assert say("db", "copy", tmp_path / "other.sqlite")[0] == 0
    made = say("db", "backup", "--to", "monday.sqlite")[1].strip()
    for file in ("runs.sqlite", "other.sqlite", made):
        assert content_hash(open_database(file)) == before
    assert say("db", "check", tmp_path / "monday.sqlite")[0] == 0


def test_two_formats_at_once_are_refused(ids, say):
    for words in (("runs",), ("curve", ids[0]), ("query", "SELECT 1")):
        code, out, err = say(*words, "--json", "--csv")
        assert (code, out) == (2, "") and "exclude each other" in err


@pytest.mark.parametrize("verb", [("runs",), ("db", "upgrade"), ("db", "check"), ("db", "stats"), ("db", "backup")])
def test_a_file_that_is_no_database_is_told_in_one_line(ids, say, tmp_path, monkeypatch, verb):
    (tmp_path / "text.sqlite").write_text("CREATE TABLE runs; " * 500)
    monkeypatch.setenv("SCALEWRIGHT_DB", str(tmp_path / "text.sqlite"))
    code, out, err = say(*verb)
    assert (code, out, err.count("\n")) == (1, "", 1) and "not a runs database" in err


def test_a_damaged_database_is_told_and_rebuilt(ids, say, tmp_path):
    before = content_hash(open_database("runs.sqlite"))
    (tmp_path / "runs.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    code, _, err = say("runs")
    assert code == 1 and "runs.sqlite" in err
    assert say("db", "rebuild")[0] == 0
    assert content_hash(open_database("runs.sqlite")) == before


def test_an_old_database_names_the_command_that_works(ids, say, tmp_path):
    (tmp_path / "runs.sqlite").unlink()
    with sqlite3.connect("runs.sqlite") as connection:
        connection.executescript((Path(__file__).parents[2] / "db" / "golden" / "schema_0001.sql").read_text())
    connection.close()
    code, _, err = say("runs")
    command = err.strip().partition("run: scalewright ")[2]
    assert code == 1 and command.startswith("db upgrade ")
    assert say(*command.split())[0] == 0
    assert say("runs")[0] == 0


def test_sync_says_what_it_did_and_another_at_work_is_partial(ids, say):
    from scalewright.db import lease

    code, out, _ = say("sync")
    assert code == 0 and out.startswith("0 metric rows of 0 lines")
    assert json.loads(say("sync", "--json")[1])["n_errors"] == 0
    database = open_database("runs.sqlite")
    lease.acquire(database, lease.Owner(host="elsewhere"))
    from scalewright.orchestrator.cli import reading

    reading.SYNC_WAIT_S = 0.1
    code, _, err = say("sync")
    assert code == 3 and "another sync is at work" in err
    lease.release(database, lease.Owner(host="elsewhere"))


def on_a_terminal(*words):
    """Run the command with a terminal for its stdout; return what the terminal got."""
    ours, its = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "scalewright", *words], stdout=its, check=False)
    os.close(its)
    assert done.returncode == 0
    try:
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)


def test_csv_on_a_terminal_shows_no_control_character_and_a_file_has_what_was_stored(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    (tmp_path / "points.csv").write_text("label,n_params,n_tokens,loss\n\x1b[31mred\x07,1e6,2e7,3.25\n")
    assert say("import", "points.csv", "--as", "paper")[0] == 0
    for verb in (["runs", "--columns", "label"], ["query", "select label from experiment_runs"]):
        assert say(*verb, "--csv")[1] == "label\n\x1b[31mred\x07\n"
        assert on_a_terminal(*verb, "--csv").split() == ["label", "\ufffd[31mred\ufffd"]
