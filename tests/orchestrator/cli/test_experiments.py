"""Whole experiments, as a person handles them: what is meant, names, removal, and a lost database that comes back."""

import json
import sqlite3
from pathlib import Path

import pytest
from tiny_study import write_text

from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.spec import RunSpec

YAML = """
experiment: {name}
data: {{corpus: text.txt, tokenizer: bytes, validation: 0.3}}
sizes:
  s: {{width: 32, depth: 1, heads: 1}}
budgets: [{budgets}]
methods: [gpt+]
batch: 2
context: 32
evaluation: {{n_windows: 4}}
"""


@pytest.fixture
def study(tmp_path, monkeypatch, say):
    """Two experiments, `first` with 4k and 8k tokens and `second` with 8k and 16k: one run is in both."""
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    for name, budgets in {"first": "4k, 8k", "second": "8k, 16k"}.items():
        Path(f"{name}.yaml").write_text(YAML.format(name=name, budgets=budgets))
        assert say("plan", f"{name}.yaml")[0] == 0
    return tmp_path


def ids_of(say, *words):
    return {row["run_id"]: row["budget"] for row in json.loads(say("runs", *words, "--json")[1])}


def identity_of(study, run_id):
    with sqlite3.connect(study / "runs.sqlite") as connection:
        found = connection.execute("SELECT spec FROM runs WHERE run_id = ?", [run_id]).fetchone()
    return json.loads(found[0])


def finish(study, run_id):
    """Write the files of a run that ended well, from its row in the database."""
    identity = identity_of(study, run_id)
    spec = RunSpec(identity["model"], identity["data"], identity["training"])
    assert spec.run_id == run_id
    run_dir = study / "runs" / run_id
    run_dir.mkdir(parents=True, exist_ok=True)
    content = {"format": 1, "run_id": run_id, "identity": identity, "settings": {}, "planned": {}}
    (run_dir / "spec.json").write_text(json.dumps(content))
    start = {"run_id": run_id, "token": "t", "resume_step": 0, "resume_tokens": 0, "job": {}, "code": {}}
    with Journal.open(run_dir, start | {"environment": {"device": "cpu", "threads": 1}}) as journal:
        journal.metrics(1, 64, {"loss_nats": 3.0})
        journal.evaluation(1, 64, {"loss_nats": 2.5, "bits_per_byte": 2.9}, n_tokens=9, final=True)
        journal.end("completed", 1, 64, reason="all steps done")
    times = {"bits_per_byte": 2.9, "tokens_per_s": 9.0, "wall_s": 3.0, "train_wall_s": 2.0, "time": 1e9}
    done = {"outcome": "completed", "attempt": 1, "step": 1, "n_tokens": 64, "loss_nats": 2.5}
    (run_dir / "DONE.json").write_text(json.dumps(done | times))


def test_list_tells_runs_and_what_ended(study, say):
    finish(study, next(run_id for run_id, budget in ids_of(say, "first").items() if budget == "4k"))
    say("sync")
    rows = {row["experiment"]: row for row in json.loads(say("experiment", "ls", "--json")[1])}
    assert {name: (row["runs"], row["ended"]) for name, row in rows.items()} == {"first": (2, 1), "second": (2, 0)}


def test_the_same_is_meant_where_nothing_is_named(study, say):
    assert ids_of(say) == ids_of(say, "first") | ids_of(say, "second")  # runs: two experiments, so all of them
    for verb in ("fit", "hyper", "report", "cancel", "design", "forecast"):
        code, _, err = say(verb)
        assert (code, err) == (1, "scalewright: no experiment is named; name one of: first, second\n"), verb
    Path("experiments.yaml").write_text(Path("second.yaml").read_text())
    second = ids_of(say, "second")
    assert ids_of(say) == second and set(second.values()) == {"8k", "16k"}
    assert len(ids_of(say, "--all")) == 3
    assert sum(json.loads(say("status", "--json")[1])["states"].values()) == 2
    assert sum(json.loads(say("status", "--all", "--json")[1])["states"].values()) == 3
    say("cancel")
    assert {row["state"] for row in json.loads(say("runs", "--json")[1])} == {"cancelled"}
    only_in_first = set(ids_of(say, "first")) - set(second)
    states = {row["run_id"]: row["state"] for row in json.loads(say("runs", "--all", "--json")[1])}
    assert {states[run_id] for run_id in only_in_first} == {"planned"}


def test_the_only_experiment_is_meant(tmp_path, monkeypatch, say):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    rows = [f"{n},{20 * n},{2 + 400 / n**0.34 + 400 / (20 * n) ** 0.28}" for n in (10**6, 10**7, 10**8, 10**9)]
    Path("points.csv").write_text("n_params,n_tokens,loss_nats\n" + "\n".join(rows) + "\n")
    assert say("import", "points.csv", "--as", "paper")[0] == 0
    assert "paper" in say("fit", "--law", "power")[1] + say("runs")[1]
    assert say("hyper")[2] == say("hyper", "paper")[2]


def test_rename_takes_everything_along(study, say):
    assert say("experiment", "rename", "first", "pilot")[0] == 0
    assert say("runs", "first")[0] == 1 and len(ids_of(say, "pilot")) == 2
    assert "exists already" in say("experiment", "rename", "pilot", "second")[2]
    code, _, err = say("experiment", "rename", "pilot", "a/b")
    assert code == 1 and len(err.splitlines()) == 1 and "a/b" in err
    Path("runs.sqlite").unlink()
    assert say("db", "rebuild")[0] == 0
    assert [row["experiment"] for row in json.loads(say("experiment", "ls", "--json")[1])] == ["pilot", "second"]


def test_archived_experiments_leave_the_list_and_come_back(study, say):
    assert say("experiment", "archive", "first")[0] == 0
    assert [row["experiment"] for row in json.loads(say("experiment", "ls", "--json")[1])] == ["second"]
    assert len(json.loads(say("experiment", "ls", "--all", "--json")[1])) == 2
    assert len(ids_of(say)) == 2  # the only one left is meant
    assert say("experiment", "rename", "archive/first", "first")[0] == 0
    assert len(json.loads(say("experiment", "ls", "--json")[1])) == 2


def test_removal_keeps_shared_runs_and_says_what_goes(study, say):
    first, second = ids_of(say, "first"), ids_of(say, "second")
    shared = set(first) & set(second)
    alone = (set(first) - shared).pop()
    finish(study, alone)
    say("sync")
    code, out, _ = say("experiment", "rm", "first", "--files")
    assert code == 0 and "1 run shared" in out and "nothing was removed" in out
    assert (study / "runs" / alone).exists() and len(ids_of(say, "first")) == 2
    assert say("experiment", "rm", "first", "--files", "--yes")[0] == 0
    assert not (study / "runs" / alone).exists()
    assert set(ids_of(say, "--all")) == set(second)
    say("sync")
    assert set(ids_of(say, "--all")) == set(second)
    Path("runs.sqlite").unlink()
    say("db", "rebuild")
    assert [row["experiment"] for row in json.loads(say("experiment", "ls", "--json")[1])] == ["second"]


def test_removal_without_files_keeps_runs_with_results(study, say):
    alone = (set(ids_of(say, "first")) - set(ids_of(say, "second"))).pop()
    finish(study, alone)
    say("sync")
    assert say("experiment", "rm", "first", "--yes")[0] == 0
    assert alone in ids_of(say, "--all") and (study / "runs" / alone).exists()


def test_runs_of_an_edited_yaml_are_dropped_on_request(study, say):
    before = set(ids_of(say, "first"))
    Path("first.yaml").write_text(YAML.format(name="first", budgets="8k"))
    assert say("plan", "first.yaml")[0] == 0
    gone = before - set(ids_of(say, "first"))
    assert len(gone) == 1 and gone < set(ids_of(say, "--all"))
    assert say("experiment", "tidy")[1].startswith("1 planned runs belong to no plan")
    assert gone < set(ids_of(say, "--all"))
    assert say("experiment", "tidy", "--yes")[0] == 0
    assert not gone & set(ids_of(say, "--all"))


def test_a_lost_database_comes_back_with_what_people_said(study, say):
    first = ids_of(say, "first")
    done, planned = sorted(first)
    finish(study, done)
    Path("points.csv").write_text("n_params,n_tokens,loss_nats\n1e6,2e7,3.25\n4e6,8e7,2.75\n")
    assert say("import", "points.csv", "--as", "paper")[0] == 0
    say("sync")
    say("tag", done, "best", "wrong")
    say("tag", done, "wrong", "--remove")
    say("note", done, "loss spike: bad node")
    say("cancel", planned)
    before = content_hash(open_database("runs.sqlite"))
    table = json.loads(say("runs", "--all", "--json")[1])
    Path("runs.sqlite").unlink()
    code, _, err = say("runs")
    assert code == 1 and err.endswith("run: scalewright db rebuild\n") and len(err.splitlines()) == 1
    assert say("sync")[0] == 0  # runs come back by it, and nothing else
    code, _, err = say("db", "rebuild")
    assert code == 0 and "stored fits did not" in err
    assert {row["run_id"]: row["state"] for row in json.loads(say("runs", "--all", "--json")[1])} == {
        row["run_id"]: row["state"] for row in table
    }
    page = json.loads(say("show", done, "--json")[1])
    assert page["tags"] == ["best"] and page["notes"][0]["text"] == "loss spike: bad node"
    assert len(json.loads(say("runs", "paper", "--json")[1])) == 2
    assert content_hash(open_database("runs.sqlite")) == before


def test_a_restoration_that_was_killed_is_finished_by_the_next(study, say, monkeypatch):
    from scalewright.orchestrator.sync import sync as syncing

    run_id = sorted(ids_of(say, "first"))[0]
    say("note", run_id, "one")
    say("note", run_id, "two")
    say("tag", run_id, "best")
    Path("runs.sqlite").unlink()
    whole = syncing.restore_words

    def killed(study, db):
        whole(study, db)
        raise KeyboardInterrupt

    monkeypatch.setattr(syncing, "restore_words", killed)
    assert say("db", "rebuild")[0] == 130
    monkeypatch.setattr(syncing, "restore_words", whole)
    (Path("kept") / "plan-0.json.gz").symlink_to("nowhere")
    code, _, err = say("db", "rebuild")
    assert code == 0 and "stored fits did not" in err and "plan-0.json.gz" in err
    page = json.loads(say("show", run_id, "--json")[1])
    assert [note["text"] for note in page["notes"]] == ["one", "two"] and page["tags"] == ["best"]
    assert "stored fits" not in say("db", "rebuild")[2]  # nothing is lost any more


def test_a_broken_kept_file_is_said_and_the_rest_comes_back(study, say):
    plans = sorted(Path("kept").glob("plan-*.json.gz"))
    assert len(plans) == 2
    plans[0].write_bytes(plans[0].read_bytes()[:40])
    Path("runs.sqlite").unlink()
    code, _, err = say("db", "rebuild")
    assert code == 0 and f"not restored: {plans[0].resolve()}: Compressed file ended" in err
    assert len(json.loads(say("experiment", "ls", "--json")[1])) == 1
