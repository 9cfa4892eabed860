"""The recipes of docs/recipes are plannable as they are, and their models have the parameters that the papers name."""

from pathlib import Path

import pytest

from scalewright.models.count import count_parameters
from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.config.load import load_experiment
from scalewright.orchestrator.plan.runs import plan_runs

RECIPES = Path(__file__).resolve().parents[3] / "docs" / "recipes"


class Split:
    n_tokens = 10**12

    def n_windows(self, context):
        return self.n_tokens // context


class Data:
    train = validation = Split()

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def identity(self):
        return {"fingerprint": "f" * 16, "tokenizer": "t" * 16, "vocab_size": self.vocab_size}


def runs_of(name, vocab_size):
    return plan_runs(load_experiment(RECIPES / name), Data(vocab_size))


def totals(runs, label):
    return {run.size: run.planned["n_params_total"] for run in runs if run.label == label}


# Published code of arXiv:2506.22049, measured, embedding and head untied.
GPAS = {
    "71M": 70_578_688, "130M": 134_105_856, "250M": 247_370_496, "350M": 367_969_280, "1B": 1_339_082_752,
    "7B": 6_738_415_616,
}  # fmt: skip


def test_gpas_models_have_the_published_parameters_to_the_last_one():
    runs = runs_of("gpas.yaml", 32_000)
    assert totals(runs, "pre-ln") == GPAS
    gated = totals(runs, "pre-ln+gpas")
    gates = {"71M": 12, "130M": 12, "250M": 24, "350M": 24, "1B": 24, "7B": 32}
    assert {size: gated[size] - GPAS[size] for size in GPAS} == gates


def test_gpas_without_clipping_is_the_same_grid_up_to_1b():
    clipped = [run for run in runs_of("gpas.yaml", 32_000) if run.size != "7B"]
    plain = runs_of("gpas-unclipped.yaml", 32_000)
    assert len(plain) == len(clipped) and not {run.run_id for run in plain} & {run.run_id for run in clipped}
    assert {run.spec.training["optimizer"]["clip_norm"] for run in plain} == {0.0}
    assert {run.spec.training["optimizer"]["clip_norm"] for run in clipped} == {1.0}


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_recipe_is_planned_as_it_is(file):
    runs = runs_of(file.name, 50_304 if file.name.startswith("angpt") else 32_000)
    labels = {run.label for run in runs}
    for pair in load_experiment(file).compare:
        assert {pair.method, pair.baseline} <= labels


@pytest.mark.parametrize(("size", "millions"), [("32M", 32.0), ("247M", 247.1), ("0.5B", 505.7), ("1.0B", 1072.5)])
def test_angpt_models_have_the_totals_that_are_named(size, millions):
    """Matrices alone, as the sizes were worked out: L (4 d^2 + 12 d^2) + 2 V d, V 50,304."""
    run = next(run for run in runs_of("angpt.yaml", 50_304) if run.size == size and run.label == "gpt+")
    counts = count_parameters(ModelSpec.from_dict(run.spec.model))
    matrices = sum(counts[role] for role in ("embedding", "head", "attention", "mlp"))
    assert matrices / 1e6 == pytest.approx(millions, abs=0.05)
