"""What sync makes of journals: nothing lost, nothing doubled, whatever the order, the cuts and the rubbish between."""

import json
import math
import time

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db import frames, store
from db.content import content_hash
from db.engine import open_database
from orchestrator.journal import journal_path
from orchestrator.study import Study
from orchestrator.sync import rebuild, sync, sync_database

RULE = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = iter(range(10**6, 10**9))


def line(**record):
    return orjson.dumps(record) + b"\n"


def start_line(run_id, attempt, resume_step):
    job = {"run_id": run_id, "attempt": attempt, "token": "t", "time": 1.0, "host": "h", "pid": 1, "job": {}}
    return line(type="start", **job, resume_step=resume_step, resume_tokens=resume_step * 1024, code={}, environment={})


def values_of(database, run_id, rows_of, metric="loss_nats"):
    rows = rows_of(database, "SELECT step, value FROM curves WHERE run_id = :r AND metric = :m", r=run_id, m=metric)
    assert len(rows) == len({step for step, _ in rows})
    return dict(rows)


attempts_of_a_run = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 6), max_size=8)), min_size=1, max_size=4
)
rubbish = st.sampled_from(
    [b"", b"{", b"garbage\n", b"\0\0\0\0", b'{"type":"metrics","step":-1}\n', b"[1]\n", b"\xff\xfe\n"]
)


def journals(run_id, attempts, noise):
    """Make the bytes of each attempt's journal and what they say: attempt -> (resume_step, [(step, value)])."""
    contents, said = {}, {}
    for number, (resume_step, leaps) in enumerate(attempts, 1):
        content, logged, step = start_line(run_id, number, resume_step), [], resume_step
        for leap in leaps:
            step += leap  # 0: the same step once more
            value = float(number * 1000 + step + len(logged) / 100)
            logged.append((step, value))
            if noise and not noise.startswith(b"{"):
                content += noise
            content += line(type="metrics", step=step, tokens=step * 1024, time=1.0, values={"loss_nats": value})
            content += line(
                type="evaluation", step=step, tokens=1, time=1.0, split="validation", values={"loss_nats": value}
            )
        contents[number], said[number] = content, (resume_step, logged)
    return contents, said


def expected(said):
    """Say by the rule in words: a step belongs to the newest attempt that started before it."""
    truth = {}
    for step in range(200):
        owners = [n for n, (resume, _) in said.items() if resume < step or (resume == 0 and step == 0)]
        if owners:
            logged = dict(said[max(owners)][1])
            if step in logged:
                truth[step] = logged[step]
    return truth


def expected_evaluations(said):
    """An attempt may also measure again at the step that it resumed from; the newest attempt's counts."""
    truth = {}
    for number in sorted(said):
        resume, logged = said[number]
        truth = {step: value for step, value in truth.items() if step <= resume}
        truth |= {step: value for step, value in logged if step >= resume}
    return truth


@given(attempts=attempts_of_a_run, noise=rubbish, data=st.data())
@RULE
def test_any_order_and_any_cut_give_what_the_rule_says(db, folder, rows_of, attempts, noise, data):
    run_dir = folder.run(seed=next(SEEDS))
    contents, said = journals(run_dir.name, attempts, noise)
    delivered = dict.fromkeys(contents, 0)
    while any(delivered[n] < len(contents[n]) for n in contents):
        number = data.draw(st.sampled_from([n for n in contents if delivered[n] < len(contents[n])]))
        until = data.draw(st.integers(delivered[number] + 1, len(contents[number])))
        with journal_path(run_dir, number).open("ab") as file:
            file.write(contents[number][delivered[number] : until])
        delivered[number] = until
        if data.draw(st.booleans()):
            sync_database(db, folder.runs_dir)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name, rows_of) == expected(said)
    found = frames.evaluations(db, [run_dir.name])
    assert dict(zip(found["step"], found["loss_nats"], strict=True)) == expected_evaluations(said)


@given(attempts=attempts_of_a_run)
@settings(RULE, max_examples=10)
def test_a_rebuilt_database_has_the_same_content(url, folder, attempts):
    run_dir = folder.run(seed=next(SEEDS))
    contents, _ = journals(run_dir.name, attempts, b"garbage\n")
    study = Study.at(folder.root, database=url)
    for number in sorted(contents, reverse=True):
        journal_path(run_dir, number).write_bytes(contents[number])
        sync(study)
    before = content_hash(open_database(url))
    assert rebuild(study).n_errors >= sum(len(leaps) for _, leaps in attempts)
    assert content_hash(open_database(url)) == before


def test_syncing_again_changes_nothing(db, folder, rows_of):
    run_dir = folder.run()
    folder.finish(run_dir, range(1, 21))
    assert sync_database(db, folder.runs_dir).n_rows == 40
    before = content_hash(db)
    again = sync_database(db, folder.runs_dir)
    assert (again.n_lines, again.n_changes, content_hash(db)) == (0, 0, before)


def test_a_journal_read_twice_from_its_beginning_is_not_doubled(db, folder, rows_of):
    from sqlalchemy import text

    run_dir = folder.run()
    folder.write(run_dir, range(1, 21))
    sync_database(db, folder.runs_dir)
    before = values_of(db, run_dir.name, rows_of)
    with db.write() as connection:
        connection.execute(text("DELETE FROM ingested_files"))
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name, rows_of) == before


def test_only_new_bytes_are_read(db, folder):
    run_dir = folder.run()
    journal = folder.journal(run_dir)
    for step in range(1, 101):
        journal.metrics(step, step * 1024, {"loss_nats": 1.0})
        if step % 50 == 0:
            assert sync_database(db, folder.runs_dir).n_lines == (51 if step == 50 else 50)
    journal.close()


def test_a_torn_last_line_is_waited_for(db, folder, rows_of):
    run_dir = folder.run()
    path = folder.write(run_dir, [1, 2]).path
    whole = line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 0.5})
    with path.open("ab") as file:
        file.write(whole[:-10])
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert sorted(values_of(db, run_dir.name, rows_of)) == [1, 2]
    with path.open("ab") as file:
        file.write(whole[-10:])
    assert sync_database(db, folder.runs_dir).n_lines == 1
    assert values_of(db, run_dir.name, rows_of)[3] == 0.5


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
    b'{"type":"metrics","step":7,"values":{"a":' + b"[" * 5000 + b"}}",
    b"\xff\xfe\x00",
    b'{"type":"metrics","step":7',
]


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_recorded_and_passed(db, folder, rows_of, bad):
    run_dir = folder.run()
    path = folder.write(run_dir, [1, 2]).path
    at = path.stat().st_size
    with path.open("ab") as file:
        file.write(bad + b"\n" + line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 0.5}))
    assert sync_database(db, folder.runs_dir).n_errors == 1
    assert sorted(values_of(db, run_dir.name, rows_of)) == [1, 2, 3]
    errors = rows_of(db, 'SELECT run_id, file, "offset", message, excerpt FROM ingest_errors')
    assert [error[:3] for error in errors] == [(run_dir.name, "journal.a1.jsonl", at)]
    assert errors[0][3] and errors[0][4].isprintable()


def test_zero_bytes_before_a_record_do_not_cost_the_record(db, folder, rows_of):
    run_dir = folder.run()
    path = folder.write(run_dir, [1]).path
    with path.open("ab") as file:
        file.write(b"\0" * 4096 + line(type="metrics", step=2, tokens=1, time=1.0, values={"loss_nats": 0.5}))
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert values_of(db, run_dir.name, rows_of) == {1: 10.0, 2: 0.5}


def test_an_absurdly_long_line_is_passed_without_holding_it_in_memory(db, folder, rows_of, monkeypatch):
    from orchestrator import sync as module

    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(module, "LONGEST_LINE", 5000)
    run_dir = folder.run()
    path = folder.write(run_dir, range(1, 41)).path
    with path.open("ab") as file:
        file.write(b"x" * 50_000)
    sync_database(db, folder.runs_dir)
    with path.open("ab") as file:
        file.write(b"\n" + line(type="metrics", step=41, tokens=1, time=1.0, values={"loss_nats": 0.5}))
    sync_database(db, folder.runs_dir)
    assert sorted(values_of(db, run_dir.name, rows_of)) == list(range(1, 42))
    assert rows_of(db, "SELECT message FROM ingest_errors") == [("a line of 50001 bytes",)]
    before = content_hash(db)
    assert rebuild(Study.at(folder.root, database=db.url.render_as_string(False))).n_errors == 1
    assert content_hash(db) == before


def test_a_resumed_run_has_one_value_a_step_and_the_newest_one(db, folder, rows_of):
    run_dir = folder.run()
    folder.write(run_dir, range(1, 31), loss=lambda step: 1.0)
    sync_database(db, folder.runs_dir)
    folder.write(run_dir, range(21, 26), resume_step=20, loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    values = values_of(db, run_dir.name, rows_of)
    assert values == {**dict.fromkeys(range(1, 21), 1.0), **dict.fromkeys(range(21, 26), 2.0)}
    waste = rows_of(db, "SELECT attempt, tokens_lost FROM waste")
    assert waste == [(1, 10 * 1024)]


def test_an_attempt_that_starts_from_nothing_also_speaks_for_step_0(db, folder, rows_of):
    run_dir = folder.run()
    folder.write(run_dir, [0, 1], loss=lambda step: 1.0)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name, rows_of) == {0: 1.0, 1: 1.0}
    folder.write(run_dir, [0], loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name, rows_of) == {0: 2.0}


def test_what_a_zombie_writes_after_it_was_replaced_is_dropped(db, folder, rows_of):
    run_dir = folder.run()
    zombie = folder.journal(run_dir)
    zombie.metrics(1, 1024, {"loss_nats": 1.0})
    folder.write(run_dir, [2, 3], resume_step=1, loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    for step in (2, 3, 4, 5):
        zombie.metrics(step, step * 1024, {"loss_nats": 9.0})
    zombie.close()
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name, rows_of) == {1: 1.0, 2: 2.0, 3: 2.0}


def test_clocks_that_jump_do_no_harm(db, folder, rows_of, monkeypatch):
    run_dir = folder.run()
    ticks = iter([1e9, 5e8, 4e9, 1.0, -7.0, 2e9, 3e9])
    monkeypatch.setattr("orchestrator.journal.time.time", lambda: next(ticks))
    folder.write(run_dir, range(1, 6))
    monkeypatch.undo()
    sync_database(db, folder.runs_dir)
    assert sorted(values_of(db, run_dir.name, rows_of)) == [1, 2, 3, 4, 5]
    attempt = frames.attempts(db, [run_dir.name]).iloc[0]
    assert attempt["wall_s"] >= 0 and attempt["last_step"] == 5


def test_nan_and_infinities_arrive_as_they_are(db, folder, rows_of):
    run_dir = folder.run()
    with folder.journal(run_dir) as journal:
        for step, value in enumerate([math.nan, math.inf, -math.inf, 1e-310, -0.0], 1):
            journal.metrics(step, step, {"loss_nats": value})
        journal.layers(9, 9, {"norm": [1.0, math.nan, math.inf]})
    sync_database(db, folder.runs_dir)
    found = frames.curves(db, [run_dir.name])["value"].tolist()
    assert math.isnan(found[0]) and found[1:] == [math.inf, -math.inf, 1e-310, -0.0]
    assert values_of(db, run_dir.name, rows_of)[1] is None
    assert rows_of(db, "SELECT layer, value FROM layer_curves ORDER BY layer")[::2] == [(0, 1.0), (2, math.inf)]


def test_the_final_loss_is_that_of_done_and_annealed_that_of_its_evaluation(db, folder):
    run_dir = folder.run()
    folder.finish(run_dir, range(1, 101), loss=2.25)
    sync_database(db, folder.runs_dir)
    row = frames.runs(db).iloc[0]
    assert (row["state"], row["loss_nats"], row["annealed"], row["n_tokens"]) == ("completed", 2.25, True, 102400)
    assert (row["tokens_per_s"], row["wall_s"], row["train_wall_s"], row["device"]) == (100.0, 2.0, 1.5, "cpu")


def test_a_run_without_result_has_no_final_loss(db, folder):
    run_dir = folder.run()
    with folder.journal(run_dir) as journal:
        journal.evaluation(50, 51200, {"loss_nats": 3.0, "bits_per_byte": 4.0}, n_tokens=10)
    sync_database(db, folder.runs_dir)
    row = frames.runs(db).iloc[0]
    assert math.isnan(row["loss_nats"]) and row["validation_loss_nats"] == 3.0


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([None], "running"),
        (["stopped"], "interrupted"),
        (["preempted"], "interrupted"),
        (["preempted", None], "running"),
        (["failed"], "interrupted"),
        (["failed", "failed"], "failed"),
        (["failed", "preempted", "failed"], "interrupted"),
        (["fenced", None], "running"),
    ],
)
def test_states_follow_from_the_last_words_of_attempts(db, folder, ends, state):
    run_dir = folder.run()
    for outcome in ends:
        with folder.journal(run_dir) as journal:
            journal.metrics(1, 1024, {"loss_nats": 1.0})
            if outcome:
                journal.end(outcome, 1, 1024, reason="time", error="boom" if outcome == "failed" else None)
        sync_database(db, folder.runs_dir)
    assert frames.runs(db)["state"].tolist() == [state]
    assert frames.events(db, run_dir.name)["state"].tolist()[-1] == state


@pytest.mark.parametrize("state", ["cancelled", "held"])
def test_a_persons_word_stands_until_there_is_a_result(db, folder, state):
    run_dir = folder.run()
    folder.write(run_dir, [1])
    sync_database(db, folder.runs_dir)
    store.set_run_states(db, [(run_dir.name, state, "by its user", {})])
    folder.write(run_dir, [2], resume_step=1)
    sync_database(db, folder.runs_dir)
    assert frames.runs(db)["state"].tolist() == [state]
    folder.finish(run_dir, [2, 3], resume_step=1)
    sync_database(db, folder.runs_dir)
    assert frames.runs(db)["state"].tolist() == ["completed"]


def test_a_diverged_run_is_data(db, folder):
    run_dir = folder.run()
    folder.finish(run_dir, [1, 2], loss=9.0, outcome="diverged")
    sync_database(db, folder.runs_dir)
    row = frames.runs(db).iloc[0]
    assert (row["state"], row["diverged"], row["loss_nats"]) == ("diverged", True, 9.0)


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
    sync_database(db, folder.runs_dir)
    assert frames.runs(db)["state"].tolist() == ["running"]
    assert rows_of(db, "SELECT file FROM ingest_errors") == [("DONE.json",)]


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


def test_plans_tags_fits_and_states_survive_a_rebuild(url, folder):
    database = open_database(url)
    run_dir = folder.run()
    folder.finish(run_dir, range(1, 11))
    study = Study.at(folder.root, database=url)
    sync(study)
    store.add_tag(database, run_dir.name, "kept")
    store.record_fit(database, {"law": "power"}, [run_dir.name])
    n_events = len(frames.events(database))
    rebuild(study)
    assert frames.tags(database, run_dir.name) == ["kept"]
    assert len(frames.fits(database)) == 1 and len(frames.events(database)) == n_events


def test_a_lost_database_comes_back_from_the_journals(tmp_path, folder):
    for seed in range(3):
        folder.finish(folder.run(seed), range(1, 11))
    file = folder.root / "runs.sqlite"
    sync(Study.at(folder.root))
    before = content_hash(open_database(file))
    file.unlink()
    sync(Study.at(folder.root))
    assert content_hash(open_database(file)) == before
    file.write_bytes(b"SQLite format 3\0 but broken" * 500)
    rebuild(Study.at(folder.root))
    assert content_hash(open_database(file)) == before
    assert len(list(folder.root.glob("broken.runs.*"))) == 1


def test_heartbeats_show_that_a_run_lives(db, folder, monkeypatch):
    run_dir = folder.run()
    journal = folder.journal(run_dir)
    journal.heartbeat(1, 1024)
    monkeypatch.setattr("orchestrator.journal.HEARTBEAT_S", 0.0)
    journal.heartbeat(2, 2048)
    journal.close()
    sync_database(db, folder.runs_dir)
    progress = frames.runs(db).iloc[0]
    assert progress["step"] == 2 and abs(progress["last_seen_at"] - time.time()) < 60


def test_the_write_ahead_log_of_a_long_sync_stays_short(tmp_path, folder, monkeypatch):
    from orchestrator import sync as module

    monkeypatch.setattr(module, "LONGEST_LOG", 200_000)
    monkeypatch.setattr(module, "FLUSH_ROWS", 2000)
    monkeypatch.setattr(module, "CHUNK_BYTES", 100_000)
    sizes, log = [], tmp_path / "runs.sqlite-wal"
    flush = module.flush
    monkeypatch.setattr(module, "flush", lambda *a: (flush(*a), sizes.append(log.stat().st_size)))
    folder.write(folder.run(), range(1, 20_001))
    database = open_database(tmp_path / "runs.sqlite")
    sync_database(database, folder.runs_dir)
    assert len(sizes) > 10 and max(sizes) < 400_000 and (tmp_path / "runs.sqlite").stat().st_size > 800_000
