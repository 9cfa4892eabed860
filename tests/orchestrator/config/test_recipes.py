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


LAYERS = ("recipe", "experiment", "size", "method", "grid")
OVERRIDDEN = {"optimizer": ("beta1", "beta2", "eps", "weight_decay", "clip_norm"), "schedule": ("final", "decay")}


@pytest.mark.parametrize(("part", "key"), [(part, key) for part, keys in OVERRIDDEN.items() for key in keys])
@pytest.mark.parametrize("n_layers", range(1, len(LAYERS) + 1))
def test_the_narrowest_layer_that_writes_a_key_has_it(part, key, n_layers):
    """recipe < experiment < size < method < axis of the grid; each layer writes a number of its own."""
    written = {layer: 0.1 * (1 + place) for place, layer in enumerate(LAYERS[:n_layers])}

    def layer(name):
        return f"{part}: {{ {key}: {written[name]} }}" if name in written else ""

    text = BASE.replace("heads: 2 }", f"heads: 2, {layer('size')} }}") + layer("experiment")
    text += f"\nrecipes: {{ mine: {{ base: gpt, {layer('recipe')} }} }}"
    text += f"\nmethods: [{{ method: gpt+, recipe: mine, {layer('method')} }}]\n"
    text += f"grid: [{{ {part}.{key}: {written['grid']} }}]\n" if "grid" in written else ""
    experiment = read_experiment(text)
    point = expand(experiment)[0]
    found = training_options(experiment, point, experiment.methods[0], experiment.sizes["a"])
    assert found[list(OVERRIDDEN).index(part)][key] == written[LAYERS[n_layers - 1]]


def test_a_layer_changes_only_what_it_writes():
    found = training("{ method: gpt+, optimizer: { beta1: 0.3 }, schedule: { final: 0.2 } }", "schedule: {warmup: 5%}")
    assert (found["optimizer"]["beta1"], found["optimizer"]["beta2"]) == (0.3, 0.95)
    assert found["schedule"] == {"name": "cosine", "warmup_tokens": 50_000, "final_fraction": 0.2}


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
