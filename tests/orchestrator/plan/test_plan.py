"""Points -> runs -> bill, with a made-up data manifest and a real database."""

import json
import time
from dataclasses import dataclass

import pytest

from scalewright.models.count import flops_per_token, n_params
from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.config.load import read_experiment
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.plan.bill import bill, price
from scalewright.orchestrator.plan.earlier_runs import Known, read_known
from scalewright.orchestrator.plan.make import plan, record, study_of
from scalewright.orchestrator.plan.runs import plan_runs
from scalewright.orchestrator.study import Study


@dataclass(frozen=True)
class Split:
    n_tokens: int

    def n_windows(self, context: int) -> int:
        return self.n_tokens // context


@dataclass(frozen=True)
class Data:
    """A manifest that holds only what planning reads."""

    vocab_size: int = 256
    train: Split = Split(26_000_000)
    validation: Split = Split(430_000)

    def identity(self):
        return {"fingerprint": "f" * 16, "tokenizer": "t" * 16, "vocab_size": self.vocab_size}


GRID = """\
experiment: p
sizes:
  small: { width: 32, depth: 2, heads: 2 }
  middle: { width: 48, depth: 2, heads: 3 }
  large: { width: 64, depth: 3, heads: 4 }
budgets: [0.3M, 0.6M, 1.2M]
methods: [gpt+, angpt]
batch: 4
context: 128
lr: { gpt+: 0.02, angpt: 0.01 }
"""


def runs_of(added: str = "", base: str = GRID, data: Data | None = None):
    return plan_runs(read_experiment(base + added), data or Data())


def warnings_of(added: str = "", base: str = GRID):
    experiment = read_experiment(base + added)
    return price(experiment, plan_runs(experiment, Data()), states={}, measured={}).warnings


def plain_shape(run) -> ModelSpec:
    """The shape of a run with the method that budgets and rates count by."""
    plain = {"method": "pre-ln", "method_options": {}, "init": None, "init_options": {}}
    return ModelSpec.from_dict(run.spec.model | plain)


def test_every_point_is_a_run_and_the_cheapest_comes_first():
    runs = runs_of()
    assert len(runs) == len({run.run_id for run in runs}) == 18
    assert [run.planned["flops_total"] for run in runs] == sorted(run.planned["flops_total"] for run in runs)
    assert runs[0].size == "small"


def test_a_budget_is_rounded_up_to_whole_steps():
    for run in runs_of():
        tokens = run.spec.training["n_tokens"]
        assert tokens % (4 * 128) == 0
        assert 0 <= tokens - float(run.budget[:-1]) * 1e6 < 4 * 128
        assert run.planned["n_steps"] == tokens // 512 == run.spec.n_steps


def test_tokens_per_parameter_are_equal_for_every_method_of_a_size():
    for run in runs_of(base=GRID.replace("0.3M, 0.6M, 1.2M", "20x")):
        wanted = 20 * n_params(plain_shape(run), "non-embedding")
        assert 0 <= run.spec.training["n_tokens"] - wanted < 512


def test_a_budget_in_flops_buys_that_many_of_the_plain_shape():
    for run in runs_of(base=GRID.replace("0.3M, 0.6M, 1.2M", "1e12 FLOPs")):
        per_token = flops_per_token(plain_shape(run))
        assert 0 <= run.spec.training["n_tokens"] * per_token - 1e12 < 512 * per_token


def test_the_rate_is_resolved_by_method_and_kept_with_the_name_of_its_rule():
    for run in runs_of():
        assert run.spec.training["optimizer"]["lr_peak"] == {"gpt+": 0.02, "angpt": 0.01}[run.label]
        assert run.settings["lr_rule"] == "table"


def test_a_rate_of_the_grid_wins_and_a_factor_multiplies_it():
    found = {
        run.spec.training["optimizer"]["lr_peak"] for run in runs_of("grid:\n  - { lr: [0.1, 0.2], lr_factor: 2 }\n")
    }
    assert found == {0.2, 0.4}


def test_the_counts_are_those_of_the_model():
    for run in runs_of():
        spec = ModelSpec.from_dict(run.spec.model)
        assert run.planned["n_params_total"] == n_params(spec, "total")
        assert run.planned["n_params_non_embedding"] == n_params(spec, "non-embedding")
        assert run.planned["n_params_embedding"] == run.planned["n_params_head"] == 256 * spec.width
        assert run.planned["flops_total"] == flops_per_token(spec) * run.spec.training["n_tokens"]


def test_evaluations_are_set_at_whole_steps_inside_the_run():
    added = "evaluation: { at: [50%, 100%, 3 steps], every: 100k tokens }\n"
    for run in runs_of(added):
        n_tokens = run.spec.training["n_tokens"]
        times = run.settings["evaluate_at"]
        assert times == sorted(set(times))
        assert all(0 < tokens < n_tokens and tokens % 512 == 0 for tokens in times)
        assert 3 * 512 in times


def test_an_override_of_an_option_is_in_the_model_and_in_the_label():
    runs = runs_of("grid:\n  - { method: angpt, size: small, budget: 0.3M, options.alpha_init: [0.01, 0.05] }\n")
    assert [run.label for run in runs] == ["angpt (alpha_init=0.01)", "angpt (alpha_init=0.05)"]
    assert [run.spec.model["method_options"]["alpha_init"] for run in runs] == [0.01, 0.05]


def test_an_option_that_no_method_has_is_located_in_the_grid():
    with pytest.raises(
        UserError, match=r"experiments.yaml:11: grid: gpt\+ at size small: unknown option of method gpt\+"
    ):
        runs_of("grid:\n  - { options.alpha_init: 0.01 }\n")


def test_a_rate_that_the_table_lacks_is_located():
    with pytest.raises(UserError, match="experiments.yaml:10: lr: the table has no rate for method angpt, size small"):
        runs_of(base=GRID.replace(", angpt: 0.01", ""))


def test_points_that_round_to_the_same_run_are_merged_and_said():
    text = GRID.replace("0.3M, 0.6M, 1.2M", "0.3M, 300.001k, 1.2M")
    assert len(runs_of(base=text)) == 12
    assert any("6 points of the grid merged: equal to another one" in line for line in warnings_of(base=text))


def test_the_same_run_in_two_experiments_has_one_identity():
    ours = {run.run_id for run in runs_of()}
    narrow = GRID.replace("experiment: p", "experiment: other").replace(
        "methods: [gpt+, angpt]", "methods: {mine: angpt}"
    )
    theirs = {run.run_id for run in runs_of(base=narrow.replace("{ gpt+: 0.02, angpt: 0.01 }", "0.01"))}
    assert len(theirs) == 9
    assert theirs < ours


def test_a_run_of_several_epochs_sees_the_tokens_of_one():
    runs = runs_of(data=Data(train=Split(400_100)))
    seen = {run.budget: run.planned["unique_tokens"] for run in runs}
    steps = {run.budget: run.spec.training["n_tokens"] for run in runs}
    assert seen["0.3M"] == steps["0.3M"] and seen["0.6M"] == seen["1.2M"] == 400_000  # whole windows of 128


def test_a_thin_design_is_warned_of():
    text = GRID.replace("0.3M, 0.6M, 1.2M", "0.3M, 0.6M")
    assert any("fewer than 3 budgets for gpt+, angpt" in line for line in warnings_of(base=text))
    assert not any("fewer than 3" in line for line in warnings_of())


def test_runs_of_too_few_steps_are_warned_of():
    lines = warnings_of(base=GRID.replace("batch: 4", "batch: 8"))
    assert any("budget 0.3M gives runs of fewer than 512 optimiser steps (least: 293)" in line for line in lines)


def test_borrowed_and_untuned_rates_are_warned_of():
    table = "{ gpt+: 0.02, angpt: 0.01 }"
    assert any("all but one borrow it" in line for line in warnings_of(base=GRID.replace(table, "0.02")))
    without = GRID.replace(f"lr: {table}\n", "")
    assert any("no learning rate given for gpt+, angpt" in line for line in warnings_of(base=without))
    assert not any("learning" in line for line in warnings_of())


def test_a_sweep_of_rates_needs_no_rule():
    without = GRID.replace("lr: { gpt+: 0.02, angpt: 0.01 }\n", "")
    swept = without + "grid: [{ lr: [0.01, 0.02] }]\n"
    assert not any("learning" in line for line in warnings_of(base=swept))
    partly = without + "grid: [{ lr: [0.01, 0.02], method: angpt }, { method: gpt+ }]\n"
    assert any("no learning rate given for gpt+: " in line for line in warnings_of(base=partly))


def test_a_constant_ratio_of_tokens_to_parameters_is_warned_of():
    text = GRID.replace("0.3M, 0.6M, 1.2M", "10x")
    assert any("about the same tokens per parameter everywhere" in line for line in warnings_of(base=text))


def test_a_comparison_without_partners_is_warned_of():
    added = "compare: [angpt over gpt+]\nexclude: [{ method: gpt+, size: large }]\n"
    assert any("angpt over gpt+: 3 runs without a partner" in line for line in warnings_of(added))


def test_one_seed_under_a_comparison_is_warned_of():
    assert any(line.startswith("one seed") for line in warnings_of("compare: [angpt over gpt+]\n"))
    assert not any(line.startswith("one seed") for line in warnings_of("compare: [angpt over gpt+]\nseeds: 3\n"))


def test_the_bill_adds_up_by_method_and_size():
    experiment = read_experiment(GRID)
    priced = price(experiment, plan_runs(experiment, Data()), states={}, measured={})
    rows = bill(priced)
    assert [(row.method, row.size) for row in rows][:4] == [
        ("gpt+", "small"), ("gpt+", "middle"), ("gpt+", "large"), ("angpt", "small"),
    ]  # fmt: skip
    assert sum(row.runs for row in rows) == 18
    assert sum(row.n_tokens for row in rows) == sum(run.spec.training["n_tokens"] for run in priced.runs)
    assert sum(row.wall_s for row in rows) == pytest.approx(priced.wall_s)


@pytest.mark.parametrize(
    ("executor", "said"), [("local", " with 4 at once"), ("slurm", " of training"), ("debug", " of training")]
)
def test_only_runs_that_share_this_machines_cores_are_billed_side_by_side(tmp_path, monkeypatch, executor, said):
    from scalewright.orchestrator.report.bill import summary

    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    experiment = read_experiment(GRID + f"executor: {executor}\n")
    made = price(experiment, plan_runs(experiment, Data()), states={}, measured={})
    first = summary(made, Study.at(tmp_path), None)[0]
    assert first.endswith(said)


def test_finished_runs_cost_nothing_more():
    experiment = read_experiment(GRID)
    runs = plan_runs(experiment, Data())
    states = {runs[0].run_id: "completed", runs[1].run_id: "diverged", runs[2].run_id: "failed"}
    priced = price(experiment, runs, states=states, measured={})
    assert len(priced.to_do) == 16
    assert sum(row.to_do for row in bill(priced)) == 16


def test_measured_throughput_replaces_the_assumption():
    experiment = read_experiment(GRID)
    runs = plan_runs(experiment, Data())
    key = ("gpt+", "none", 32, 2, 128, 512, "fp32", "cpu")
    priced = price(experiment, runs, states={}, measured={key: 1000.0})
    assert priced.n_measured == 3
    for run in priced.runs:
        if (run.label, run.size) == ("gpt+", "small"):
            assert run.planned["wall_s"] == run.spec.training["n_tokens"] / 1000


def test_more_windows_than_the_validation_split_holds_are_refused(tmp_path):
    experiment = read_experiment(GRID + "evaluation: { n_windows: 9999 }\n", str(tmp_path / "e.yaml"))
    with pytest.raises(
        UserError, match="evaluation.n_windows: 9999 windows of 128 tokens, the validation split has 3359"
    ):
        plan(experiment, Data(), Study.at(tmp_path))


def test_training_longer_than_the_data_is_warned_of(tmp_path):
    experiment = read_experiment(GRID, str(tmp_path / "e.yaml"))
    made = plan(experiment, Data(train=Split(600_000)), Study.at(tmp_path))
    assert any("passes 2.0 times over 600,000 training tokens" in line for line in made.warnings)


def test_a_plan_is_recorded_once_and_found_again(tmp_path):
    experiment = read_experiment(GRID, str(tmp_path / "e.yaml"))
    study = Study.at(tmp_path, database=str(tmp_path / "runs.sqlite"))
    first = record(plan(experiment, Data(), study), study)
    assert (first.n_new, first.n_existing) == (18, 0)
    again = plan(experiment, Data(), study)
    assert set(again.states.values()) == {"planned"}
    receipt = record(again, study)
    assert (receipt.n_new, receipt.n_existing) == (0, 18)


def test_a_database_that_does_not_exist_knows_nothing(tmp_path):
    assert read_known(Study.at(tmp_path, database=str(tmp_path / "none.sqlite"))) == Known()
    assert not (tmp_path / "none.sqlite").exists()


def rate_law(c: float, p: float, q: float):
    return {"params": {name: {"value": value} for name, value in (("c", c), ("p", p), ("q", q))}}


def store_law(study: Study):
    from scalewright.db.engine import open_database
    from scalewright.db.store import record_fit

    database = open_database(study.database)
    laws = {"gpt+": rate_law(2.0, -0.5, 0.0), "angpt": rate_law(3.0, -0.5, 0.1)}
    record_fit(database, {"law": "hyper", "setting": "lr_peak", "laws": laws}, [], experiment="sweep")
    database.close()


LAW = "lr: { rule: law, law: sweep }"


def test_a_stored_law_gives_each_method_its_rate(tmp_path):
    experiment = read_experiment(GRID.replace("lr: { gpt+: 0.02, angpt: 0.01 }", LAW), str(tmp_path / "e.yaml"))
    study = Study.at(tmp_path, database=str(tmp_path / "runs.sqlite"))
    store_law(study)
    for run in plan(experiment, Data(), study).runs:
        n, d = n_params(plain_shape(run), "non-embedding"), run.spec.training["n_tokens"]
        expected = {"gpt+": 2.0 * n**-0.5, "angpt": 3.0 * n**-0.5 * d**0.1}[run.label]
        assert run.spec.training["optimizer"]["lr_peak"] == pytest.approx(expected)


def test_a_law_that_is_not_stored_is_located_with_those_that_are(tmp_path):
    text = GRID.replace("lr: { gpt+: 0.02, angpt: 0.01 }", LAW.replace("sweep", "sweeps"))
    experiment = read_experiment(text, str(tmp_path / "e.yaml"))
    study = Study.at(tmp_path, database=str(tmp_path / "runs.sqlite"))
    with pytest.raises(UserError, match=r'e.yaml:10: lr: no stored learning-rate law "sweeps" \(none is stored'):
        plan(experiment, Data(), study)
    store_law(study)
    with pytest.raises(UserError, match=r'no stored learning-rate law "sweeps" \(stored for: sweep\)'):
        plan(experiment, Data(), study)


def test_the_database_of_the_yaml_is_relative_to_it_and_the_environment_wins(tmp_path, monkeypatch):
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    path = tmp_path / "e.yaml"
    path.write_text(GRID)
    experiment = read_experiment(GRID + "database: mine.sqlite\n", str(path))
    assert study_of(experiment).database == str(tmp_path / "mine.sqlite")
    monkeypatch.setenv("SCALEWRIGHT_DB", "postgresql://host/db")
    assert study_of(experiment).database == "postgresql://host/db"


def test_a_plan_can_be_written_as_json():
    from scalewright.orchestrator.report.bill import plan_record

    experiment = read_experiment(GRID)
    written = json.loads(
        json.dumps(plan_record(price(experiment, plan_runs(experiment, Data()), states={}, measured={})))
    )
    assert len(written["runs"]) == 18
    assert written["total"]["to_do"] == 18


BIG = (
    GRID.replace("seeds: 1", "")
    + "seeds: 20\ngrid:\n  - { batch: [4, 8, 16, 32, 64], lr_factor: [0.25, 0.5, 1, 2, 4.5, 8] }\n"
)


def test_ten_thousand_points_are_planned_in_seconds():
    experiment = read_experiment(BIG)
    started = time.process_time()
    runs = plan_runs(experiment, Data())
    priced = price(experiment, runs, states={}, measured={})
    assert len(priced.runs) == 10_800
    assert time.process_time() - started < 5  # the time a person waits for; measured: about 2 s on one busy core


def test_a_model_beyond_all_numbers_is_refused_with_its_bill():
    with pytest.raises(UserError, match=r":3: sizes\.small: 1\.6e\+23 parameters, .* at budget .*nothing above 1e\+18"):
        runs_of(base=GRID.replace("width: 32, depth: 2", "width: 100000000000, depth: 1"))


def test_a_bill_sums_what_is_still_to_do_and_names_the_largest_memory():
    experiment = read_experiment(GRID)
    runs = plan_runs(experiment, Data())
    small = [run for run in runs if (run.label, run.size) == ("gpt+", "small")]
    ended = {small[0].run_id: "completed", small[1].run_id: "running"}
    priced = price(experiment, runs, states=ended, measured={})
    row = next(row for row in bill(priced) if (row.method, row.size) == ("gpt+", "small"))
    waiting = [run for run in priced.runs if run.run_id in {one.run_id for one in small[1:]}]
    assert (row.runs, row.to_do) == (3, 2)
    assert row.n_tokens == sum(run.spec.training["n_tokens"] for run in waiting)
    assert row.flops == sum(run.planned["flops_total"] for run in waiting)
    assert row.wall_s == pytest.approx(sum(run.planned["wall_s"] for run in waiting))
    assert row.memory_bytes == max(run.planned["memory_bytes"] for run in small)
    others = [run.planned["wall_s"] for run in priced.runs if run.run_id != small[0].run_id]
    assert priced.wall_s == pytest.approx(sum(others))


def test_the_memory_of_a_bill_row_is_that_of_its_largest_batch():
    experiment = read_experiment(GRID + "grid:\n  - { size: small, method: gpt+, budget: 0.3M, batch: [2, 32] }\n")
    priced = price(experiment, plan_runs(experiment, Data()), states={}, measured={})
    (row,) = bill(priced)
    memory = sorted(run.planned["memory_bytes"] for run in priced.runs)
    assert memory[0] < memory[1] == row.memory_bytes


def test_a_time_comes_from_measured_throughput_else_from_flops_and_steps():
    from scalewright.orchestrator.config.resources import Profile
    from scalewright.orchestrator.plan.bill import estimate_wall_s, throughput_key

    run = runs_of()[0]
    n_tokens, flops, n_steps = run.spec.training["n_tokens"], run.planned["flops_total"], run.planned["n_steps"]
    assumed = 50e9 * 32 / (32 + 45)
    assert estimate_wall_s(run, Profile(), {}) == pytest.approx(flops / assumed + 0.003 * n_steps)
    told = Profile(flops_per_s=1e12, devices=2)
    assert estimate_wall_s(run, told, {}) == pytest.approx(flops / 2e12 + 0.003 * n_steps)
    assert estimate_wall_s(run, told, {throughput_key(run, told): 500.0}) == pytest.approx(n_tokens / 500)
    assert estimate_wall_s(run, told, {throughput_key(run, Profile(gpus=1)): 500.0}) != pytest.approx(n_tokens / 500)
