"""One model of all runs: planted speed-ups come back, intervals cover and are narrow, what differs is said."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scalewright.fitting.compare import compare
from scalewright.fitting.difference import loss_differences
from scalewright.fitting.errors import CurveError
from scalewright.fitting.frame import check_points
from scalewright.fitting.joint.answer import contrast, joint_comparison
from scalewright.fitting.joint.curve import bent, jacobian, stretch
from scalewright.fitting.joint.shift import _lowest, robust_factor
from scalewright.fitting.joint.units import in_unit, log_cost_ratio

SIZES, RATIOS = (2e7, 6e7, 2e8), (5, 20, 80)


def surface(n, d):
    return 1.8 + 480 * n**-0.35 + 2080 * d**-0.37


def study(speed=1.3, *, noise=0.005, seed=0, sizes=SIZES, ratios=RATIOS, seeds=1, common=0.0, arm=0.0):
    """Runs of `new` and `base`; speed may be a function of (n, d). common: share of variance that seeds share."""
    rng = np.random.default_rng(seed)
    rows = []
    for n, ratio, k in itertools.product(sizes, ratios, range(seeds)):
        shared = rng.normal()
        for label in ("new", "base"):
            d = n * ratio
            worth = d * (speed(n, d) if callable(speed) else speed) if label == "new" else d
            own = math.sqrt(common) * shared + math.sqrt(1 - common) * rng.normal()
            rows.append((label, n, d, k, math.log(surface(n, worth)) + noise * own))
    frame = pd.DataFrame(rows, columns=["label", "n_params", "n_tokens", "seed", "log_loss"])
    arms = frame.groupby(["label", "n_params"]).ngroup()
    frame["log_loss"] += arm * rng.normal(size=arms.max() + 1)[arms]
    speeds = np.where(frame["label"] == "new", 900.0, 1000.0)
    return frame.assign(loss_nats=np.exp(frame["log_loss"]), flops=6 * frame["n_params"] * frame["n_tokens"] * 1.0,
                        tokens_per_s=speeds)  # fmt: skip


def joint(frame, **options):
    return joint_comparison(check_points(frame), "new", "base", **options)


@pytest.mark.parametrize("speed", [0.7, 1.0, 1.3, 2.5])
def test_a_planted_speed_up_comes_back(speed):
    found = joint(study(speed, noise=1e-5)).speedup()
    assert found.ratio == pytest.approx(speed, rel=2e-3)
    assert found.low < speed < found.high and (found.n_cells, found.n_sizes) == (9, 3)


def test_the_interval_covers_is_narrow_and_excludes_one():
    """2 x 3 runs, one seed, .5% noise: the design in which a t over sizes never excluded 1."""
    found = [joint(study(1.3, seed=k, sizes=SIZES[::2]), scales=False).speedup() for k in range(40)]
    assert np.mean([one.low < 1.3 < one.high for one in found]) >= 0.875  # 3 standard errors under .95: .85
    assert np.mean([one.low > 1 for one in found]) >= 0.9
    assert np.median([math.log(one.high / one.low) for one in found]) < 0.2
    null = [joint(study(1.0, seed=k, sizes=SIZES[::2]), scales=False).speedup() for k in range(40)]
    assert np.mean([one.low > 1 or one.high < 1 for one in null]) <= 0.125


def test_seeds_that_both_methods_share_make_it_narrower():
    def width(common):
        found = [joint(study(seed=k, seeds=3, common=common), scales=False).speedup() for k in range(6)]
        return np.median([math.log(one.high / one.low) for one in found])

    assert width(0.9) < 0.6 * width(0.0)


def test_what_a_method_shares_at_a_size_makes_it_wider():
    quiet, loud = joint(study(seeds=3, noise=0.002)), joint(study(seeds=3, noise=0.002, arm=0.02))
    assert loud.shared["method at a size"] > 5 * quiet.shared["method at a size"]
    ratio = [math.log(one.speedup().high / one.speedup().low) for one in (loud, quiet)]
    assert ratio[0] > 2.5 * ratio[1]


def test_speed_ups_that_differ_by_size_are_told_by_size_with_their_trend():
    found = joint(study(lambda n, d: 1.3 * (n / 6e7) ** 0.2, noise=2e-4))
    by_size = {one.scope: one.ratio for one in found.speedups if one.scope.startswith("size ")}
    assert list(by_size.values()) == pytest.approx([1.3 * (n / 6e7) ** 0.2 for n in SIZES], rel=0.01)
    test = next(one for one in found.tests if one.against == "size")
    assert test.p_value < 1e-3
    new, pooled = found.speedup("new size"), found.speedup()
    assert new.low < pooled.low and new.high > pooled.high
    along = {one.along: one for one in found.trends}
    assert along["parameters"].factor == pytest.approx(10**0.2, rel=0.03)
    assert along["parameters"].low > 1 and along["tokens"].low < 1 < along["tokens"].high
    told = compare(study(lambda n, d: 1.3 * (n / 6e7) ** 0.2, noise=2e-4), "new", "base").warnings
    assert any("differs by size" in warning for warning in told)


def test_speed_ups_that_differ_by_budget_are_told_by_budget():
    found = joint(study(lambda n, d: 1.2 * (d / n / 20) ** 0.2, noise=2e-4))
    by_budget = [one.ratio for one in found.speedups if one.scope.startswith("budget ")]
    assert len(by_budget) == len({round(n * r) for n in SIZES for r in RATIOS})
    assert {one.along: one for one in found.trends}["tokens"].low > 1


def test_one_speed_up_for_all_is_not_rejected_where_there_is_one():
    p_values = [test.p_value for k in range(12) for test in joint(study(seed=k)).tests if test.against == "size"]
    assert np.mean(np.array(p_values) < 0.05) <= 2 / 12


def test_units_differ_by_the_cost_of_a_token():
    frame = study(seeds=2)
    frame.loc[frame["label"] == "new", "flops"] *= 1.25
    model = joint(frame)
    tokens, flops, seconds = (in_unit(model, unit)[0] for unit in ("tokens", "flops", "seconds"))
    assert flops.ratio == pytest.approx(tokens.ratio / 1.25) and flops.low == pytest.approx(tokens.low / 1.25)
    assert seconds.ratio == pytest.approx(tokens.ratio * 0.9) and seconds.high == pytest.approx(tokens.high * 0.9)


def test_scatter_of_the_throughput_widens_seconds_by_hand():
    frame = study(seeds=2)
    frame["tokens_per_s"] *= np.exp(0.1 * np.random.default_rng(1).normal(size=len(frame)))
    model = joint(frame)
    value, half = log_cost_ratio(model.runs.frame, model.runs.sizes, "seconds", 0.95)
    cost = -np.log(frame["tokens_per_s"])
    groups = cost.groupby([frame["n_params"], frame["label"]])
    variance = ((cost - groups.transform("mean")) ** 2).sum() / (36 - 6)
    assert half == pytest.approx(stats.t.ppf(0.975, 30) * math.sqrt(variance * 6 / 6) / 3)
    tokens, seconds = in_unit(model, "tokens")[0], in_unit(model, "seconds")[0]
    assert math.log(seconds.high / seconds.ratio) == pytest.approx(
        math.hypot(math.log(tokens.high / tokens.ratio), half)
    )
    assert seconds.ratio == pytest.approx(tokens.ratio * math.exp(value))


def test_the_loss_difference_is_of_these_cells_and_takes_no_true_difference_for_noise():
    frame = study(1.3, noise=5e-4)
    points, model = check_points(frame), joint(frame)
    ours, old = (loss_differences(points, "new", "base", joint=one)[0] for one in (model, None))
    wide = frame.pivot_table(index=["n_params", "n_tokens"], columns="label", values="loss_nats")
    assert ours.nats == pytest.approx((wide["new"] - wide["base"]).mean()) and ours.basis == "model"
    assert ours.high - ours.low < 0.2 * (old.high - old.low)
    truth = np.mean([surface(n, 1.3 * n * r) - surface(n, n * r) for n in SIZES for r in RATIOS])
    assert ours.low < truth < ours.high
    half = stats.t.ppf(0.975, model.df) * model.noise * math.sqrt(2 / 9) * frame["loss_nats"].mean()
    assert ours.high - ours.nats == pytest.approx(half, rel=0.5)


def test_the_contrast_takes_cells_alike_whatever_their_seeds():
    frame = study(seeds=2).drop(index=[0])  # one cell has one run of `new`
    model = joint(frame)
    weights = contrast(model.runs, model.runs.shared_cells)
    means = frame.groupby(["n_params", "n_tokens", "label"])["log_loss"].mean().unstack("label")
    assert weights @ model.runs.log_loss == pytest.approx((means["new"] - means["base"]).mean())


def test_unequal_scatter_by_size_is_found():
    frame = study(seeds=3, noise=0.001)
    rng = np.random.default_rng(3)
    small = frame["n_params"] == SIZES[0]
    frame["loss_nats"] *= np.exp(np.where(small, 0.02, 0.0) * rng.normal(size=len(frame)))
    noise = joint(frame).effect.noise
    assert float(noise.weights @ noise.ratios[:, 3]) < -1


def test_runs_that_carry_no_curve_are_refused():
    with pytest.raises(CurveError, match="two budgets"):
        joint(study(ratios=(20,), sizes=SIZES[:1]))
    with pytest.raises(CurveError, match="share no size and budget"):
        frame = study()
        joint(frame[(frame["label"] == "base") | (frame["n_params"] == 1)].assign(label="base"))


def test_any_few_runs_give_an_answer_or_one_clear_refusal():
    whole = study(seeds=2)
    rng = np.random.default_rng(0)
    answered = 0
    for k in range(40):
        some = whole.sample(int(rng.integers(2, 11)), random_state=k)
        if some["label"].nunique() < 2:
            continue
        try:
            found = joint(some)
        except CurveError as error:
            assert len(str(error).splitlines()) == 1
            continue
        answered += 1
        for one in found.speedups:
            assert 0 <= one.low <= one.ratio <= one.high and one.ratio > 0, (k, one)
    assert answered > 3


def test_many_seeds_enter_as_their_mean():
    frame = study(seeds=12)  # 216 runs
    model = joint(frame, scales=False)
    assert len(model.runs) == 18
    assert model.speedup().low < 1.3 < model.speedup().high
    few = joint(frame[frame["seed"] < 11], scales=False).speedup()
    assert model.speedup().ratio == pytest.approx(few.ratio, rel=0.01)
    gap = model.log_ratio(model.runs.shared_cells).value
    wide = frame.pivot_table(index=["n_params", "n_tokens"], columns="label", values="log_loss")
    assert gap == pytest.approx((wide["new"] - wide["base"]).mean())


def test_a_record_holds_plain_numbers():
    import json

    record = compare(study(), "new", "base").to_record()
    text = json.dumps(record, allow_nan=False)
    assert {"trends", "tests", "own_slopes", "noise"} <= set(record["joint"]) and len(text) < 60_000
    pooled = next(one for one in record["pooled"] if (one["unit"], one["scope"]) == ("tokens", "pooled"))
    assert 1 < pooled["low"] < pooled["ratio"] < pooled["high"]


def test_whether_sizes_have_slopes_of_their_own_is_an_f_test_of_nested_curves():
    from types import SimpleNamespace

    from scalewright.fitting.joint.shift import f_test

    rng = np.random.default_rng(8)
    small = SimpleNamespace(n_parameters=4, residuals=0.02 * rng.normal(size=20))
    large = SimpleNamespace(n_parameters=7, residuals=0.015 * rng.normal(size=20))
    before, after = (small.residuals**2).sum(), (large.residuals**2).sum()
    f = (before - after) / 3 / (after / 13)
    found = f_test(small, large, 20, "size")
    assert (found.against, found.f, found.p_value) == ("size", pytest.approx(f), pytest.approx(stats.f.sf(f, 3, 13)))
    assert math.isnan(f_test(small, large, 7).p_value) and f_test(large, small, 20).p_value != found.p_value
    model = joint(study(noise=0.001, seeds=2))
    assert 0 < model.slopes_p <= 1 and model.own_slopes == (model.slopes_p < 0.05)
    assert model.to_record()["slopes_p"] == model.slopes_p


def test_the_slope_of_a_bent_curve_in_its_bend_is_its_difference():
    v = np.array([-1.5, 0.4, 2.0])
    for bend in (-0.3, 0.0, 6e-5, 0.2):
        difference = (stretch(v, bend + 1e-5) - stretch(v, bend - 1e-5)) / 2e-5
        assert bent(v, bend) == pytest.approx(difference, rel=1e-4)


def test_the_lowest_point_of_a_profile_is_the_vertex_of_its_parabola():
    grid = np.array([-5.0, -1, -0.2, 0.5, 1.7, 4])
    squares = np.stack([3 + 2 * (grid - 0.3) ** 2, 1 + 0.5 * (grid + 0.6) ** 2])
    at, least = _lowest(squares, grid)
    assert at == pytest.approx([0.3, -0.6]) and least == pytest.approx([3, 1])


def test_seeds_that_the_methods_do_not_share_are_no_pairs():
    frame = study(seeds=2, common=0.9)
    assert joint(frame, scales=False).runs.has_pairs
    apart = joint(frame.assign(seed=frame["seed"] + 10 * (frame["label"] == "new")), scales=False)
    assert not apart.runs.has_pairs and apart.shared["seed"] == 0


def test_one_size_has_a_speed_up_and_no_trend():
    found = joint(study(sizes=SIZES[:1], ratios=(5, 10, 20, 40, 80), seeds=2, noise=1e-3))
    assert found.trends == () and found.speedup().low < 1.3 < found.speedup().high


def test_an_interval_is_wider_by_half_of_what_leaving_out_cells_says():
    """The jackknife by refitting the whitened line without each cell, where one cell is off and where none is."""
    factors = []
    for off in (0.0, 0.02):
        frame = study(seeds=3, noise=0.002)
        frame.loc[(frame["label"] == "new") & (frame["n_tokens"] == frame["n_tokens"].max()), "loss_nats"] *= 1 + off
        model = joint(frame, scales=False)
        runs, fit, noise = model.runs, model.effect.fit, model.effect.noise
        whiten = np.linalg.cholesky(noise.inverses[noise.typical]).T
        x, y = whiten @ jacobian(runs, fit), whiten @ fit.residuals
        x = x / np.linalg.norm(x, axis=0)
        whole = np.linalg.lstsq(x, y, rcond=None)[0]
        cells = np.unique(runs.cell)
        moves = [whole[-1] - np.linalg.lstsq(x[runs.cell != c], y[runs.cell != c], rcond=None)[0][-1] for c in cells]
        jackknife = (len(cells) - 1) / len(cells) * np.sum(np.square(moves))
        own = np.linalg.inv(x.T @ x)[-1, -1] * ((y - x @ whole) ** 2).sum() / noise.df
        factors.append((robust_factor(runs, fit, noise, 0), (1 + max(1.0, math.sqrt(jackknife / own))) / 2))
    assert [found for found, _ in factors] == pytest.approx([expected for _, expected in factors], rel=1e-4)
    assert any(found == 1 for found, _ in factors) and any(found > 1 for found, _ in factors)


def test_a_run_without_a_throughput_does_not_count_in_seconds():
    frame = study(seeds=2)
    frame["tokens_per_s"] *= np.exp(0.05 * np.random.default_rng(1).normal(size=len(frame)))
    unknown, zero = (in_unit(joint(frame.assign(tokens_per_s=frame["tokens_per_s"].mask(frame.index == 3, value)),
                                   scales=False), "seconds") for value in (np.nan, 0.0))  # fmt: skip
    assert unknown == zero and math.isfinite(zero[0].ratio)
