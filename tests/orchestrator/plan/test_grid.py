"""Experiment -> points."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewright.orchestrator.config.load import read_experiment
from scalewright.orchestrator.plan.expand import expand, unused_selectors

BASE = """\
experiment: g
sizes:
  a: { width: 32, depth: 2, heads: 2 }
  b: { width: 48, depth: 2, heads: 2 }
  c: { width: 64, depth: 2, heads: 2 }
budgets: [1M, 2M, 4M]
methods: [gpt+, angpt]
seeds: 2
"""


def points(added: str = ""):
    return expand(read_experiment(BASE + added))


def cells(added: str = ""):
    return [(point.method, point.size, point.budget, point.seed) for point in points(added)]


FULL = list(product(("gpt+", "angpt"), ("a", "b", "c"), ("1M", "2M", "4M"), (0, 1)))


def test_without_a_grid_everything_is_crossed():
    assert cells() == FULL


def test_an_axis_of_a_group_narrows_it_and_all_means_all():
    expected = [cell for cell in FULL if cell[1] in ("a", "c") and cell[3] == 0]
    assert cells("grid:\n  - { size: [a, c], method: all, seed: 0 }\n") == expected


def test_zipped_axes_advance_together():
    added = "grid:\n  - zip: { size: [a, b, c], budget: [1M, 2M, 4M] }\n    method: gpt+\n    seed: 0\n"
    assert cells(added) == [("gpt+", "a", "1M", 0), ("gpt+", "b", "2M", 0), ("gpt+", "c", "4M", 0)]


def test_groups_add_up_and_a_point_in_two_groups_is_one():
    added = "grid:\n  - { name: low, budget: 1M }\n  - { name: one, size: a }\n"
    expected = {cell for cell in FULL if cell[2] == "1M" or cell[1] == "a"}
    found = points(added)
    assert len(found) == len(expected)
    assert {point.group for point in found if point.budget == "1M"} == {"low"}


def test_exclude_leaves_out_what_matches_every_axis_given():
    added = "exclude:\n  - { method: angpt, size: [b, c] }\n  - { budget: 4M, seed: 1 }\n"
    expected = [c for c in FULL if not (c[0] == "angpt" and c[1] in "bc") and not (c[2] == "4M" and c[3] == 1)]
    assert cells(added) == expected


def test_a_group_excludes_from_itself_only():
    added = "grid:\n  - { size: a, exclude: [{ budget: 1M }] }\n  - { size: b }\n"
    expected = [c for c in FULL if (c[1] == "a" and c[2] != "1M") or c[1] == "b"]
    assert sorted(cells(added)) == sorted(expected)


def test_holdout_marks_points_by_selector_and_by_group():
    by_selector = points("holdout: [{ budget: 4M }]\n")
    assert all(point.holdout == (point.budget == "4M") for point in by_selector)
    by_group = points("grid:\n  - { size: [a, b] }\n  - { size: c, holdout: true }\n")
    assert all(point.holdout == (point.size == "c") for point in by_group)


def test_any_option_can_be_an_axis():
    axes = "options.alpha_init: [0.01, 0.05], lr: [1e-2, 2e-2]"
    added = f"grid:\n  - {{ method: angpt, size: a, budget: 1M, seed: 0, {axes} }}\n"
    assert [(point.lr, dict(point.overrides)) for point in points(added)] == [
        (0.01, {"options.alpha_init": 0.01}),
        (0.01, {"options.alpha_init": 0.05}),
        (0.02, {"options.alpha_init": 0.01}),
        (0.02, {"options.alpha_init": 0.05}),
    ]


def test_an_override_of_the_optimiser_is_read_by_its_declared_type():
    point = points("grid:\n  - { size: a, budget: 1M, schedule.warmup: 5%, optimizer.clip_norm: none }\n")[0]
    assert dict(point.overrides)["schedule.warmup"].to_tokens(1000, 10) == 50
    assert dict(point.overrides)["optimizer.clip_norm"] is None


def test_an_option_that_is_a_list_can_be_an_axis():
    added = "grid:\n  - { size: a, budget: 1M, seed: 0, method: gpt+, gate_options.values: [[0.1, 0.2], [0.3, 0.4]] }\n"
    assert [dict(point.overrides)["gate_options.values"] for point in points(added)] == [(0.1, 0.2), (0.3, 0.4)]


def test_selectors_that_match_nothing_are_named():
    added = "exclude: [{ size: a }, { seed: 9 }]\nholdout: [{ batch: 77 }]\n"
    added += "grid:\n  - { size: [a, b], exclude: [{ size: c }] }\n"
    assert unused_selectors(read_experiment(BASE + added)) == ["exclude[1]", "holdout[0]", "grid[0].exclude[0]"]


def test_a_selector_on_an_override_matches_its_value():
    added = "grid:\n  - { size: a, optimizer.weight_decay: [0, 0.1] }\nexclude: [{ optimizer.weight_decay: 0.1 }]\n"
    assert {dict(point.overrides)["optimizer.weight_decay"] for point in points(added)} == {0.0}


names = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)
budgets = st.lists(st.sampled_from(["1M", "2M", "4M"]), min_size=1, max_size=3, unique=True)


@given(names, budgets, st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), names)
def test_a_crossed_group_has_the_product_less_what_is_excluded(sizes, tokens, seeds, excluded):
    group = f"grid:\n  - {{ size: [{', '.join(sizes)}], budget: [{', '.join(tokens)}], seed: {seeds} }}\n"
    kept = [size for size in sizes if size not in excluded]
    text = BASE + group + f"exclude: [{{ size: [{', '.join(excluded)}], method: angpt }}]\n"
    found = expand(read_experiment(text))
    assert len(found) == (len(sizes) + len(kept)) * len(tokens) * len(seeds)
    assert len({point.place() for point in found}) == len(found)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_zip_crossed_with_seeds_has_their_product(n):
    sizes, tokens = "abc"[:n], ["1M", "2M", "4M"][:n]
    added = f"grid:\n  - zip: {{ size: [{', '.join(sizes)}], budget: [{', '.join(tokens)}] }}\n"
    assert len(points(added)) == n * 2 * 2


@pytest.mark.parametrize("first", [True, False])
def test_a_point_of_two_groups_is_held_out_by_either(first):
    held, plain = "{ budget: 1M, holdout: true }", "{ size: a }"
    groups = [held, plain] if first else [plain, held]
    found = points("grid:\n" + "".join(f"  - {group}\n" for group in groups))
    assert {(p.size, p.budget) for p in found if p.holdout} == {("a", "1M"), ("b", "1M"), ("c", "1M")}
    shared = next(p for p in found if (p.size, p.budget) == ("a", "1M"))
    assert shared.group == "group 1"
