"""What stands in a run directory and makes no sense is recorded and passed: lines, specs, results, other files."""

import json
import os

import pytest

from scalewright.db import frames
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.sync import rebuild, sync, sync_database

BAD_LINES = [
    b"not json",
    b"{}",
    b"[]",
    b"null",
    b'{"type":"what"}',
    b'{"type":["metrics"]}',
    b'{"type":"metrics","step":1.5,"values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":-1,"values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":true,"values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":99999999999999999999999,"values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":7,"values":{"loss_nats":null}}',
    b'{"type":"metrics","step":7,"values":{"loss_nats":"low"}}',
    b'{"type":"metrics","step":7,"values":{"loss_nats":true}}',
    b'{"type":"metrics","step":7,"values":[1]}',
    b'{"type":"metrics","step":7,"values":{"bell\\u0007":1.0}}',
    b'{"type":"metrics","step":7,"values":{"":1.0}}',
    b'{"type":"layers","step":7,"values":{"a":1.0}}',
    b'{"type":"evaluation","step":7,"split":"","values":{}}',
    b'{"type":"end","step":7,"outcome":"glorious"}',
    b'{"type":"start","run_id":"x","resume_step":0}',
    b'{"type":"end","step":7,"tokens":5}',
    b'{"type":"end","step":7,"outcome":{}}',
    b'{"type":"end","step":7,"outcome":"failed","error":7}',
    b'{"type":"end","step":"x","outcome":"failed"}',
    b'{"type":"metrics","step":7,"tokens":"many","values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":7,"tokens":-5,"values":{"loss_nats":1.0}}',
    b'{"type":"metrics","step":7,"time":"noon","values":{"loss_nats":1.0}}',
    b'{"type":"evaluation","step":7,"tokens":{},"values":{"loss_nats":1.0}}',
    b'{"type":"heartbeat","step":7,"tokens":true}',
    b'{"type":"metrics","step":7,"values":{"a":' + b"[" * 5000 + b"}}",
    b"\xff\xfe\x00",
    b'{"type":"metrics","step":7',
]


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_recorded_and_passed(db, folder, rows_of, values_of, bad):
    run_dir = folder.run()
    path = folder.write(run_dir, [1, 2]).path
    at = path.stat().st_size
    with path.open("ab") as file:
        file.write(bad + b"\n" + folder.line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 0.5}))
    assert sync_database(db, folder.runs_dir).n_errors == 1
    assert sorted(values_of(db, run_dir.name)) == [1, 2, 3]
    errors = rows_of(db, 'SELECT run_id, file, "offset", message, excerpt FROM ingest_errors')
    assert [error[:3] for error in errors] == [(run_dir.name, "journal.a1.jsonl", at)]
    assert errors[0][3] and errors[0][4].isprintable()


def test_rubbish_behind_the_end_of_a_finished_run_is_recorded_by_the_next_sync(url, folder, rows_of, values_of):
    study, run_dir = Study.at(folder.root, database=url), folder.run()
    folder.finish(run_dir, [1, 2])
    sync(study)
    path = run_dir / "journal.a1.jsonl"
    at = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"garbage\n" + folder.line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 0.5}))
    assert sync(study).n_errors == 1 and sync(study).n_lines == 0
    database = open_database(url)
    assert rows_of(database, 'SELECT file, "offset" FROM ingest_errors') == [("journal.a1.jsonl", at)]
    assert values_of(database, run_dir.name) == {1: 10.0, 2: 5.0, 3: 0.5}
    assert frames.runs(database)[["state", "loss_nats"]].to_numpy().tolist() == [["completed", 2.0]]
    before = content_hash(database)
    rebuild(study)
    assert content_hash(database) == before


def test_an_attempt_that_begins_after_the_end_of_a_run_is_read_too(url, folder, values_of):
    study, run_dir = Study.at(folder.root, database=url), folder.run()
    folder.finish(run_dir, [1, 2])
    sync(study)
    folder.write(run_dir, [3], resume_step=2)
    assert sync(study).n_lines == 2 and sync(study).n_lines == 0
    database = open_database(url)
    assert sorted(values_of(database, run_dir.name)) == [1, 2, 3]
    before = content_hash(database)
    rebuild(study)
    assert content_hash(database) == before


def test_half_a_line_behind_the_end_of_a_finished_run_costs_no_transaction(db, folder):
    run_dir = folder.run()
    folder.finish(run_dir, [1, 2])
    sync_database(db, folder.runs_dir)
    with (run_dir / "journal.a1.jsonl").open("ab") as file:
        file.write(b"half a li")
    assert sync_database(db, folder.runs_dir).n_runs == 0
    with (run_dir / "journal.a1.jsonl").open("ab") as file:
        file.write(b"ne\n")
    assert sync_database(db, folder.runs_dir).n_errors == 1


def test_zero_bytes_before_a_record_do_not_cost_the_record(db, folder, values_of):
    run_dir = folder.run()
    path = folder.write(run_dir, [1]).path
    with path.open("ab") as file:
        file.write(b"\0" * 4096 + folder.line(type="metrics", step=2, tokens=1, time=1.0, values={"loss_nats": 0.5}))
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert values_of(db, run_dir.name) == {1: 10.0, 2: 0.5}


@pytest.mark.parametrize("job", ["text", [], 7])
def test_a_start_record_of_wrong_types_costs_what_it_says_and_not_the_attempt(db, folder, rows_of, values_of, job):
    run_dir = folder.run()
    path = folder.write(run_dir, [1, 2]).path
    start, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(json.dumps(json.loads(start) | {"job": job}).encode() + b"\n" + b"".join(rest))
    assert sync_database(db, folder.runs_dir).n_errors == 1
    assert sorted(values_of(db, run_dir.name)) == [1, 2]
    assert frames.runs(db)["state"].tolist() == ["running"]


def test_a_journal_of_another_run_is_not_believed_even_in_part(db, folder, rows_of, values_of):
    mine, other = folder.run(seed=1), folder.run(seed=2)
    folder.write(mine, [1, 2])
    folder.finish(other, [5, 6, 7])
    sync_database(db, folder.runs_dir)
    (mine / "journal.a1.jsonl").write_bytes((other / "journal.a1.jsonl").read_bytes())
    assert sync_database(db, folder.runs_dir).n_errors == 1
    assert sorted(values_of(db, mine.name)) == [1, 2]
    errors = rows_of(db, "SELECT run_id, file, message FROM ingest_errors")
    assert errors == [(mine.name, "journal.a1.jsonl", "the journal of another run: nothing of it counts")]
    assert sync_database(db, folder.runs_dir).n_lines == 0


def test_a_journal_that_became_shorter_is_read_again_and_costs_nothing_known(db, folder, values_of):
    """Else what is written behind its new end would be missed until it is as long as it was."""
    run_dir = folder.run()
    path = folder.write(run_dir, range(1, 21)).path
    sync_database(db, folder.runs_dir)
    with path.open("r+b") as file:
        file.truncate(len(b"".join(path.read_bytes().splitlines(keepends=True)[:11])))
    with path.open("ab") as file:
        file.write(folder.line(type="metrics", step=21, tokens=1, time=1.0, values={"loss_nats": 0.5}))
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == {**{step: 10.0 / step for step in range(1, 21)}, 21: 0.5}
    path.unlink()
    assert sync_database(db, folder.runs_dir).n_runs == 0 and len(values_of(db, run_dir.name)) == 21


def test_files_that_are_no_files_and_folders_that_are_none_stop_nobody(db, folder, rows_of):
    good, pipe, lies = folder.run(seed=1), folder.run(seed=2), folder.run(seed=3)
    folder.write(good, [1])
    sync_database(db, folder.runs_dir)
    os.mkfifo(pipe / "DONE.json")
    (lies / "spec.json").unlink()
    lies.rmdir()
    lies.write_text("not a folder")
    folder.finish(good, [2], resume_step=1)
    sync_database(db, folder.runs_dir)
    states = dict(rows_of(db, "SELECT run_id, state FROM runs"))
    assert states == {good.name: "completed", pipe.name: "unknown", lies.name: "planned"}
    assert {row[0] for row in rows_of(db, "SELECT file FROM ingest_errors")} == {"DONE.json", lies.name}


def test_an_absurdly_long_line_is_passed_without_holding_it_in_memory(db, folder, rows_of, values_of, monkeypatch):
    from scalewright.orchestrator.sync import sync as module

    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(module, "LONGEST_LINE", 5000)
    run_dir = folder.run()
    path = folder.write(run_dir, range(1, 41)).path
    with path.open("ab") as file:
        file.write(b"x" * 50_000)
    sync_database(db, folder.runs_dir)
    with path.open("ab") as file:
        file.write(b"\n" + folder.line(type="metrics", step=41, tokens=1, time=1.0, values={"loss_nats": 0.5}))
    sync_database(db, folder.runs_dir)
    assert sorted(values_of(db, run_dir.name)) == list(range(1, 42))
    assert rows_of(db, "SELECT message FROM ingest_errors") == [("a line of 50001 bytes",)]
    before = content_hash(db)
    assert rebuild(Study.at(folder.root, database=db.url.render_as_string(False))).n_errors == 1
    assert content_hash(db) == before


def test_a_directory_cannot_pass_for_another_run(db, folder, rows_of):
    run_dir = folder.run(seed=1)
    run_dir.rename(run_dir.with_name("0" * 16))
    folder.write(folder.runs_dir / ("0" * 16), [1])
    sync_database(db, folder.runs_dir)
    assert len(frames.runs(db)) == 0
    assert rows_of(db, "SELECT run_id, file FROM ingest_errors") == [("0" * 16, "spec.json")]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"identity": {}}', '{"identity": {"model": 1}}', "\0" * 99]
)
def test_an_unusable_spec_is_recorded(db, folder, rows_of, content):
    run_dir = folder.run()
    (run_dir / "spec.json").write_text(content)
    sync_database(db, folder.runs_dir)
    assert rows_of(db, "SELECT file FROM ingest_errors") == [("spec.json",)]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"outcome": "won"}', '{"outcome": ["completed"]}'])
def test_an_unusable_done_is_recorded_and_gives_no_result(db, folder, rows_of, content):
    run_dir = folder.run()
    folder.write(run_dir, [1])
    (run_dir / "DONE.json").write_text(content)
    for _ in range(2):
        sync_database(db, folder.runs_dir)
        assert frames.runs(db)["state"].tolist() == ["unknown"]
    (reason,) = rows_of(db, "SELECT state_reason FROM runs")[0]
    assert reason.startswith(f"runs/{run_dir.name}/DONE.json: ")
    assert rows_of(db, "SELECT file FROM ingest_errors") == [("DONE.json",)]
    assert len(frames.events(db, run_dir.name)) == 2  # running, then unknown: not told again by every sync
    folder.finish(run_dir, [2], resume_step=1)
    sync_database(db, folder.runs_dir)
    assert frames.runs(db)["state"].tolist() == ["completed"]


def test_hostile_values_in_done_do_no_harm(db, folder):
    run_dir = folder.run()
    folder.write(run_dir, [1])
    content = {"outcome": "completed", "loss_nats": "'; DROP TABLE runs; --", "wall_s": 1e999, "step": 2**80}
    (run_dir / "DONE.json").write_text(json.dumps(content | {"attempt": [1], "reason": {"a": "\0"}}))
    sync_database(db, folder.runs_dir)
    assert len(frames.runs(db)) == 1


def test_other_files_and_folders_are_left_alone(db, folder):
    run_dir = folder.run()
    (run_dir / "journal.a01.jsonl").write_text("{}")
    (run_dir / "journal.a1.jsonl.bak").write_text("{}")
    (folder.runs_dir / "notes.txt").write_text("mine")
    (folder.runs_dir / ("g" * 16)).mkdir()
    assert sync_database(db, folder.runs_dir).n_lines == 0


def test_sync_without_a_folder_of_runs_is_nothing_to_do(db, tmp_path):
    assert sync_database(db, tmp_path / "none").n_runs == 0
