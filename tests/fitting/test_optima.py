"""Compute-optimal sizes from the runs themselves: parabolas that must be refused, exponents that must come back."""

import json

import numpy as np
import pandas as pd
import pytest
from isoflop_coverage import coverage, study
from planted_laws import chinchilla, grid
from scipy import stats

from scalewright.fitting.agreement import approaches
from scalewright.fitting.choices import APPROACHES
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import check_points
from scalewright.fitting.optimum import fit_optimum, flop_levels, pareto, valley

TRUE_A = 0.37 / 0.72


def isoflop_runs(n_sizes=9, noise=0.0, budgets=(1e18, 1e19, 1e20, 1e21), decades=1.0):
    rng = np.random.default_rng(4)
    rows = []
    for compute in budgets:
        for ratio in 20 * 10 ** np.linspace(-decades, decades, n_sizes):
            n = np.sqrt(compute / 6 / ratio)
            rows.append((n, n * ratio, compute, chinchilla(n, n * ratio) * np.exp(noise * rng.normal())))
    return pd.DataFrame(rows, columns=["n_params", "n_tokens", "flops", "loss_nats"])


@pytest.mark.parametrize("approach", ["isoflop", "isoflop-akima"])
def test_parabolas_give_back_the_exponent_of_the_planted_law(approach):
    result = fit_optimum(isoflop_runs(), approach)
    assert result.params["a"].value == pytest.approx(TRUE_A, abs=0.01)
    assert result.params["a"].value + result.params["b"].value == pytest.approx(1.0, abs=1e-9)
    truth = (0.35 * 480 / (0.37 * 2080)) ** (1 / 0.72) * (1e20 / 6) ** TRUE_A
    assert result.n_star(1e20) == pytest.approx(truth, rel=0.05)


def test_a_parabola_is_exact_on_a_parabola():
    x = np.linspace(-1, 1, 7)
    runs = pd.DataFrame({"n_params": 1e8 * np.exp(x), "loss_nats": np.exp(1.0 + 0.3 * (x - 0.2) ** 2), "flops": 1e19})
    runs["n_tokens"] = runs["flops"] / 6 / runs["n_params"]
    found = valley(1e19, runs)
    assert found.curvature == pytest.approx(0.3, rel=1e-9)
    assert found.n_star == pytest.approx(1e8 * np.exp(0.2), rel=1e-9)
    assert found.loss_star == pytest.approx(np.e, rel=1e-9)
    assert found.n_tokens_star == pytest.approx(1e19 / 6 / found.n_star, rel=1e-9)


def curve(shape, n=6):
    x = np.linspace(-1, 1, n)
    frame = pd.DataFrame({"n_params": 1e8 * np.exp(x), "loss_nats": np.exp(shape(x)), "flops": 1e19})
    return frame.assign(n_tokens=frame["flops"] / 6 / frame["n_params"])


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (curve(lambda x: 1 - 0.3 * x**2), "not positive: no minimum"),
        (curve(lambda x: 1 + 0.1 * (x - 3) ** 2), "not bracketed"),
        (curve(lambda x: 1 + 0.3 * x**2, n=3), "3 sizes, needs 4"),
    ],
)
def test_concave_unbracketed_or_thin_parabolas_are_refused_in_words(runs, why):
    assert why in valley(1e19, runs).refused
    many = pd.concat([runs.assign(flops=c, n_tokens=c / 6 / runs["n_params"]) for c in (1e18, 1e19, 1e20)])
    with pytest.raises(FittingError, match=why):
        fit_optimum(many, "isoflop")


def test_a_refused_budget_is_listed_and_the_others_are_used():
    runs = isoflop_runs()
    cheapest = runs.index[runs["flops"] == 1e18]
    result = fit_optimum(runs.drop(cheapest[3:]), "isoflop")
    assert result.warnings == ("no usable optimum at 1 of 4 computes",)
    assert "refused at 1e+18 FLOPs: 3 sizes, needs 4" in result.summary()
    assert json.loads(json.dumps(result.to_record(), allow_nan=False))["law"] == "isoflop"
    assert result.to_record()["format"] == 1


def test_the_envelope_keeps_only_runs_that_no_cheaper_run_beats():
    points = check_points(grid(6, 6))
    kept = pareto(points).frame.sort_values("flops")
    assert (kept["loss_nats"].diff().dropna() < 0).all()
    for row in kept.itertuples():
        assert (points.frame.query("flops <= @row.flops")["loss_nats"] >= row.loss_nats).all()


def test_runs_bought_by_flops_have_one_frontier_run_a_compute_whatever_their_rounding():
    runs = isoflop_runs(n_sizes=7)
    bought = np.random.default_rng(0).uniform(0.97, 1.03, len(runs))
    runs = runs.assign(flops=runs["flops"] * bought, n_tokens=runs["n_tokens"] * bought, run_id=runs.index.astype(str))
    kept = pareto(check_points(runs)).frame
    assert len(kept) == 4
    assert list(kept["run_id"]) == [str(own["loss_nats"].idxmin()) for _, own in runs.groupby(np.arange(28) // 7)]


def test_a_dense_row_of_computes_is_not_one_compute():
    levels = flop_levels(np.exp(np.arange(0, 2, 0.05)))
    assert len(set(levels)) == pytest.approx(2 / 0.1, abs=7)


def test_the_envelope_of_an_isoflop_grid_goes_through_minima_and_not_through_the_sizes_that_were_run():
    runs = isoflop_runs(n_sizes=6)
    envelope, minima = fit_optimum(runs, "envelope"), fit_optimum(runs, "isoflop")
    assert envelope.params["a"] == minima.params["a"]
    assert not np.isin(envelope.parabolas()["n_star"], runs["n_params"]).any()


def test_leaning_curves_give_the_planted_exponent_where_parabolas_do_not():
    """alpha .5, beta .25 over 2.6 decades with a middle that drifts: parabolas are off by .009, and say so."""
    rng = np.random.default_rng(2)
    truth, runs = study(rng, "drifting, wide")
    found = fit_optimum(runs, "isoflop")
    assert abs(found.params["a"].value - truth) > 0.007
    assert found.leaning["a"].value == pytest.approx(truth, abs=0.002)
    assert found.params["a"].low < truth < found.params["a"].high
    assert "the curves are no parabolas: one leaning shape" in found.warnings[-1]


@pytest.mark.parametrize("case", ["drifting, wide", "wide, alpha > beta", "centred"])
def test_intervals_of_isoflop_exponents_cover(case):
    found = coverage(case, 60, seed=1)
    assert found["n"] == 60 and found["covers"] >= 0.9  # standard error .03
    if case != "centred":
        assert found["scatter alone"] < 0.8


def test_the_three_approaches_agree_on_one_law_and_say_when_one_is_refused():
    found = approaches(isoflop_runs(noise=0.001))
    assert set(found.a) == {"envelope", "isoflop", "chinchilla"} and found.agree
    assert found.a["chinchilla"].low < TRUE_A < found.a["chinchilla"].high
    assert found.a["isoflop"].value == pytest.approx(TRUE_A, abs=0.01)  # a parabola over two decades leans a little
    thin = approaches(grid(5, 3, noise=0.001))
    assert "isoflop" in thin.refused and "chinchilla" in thin.a


def test_approaches_that_differ_are_called_so():
    from scalewright.fitting.agreement import _homogeneity
    from scalewright.fitting.result import Parameter

    apart = [Parameter("a", v, 0.01, v - 0.02, v + 0.02) for v in (0.5, 0.6)]
    assert _homogeneity(apart) < 1e-6
    unequal = [Parameter("a", v, se, v - se, v + se) for v, se in ((0.5, 0.01), (0.6, 0.02))]
    q = 0.1**2 / (0.01**2 + 0.02**2)  # of two estimates Cochran's Q is their squared difference over its variance
    assert _homogeneity(unequal) == pytest.approx(stats.chi2.sf(q, 1))


def test_computes_are_grouped_by_level():
    levels = flop_levels(np.array([1e18, 1.02e18, 5e18, 0.99e18]))
    assert len(set(levels)) == 2 and levels[0] == levels[1] == levels[3]
    assert list(flop_levels(np.array([1e18, 1e18, 4.641588833612792e18]))) == [1e18, 1e18, 4.641588833612792e18]


def test_an_unknown_approach_is_refused():
    with pytest.raises(FittingError, match=r"unknown approach 'iso' .*; valid: " + ", ".join(APPROACHES)):
        fit_optimum(isoflop_runs(), "iso")


def test_the_interval_of_a_coefficient_is_that_of_a_straight_line_at_log_compute_zero():
    """By hand, without centring: y = a x + g, covariance (X'X)^-1 of the residual variance over n - 2."""
    from scalewright.fitting.optimum import _power

    x, y = np.array([1.0, 2.0, 4.0, 7.0]), np.array([0.1, 1.2, 1.9, 4.1])
    design = np.stack([x, np.ones(4)], axis=1)
    (slope, height), squares, *_ = np.linalg.lstsq(design, y, rcond=None)
    se_slope, se_height = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares[0] / 2)
    t = stats.t.ppf(0.95, 2)
    found = _power("a", "G", x, y, 0.9)
    a, g = found["a"], found["G"]
    assert (a.value, a.se, a.low, a.high) == pytest.approx(
        (slope, se_slope, slope - t * se_slope, slope + t * se_slope)
    )
    ends = np.exp([height, height - t * se_height, height + t * se_height])
    assert (g.value, g.low, g.high) == pytest.approx(tuple(ends)) and g.se == pytest.approx(g.value * se_height)


def test_minima_that_scatter_more_than_their_errors_have_the_interval_of_their_scatter():
    """By hand on either side: the covariance of the minima carried through the line, or its own residuals."""
    from scalewright.fitting.leaning import Minima
    from scalewright.fitting.optimum import _line

    x, y = np.array([1.0, 2.0, 4.0, 7.0]), np.array([0.1, 1.2, 1.9, 4.1])
    design = np.stack([x, np.ones(4)], axis=1)
    (slope, height), squares, *_ = np.linalg.lstsq(design, y, rcond=None)
    for size, df in ((0.5, 9.0), (1e-4, 9.0)):
        known = size * np.diag([1.0, 2.0, 1.0, 3.0])
        covariance = np.linalg.pinv(design) @ known @ np.linalg.pinv(design).T
        scatter = np.linalg.inv(design.T @ design) * squares[0] / 2
        expected, of = (scatter, 2.0) if size == 1e-4 else (covariance, df)
        found = _line("a", "G", x, Minima(y, known, df), 0.9)
        (se, se_g), t = np.sqrt(np.diag(expected)), stats.t.ppf(0.95, of)
        a, g = found["a"], found["G"]
        assert (a.value, a.se, a.low, a.high) == pytest.approx((slope, se, slope - t * se, slope + t * se))
        assert np.log([g.value, g.low, g.high]) == pytest.approx([height, height - t * se_g, height + t * se_g])
        assert g.se == pytest.approx(g.value * se_g)
