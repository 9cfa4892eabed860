"""Plans, claims, states and fits: each safe to repeat, and only one of several claimants wins."""

import threading

import pytest
from sqlalchemy import text

from scalewright.db import frames, store
from scalewright.db.engine import open_database
from scalewright.db.errors import DbError
from scalewright.db.run_states import STATES


def planned(seed, label="gpt+", **changes):
    model = {"method": "gpt+", "gate": "none", "init": "gpt2", "width": 64, "depth": 2, "heads": 4}
    identity = {
        "model": model | {"vocab_size": 256, "context": 128},
        "data": {"fingerprint": "f"},
        "training": {"n_tokens": 102400, "batch_sequences": 8, "context": 128, "seed": seed, "precision": "fp32"},
        "parent": None,
    }
    numbers = {"n_params_non_embedding": 5000 + seed, "flops_per_token": 3e4}
    named = {"planned": numbers, "size": "tiny", "budget": "20x"} | changes
    return store.PlannedRun(f"{seed:016x}", identity, label, **named)


def test_a_plan_made_twice_adds_nothing(db):
    runs = [planned(seed) for seed in range(3)]
    assert store.record_experiment(db, "demo", "a: 1", runs) == store.PlanReceipt(3, 0)
    assert store.record_experiment(db, "demo", "a: 1", runs) == store.PlanReceipt(0, 3)
    assert len(frames.runs(db)) == 3
    assert frames.experiments(db)["n_revisions"].tolist() == [1]


def test_experiments_share_runs(db):
    store.record_experiment(db, "one", "a: 1", [planned(1), planned(2)])
    receipt = store.record_experiment(db, "two", "a: 2", [planned(2, label="other name"), planned(3)])
    assert receipt == store.PlanReceipt(1, 1)
    assert frames.runs(db, "one")["label"].tolist() == ["gpt+", "gpt+"]
    assert set(frames.runs(db, "two")["label"]) == {"gpt+", "other name"}
    assert frames.memberships(db, planned(2).run_id)["experiment"].tolist() == ["one", "two"]


def test_a_run_that_leaves_the_plan_leaves_the_experiment_but_not_the_database(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1), planned(2)])
    store.record_experiment(db, "demo", "a: 2", [planned(2), planned(3)])
    assert frames.progress(db, "demo")["run_id"].tolist() == [planned(2).run_id, planned(3).run_id]
    assert len(frames.runs(db)) == 3
    store.record_experiment(db, "demo", "a: 1", [planned(1), planned(2)])
    assert frames.final_losses(db, "demo")["run_id"].tolist() == [planned(1).run_id, planned(2).run_id]


def test_a_new_plan_renews_planned_numbers_and_nothing_measured(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    store.set_run_states(db, [(planned(1).run_id, "completed", "done", {})])
    changed = planned(1, planned={"n_params_non_embedding": 7777})
    store.record_experiment(db, "demo", "a: 1", [changed])
    row = frames.runs(db).iloc[0]
    assert (row["n_params"], row["state"]) == (7777, "completed")


def test_a_run_is_claimed_once(db):
    store.record_experiment(db, "demo", "a: 1", [planned(seed) for seed in range(4)])
    ids = [planned(seed).run_id for seed in (2, 0)]
    assert store.claim_runs(db, ids, "s1", executor="local", snapshot=None) == ids
    assert store.claim_runs(db, [*ids, planned(1).run_id], "s2", executor="local", snapshot=None) == [planned(1).run_id]


def test_of_claimants_at_the_same_moment_each_run_has_one(url):
    database = open_database(url)
    store.record_experiment(database, "demo", "a: 1", [planned(seed) for seed in range(40)])
    ids = [planned(seed).run_id for seed in range(40)]
    won, start = {}, threading.Barrier(8)

    def claim(name):
        mine = open_database(url)
        start.wait()
        won[name] = [store.claim_runs(mine, [run_id], name, executor="local", snapshot=None) for run_id in ids]

    threads = [threading.Thread(target=claim, args=(f"s{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claimed = sorted(run_id for claims in won.values() for claim in claims for run_id in claim)
    assert claimed == sorted(ids)


def test_a_submission_queues_what_it_claimed(db, rows_of):
    store.record_experiment(db, "demo", "a: 1", [planned(1), planned(2)])
    ids = [planned(1).run_id, planned(2).run_id]
    store.claim_runs(db, ids, "s1", executor="slurm", snapshot="/snap")
    store.set_run_states(db, [(ids[1], "cancelled", "by its user", {})])
    store.record_submission(db, "s1", [store.SubmittedJob("77_1", ids, job_dir="jobs/s1/p0")])
    assert dict(zip(*frames.runs(db)[["run_id", "state"]].T.to_numpy(), strict=True)) == {
        ids[0]: "queued",
        ids[1]: "cancelled",
    }
    assert rows_of(db, "SELECT submission_id, job_id, job_dir FROM jobs") == [("s1", "77_1", "jobs/s1/p0")]


def test_every_change_of_state_is_an_event_with_its_evidence(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    run_id = planned(1).run_id
    assert store.set_run_states(db, [(run_id, "running", "seen", {"pid": 7})]) == 1
    assert store.set_run_states(db, [(run_id, "running", "seen", {"pid": 8})]) == 0
    assert store.set_run_states(db, [store.StateChange(run_id, "failed", "boom")]) == 1
    events = frames.events(db, run_id)
    assert events["state_before"].tolist() == ["planned", "running"]
    assert events["evidence"].tolist() == ['{"pid":7}', "{}"]
    assert frames.runs(db)["state_reason"].tolist() == ["boom"]


def test_a_run_that_waits_shows_why_it_waits_now(db, rows_of):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    run_id = planned(1).run_id
    store.set_run_states(db, [(run_id, "queued", "Priority", {})])
    since = rows_of(db, "SELECT state_at FROM runs")
    for reason in ("Resources", "", "Priority", "Resources", "ReqNodeNotAvail"):
        assert store.set_run_states(db, [(run_id, "queued", reason, {"look": reason})]) == 0
        assert frames.runs(db)["state_reason"].tolist() == [reason or "Resources"]
    events = frames.events(db, run_id)
    assert events["reason"].tolist() == ["Priority", "Resources", "ReqNodeNotAvail"]  # each once, however often told
    assert events["state_before"].tolist() == ["planned", "queued", "queued"]
    assert rows_of(db, "SELECT state_at FROM runs") == since


def test_a_reason_in_which_only_a_number_grows_is_one_event(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    run_id = planned(1).run_id
    for minutes in range(5, 50):
        store.set_run_states(db, [(run_id, "running", f"no sign of life for {minutes} min", {})])
    assert frames.runs(db)["state_reason"].tolist() == ["no sign of life for 49 min"]
    assert len(frames.events(db, run_id)) == 1
    store.set_run_states(
        db, [(run_id, "interrupted", "node", {}), (run_id, "running", "no sign of life for 5 min", {})]
    )
    assert frames.events(db, run_id)["state"].tolist() == ["running", "interrupted", "running"]  # a new stay


def test_changes_of_one_run_in_one_call_apply_in_their_order(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    run_id = planned(1).run_id
    words = [("queued", "a"), ("queued", "b"), ("running", "c"), ("running", "d"), ("failed", "e")]
    assert store.set_run_states(db, [(run_id, state, reason, {}) for state, reason in words]) == 3
    row = frames.runs(db).iloc[0]
    assert (row["state"], row["state_reason"]) == ("failed", "e")
    assert frames.events(db, run_id)["reason"].tolist() == ["a", "b", "c", "d", "e"]


def test_a_run_with_a_result_never_changes_unless_forced(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    run_id = planned(1).run_id
    store.set_run_states(db, [(run_id, "completed", "", {})])
    assert store.set_run_states(db, [(run_id, "interrupted", "job is gone", {})]) == 0
    assert store.set_run_states(db, [(run_id, "planned", "again", {})], even_terminal=True) == 1


@pytest.mark.parametrize("change", [("f" * 16, "running"), (f"{1:016x}", "flying")])
def test_unknown_runs_and_states_are_refused_and_nothing_moves(db, change):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    with pytest.raises(DbError):
        store.set_run_states(db, [(planned(1).run_id, "running", "", {}), (*change, "", {})])
    assert frames.runs(db)["state"].tolist() == ["planned"] and len(frames.events(db)) == 0


def test_states_are_the_documented_ones():
    life = ("planned", "claimed", "queued", "running", "completed", "diverged")
    trouble = ("interrupted", "failed", "cancelled", "held", "unknown")
    assert set(STATES) == {*life, *trouble}


HOSTILE = ["'; DROP TABLE runs; --", '"quoted"', "näme 名前", "%s %(x)s :y ?", "../../etc/passwd", "{{7*7}}", "x" * 200]


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_names_and_tags_are_only_text(db, word):
    store.record_experiment(db, word, f"name: {word}", [planned(1, label=word, size=word, budget=word)])
    store.add_tag(db, planned(1).run_id, word)
    store.add_note(db, planned(1).run_id, word)
    assert frames.final_losses(db, word)["label"].tolist() == [word]
    assert frames.runs(db, tag=word)["run_id"].tolist() == [planned(1).run_id]
    assert frames.tags(db, planned(1).run_id) == [word]
    assert frames.notes(db, planned(1).run_id)["text"].tolist() == [word]
    store.remove_tag(db, planned(1).run_id, word)
    assert frames.tags(db, planned(1).run_id) == []


@pytest.mark.parametrize("word", ["", "  ", "x" * 201, "bell\a", "two\nlines", "nul\0"])
def test_a_tag_is_a_word_that_can_be_printed(db, word):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    with pytest.raises(DbError, match="is not a tag"):
        store.add_tag(db, planned(1).run_id, word)


def test_the_same_fit_is_stored_once_with_who_entered(db, rows_of):
    record = {"law": "power", "objective": "huber", "objective_value": 0.25, "params": {"E": {"value": 1.5}}}
    ids = {
        store.record_fit(db, record, ["a", "b"], [("c", "diverged")], experiment="demo", label="gpt+") for _ in range(2)
    }
    assert len(ids) == 1
    assert frames.fits(db, "demo")["objective_value"].tolist() == [0.25]
    members = rows_of(db, "SELECT run_id, entered, reason FROM fit_runs ORDER BY run_id")
    assert members == [("a", True, None), ("b", True, None), ("c", False, "diverged")]
    assert store.record_fit(db, record, ["a"], [], experiment="demo", label="gpt+") not in ids


def test_a_transaction_that_fails_leaves_nothing(db):
    with pytest.raises(KeyError):
        store.record_experiment(db, "demo", "a: 1", [planned(1), store.PlannedRun("f" * 16, {"model": {}}, "broken")])
    assert len(frames.experiments(db)) == 0 and len(frames.runs(db)) == 0


def test_a_database_survives_a_fork(db):
    import os

    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    child = os.fork()
    if child == 0:
        ok = len(frames.runs(db)) == 1 and store.set_run_states(db, [(planned(1).run_id, "held", "", {})]) == 1
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert frames.runs(db)["state"].tolist() == ["held"]


def test_a_writer_waits_for_another_instead_of_failing(db):
    store.record_experiment(db, "demo", "a: 1", [planned(1)])
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with db.write() as connection:
            connection.execute(text("UPDATE runs SET state_reason = 'held by the first'"))
            inside.set()
            leave.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(10)
    waiter = threading.Thread(target=store.add_tag, args=(db, planned(1).run_id, "later"))
    waiter.start()
    assert frames.runs(db)["state_reason"].tolist() == [None]
    leave.set()
    holder.join()
    waiter.join()
    assert frames.tags(db, planned(1).run_id) == ["later"]
