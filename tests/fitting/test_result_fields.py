"""Every field of every result is asserted somewhere; those that nothing else asserts, here, by a second computation."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from planted_laws import grid, small_study
from scipy import stats

from scalewright.fitting.averaging import average_laws
from scalewright.fitting.belief import ADVISABLE, Pool, believe, model_of
from scalewright.fitting.bootstrap import bootstrap
from scalewright.fitting.compare import compare
from scalewright.fitting.curve import loss_curve
from scalewright.fitting.fit import FITTING_VERSION, fit
from scalewright.fitting.forecast import forecast
from scalewright.fitting.frame import PointRules, check_points
from scalewright.fitting.frontier import exponents, frontier
from scalewright.fitting.multiplier import sharing_test
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.optimum import fit_optimum
from scalewright.fitting.problem import certify, condition_number
from scalewright.fitting.solver import Box, Solution

ROOT = Path(__file__).resolve().parents[2]
# what a result is made with, and what a fit works on: no answer
INSIDE = {
    "AdditiveProblem", "Box", "Cut", "CurveFit", "Estimate", "FitRequest", "FitSettings", "Intervals", "Local",
    "Mapped", "Noise", "Objective", "PointRules", "Pool", "Runs", "Scores", "Solution",
}  # fmt: skip


def results():
    """Yield (record, field) of the public records of fitting and of the orchestrator's analysis."""
    folders = ("fitting", "fitting/joint", "orchestrator/analysis")
    for path in [path for folder in folders for path in sorted((ROOT / folder).glob("*.py"))]:
        for node in ast.parse(path.read_text()).body:
            marks = " ".join(map(ast.unparse, getattr(node, "decorator_list", ())))
            if "dataclass" in marks and not node.name.startswith("_") and node.name not in INSIDE:
                yield from ((node.name, one.target.id) for one in node.body if isinstance(one, ast.AnnAssign))


def test_every_field_of_every_result_is_read_by_a_test():
    tests = "\n".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    read = set(re.findall(r"\.(\w+)", tests)) | set(re.findall(r"[\"'](\w+)[\"']", tests))
    assert [f"{record}.{field}" for record, field in results() if field not in read] == []


def test_a_certificate_is_worked_out_from_the_ends_of_all_seeds():
    """Five seeds in a box of 0 to 1: two at the best value, one beyond 1e-6 of it, one that was not finite."""
    box = Box(np.zeros(3), np.array([1.0, 1.0, 0.0]), np.ones(3))
    jacobian = np.array([[3.0, 0.0, 1.0], [4.0, 2.0, 1.0]])
    problem = SimpleNamespace(names=("x", "y", "z"), box=box, predict=lambda theta: (np.zeros(2), jacobian))
    theta = np.array([[0.2, 0.5, 0.0], [0.4, 1.0, 0.0], [0.4, 1.0, 0.0], [0.1, 0.2, 0.0], [0.3, 0.3, 0.0]])
    value = np.array([5.0, 2.0, 2.0 + 1e-6, 2.0 + 3e-6, np.nan])
    found = certify(
        problem,
        OBJECTIVES["log-l2"],
        Solution(theta, value, *(np.arange(1.0, 6.0) * k for k in (10.0, 1e-9, 100.0)), np.arange(7, 12)),
    )
    assert (found.n_seeds, found.share_of_seeds, found.second_best) == (5, 0.4, 2.0 + 3e-6)
    assert (found.gradient_norm, found.predicted_decrease, found.smallest_eigenvalue) == (20.0, 2e-9, 200.0)
    assert (found.converged, found.n_steps) == (True, 8)
    assert found.at_bound == ("y",)  # z can lie nowhere else
    assert found.condition == pytest.approx(1.0)  # of x alone
    whole = condition_number(jacobian[:, :2])  # unit columns (.6, .8) and (0, 1): eigenvalues 1 -+ .8 of their products
    assert whole == pytest.approx(np.sqrt(1.8 / 0.2))
    assert condition_number(np.array([[0.0, 1.0]])) == np.inf


def test_a_fit_says_what_entered_how_far_it_reaches_and_how_unequal_its_scatter_is():
    frame = grid(5, 4, noise=0.01)
    frame.loc[3, "loss_nats"] = np.nan
    result, points = fit(frame, objective="log-l2", rules=PointRules(), level=0.9), check_points(frame)
    entered = result.provenance
    assert sorted(entered.run_ids) == list(frame["run_id"].drop(3)) and entered.version == FITTING_VERSION
    assert (entered.data_hash, entered.rules) == (points.data_hash(), PointRules())
    assert [(e.run_id, e.reason) for e in entered.excluded] == [("run-003", "loss is not finite")]
    assert dict(result.range)["n_tokens"] == (6e7, pytest.approx(6e9 * 200)) and result.level == 0.9
    assert result.predict(1e9, 1e10).level == 0.9 and result.predict(1e9, 1e10, level=0.5).level == 0.5
    kept = points.frame
    axes = {axis: np.log(kept[axis].to_numpy()) for axis in ("n_params", "n_tokens")}
    estimate = result.estimate
    jacobian = result.law.log_loss_at(estimate.names, estimate.theta, axes, np.full(19, "all"))[1]
    scale = np.linalg.norm(jacobian, axis=0)
    unit = jacobian / scale
    equal = (result.residuals**2).sum() / (19 - 5) * np.diag(np.linalg.inv(unit.T @ unit)) / scale**2
    assert estimate.stretch == pytest.approx(np.diag(estimate.covariance) / equal, rel=1e-5)
    assert [n for n, is_log in zip(estimate.names, estimate.is_log, strict=True) if is_log] == ["E", "A", "B"]


def test_an_effect_that_sizes_share_names_their_number_and_leaves_what_the_law_does_not_take():
    frame = grid(7, 6, noise=0.001)
    groups = np.repeat(np.arange(7), 6)
    frame["loss_nats"] *= np.exp(0.01 * np.random.default_rng(2).normal(size=7))[groups]
    result = fit(frame, objective="log-l2", profile="never")
    axes = {axis: np.log(frame[axis].to_numpy()) for axis in ("n_params", "n_tokens")}
    jacobian = result.law.log_loss_at(result.estimate.names, result.estimate.theta, axes, np.full(42, "all"))[1]
    basis = np.linalg.qr(jacobian / np.linalg.norm(jacobian, axis=0))[0]
    means = np.equal.outer(groups, groups) / 6  # the projection on means of sizes
    shared = result.shared
    assert shared.found and shared.n_groups == 7
    assert shared.df == 7 - np.ceil(np.trace(basis.T @ means @ basis) - 1e-6)
    assert shared.share > 0.8 and any("share an effect" in note and "7 sizes" in note for note in result.notes)


def test_an_average_of_laws_is_the_weighted_mean_of_what_they_tell():
    finished = grid(6, 5, noise=0.003)
    pending = pd.DataFrame({"run_id": ["next"], "label": "all", "n_params": [9e9], "n_tokens": [2e11]})
    found = forecast(finished, pending, level=0.8)
    average = found.averages["all"]
    rows = pending.assign(flops=6 * pending["n_params"] * pending["n_tokens"])
    told = {name: teller(rows) for name, teller in average.tellers.items()}
    assert set(told) == set(average.weights) and len(told) == 2
    middle = sum(average.weights[name] * one.log_loss[0] for name, one in told.items())
    within = sum(
        average.weights[name] * (one.se[0] ** 2 + (one.log_loss[0] - middle) ** 2) for name, one in told.items()
    )
    far = np.hypot(np.log(9e9 / 6e9), 0)  # the tokens lie inside
    half = stats.t.ppf(0.9, average.error.df) * np.sqrt(within + (average.error.per_efold * far) ** 2)
    row = found.rows.iloc[0]
    assert np.log(row[["predicted", "low", "high"]].astype(float)).tolist() == pytest.approx(
        [middle, middle - half, middle + half]
    )
    assert row["distance"] == pytest.approx(far)
    again = average_laws(check_points(finished))
    assert (again.name, again.weights) == (average.name, average.weights)


def test_a_comparison_keeps_the_test_of_shared_exponents_and_the_shift_of_all_runs():
    frame = grid(4, 4, noise=0.002)
    both = pd.concat(
        frame.assign(label=label, loss_nats=frame["loss_nats"] * factor, run_id=label + frame["run_id"])
        for label, factor in (("base", 1.0), ("new", 0.98))
    )
    found = compare(both, "new", "base")
    assert found.sharing == sharing_test(check_points(both), "chinchilla-shared")
    shift = found.joint.effect.intervals[0]
    pooled = found.speedup()
    assert np.exp([shift.value, shift.low, shift.high]) == pytest.approx([pooled.ratio, pooled.low, pooled.high])
    assert (found.joint.effect.names, len(found.joint.effect.intervals)) == (("pooled",), 1)
    small = compare(small_study((0, 1)).query("size == 'm' and budget == '2'"), "fast", "base")
    assert small.sharing is None


def test_a_bootstrap_draws_coefficients_as_logs():
    points = check_points(grid(6, 5, noise=0.004))
    result = fit(points, objective="log-l2", profile="never", level=0.8)
    draws = bootstrap(points, result, 60, seed=3)
    assert dict(zip(draws.names, draws.is_log, strict=True)) == {
        "E": True, "alpha": False, "beta": False, "A": True, "B": True,
    }  # fmt: skip
    column = draws.draws[:, draws.names.index("E")]
    floor = draws.parameter("E")
    assert (floor.low, floor.high) == pytest.approx(tuple(np.exp(np.quantile(column, [0.1, 0.9]))))
    derived, best = draws.derived(result, (3e21,)), frontier(result, 3e21)
    for name, band in (("N*", best.n_params), ("D*", best.n_tokens), ("L*", best.loss_nats)):
        assert derived[f"{name} at 3e+21"].value == pytest.approx(float(band.value[0]), rel=1e-9)
    for name, one in exponents(result).items():
        assert derived[name].value == pytest.approx(one.value, rel=1e-9)


def test_a_curve_tells_where_it_reaches_a_loss_and_how_surely():
    """log L = 1.2, 1.0, .9 at log D = 0, 2, 4 with 1, 2 and 4 runs: between points, on the line, and beyond."""
    heights = [(0.0, 1.2)] + [(2.0, 1.0 + s) for s in (-0.02, 0.02)] + [(4.0, 0.9)] * 4
    runs = pd.DataFrame({"n_tokens": np.exp([x for x, _ in heights]), "loss_nats": np.exp([y for _, y in heights])})
    curve = loss_curve(runs)
    assert list(curve.n_seeds) == [1, 2, 4] and curve.log_tokens == pytest.approx([0, 2, 4])
    between = curve.reach(1.05)
    assert (between.log_tokens, between.slope, between.beyond) == pytest.approx((1.5, -0.1, 0))
    assert between.variance_factor == pytest.approx(0.25**2 / 1 + 0.75**2 / 2) and between.censored is None
    above, below = curve.reach(0.8), curve.reach(1.3)
    assert (above.log_tokens, above.beyond, above.variance_factor, above.censored) == (
        pytest.approx(4), pytest.approx(2), 1 / 4, "above",
    )  # fmt: skip
    assert (below.log_tokens, below.beyond, below.censored) == (pytest.approx(0), pytest.approx(-1), "below")
    fitted = loss_curve(runs, "fitted").reach(0.95)
    weights, x, y = np.array([1, 2, 4.0]), np.array([0, 2, 4.0]), np.array([1.2, 1.0, 0.9])
    design = np.stack([x, np.ones(3)], axis=1)
    covariance = np.linalg.inv(design.T @ np.diag(weights) @ design)
    slope, height = covariance @ design.T @ (weights * y)
    at = (0.95 - height) / slope
    assert (fitted.log_tokens, fitted.slope) == pytest.approx((at, slope))
    assert fitted.variance_factor == pytest.approx(np.array([at, 1]) @ covariance @ np.array([at, 1]))


def test_isoflop_fits_say_what_they_are_of():
    sizes = np.geomspace(0.3, 3, 6)
    rows = [(s * np.sqrt(c), np.sqrt(c) / 6 / s, c, 2 + np.log(s) ** 2 - 0.01 * np.log(c))
            for c in (1e18, 1e19, 1e20) for s in sizes]  # fmt: skip
    found = fit_optimum(pd.DataFrame(rows, columns=["n_params", "n_tokens", "flops", "loss_nats"]), level=0.8)
    assert found.equation == "N* = G_N C^a, D* = G_D C^b" and found.equation in found.summary()
    assert [one.flops_budget for one in found.valleys] == [1e18, 1e19, 1e20] and found.level == 0.8


def test_a_belief_is_the_curvature_at_its_basins_under_a_smooth_error_of_the_law():
    rng = np.random.default_rng(4)
    pool = Pool({axis: rng.uniform(-2, 2, 30) for axis in ("n_params", "n_tokens")}, np.full(30, "all"), np.ones(30))
    law = ADVISABLE["chinchilla"]
    model = model_of(law, pool, seed=5)
    theta = rng.normal(size=len(model.mean)) * 0.3 + model.mean
    plain, _ = law.log_loss_at(model.names, theta[:5], pool.axes, pool.methods)
    x = np.stack([pool.axes["n_params"], pool.axes["n_tokens"]])
    assert model.waves.shape == (2, len(theta) - 5) and model.phases.shape == (len(theta) - 5,)
    error = sum(
        size * np.sqrt(2 / len(model.phases)) * np.cos(wave @ x + phase)
        for size, wave, phase in zip(theta[5:], model.waves.T, model.phases, strict=True)
    )
    told, jacobian = model.predict(theta, pool)
    assert told == pytest.approx(plain + error)
    assert jacobian @ theta - told == pytest.approx(jacobian[:, :5] @ theta[:5] - plain)  # linear in the error
    log_loss = np.log(1.8 + 0.5 * np.exp(-0.35 * x[0]) + 0.4 * np.exp(-0.4 * x[1])) + 0.003 * rng.normal(size=30)
    belief = believe(model, pool, log_loss, np.random.default_rng(0))
    assert sum(one.weight for one in belief.basins) == pytest.approx(1, abs=1e-2)
    assert [one.weight for one in belief.basins] == sorted((one.weight for one in belief.basins), reverse=True)
    best = belief.basins[0]
    told, jacobian = model.predict(best.theta, pool)
    tails = (4 + 1) / (4 + ((log_loss - told) / belief.noise) ** 2)
    inverse = np.linalg.inv(best.root @ best.root.T)
    prior = inverse - (jacobian.T * tails) @ jacobian / belief.noise**2
    assert np.diag(prior)[:5] == pytest.approx(1 / model.sd[:5] ** 2, rel=1e-3)
    assert np.diag(prior)[5:] == pytest.approx(np.full(len(theta) - 5, prior[5, 5]), rel=1e-3)
