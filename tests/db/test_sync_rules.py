"""What sync makes of journals: one value a step, results, states, and the same again after a rebuild."""

import math
import time

import pytest

from scalewright.db import frames, store
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.sync import rebuild, sync, sync_database


def test_a_resumed_run_has_one_value_a_step_and_the_newest_one(db, folder, rows_of, values_of):
    run_dir = folder.run()
    folder.write(run_dir, range(1, 31), loss=lambda step: 1.0)
    sync_database(db, folder.runs_dir)
    folder.write(run_dir, range(21, 26), resume_step=20, loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    values = values_of(db, run_dir.name)
    assert values == {**dict.fromkeys(range(1, 21), 1.0), **dict.fromkeys(range(21, 26), 2.0)}
    waste = rows_of(db, "SELECT attempt, tokens_lost FROM waste")
    assert waste == [(1, 10 * 1024)]


def test_an_attempt_that_starts_from_nothing_also_speaks_for_step_0(db, folder, values_of):
    run_dir = folder.run()
    folder.write(run_dir, [0, 1], loss=lambda step: 1.0)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == {0: 1.0, 1: 1.0}
    folder.write(run_dir, [0], loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == {0: 2.0}


def test_a_late_older_journal_leaves_what_the_next_attempt_measured_at_its_beginning(db, folder):
    """An attempt may measure again at the step it resumed from; an older journal that comes in later is no reason."""
    run_dir = folder.run()
    folder.write(run_dir, [1, 2])
    late = folder.journal(run_dir, resume_step=2)
    late.metrics(3, 3072, {"loss_nats": 3.0})
    late.close()
    put_off = late.path.read_bytes()
    late.path.write_bytes(b"")
    with folder.journal(run_dir, resume_step=5) as newest:
        newest.evaluation(5, 5120, {"loss_nats": 5.0}, n_tokens=10)
    sync_database(db, folder.runs_dir)
    late.path.write_bytes(put_off)
    sync_database(db, folder.runs_dir)
    assert frames.evaluations(db, [run_dir.name])[["step", "attempt"]].to_numpy().tolist() == [[5, 3]]


def test_what_a_zombie_writes_after_it_was_replaced_is_dropped(db, folder, values_of):
    run_dir = folder.run()
    zombie = folder.journal(run_dir)
    zombie.metrics(1, 1024, {"loss_nats": 1.0})
    folder.write(run_dir, [2, 3], resume_step=1, loss=lambda step: 2.0)
    sync_database(db, folder.runs_dir)
    for step in (2, 3, 4, 5):
        zombie.metrics(step, step * 1024, {"loss_nats": 9.0})
    zombie.close()
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == {1: 1.0, 2: 2.0, 3: 2.0}


def test_clocks_that_jump_do_no_harm(db, folder, values_of, monkeypatch):
    run_dir = folder.run()
    ticks = iter([1e9, 5e8, 4e9, 1.0, -7.0, 2e9, 3e9])
    monkeypatch.setattr("scalewright.orchestrator.runs.journal.time.time", lambda: next(ticks))
    folder.write(run_dir, range(1, 6))
    monkeypatch.undo()
    sync_database(db, folder.runs_dir)
    assert sorted(values_of(db, run_dir.name)) == [1, 2, 3, 4, 5]
    attempt = frames.attempts(db, [run_dir.name]).iloc[0]
    assert attempt["wall_s"] >= 0 and attempt["last_step"] == 5


def test_nan_and_infinities_arrive_as_they_are(db, folder, rows_of, values_of):
    run_dir = folder.run()
    with folder.journal(run_dir) as journal:
        for step, value in enumerate([math.nan, math.inf, -math.inf, 1e-310, -0.0], 1):
            journal.metrics(step, step, {"loss_nats": value})
        journal.layers(9, 9, {"norm": [1.0, math.nan, math.inf]})
    sync_database(db, folder.runs_dir)
    found = frames.curves(db, [run_dir.name])["value"].tolist()
    assert math.isnan(found[0]) and found[1:] == [math.inf, -math.inf, 1e-310, -0.0]
    assert values_of(db, run_dir.name)[1] is None
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
        (["failed", "preempted", "failed"], "failed"),  # at the same token
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


@pytest.mark.parametrize("attempt", [2, 1], ids=["next attempt", "late lines"])
def test_what_is_written_of_a_run_that_has_ended_is_noticed(db, folder, values_of, attempt):
    """A person's retry starts attempt 2; a full file system lets go of the last lines of attempt 1 late."""
    run_dir = folder.run()
    folder.finish(run_dir, [1, 2])
    sync_database(db, folder.runs_dir)
    assert frames.runs(db)["n_attempts"].tolist() == [1]
    if attempt == 2:
        folder.write(run_dir, [3], resume_step=2)
    else:
        with (run_dir / "journal.a1.jsonl").open("ab") as journal:
            journal.write(folder.line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 1.0}))
    sync_database(db, folder.runs_dir)
    assert sorted(values_of(db, run_dir.name)) == [1, 2, 3]
    assert frames.runs(db)["n_attempts"].tolist() == [attempt]


def test_heartbeats_show_that_a_run_lives(db, folder, monkeypatch):
    run_dir = folder.run()
    journal = folder.journal(run_dir)
    journal.heartbeat(1, 1024)
    monkeypatch.setattr("scalewright.orchestrator.runs.journal.HEARTBEAT_S", 0.0)
    journal.heartbeat(2, 2048)
    journal.close()
    sync_database(db, folder.runs_dir)
    progress = frames.runs(db).iloc[0]
    assert progress["step"] == 2 and abs(progress["last_seen_at"] - time.time()) < 60


def test_the_write_ahead_log_of_a_long_sync_stays_short(tmp_path, folder, monkeypatch):
    from scalewright.orchestrator.sync import sync as module

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
