"""Optimiser defaults by method, as the papers' pages say, and what overrides them."""

import pytest

from scalewright.models.methods import METHODS
from scalewright.orchestrator.config.load import read_experiment
from scalewright.orchestrator.config.recipes import RECIPES
from scalewright.orchestrator.plan.expand import expand
from scalewright.orchestrator.plan.training import training_options, training_spec
from scalewright.orchestrator.train.groups import DECAY
from scalewright.orchestrator.train.schedules import SCHEDULES

BASE = """\
experiment: r
sizes:
  a: { width: 32, depth: 2, heads: 2 }
budgets: [1M]
batch: 8
context: 125
"""
N_TOKENS = 1_000_000  # 1000 steps of 1000 tokens


def training(method: str, added: str = ""):
    experiment = read_experiment(f"{BASE}methods: [{method}]\n{added}")
    point = expand(experiment)[0]
    options = training_options(experiment, point, experiment.methods[0], experiment.sizes["a"])
    return training_spec(experiment, point, options, n_tokens=N_TOKENS, lr_peak=0.01).to_dict()


def test_gpt_plus_decays_its_matrices_and_warms_up():
    found = training("gpt+")
    optimizer = found["optimizer"]
    assert (optimizer["beta1"], optimizer["beta2"], optimizer["weight_decay"]) == (0.9, 0.95, 0.1)
    assert optimizer["decay"] == "matrices+embeddings"
    assert found["schedule"] == {"name": "cosine", "warmup_tokens": 100_000, "final_fraction": 0.0}


@pytest.mark.parametrize("method", ["angpt", "ngpt"])
def test_normalised_methods_have_neither_decay_nor_warm_up(method):
    found = training(method)
    assert found["optimizer"]["weight_decay"] == 0.0
    assert found["optimizer"]["decay"] == "none"
    assert found["schedule"]["warmup_tokens"] == 0


@pytest.mark.parametrize("method", ["pre-ln", "pre-ln+gpas", "deepnorm", "mix-ln", "lns", "sandwich-ln+gpas"])
def test_the_gpas_family_trains_as_published_but_clipped(method):
    found = training(method)
    optimizer, schedule = found["optimizer"], found["schedule"]
    assert (optimizer["beta1"], optimizer["beta2"], optimizer["eps"]) == (0.9, 0.999, 1e-8)
    assert (optimizer["weight_decay"], optimizer["clip_norm"], optimizer["gate_clip_norm"]) == (0.0, 1.0, 0.0)
    assert (schedule["warmup_tokens"], schedule["final_fraction"]) == (100_000, 0.1)


def test_the_gate_of_the_published_large_runs_is_clipped_at_a_hundredth():
    assert training("{method: sandwich-ln, gate: gpas, recipe: adam-gate-clip}")["optimizer"]["gate_clip_norm"] == 0.01


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_a_recipe_with_clipping(method):
    assert METHODS[method].recipe in RECIPES
    assert METHODS[method].baseline in {None, *METHODS} - {method}
    assert training(method)["optimizer"]["clip_norm"] == 1.0


def test_every_name_in_a_recipe_is_known_to_training():
    for recipe in RECIPES.values():
        assert recipe.optimizer["decay"] in DECAY
        assert recipe.schedule["name"] in SCHEDULES
        assert recipe.doc
        assert "arXiv" in recipe.source


def test_overrides_are_laid_over_each_other_from_the_widest_to_the_narrowest():
    optimizer = "optimizer: {{ beta1: {0}, beta2: {0}, eps: {0} }}"
    size = BASE.replace("heads: 2 }", "heads: 2, optimizer: { beta1: 0.2, beta2: 0.2 } }")
    experiment = read_experiment(
        size
        + optimizer.format("0.1")
        + "\nmethods: [{ method: gpt+, optimizer: { beta1: 0.3 } }]\ngrid:\n  - { optimizer.weight_decay: 0.5 }\n"
    )
    point = expand(experiment)[0]
    found, _ = training_options(experiment, point, experiment.methods[0], experiment.sizes["a"])
    assert (found["beta1"], found["beta2"], found["eps"], found["weight_decay"]) == (0.3, 0.2, 0.1, 0.5)
    assert found["clip_norm"] == 1.0


def test_a_recipe_of_ones_own_changes_a_known_one():
    added = "recipes:\n  mine: { base: gpt, optimizer: { weight_decay: 0.01 }, schedule: { warmup: 20 steps } }\n"
    found = training("{method: gpt+, recipe: mine}", added)
    assert found["optimizer"]["weight_decay"] == 0.01
    assert found["optimizer"]["beta2"] == 0.95
    assert found["schedule"]["warmup_tokens"] == 20_000


def test_a_clip_that_is_turned_off_is_zero_in_the_identity():
    assert training("gpt+", "optimizer: { clip_norm: none }\n")["optimizer"]["clip_norm"] == 0.0


def test_without_decay_it_does_not_matter_what_would_be_decayed():
    assert training("gpt+", "optimizer: { weight_decay: 0 }\n")["optimizer"]["decay"] == "none"


def test_only_a_wsd_schedule_has_a_decay_part():
    assert "decay_tokens" not in training("gpt+")["schedule"]
    assert training("gpt+", "schedule: { name: wsd, decay: 10% }\n")["schedule"]["decay_tokens"] == 100_000
