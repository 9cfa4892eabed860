# ruff: noqa: E501 - one bad input and its exact message a line
"""Sizes by parameters, isoFLOP curves, conditions, a file over another: from what is written to the runs planned."""

import json
import math
import re

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from scalewright.db import store
from scalewright.db.engine import open_database
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer
from scalewright.orchestrator import cli
from scalewright.orchestrator.config.load import load_experiment, read_experiment
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.plan.earlier_runs import StoredOptima
from scalewright.orchestrator.plan.isoflop import with_isoflop
from scalewright.orchestrator.plan.make import plan
from scalewright.orchestrator.plan.runs import plan_runs
from scalewright.orchestrator.study import Study

VOCAB = 256


class Split:
    n_tokens = 26_000_000

    def n_windows(self, context):
        return self.n_tokens // context


class Data:
    """A manifest that holds only what planning reads."""

    vocab_size = VOCAB
    train = validation = Split()

    def identity(self):
        return {"fingerprint": "f" * 16, "tokenizer": "t" * 16, "vocab_size": VOCAB}


REST = "experiment: axes\nmethods: [gpt+, angpt]\nlr: 0.01\n"
NAMED = REST + "sizes:\n  a: { width: 32, depth: 2, heads: 2 }\n  b: { width: 64, depth: 3, heads: 2 }\n"


def solve(text, optima=None):
    experiment = read_experiment(REST + text)
    return with_isoflop(experiment, VOCAB, *[optima] * (optima is not None))


def runs_of(text):
    return plan_runs(with_isoflop(read_experiment(text), VOCAB), Data())


def message_of(text, read=runs_of):
    with pytest.raises(UserError) as caught:
        read(text)
    return str(caught.value)


def by_hand(size):
    """Four square matrices, three of the MLP, a gain before each sub-layer and one at the end."""
    mlp_width = size.mlp_width or 4 * size.width
    return size.depth * (4 * size.width**2 + 3 * size.width * mlp_width + 2 * size.width) + size.width


# --- a ladder --------------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    first=st.floats(1e5, 1e9), ratio=st.floats(1.5, 1e3), steps=st.integers(2, 6), aspect=st.floats(4, 200),
    head_dim=st.sampled_from([8, 16, 64, 128]), mlp_ratio=st.sampled_from([None, 8 / 3, 3.5]),
)  # fmt: skip
def test_a_ladder_is_half_a_layer_off_at_most_and_as_wide_as_its_aspect_asks(
    first, ratio, steps, aspect, head_dim, mlp_ratio
):
    more = "" if mlp_ratio is None else f", mlp_ratio: {mlp_ratio!r}"
    text = f"ladder: {{ from: {first!r}, to: {first * ratio!r}, steps: {steps}, aspect: {aspect!r}, "
    try:
        experiment = solve(f"{text}head_dim: {head_dim}{more} }}\nbudgets: [1M]\n")
    except UserError as refused:
        assume("take fewer steps" not in str(refused) and "no shape has" not in str(refused))
        raise
    assert len(experiment.sizes) == steps
    for step, size in enumerate(experiment.sizes.values()):
        asked = first * ratio ** (step / (steps - 1))
        per_layer = (by_hand(size) - size.width) / size.depth
        assert size.width == size.heads * head_dim
        assert abs(by_hand(size) - asked) <= per_layer / 2 * (1 + 1e-9)
        # at half a head less and more than its width, the aspect would give fewer and more parameters than asked for
        wide = 4 + 3 * (mlp_ratio or 4)
        exact = (asked * aspect / wide) ** (1 / 3)
        assert size.width / 1.75 - head_dim <= exact <= size.width * 1.75


def test_the_ladder_of_the_reference_comes_out_so():
    experiment = solve("ladder: { from: 10M, to: 1B, steps: 6, aspect: 42.7, head_dim: 64 }\nbudgets: [20x]\n")
    shapes = {name: (size.width, size.depth, size.heads) for name, size in experiment.sizes.items()}
    assert shapes == {
        "10M": (320, 6, 5), "25.1M": (384, 11, 6), "63.1M": (576, 12, 9), "158M": (768, 17, 12),
        "398M": (1024, 24, 16), "1B": (1408, 32, 22),
    }  # fmt: skip


def test_the_parameters_of_a_solved_size_are_those_of_its_model():
    text = (
        REST + "ladder: { from: 20k, to: 300k, steps: 3, aspect: 16, head_dim: 8, mlp_ratio: 2.6667 }\nbudgets: [1M]\n"
    )
    for run in runs_of(text):
        model = Transformer(ModelSpec.from_dict(run.spec.model), seed=0)
        assert run.planned["n_params_total"] == sum(one.numel() for one in model.parameters())


def test_a_solved_size_is_the_run_of_the_same_shape_written_out():
    ladder = REST + "budgets: [1M]\nladder: { from: 98k, to: 1M, steps: 2, aspect: 16, head_dim: 8 }\n"
    written = NAMED.replace("width: 32, depth: 2, heads: 2", "width: 48, depth: 3, heads: 6") + "budgets: [1M]\n"
    ids = {run.run_id for run in runs_of(ladder)}
    assert len({run.run_id for run in runs_of(written)} & ids) == 2


# --- isoFLOP curves --------------------------------------------------------------------------------------------------


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(
    computes=st.lists(st.floats(1e12, 1e21), min_size=1, max_size=3, unique=True), n_sizes=st.integers(2, 7),
    span=st.floats(2, 100), centre=st.floats(2, 200), batch=st.integers(1, 64), method=st.sampled_from(["gpt+", "ngpt"]),
)  # fmt: skip
def test_every_run_of_a_curve_has_its_compute(computes, n_sizes, span, centre, batch, method):
    text = f"isoflop: {{ budgets: {computes!r}, sizes: {n_sizes}, span: {span!r}, centre: {centre!r}x, head_dim: 8, "
    text = REST.replace("[gpt+, angpt]", f"[{method}]") + text + f"aspect: 24 }}\nbatch: {batch}\ncontext: 64\n"
    try:
        runs = runs_of(text)
    except UserError as refused:
        assert any(why in str(refused) for why in ("at most 2%", "two sizes near", "no shape", "less than one step"))
        assume(False)
    assert len(runs) == n_sizes * len(computes)
    for run in runs:
        assert run.planned["flops_total"] == pytest.approx(float(run.budget.removesuffix(" FLOPs")), rel=0.02)
    for compute in computes:
        shapes = {
            (run.spec.model["width"], run.spec.model["depth"]) for run in runs if run.budget == f"{compute!r} FLOPs"
        }
        assert len(shapes) == n_sizes


def test_the_middle_of_a_curve_has_the_tokens_a_parameter_that_were_asked_for():
    """With a large vocabulary the head costs as much as all layers: sqrt(C / 120) would be far from it."""
    experiment = read_experiment(
        REST + "isoflop: { budgets: [1e15], sizes: 3, span: 9, head_dim: 16, aspect: 16 }\nbatch: 4\n"
    )

    class Large(Data):
        vocab_size = 50_304

    runs = plan_runs(with_isoflop(experiment, Large.vocab_size), Large())
    ratios = sorted({run.spec.training["n_tokens"] / run.planned["n_params_non_embedding"] for run in runs})
    naive = math.sqrt(1e15 / 120)
    middle = sorted(run.planned["n_params_non_embedding"] for run in runs)[2]
    assert ratios[2] == pytest.approx(20, rel=0.1)
    assert middle < naive / 1.8


def test_sizes_and_budgets_beside_curves_are_crossed_with_each_other_alone():
    text = NAMED + "budgets: [1M, 2M]\nisoflop: { budgets: [1e13, 4e13], sizes: 3, head_dim: 8, aspect: 16 }\n"
    cells = {(run.size, run.budget) for run in runs_of(text)}
    named = {(size, budget) for size in "ab" for budget in ("1M", "2M")}
    assert named < cells
    assert {budget for _, budget in cells - named} == {"1e13 FLOPs", "4e13 FLOPs"}
    assert len(cells) == 4 + 6


def test_the_sizes_of_a_curve_have_the_mlp_that_is_asked_for():
    runs = runs_of(REST + "isoflop: { budgets: [1e14], sizes: 3, head_dim: 8, aspect: 16, mlp_ratio: 2.5 }\n")
    assert {run.spec.model["mlp_width"] / run.spec.model["width"] for run in runs} == {2.5}


def test_a_curve_is_the_run_of_its_size_at_a_budget_in_flops():
    text = REST + "isoflop: { budgets: [1e13], sizes: 2, span: 4, head_dim: 8, aspect: 16 }\n"
    first, *_ = runs_of(text)
    shape = ", ".join(f"{key}: {first.spec.model[key]}" for key in ("width", "depth", "heads"))
    same = runs_of(f"{REST}sizes:\n  a: {{ {shape} }}\nbudgets: [1e13 FLOPs]\n")
    assert first.run_id in {run.run_id for run in same}


def test_a_curve_goes_round_a_stated_number_of_parameters_or_a_stored_law(tmp_path):
    study = Study.at(tmp_path)
    database = open_database(study.database)
    powers = {"G_N": {"value": 0.3}, "a": {"value": 0.45}}
    chinchilla = {name: {"value": one} for name, one in {"A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28}.items()}
    store.record_fit(database, {"law": "isoflop", "params": powers}, [], experiment="before", label="gpt+")
    store.record_fit(database, {"law": "chinchilla", "params": chinchilla}, [], experiment="other", label="gpt+")
    store.record_fit(database, {"law": "isoflop", "params": powers}, [], experiment="other", label="angpt")
    database.close()

    def middle(words):
        shape = "sizes: 3, head_dim: 8, aspect: 16"
        found = solve(f"isoflop: {{ budgets: [1e15], {shape}, {words} }}\n", StoredOptima(study))
        return sorted(found.asked_params.values())[1]

    assert middle("centre: 2M") == pytest.approx(2e6)
    assert middle("law: before") == pytest.approx(0.3 * 1e15**0.45)
    # of a law in C = 6 N D: at the optimum alpha A N^-alpha = beta B D^-beta, and the planned run costs 1e15
    n = middle("law: other, method: gpt+")
    d = (0.28 * 410 / (0.34 * 400 * n**-0.34)) ** (1 / 0.28)
    assert 0.8 < 6 * n * d / 1e15 < 1
    with pytest.raises(UserError, match="several methods; give one as `method`: angpt, gpt+".replace("+", r"\+")):
        middle("law: other")
    with pytest.raises(UserError, match=r'no stored law "nowhere" with an optimum \(stored for: before, other\)'):
        middle("law: nowhere")


CHINCHILLA = {"A": 400.0, "alpha": 0.34, "B": 410.0, "beta": 0.28}


@pytest.mark.parametrize(
    ("law", "params", "message"),
    [
        ("chinchilla", CHINCHILLA, "has no law of ngpt with an optimum (methods: gpt+)"),
        ("chinchilla", CHINCHILLA | {"alpha": None}, "with an optimum (none is stored; make one: scalewright fit"),
        ("power", {"A": 400.0, "alpha": 0.05}, "with an optimum (none is stored; make one: scalewright fit"),
    ],
)
def test_a_stored_law_that_tells_no_optimum_is_refused_with_those_that_do(tmp_path, law, params, message):
    """A value of None stands for an exponent that the runs did not identify."""
    study = Study.at(tmp_path)
    stored = {name: {"value": one or 0.34, "identified": one is not None} for name, one in params.items()}
    store.record_fit(open_database(study.database), {"law": law, "params": stored}, [], experiment="e", label="gpt+")
    with pytest.raises(UserError, match=re.escape(message)):
        solve("isoflop: { budgets: [1e15], sizes: 3, law: e, method: ngpt }\n", StoredOptima(study))


# --- conditions ------------------------------------------------------------------------------------------------------

GRID = NAMED + "budgets: [1M, 2M, 20x]\nseeds: 2\nbatch: [4, 8]\n"
CONDITIONS = {
    "n_params < 50000": lambda run: run.planned["n_params_non_embedding"] < 50_000,
    "n_tokens / n_params > 30": lambda run: run.spec.training["n_tokens"] / run.planned["n_params_non_embedding"] > 30,
    "method = 'angpt' and seed == 1": lambda run: run.label == "angpt" and run.spec.training["seed"] == 1,
    "budget in ('1M', '20x') or batch > 4": lambda run: run.budget != "2M" or run.spec.training["batch_sequences"] > 4,
    "not (flops > 5e11 and size != 'a')": lambda run: not (run.planned["flops_total"] > 5e11 and run.size != "a"),
    "1 < depth <= 2 or lr is None": lambda run: run.spec.model["depth"] == 2,
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*CONDITIONS]), max_size=2), st.lists(st.sampled_from([*CONDITIONS]), max_size=2))
def test_what_is_kept_meets_every_when_and_no_exclude(when, exclude):
    everything = runs_of(GRID)
    kept = {
        run.run_id
        for run in everything
        if all(CONDITIONS[one](run) for one in when) and not any(CONDITIONS[one](run) for one in exclude)
    }
    text = f"{GRID}when: {json.dumps(when)}\nexclude: {json.dumps(exclude)}\n"
    if kept:
        assert {run.run_id for run in runs_of(text)} == kept
    else:
        assert "leaves no point of the grid" in message_of(text)


def test_a_group_has_conditions_of_its_own_and_options_by_name():
    axes = "method: angpt, size: a, budget: 1M, seed: 0, batch: 4, options.alpha_init: [0.01, 0.05, 0.1]"
    group = f'grid:\n  - {{ {axes}, when: options.alpha_init < 0.07, exclude: ["options.alpha_init = 0.01"] }}\n'
    (run,) = runs_of(GRID + group)
    assert run.spec.model["method_options"]["alpha_init"] == 0.05


def test_a_condition_marks_what_is_held_out_and_a_rate_is_the_resolved_one():
    rates = "lr: { rule: power, lr: 0.02, at: a, exponent: 1 }\n"
    runs = runs_of(GRID.replace("lr: 0.01\n", rates) + "holdout: [lr < 0.01]\n")
    assert {run.size for run in runs if run.holdout} == {"b"}
    assert {run.size for run in runs if not run.holdout} == {"a"}


def test_a_condition_that_no_point_meets_is_warned_of(tmp_path):
    experiment = read_experiment(GRID + "exclude: [n_params > 1e9, { seed: 7 }, seed = 1]\n", str(tmp_path / "e.yaml"))
    unused = [line for line in plan(experiment, Data(), Study.at(tmp_path)).warnings if "matches no" in line]
    assert unused == ["exclude[1] matches no point of the grid", "exclude[0] matches no point of the grid"]


# --- bad input -------------------------------------------------------------------------------------------------------

ISO = "isoflop: { budgets: [1e13], sizes: 3, head_dim: 8 }"
BAD = [
    ("ladder: { from: 1M, to: 1M, steps: 3 }\nbudgets: [1M]", "4: ladder.to: 1e+06 must be greater than `from`, 1e+06"),
    ("ladder: { from: 1M, to: 2M, steps: 1 }\nbudgets: [1M]", "4: ladder.steps: must be at least 2, not 1; for one size write its shape under `sizes`"),
    ("ladder: { from: 1M, to: 2M }\nbudgets: [1M]", "4: ladder.steps: this key is missing"),
    ("ladder: { from: 1M, to: 2M, steps: 3, head_dim: 9 }\nbudgets: [1M]", "4: ladder.head_dim: must be an even number, not 9"),
    ("ladder: { from: 1k, to: 2M, steps: 3 }\nbudgets: [1M]", "4: ladder.from: no shape has 1k parameters: one layer 64 wide has 65.7k; take a smaller head_dim"),
    ("ladder: { from: 1M, to: 1.01M, steps: 3 }\nbudgets: [1M]", "4: ladder.steps: two sizes near 1M are 192 wide and 2 deep; take fewer steps, a smaller head_dim or another aspect"),
    ("budgets: [1M]", "1: sizes: this key is missing"),
    ("ladder: { from: 1M, to: 8M, steps: 2 }", "1: budgets: this key is missing"),
    (f"{ISO}\nbudgets: [1M]", "1: sizes: this key is missing"),
    (ISO.replace("[1e13]", "[1e13, 5x]"), '4: isoflop.budgets: "5x" is no compute; write for example 1e18 or 1e18 FLOPs'),
    (ISO.replace("[1e13]", "[1e13, 1e13 FLOPs]"), "4: isoflop.budgets: a second budget of the name 1e13 FLOPs"),
    (ISO.replace("sizes: 3", "centre: 1e18 FLOPs"), '4: isoflop.centre: "1e18 FLOPs": write tokens per parameter (20x) or parameters (100M)'),
    (ISO.replace("sizes: 3", "law: x, centre: 5x"), "4: isoflop.centre: not beside `law`, whose optimum is the middle"),
    (ISO.replace("sizes: 3", "method: gpt+"), "4: isoflop.method: whose law? only beside `law`"),
    (ISO.replace("sizes: 3", "span: 1"), "4: isoflop.span: 1 must be greater than 1: the largest size over the smallest"),
    (ISO.replace("sizes: 3", "law: x"), '4: isoflop.budgets[0]: 1e13 FLOPs: no stored law "x"'),
    (f"{ISO}\nbatch: 4000", "4: isoflop.budgets: 1e13 FLOPs: gpt+ at size 83.2k is 1.021e+13 FLOPs in whole steps, +2.1%; at most 2% is allowed: use a smaller batch or a larger budget"),
    (f"{ISO}\nwhen: n_parms < 3", "5: when: no column 'n_parms'; did you mean n_params?"),
    (f"{ISO}\nwhen: [seed < 3, seed]", "5: when[1]: 'seed' compares nothing (expected something like \"n_params < 1e8 and method == 'angpt'\")"),
    (f"{ISO}\nexclude:\n  - __import__('os') == 1", "6: exclude[0]: \"__import__('os')\" cannot be used here (expected something like \"n_params < 1e8 and method == 'angpt'\")"),
    (f"{ISO}\nexclude: [method > 3]", "5: exclude[0]: 'method > 3' compares text with a number"),
    (f"{ISO}\ngrid:\n  - {{ seed: 0, when: options.x < 1 }}", "6: grid[0].when: no column 'options.x'"),
    (f"{ISO}\nwhen: seed > 5", "5: when: leaves no point of the grid"),
    (f"{ISO}\nplaces: x", "5: places: unknown key"),
    (f"{ISO}\nextends: nowhere.yaml", "5: extends: nowhere.yaml: no such file"),
    (f"{ISO}\nextends: [a]", "5: extends: expected the name of one file, such as main.yaml"),
]  # fmt: skip


@pytest.mark.parametrize(("added", "expected"), BAD)
def test_a_mistake_is_one_line_with_its_place(added, expected):
    assert message_of(f"{REST}{added}\n").startswith(f"experiments.yaml:{expected}")


# --- a file over another ---------------------------------------------------------------------------------------------


def test_a_file_takes_each_key_that_it_lacks_whole_from_the_one_it_extends(tmp_path):
    (tmp_path / "main.yaml").write_text(NAMED + "budgets: [1M]\noptimizer: { beta1: 0.8, beta2: 0.9 }\nseeds: 3\n")
    (tmp_path / "more.yaml").write_text("experiment: more\nextends: main.yaml\noptimizer: { beta2: 0.99 }\n")
    (tmp_path / "most.yaml").write_text("extends: more.yaml\nexperiment: most\nseeds: [7]\n")
    more, most = (load_experiment(tmp_path / f"{name}.yaml") for name in ("more", "most"))
    assert (more.name, tuple(more.sizes), more.labels, more.seeds) == ("more", ("a", "b"), ("gpt+", "angpt"), (0, 1, 2))
    assert more.optimizer.written() == {"beta2": 0.99}
    assert (most.name, most.seeds, most.optimizer.written()) == ("most", (7,), {"beta2": 0.99})
    ids = {run.run_id for run in plan_runs(load_experiment(tmp_path / "main.yaml"), Data())}
    assert not ids & {run.run_id for run in plan_runs(more, Data())}
    assert all(text in most.source.text for text in ("experiment: most", "experiment: more", "beta1: 0.8"))


def test_a_mistake_is_told_in_the_file_that_made_it(tmp_path):
    main, more = tmp_path / "main.yaml", tmp_path / "more.yaml"
    main.write_text(NAMED.replace("methods: [gpt+, angpt]", "methods: [gpt+, angtp]") + "budgets: [1M]\n")
    more.write_text("experiment: more\nextends: main.yaml\n")
    assert message_of(more, load_experiment).startswith(f'{main}:2: methods[1]: unknown method "angtp"')
    more.write_text("extends: main.yaml\n")
    assert message_of(more, load_experiment) == f"{more}:1: experiment: this key is missing"
    main.write_text(f"{NAMED}budgets: [1M]\nextends: more.yaml\n")
    assert "extends this file, so neither has a beginning" in message_of(more, load_experiment)


# --- what `plan` says ------------------------------------------------------------------------------------------------


def test_plan_says_what_rounding_changed(tmp_path, monkeypatch, capsys):
    (tmp_path / "e.yaml").write_text(REST + "ladder: { from: 100k, to: 400k, steps: 2, head_dim: 16 }\nbudgets: [1M]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    assert cli.run(["plan", "e.yaml", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["solved_sizes"]
    for row in told:
        count = row["depth"] * (16 * row["width"] ** 2 + 2 * row["width"]) + row["width"]
        assert (row["n_params"], row["off"]) == (count, pytest.approx(count / row["asked"] - 1))
    assert [row["size"] for row in told] == ["100k", "400k"]
    assert cli.run(["plan", "e.yaml", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{row['n_params']:,}" in shown and f"{row['off']:+.1%}" in shown for row in told)
