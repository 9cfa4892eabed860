"""What people read: documented columns, sorted rows, real types, and names that say what is wrong."""

import json
import math

import numpy as np
import pytest
from sqlalchemy import text

from scalewright.db import frames, store
from scalewright.db.content import content_hash
from scalewright.db.copying import copy_database
from scalewright.db.engine import open_database
from scalewright.db.errors import DbError
from scalewright.db.maintenance import check, stats
from scalewright.db.schema import METADATA
from scalewright.db.typed import records
from scalewright.db.upgrade import backup
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.sync.export_tables import export_database
from scalewright.orchestrator.sync.sync import sync_database

FINAL_LOSSES = (
    "run_id experiment source method gate label init size budget width depth n_params n_params_total n_params_head "
    "n_tokens unique_tokens flops flops_6n loss_nats bits_per_byte seed lr_peak batch_tokens precision annealed "
    "state diverged holdout tokens_per_s wall_s train_wall_s device threads"
)


@pytest.fixture
def filled(db, folder):
    """Four runs of an experiment: two completed, one diverged, one that still runs."""
    plans = []
    for seed in range(4):
        run_dir = folder.run(seed)
        if seed == 3:
            folder.write(run_dir, range(1, 51))
        else:
            folder.finish(run_dir, range(1, 101), loss=2.0 + seed, outcome="diverged" if seed == 2 else "completed")
        plans.append(run_dir.name)
    import json

    runs = []
    for run_id in plans:
        spec = json.loads((folder.runs_dir / run_id / "spec.json").read_text())
        identity = RunSpec.from_dict(spec["identity"]).to_dict()
        runs.append(
            store.PlannedRun(run_id, identity, "gpt+", spec["planned"], size="tiny", budget="20x", holdout=False)
        )
    store.record_experiment(db, "demo", "name: demo", runs)
    sync_database(db, folder.runs_dir)
    return db, plans


def test_final_losses_has_the_columns_that_fitting_reads(filled):
    frame = frames.final_losses(filled[0], "demo")
    assert set(FINAL_LOSSES.split()) <= set(frame.columns)
    assert frame["seed"].tolist() == [0, 1, 2, 3]
    kinds = {
        name: frame[name].dtype.kind for name in ("loss_nats", "n_params", "annealed", "diverged", "holdout", "seed")
    }
    assert kinds == {"loss_nats": "f", "n_params": "i", "annealed": "b", "diverged": "b", "holdout": "b", "seed": "i"}


def test_flops_are_measured_tokens_times_the_stored_convention(filled):
    row = frames.final_losses(filled[0], "demo").iloc[0]
    assert row["n_tokens"] == 100 * 1024
    assert row["flops"] == 102400 * 3e4 and row["flops_6n"] == 6 * 5000 * 102400


def test_only_ended_runs_have_a_final_loss_and_diverged_ones_are_marked(filled):
    frame = frames.final_losses(filled[0], "demo")
    assert frame["loss_nats"].tolist()[:3] == [2.0, 3.0, 4.0] and math.isnan(frame["loss_nats"].iloc[3])
    assert frame["diverged"].tolist() == [False, False, True, False]
    assert frame["state"].tolist() == ["completed", "completed", "diverged", "running"]


def test_progress_says_how_far_and_how_long(filled):
    frame = frames.progress(filled[0], "demo").set_index("state")
    row = frame.loc["running"]
    assert (row["step"], row["n_tokens"], row["n_tokens_planned"]) == (50, 51200, 102400)
    assert row["left_s"] == 51200 / 100.0 and row["train_loss_nats"] == 10.0 / 50
    assert frame.loc["diverged", "left_s"] == 0


def test_cost_and_waste_count_what_was_done_twice(filled, folder, rows_of):
    database, ids = filled
    folder.write(folder.runs_dir / ids[3], range(31, 41), resume_step=30)
    sync_database(database, folder.runs_dir)
    assert rows_of(database, "SELECT run_id, tokens_lost FROM waste") == [(ids[3], 20 * 1024)]
    assert rows_of(database, "SELECT wall_s, flops FROM cost WHERE run_id = :r", r=ids[0]) == [(2.0, 102400 * 3e4)]


def test_curves_are_sorted_and_carry_tokens(filled):
    database, ids = filled
    frame = frames.curves(database, [ids[1], ids[0]])
    assert frame["run_id"].tolist() == sorted(ids[:2] * 100)
    one = frame[frame["run_id"] == ids[0]]
    np.testing.assert_array_equal(one["step"], np.arange(1, 101))
    np.testing.assert_array_equal(one["n_tokens"], np.arange(1, 101) * 1024)
    assert frame["n_tokens"].dtype == np.int64
    np.testing.assert_array_equal(one["value"], 10.0 / np.arange(1, 101))


def test_a_condition_means_the_same_in_both_kinds_of_database(filled):
    for condition in ("n_params < 'a'", "method < 3", "run_id > 0"):
        with pytest.raises(DbError, match="compares text with a number"):
            frames.runs(filled[0], where=condition)
    assert len(frames.runs(filled[0], where="not diverged and n_params > 1 and method != 'x' and annealed == True"))


def test_a_curve_of_nothing_is_empty_with_its_columns(filled):
    frame = frames.curves(filled[0], [])
    assert frame.columns.tolist() == ["run_id", "step", "n_tokens", "value"] and len(frame) == 0


def test_unknown_names_say_which_there_are(filled):
    database, _ = filled
    for ask, message in (
        (lambda: frames.final_losses(database, "dmeo"), "no experiment 'dmeo' .*demo"),
        (lambda: frames.curves(database, [], "los_nats"), "no metric 'los_nats' .*did you mean loss_nats"),
        (lambda: frames.runs(database, sort=["-los_nats"]), "no column 'los_nats'; did you mean loss_nats"),
        (lambda: frames.runs(database, where="sede == 1"), "no column 'sede'; did you mean seed"),
        (lambda: frames.run_record(database, "f" * 16), "no such run"),
    ):
        with pytest.raises(DbError, match=message):
            ask()


def test_runs_filter_sort_and_limit(filled):
    database, _ = filled
    frame = frames.runs(database, "demo", where="loss > 2 and tokens > 1e5", sort=["-loss_nats"], state="completed")
    assert frame["loss_nats"].tolist() == [3.0]
    assert frames.runs(database, method="angpt").empty
    assert frames.runs(database, sort=["-loss_nats"], limit=2)["loss_nats"].tolist() == [4.0, 3.0]
    assert '"method":"gpt+"' in frames.runs(database, with_spec=True)["spec"].iloc[0]


def test_attempts_carry_code_and_environment(filled):
    database, ids = filled
    row = frames.attempts(database, [ids[0]]).iloc[0]
    assert (row["attempt"], row["outcome"], row["code_commit"], row["device"], row["threads"]) == (
        *(1, "completed", "abc", "cpu", 1),
    )
    assert len(frames.attempts(database, experiment="demo")) == 4


def test_evaluations_carry_their_tokens(filled):
    database, ids = filled
    row = frames.evaluations(database, [ids[0]]).iloc[0]
    assert (row["split"], row["step"], row["n_tokens"], row["loss_nats"]) == ("validation", 100, 102400, 2.0)
    assert (bool(row["final"]), bool(row["annealed"]), row["n_tokens_evaluated"]) == (True, True, 4096)


def test_a_run_of_two_experiments_has_the_names_of_the_newer_one(db, folder):
    run_dir = folder.run(seed=1)
    folder.finish(run_dir, [1, 2])
    sync_database(db, folder.runs_dir)
    spec = RunSpec(**json.loads((run_dir / "spec.json").read_text())["identity"])
    for name, label in (("old", "first"), ("new", "second")):
        run = store.PlannedRun(spec.run_id, spec.to_dict(), label, planned={}, size="tiny", budget="20x")
        store.record_experiment(db, name, f"name: {name}", [run])
    [row] = frames.runs(db).to_dict("records")
    assert (row["experiment"], row["label"]) == ("new", "second")
    [row] = frames.runs(db, "old").to_dict("records")
    assert (row["experiment"], row["label"]) == ("old", "first")


def test_evaluations_and_attempts_of_an_experiment_are_those_of_its_plan_now(db, folder):
    """Runs of an older revision stay in the database; nothing of them enters what is read of the experiment."""
    left, stays = folder.run(seed=1), folder.run(seed=2)
    folder.finish(left, [1, 2])
    folder.finish(stays, [1, 2])
    sync_database(db, folder.runs_dir)

    def planned(seed):
        spec = RunSpec(**json.loads((folder.run(seed) / "spec.json").read_text())["identity"])
        return store.PlannedRun(spec.run_id, spec.to_dict(), "gpt+", planned={}, size="tiny", budget="20x")

    store.record_experiment(db, "demo", "a: 1", [planned(1), planned(2)])
    store.record_experiment(db, "demo", "a: 2", [planned(2)])
    assert set(frames.evaluations(db)["run_id"]) == {left.name, stays.name}
    for read in (frames.evaluations, frames.attempts):
        assert set(read(db, experiment="demo")["run_id"]) == {stays.name}


def test_a_prefix_of_four_digits_names_a_run(filled):
    database, ids = filled
    assert frames.resolve_run(database, ids[0][:4].upper()) == ids[0]
    for wrong, message in (
        (ids[0][:3], "not the id of a run"),
        ("zzzz", "not the id of a run"),
        ("x' OR", "not the id"),
    ):
        with pytest.raises(DbError, match=message):
            frames.resolve_run(database, wrong)
    absent = next(f"{n:04x}" for n in range(65536) if not any(run_id.startswith(f"{n:04x}") for run_id in ids))
    with pytest.raises(DbError, match=f"no run begins with {absent}"):
        frames.resolve_run(database, absent)


def test_an_ambiguous_prefix_lists_the_candidates(db):
    identity = {"model": {"method": "gpt+"}, "data": {}, "training": {}, "parent": None}
    ids = ["abcd000000000001", "abcd000000000002"]
    store.record_experiment(db, "demo", "a: 1", [store.PlannedRun(run_id, identity, "x") for run_id in ids])
    with pytest.raises(DbError, match=f"beginning of several runs: {ids[0]}, {ids[1]}"):
        frames.resolve_run(db, "abcd")


def test_records_are_python_values(filled):
    row = records(frames.runs(filled[0], state="running"))[0]
    assert row["parent_run_id"] is None and math.isnan(row["loss_nats"]) and type(row["width"]) is int
    assert (row["state"], row["experiment"]) == ("running", "demo")


def test_a_copy_has_the_same_content_in_either_direction(filled, tmp_path, second_postgresql):
    database, ids = filled
    store.add_tag(database, ids[0], "kept")
    store.add_note(database, ids[0], "a note")
    targets = [str(tmp_path / "copy.sqlite"), second_postgresql]
    for target in map(open_database, targets):
        counts = copy_database(database, target)
        assert counts["runs"] == 4 and counts["metrics"] == 700 and counts["tags"] == 1
        assert content_hash(target) == content_hash(database)
        assert frames.final_losses(target, "demo").equals(frames.final_losses(database, "demo"))
        assert frames.tags(target, ids[0]) == ["kept"]
        store.add_note(target, ids[0], "one more: numbers go on after the copied ones")
        assert len(frames.notes(target, ids[0])) == 2
        with pytest.raises(DbError, match="not empty"):
            copy_database(database, target)


def test_a_database_of_either_kind_is_exported_into_one_file(filled, tmp_path):
    database, _ = filled
    said = export_database(database, tmp_path / "all.sqlite")
    assert database.name in said and content_hash(open_database(tmp_path / "all.sqlite")) == content_hash(database)
    with pytest.raises(UserError, match="all.sqlite: exists already; name another file$"):
        export_database(database, tmp_path / "all.sqlite")


def test_content_differs_when_one_value_does(filled):
    from sqlalchemy import text

    database, _ = filled
    before = content_hash(database)
    with database.write() as connection:
        connection.execute(text("UPDATE metrics SET value = value + 1e-9 WHERE step = 7 AND run = 1 AND key = 1"))
    assert content_hash(database) != before


def test_a_backup_is_a_database_of_its_own(filled, tmp_path):
    database, _ = filled
    if database.dialect == "postgresql":
        with pytest.raises(DbError, match="pg_dump"):
            backup(database)
        return
    made = backup(database)
    assert content_hash(open_database(made)) == content_hash(database)
    assert backup(database) != made
    with pytest.raises(DbError, match="exists already"):
        backup(database, made)


def test_check_finds_nothing_wrong_with_a_sound_database_and_stats_count_it(filled):
    database, _ = filled
    assert all(finding.is_good for finding in check(database))
    listed = {row["table"]: row["n_rows"] for row in stats(database)}
    assert listed["metrics"] == 700 and listed["runs"] == 4 and stats(database)[-1]["bytes"] > 0


def test_check_finds_a_damaged_file(tmp_path, folder):
    folder.write(folder.run(), range(1, 2001))
    file = tmp_path / "runs.sqlite"
    database = open_database(file)
    sync_database(database, folder.runs_dir)
    content = bytearray(file.read_bytes())
    place = max(
        number for number in range(0, len(content), 4096) if content[number] == 0x0A and number > len(content) // 3
    )
    content[place + 8 : place + 200] = b"\xff" * 192  # 0x0A: a leaf of a table that is clustered by its key
    file.write_bytes(content)
    assert not all(finding.is_good for finding in check(open_database(file)))


def test_what_is_planned_of_a_run_reaches_its_row_and_the_views_by_the_table_alone(db):
    """Each planned column gets a value of its own; rows and views are made from the table, so none is left out."""
    columns = {c.name: c.info for c in METADATA.tables["runs"].c if "planned" in c.info}
    plan = {info["planned"]: float(n) for n, info in enumerate(columns.values(), 1)}
    model = {"method": "gpt+", "width": 64, "depth": 2, "heads": 4, "vocab_size": 256, "context": 128}
    identity = RunSpec(model, {"fingerprint": "f"}, {"n_tokens": 10, "batch_sequences": 1, "context": 128}).to_dict()
    store.record_experiment(db, "demo", "name: demo", [store.PlannedRun("0" * 16, identity, "gpt+", plan)])
    expected = {name: float(plan[info["planned"]]) for name, info in columns.items() if name != "flop_convention"}
    with db.read() as connection:
        row = connection.execute(text("SELECT * FROM all_runs")).mappings().one()
        losses = connection.execute(text("SELECT * FROM final_losses")).mappings().one()
    assert {name: float(row[name]) for name in expected} == expected
    fitted = {name for name, info in columns.items() if info["fitted"]}
    assert {"n_params", "unique_tokens"} < fitted and {name: float(losses[name]) for name in fitted} == {
        name: expected[name] for name in fitted
    }
