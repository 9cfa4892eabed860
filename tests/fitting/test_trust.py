"""The trust section: what a fit depends on must show, and what a design cannot tell must be said before it is run."""

import numpy as np
import pandas as pd
import pytest
from planted_laws import chinchilla, grid, small_study

from scalewright.fitting.design import assess, isoflop_alternative
from scalewright.fitting.diagnostics import diagnose, influence_of_excluded
from scalewright.fitting.errors import FittingError
from scalewright.fitting.extrapolation import LAST_VALUE, PURE_POWER, rolling_origin
from scalewright.fitting.fit import fit
from scalewright.fitting.forecast import best_law, forecast
from scalewright.fitting.frame import check_points
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.profiles import profile_of
from scalewright.fitting.specification import EXCLUSIONS, specification_curve


def conventions(frame):
    return frame.assign(n_params_head=frame["n_params"] * 0.1 + 1e6, n_params_total=frame["n_params"] * 1.2 + 5e6)


def test_the_specification_curve_has_every_combination_and_its_interval_holds_them_all():
    found = specification_curve(conventions(grid(6, 5, noise=0.004)))
    assert len(found.of("beta")) == len(OBJECTIVES) * 3 * len(EXCLUSIONS) == 24
    low, high = found.interval("beta")
    assert low <= found.of("beta")["value"].min() and high >= found.of("beta")["value"].max()
    assert low <= found.headline.params["beta"].low and high >= found.headline.params["beta"].high
    assert not found.failed
    own = found.of("a").query("objective == 'huber' and n_convention == 'non-embedding' and exclusion == 'by rule'")
    theta = found.headline.params
    assert own["value"].item() == pytest.approx(
        theta["beta"].value / (theta["alpha"].value + theta["beta"].value), rel=1e-9
    )


def test_conventions_without_columns_are_not_invented():
    assert set(specification_curve(grid(6, 5, noise=0.004)).of("E")["n_convention"]) == {"non-embedding"}


def test_a_bad_run_spreads_the_specification_curve():
    frame = grid(6, 5, noise=0.002)
    bad = frame.copy()
    bad.loc[3, "loss_nats"] *= 1.3
    clean, spoiled = (np.ptp(specification_curve(f).envelope("beta")) for f in (frame, bad))
    assert spoiled > 3 * clean


def test_rolling_origin_favours_the_true_law_over_the_baselines():
    found = rolling_origin(grid(7, 6, noise=0.002))
    error = found.rows.groupby("law")["error"].agg(lambda e: float(np.sqrt((e**2).mean())))
    assert error["chinchilla"] < 0.5 * error[PURE_POWER] < error[LAST_VALUE]
    assert (found.rows["decades"] > 0).all()
    assert {"law", "within", "rms_error", "n"} == set(found.summary())


def test_rolling_origin_fits_nothing_that_it_predicts():
    points = check_points(grid(5, 4, noise=0.002))
    rows = rolling_origin(points).rows.query("law == 'chinchilla'")
    for n_train, part in rows.groupby("n_train"):
        trained = points.frame.nsmallest(int(n_train), "flops")["run_id"]
        assert not set(part["run_id"]) & set(trained)


def test_leave_one_out_influence_is_what_refitting_without_the_run_gives():
    points = check_points(grid(5, 4, noise=0.01))
    result = fit(points, objective="log-l2")
    found = diagnose(points, result)
    worst = found.most_influential(1).iloc[0]
    refit = fit(points.where(points.frame["run_id"] != worst["run_id"]), objective="log-l2")
    change = {}
    for name, p in result.params.items():
        log = name in "EAB"  # coefficients are judged by their logs
        change[name] = abs(np.log(refit.value(name) / p.value) * p.value if log else refit.value(name) - p.value) / p.se
    assert max(change.values()) == pytest.approx(worst["influence"], rel=1e-4)
    assert max(change, key=change.get) == worst["moves"]
    assert found.rows["leverage"].sum() == pytest.approx(5, rel=1e-9)


def test_an_outlier_is_named():
    frame = grid(6, 5, noise=0.003)
    frame.loc[17, "loss_nats"] *= 1.1
    points = check_points(frame)
    assert diagnose(points, fit(points)).outliers == ("run-017",)


def test_diagnostics_refuse_other_points():
    points = check_points(grid(5, 4, noise=0.01))
    with pytest.raises(FittingError, match="data hashes differ"):
        diagnose(points.where(points.frame.index > 0), fit(points))


def fixed_ratio(n_runs=12):
    n = np.geomspace(1e8, 1e10, n_runs)
    return pd.DataFrame({"n_params": n, "n_tokens": 20 * n})


def test_twenty_tokens_per_parameter_cannot_measure_the_exponent_and_the_same_compute_can():
    """Twelve runs at a fixed ratio: a standard error of tens; the same cost as isoFLOP curves: hundredths or less."""
    bad = assess(fixed_ratio(), scatter=0.005)
    good_design = isoflop_alternative(fixed_ratio())
    good = assess(good_design, scatter=0.005)
    assert bad.se["a"] > 10 and bad.problems
    assert any("tokens per parameter spread" in p for p in bad.problems) and bad.condition > 1e6
    assert good.se["a"] < 0.015 and not good.problems
    assert good.n_runs == 12 and good.total_flops == pytest.approx(bad.total_flops, rel=1e-9)
    assert bad.spread_decades == pytest.approx(0, abs=1e-9) and good.spread_decades == pytest.approx(2)
    assert good_design.groupby("flops").size().tolist() == [4, 4, 4] and good.total_flops == good_design["flops"].sum()
    assert (good_design["n_params"] * good_design["n_tokens"] * 6).to_numpy() == pytest.approx(good_design["flops"])


def test_expected_standard_errors_are_those_that_fits_then_have():
    design = grid(7, 5)
    expected = assess(design, {"E": 1.8, "A": 480.0, "alpha": 0.35, "B": 2080.0, "beta": 0.37}, scatter=0.004)
    spread = [fit(grid(7, 5, noise=0.004, seed=s), objective="log-l2", profile="never") for s in range(60)]
    read = {name: [r.value(name) for r in spread] for name in ("E", "alpha", "beta")}
    read |= {f"log {name}": list(np.log([r.value(name) for r in spread])) for name in "AB"}
    read["a"] = [r.value("beta") / (r.value("alpha") + r.value("beta")) for r in spread]
    assert set(read) == set(expected.se)
    for name, values in read.items():
        observed = np.std(values, ddof=1)
        assert observed == pytest.approx(expected.se[name], rel=0.35)  # 60 draws: 9% each way, three of it


def test_a_drawn_profile_stays_under_its_limit_wherever_its_interval_says_so():
    """From the optimum alone some of these values end in a worse valley; the fits at the interval's ends show it."""
    rng = np.random.default_rng(5)
    n, d = np.repeat([27e3, 55e3, 141e3], 3), np.tile([2.7e5, 4e5, 6.2e5], 3)
    loss = (0.5 + 8 * n**-0.12 + 60 * d**-0.3) * np.exp(0.004 * rng.normal(size=9))
    points = check_points(pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": loss}))
    found = profile_of(points, fit(points), "alpha")
    inside = (found.values > found.low * 1.02) & (found.values < found.high * 0.98)
    assert inside.sum() > 10 and found.rise[inside].max() < found.threshold


def test_a_thin_design_lists_each_problem():
    n = np.array([1e7, 1e7, 1e8, 1e8])
    found = assess(pd.DataFrame({"n_params": n, "n_tokens": n * [10, 11, 10, 11]}))
    assert {p.split(":")[0] for p in found.problems} >= {"4 runs for 5 parameters", "2 sizes"}
    with pytest.raises(FittingError, match="columns n_params and n_tokens"):
        assess(pd.DataFrame({"n_params": n}))
    with pytest.raises(FittingError, match="positive"):
        assess(pd.DataFrame({"n_params": n, "n_tokens": -n}))


def pending(n=(2e9, 3e11), d=(4e10, 6e12), **columns):
    frame = pd.DataFrame({"run_id": ["next", "far"], "label": "all", "n_params": n, "n_tokens": d})
    return frame.assign(**columns)


def test_forecasts_hold_the_truth_and_warn_of_far_extrapolation():
    found = forecast(grid(7, 6, noise=0.003), pending())
    near, far = (found.rows.iloc[k] for k in (0, 1))
    truth = chinchilla(np.array([2e9, 3e11]), np.array([4e10, 6e12]))
    assert near["low"] < truth[0] < near["high"] and far["low"] < truth[1] < far["high"]
    assert far["information"] > near["information"] and far["advice"].startswith("far")
    assert near["advice"].startswith(("skip", "run", "extend")) and near["law"].startswith("additive")


def test_a_forecast_is_scored_when_the_run_is_done():
    truth = chinchilla(np.array([2e9, 3e11]), np.array([4e10, 6e12]))
    found = forecast(grid(7, 6, noise=0.003), pending(loss_nats=[truth[0], 9.0]))
    assert found.coverage == 0.5
    assert np.isnan(forecast(grid(7, 6, noise=0.003), pending()).coverage)


def test_a_run_cannot_be_both_known_and_forecast():
    with pytest.raises(FittingError, match="run run-000 is both finished and to be forecast"):
        forecast(grid(7, 6), pending().assign(run_id=["run-000", "far"]))


def test_the_law_of_a_forecast_is_the_richest_that_the_runs_identify():
    assert best_law(check_points(grid(7, 6, noise=0.003))).law.name == "chinchilla"
    small = best_law(check_points(small_study((0,)).query("label == 'base'")))
    assert small.law.name != "chinchilla" and small.identified


def test_a_method_without_enough_runs_is_a_warning_and_not_a_forecast():
    few = grid(7, 6, noise=0.003, label="all")
    other = few.iloc[:1].assign(label="new", run_id="only")
    asked = pending().assign(label=["all", "new"])
    found = forecast(pd.concat([few, other]), asked)
    assert list(found.rows["label"]) == ["all"] and found.warnings[0].startswith("new: no forecast")


def test_each_excluded_run_is_listed_with_what_it_would_have_done():
    frame = grid(6, 5, noise=0.003).assign(diverged=False, state="completed")
    frame.loc[4, ["diverged", "loss_nats"]] = [True, 8.0]
    frame.loc[9, "state"] = "interrupted"
    frame.loc[2, "loss_nats"] = np.nan
    result = fit(frame, objective="log-l2")
    found = influence_of_excluded(frame, result).set_index("run_id")
    assert set(found.index) == {"run-004", "run-009", "run-002"}
    assert found.loc["run-004", "influence"] > 3 > found.loc["run-009", "influence"]
    assert np.isnan(found.loc["run-002", "influence"])
    with_it = fit(frame.assign(diverged=False), objective="log-l2")
    moved = found.loc["run-004", "moves"]
    p = result.params[moved]
    log = moved in "EAB"
    change = np.log(with_it.value(moved) / p.value) * p.value if log else with_it.value(moved) - p.value
    assert found.loc["run-004", "influence"] == pytest.approx(abs(change) / p.se, rel=1e-4)


def test_a_run_whose_loss_is_known_is_advised_to_go_longer_or_to_be_skipped():
    inside = pd.DataFrame({"run_id": ["x"], "label": "all", "n_params": [4e8], "n_tokens": [8e9]})
    advice = forecast(grid(12, 12, noise=0.003), inside).rows.iloc[0]["advice"]
    assert advice.startswith(("skip", "extend"))
