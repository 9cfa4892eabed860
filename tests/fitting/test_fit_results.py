"""What a fit returns, over every law and objective: names, intervals, predictions, text, record."""

import dataclasses
import html
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from planted_laws import TRUE_SPEEDUP, chinchilla, grid, small_study

from scalewright.fitting.bootstrap import bootstrap
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import check_design, fit
from scalewright.fitting.frame import check_points
from scalewright.fitting.frontier import exponents, frontier
from scalewright.fitting.laws import LAWS
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.profiles import profile_of
from scalewright.fitting.result import Parameter, interval_text


def points_for(law):
    """Points that the law can be fitted to: two methods where it has method-wise parameters."""
    frame = grid(5, 4, noise=0.004)
    frame["unique_tokens"] = frame["n_tokens"] / np.tile([1, 2, 4, 1], 5)
    frame["depth"] = np.tile([4.0, 8.0, 16.0, 8.0], 5)
    frame["width"] = np.sqrt(frame["n_params"] / (12 * frame["depth"]))
    other = {"size": "n_tokens", "tokens": "n_params"}.get(law)  # the axis that a law of one axis does not read
    if other:
        frame[other] = 1e9
        frame["loss_nats"] = chinchilla(frame["n_params"], frame["n_tokens"])
    if not LAWS[law].per_method:
        return frame
    parts = [frame.assign(label=m, loss_nats=frame["loss_nats"] * f) for m, f in (("a", 1.0), ("b", 0.97))]
    return pd.concat(parts).assign(run_id=lambda t: [f"r{i}" for i in range(len(t))])


@pytest.mark.parametrize("law", LAWS)
def test_every_law_fits_predicts_prints_and_records(law):
    frame = points_for(law)
    result = fit(frame, law, "log-l2", profile="never")
    assert result.certificate.converged
    assert {name.split("[")[0] for name in result.params} == set(LAWS[law].parameters)
    row = frame.iloc[7]
    axes = {axis: row[axis] for axis in ("unique_tokens", "width", "depth") if axis in LAWS[law].axes}
    told = result.predict(row["n_params"], row["n_tokens"], method="a" if LAWS[law].per_method else None, **axes)
    assert float(told.low) <= float(told.value) <= float(told.high)
    assert float(told.value) == pytest.approx(row["loss_nats"], rel=0.15)
    record = json.loads(result.to_json())
    assert record["law"] == law and len(record["run_ids"]) == record["n"] == len(frame)
    assert set(result.params) <= set(words_of(result.summary()))
    assert words_of(re.sub("<[^>]*>", "  ", result._repr_html_())) == words_of(result.summary())


def words_of(text):
    """Split where a table or a list parts its words."""
    return [word for word in re.split(r"\s{2,}|\n", html.unescape(text)) if word]


def test_a_notebook_shows_no_error_of_a_parameter_that_is_not_identified():
    result = fit(grid(3, 2, noise=0.01, seed=1), "chinchilla", profile="never")
    wide = next(name for name, one in result.params.items() if not one.identified)
    row = re.search(rf"<th>{wide}</th>(.*?)</tr>", result._repr_html_()).group(1)
    assert re.findall("<td>(.*?)</td>", row)[1] == "-"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_recovers_the_law_within_its_intervals(objective):
    result = fit(grid(8, 6, noise=0.003, seed=2), objective=objective)
    assert result.objective == objective
    assert abs(result.value("E") - 1.8) < 4 * result.params["E"].se
    assert result.certificate.share_of_seeds == 1.0


def test_the_objective_value_is_the_sum_over_runs():
    frame = grid(5, 4, noise=0.01)
    result = fit(frame, objective="log-l2")
    assert result.objective_value == pytest.approx(0.5 * (result.residuals**2).sum(), rel=1e-12)
    lad = fit(frame, objective="lad")
    assert lad.objective_value == pytest.approx(np.abs(lad.residuals).sum(), rel=1e-12)
    huber = fit(frame, delta=1e-3)
    r = np.abs(huber.residuals)
    assert huber.objective_value == pytest.approx(np.where(r <= 1e-3, r**2 / 2, 1e-3 * (r - 5e-4)).sum(), rel=1e-10)


def test_a_wider_delta_approaches_least_squares():
    frame = grid(5, 4, noise=0.01)
    assert fit(frame, delta=10.0).value("E") == pytest.approx(fit(frame, objective="log-l2").value("E"), rel=1e-9)


def test_results_and_parameters_are_frozen():
    result = fit(grid(5, 4, noise=0.01))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.n = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.params["E"].value = 0.0
    with pytest.raises(TypeError):
        result.params["E"] = None


def test_same_points_in_another_order_give_the_same_record():
    frame = grid(5, 4, noise=0.01)
    assert fit(frame).to_json() == fit(frame.sample(frac=1, random_state=3)).to_json()


def test_a_band_for_a_new_run_is_wider_than_that_of_the_mean():
    result = fit(grid(5, 4, noise=0.01))
    mean, new = result.predict(1e9, 2e10), result.predict(1e9, 2e10, new_run=True)
    assert float(new.high - new.low) > float(mean.high - mean.low)
    assert list(result.predict([1e8, 1e9], 2e10).frame()) == ["loss_nats", "low", "high"]


def test_new_run_bands_hold_new_runs_as_often_as_they_say():
    inside = []
    for seed in range(20):
        result = fit(grid(5, 4, noise=0.01, seed=seed), objective="log-l2", profile="never")
        fresh = grid(5, 4, noise=0.01, seed=1000 + seed)
        told = result.predict(fresh["n_params"], fresh["n_tokens"], new_run=True)
        inside.append(((told.low < fresh["loss_nats"]) & (fresh["loss_nats"] < told.high)).mean())
    assert 0.92 < np.mean(inside) < 0.98  # 400 runs: standard error .011


@pytest.mark.parametrize("n_points", [1, 3, 5])
def test_too_few_points_are_refused_with_the_number_needed(n_points):
    with pytest.raises(FittingError, match=f"has 5 parameters and needs 6 points or more, got {n_points}"):
        fit(grid(3, 3).iloc[:n_points])


@pytest.mark.parametrize("law", ["chinchilla", "kaplan"])
def test_two_sizes_are_too_few_for_an_exponent_of_size_and_three_are_not(law):
    with pytest.raises(FittingError, match="3 levels of n_params or more, got 2"):
        fit(grid(2, 6), law)
    check_design(check_points(grid(3, 3)), LAWS[law])


@pytest.mark.parametrize("kwargs", [{"law": "chinchila"}, {"objective": "hubr"}, {"delta": -1.0}])
def test_unknown_words_and_bad_numbers_are_refused(kwargs):
    with pytest.raises(FittingError, match="unknown|positive"):
        fit(grid(4, 4), **kwargs)


@pytest.mark.parametrize(("label", "seeds"), [("base", (0,)), ("fast", (0, 1, 2))])
def test_the_demo_grid_says_what_it_does_not_identify_instead_of_five_numbers(label, seeds):
    result = fit(small_study(seeds, noise=0.006).query("label == @label"))
    assert not result.identified
    assert any("do not identify" in w for w in result.warnings)
    open_ended = [p for p in result.params.values() if p.one_sided]
    assert open_ended and all("at" in interval_text(p) or "not" in interval_text(p) for p in open_ended)
    told = result.predict(55e3, 5.2e5)  # inside the grid the law still predicts
    assert float(told.high / told.low) < 1.1


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"low": 1.0, "high": 9.0}, "1 to 9"),
        ({"low": 1.0, "high": 11.0}, "1 to 11, not identified"),
        ({"low": -9.0, "high": -1.0}, "-9 to -1"),
        ({"low": -0.1, "high": 2.0, "shift": True}, "-0.1 to 2"),
        ({"low": -0.5, "high": 2.0, "shift": True}, "-0.5 to 2, not identified"),
        ({"low": 0.0, "high": 4.5, "one_sided": "upper"}, "at most 4.5"),
        ({"low": 1.5, "high": math.inf, "one_sided": "lower"}, "at least 1.5"),
        ({"low": 0.0, "high": math.inf, "one_sided": "none"}, "not identified"),
        ({"low": 1.0, "high": 2.0, "at_limit": True}, "1 to 2, at its limit"),
    ],
)
def test_an_interval_in_words(ends, words):
    told = Parameter("E", 1.5, 0.1, **ends)
    assert interval_text(told) == words
    assert told.identified == ("not identified" not in words and told.one_sided is None)


def test_one_sided_intervals_hold_the_truth():
    """The planted floor is 0.5 and the runs only bound it from above."""
    result = fit(small_study((0, 1, 2)).query("label == 'base'"))
    floor = result.params["E"]
    assert floor.one_sided == "upper" and floor.low == 0.0 and floor.high > 0.5


def test_held_parameters_stay_and_the_others_adapt():
    frame = grid(5, 4, noise=0.002)
    result = fit(frame, fixed={"E": 1.8, "alpha": 0.35})
    assert result.value("E") == 1.8 and result.params["E"].interval == "fixed" and result.params["E"].se == 0
    assert abs(result.value("A") - 480) < 4 * result.params["A"].se
    frames = [grid(5, 4, noise=0.002, seed=seed) for seed in range(9)]
    shrunk = [fit(f, fixed={"E": 1.8, "alpha": 0.35}).params["beta"].se / fit(f).params["beta"].se for f in frames]
    assert np.median(shrunk) < 1
    with pytest.raises(FittingError, match="unknown parameter 'gamma'"):
        fit(frame, fixed={"gamma": 1.0})


def test_bounds_that_bind_are_told_as_a_limit_and_not_as_an_effect_of_a_size():
    result = fit(grid(6, 5, noise=0.001), bounds={"E": (1.0, 1.6)})
    floor = result.params["E"]
    assert floor.at_limit and floor.value == pytest.approx(1.6) and interval_text(floor).endswith("at its limit")
    assert not result.params["alpha"].at_limit
    (told,) = [note for note in result.notes if "runs of one size" in note]
    assert "E is held" in told and "share an effect" not in told
    free = fit(grid(6, 5, noise=0.001), bounds={"E": (1.0, 3.0)})
    assert not free.params["E"].at_limit and "limit" not in free.summary()


def test_shared_exponents_give_each_method_its_coefficients():
    frame = grid(5, 4, noise=0.002)
    slower = frame.assign(label="slow", run_id=[f"s{i}" for i in range(len(frame))])
    faster = slower.assign(label="fast", run_id=[f"f{i}" for i in range(len(frame))],
                           loss_nats=chinchilla(frame["n_params"], frame["n_tokens"] * TRUE_SPEEDUP))  # fmt: skip
    result = fit(pd.concat([slower, faster]), "chinchilla-shared")
    ratio = (result.value("B[slow]") / result.value("B[fast]")) ** (1 / result.value("beta"))
    assert ratio == pytest.approx(TRUE_SPEEDUP, rel=0.03)
    with pytest.raises(FittingError, match="unknown method None; valid: fast, slow"):
        result.predict(1e9, 1e10)


def test_the_frontier_is_where_no_other_split_of_compute_is_better():
    result = fit(grid(8, 6))
    optimum = frontier(result, 1e21)
    n = float(optimum.n_params.value[0])
    assert n * float(optimum.n_tokens.value[0]) * 6 == pytest.approx(1e21, rel=1e-12)
    sizes = n * np.linspace(0.5, 2, 301)
    losses = result.predict(sizes, 1e21 / 6 / sizes).value
    assert sizes[np.argmin(losses)] == pytest.approx(n, rel=0.01)
    assert losses.min() == pytest.approx(float(optimum.loss_nats.value[0]), rel=1e-6)


def test_frontier_exponents_are_those_of_the_formulas():
    found = exponents(fit(grid(8, 6)))
    assert found["a"].value == pytest.approx(0.37 / 0.72, rel=1e-6)
    assert found["b"].value == pytest.approx(0.35 / 0.72, rel=1e-6)
    assert found["gamma"].value == pytest.approx(0.35 * 0.37 / 0.72, rel=1e-6)
    assert found["G"].value == pytest.approx((0.35 * 480 / (0.37 * 2080)) ** (1 / 0.72), rel=1e-5)
    with pytest.raises(FittingError, match="needs a Chinchilla law"):
        exponents(fit(grid(8, 6), "power"))


def test_the_bootstrap_agrees_with_the_delta_method_on_a_large_design_and_repeats_itself():
    points = check_points(grid(12, 10, noise=0.004))
    result = fit(points, objective="log-l2")
    draws = bootstrap(points, result, 600, seed=1)
    for name in ("E", "alpha", "beta"):
        assert draws.parameter(name).se == pytest.approx(result.params[name].se, rel=0.3)
    assert (bootstrap(points, result, 600, seed=1).draws == draws.draws).all()
    assert (bootstrap(points, result, 600, seed=2).draws != draws.draws).any()
    own = draws.quantity("a", lambda t: t["beta"] / (t["alpha"] + t["beta"]))
    assert own.se == pytest.approx(exponents(result)["a"].se, rel=0.3)


def test_the_profile_is_near_the_delta_interval_where_the_law_is_identified():
    points = check_points(grid(9, 8, noise=0.003))
    result = fit(points, objective="log-l2")
    curve = profile_of(points, result, "alpha")
    assert curve.low == pytest.approx(result.params["alpha"].low, abs=0.3 * result.params["alpha"].se)
    assert curve.high == pytest.approx(result.params["alpha"].high, abs=0.3 * result.params["alpha"].se)
    assert curve.rise.min() == pytest.approx(0, abs=1e-12)
    inside = (curve.values > curve.low) & (curve.values < curve.high)
    assert (curve.rise[inside] <= curve.threshold * 1.05).all()


def test_a_profile_that_never_rises_is_open_ended():
    points = check_points(small_study((0,)).query("label == 'base'"))
    curve = profile_of(points, fit(points), "E")
    assert curve.low == 0.0 and math.isfinite(curve.high)


def test_bands_of_a_law_that_is_not_identified_hold_the_truth_far_outside_the_grid():
    """The optimum has no floor; the truth has one of 0.5: the band must hold what the runs still allow."""
    result = fit(small_study((0, 1, 2)).query("label == 'base'"))
    assert not result.identified and len(result.estimate.alternatives)
    told = result.predict(5.5e6, 5e7)
    assert float(told.low) < 0.5 + 3 / 5.5e6**0.1 + 40 / 5e7**0.3 < float(told.high)
    assert float(told.high / told.low) > 1.1  # and says that it does not know
    best = frontier(result, 1e14)
    assert not best.reliable and float(best.n_params.high[0] / best.n_params.low[0]) > 5


def test_methods_fitted_as_one_are_named():
    result = fit(small_study((0, 1, 2)), "pure-power")
    assert "3 methods were fitted as one: base, fast, same" in result.warnings
