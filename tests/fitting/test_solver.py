"""The solver against independent arithmetic: derivatives, exact recovery, units, one diverged run, threads."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_laws import TRUTH, chinchilla, grid, small_study

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.laws import LAWS
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.problem import MANY
from scalewright.fitting.solver import Box, Local, Patience, minimise

STEP = 1e-30


def straight_line_terms(theta, columns, law):
    """log L of each law, complex-safe, from the equations."""
    x, y = columns["n_params"], columns["n_tokens"]
    if law == "chinchilla":
        e, alpha, beta, a, b = (theta[k] for k in ("E", "alpha", "beta", "A", "B"))
        return np.log(np.exp(e) + np.exp(a - alpha * x) + np.exp(b - beta * y))
    nc, an, dc, ad = (theta[k] for k in ("N_c", "alpha_N", "D_c", "alpha_D"))
    return ad * np.log(np.exp(an / ad * (nc - x)) + np.exp(dc - y))


def straight_line_objective(theta, names, columns, log_loss, law, objective):
    predicted = straight_line_terms(dict(zip(names, theta, strict=True)), columns, law)
    if objective.raw:
        return (0.5 * (np.exp(predicted) - np.exp(log_loss)) ** 2).sum()
    r = predicted - log_loss
    if math.isinf(objective.delta):
        return (0.5 * r * r).sum()
    outside = np.where(r.real > 0, 1, -1) * objective.delta * (r - np.where(r.real > 0, 1, -1) * 0.5 * objective.delta)
    return np.where(np.abs(r.real) <= objective.delta, 0.5 * r * r, outside).sum()


@pytest.mark.parametrize("law", ["chinchilla", "kaplan"])
@pytest.mark.parametrize("objective", ["huber", "log-l2", "raw-l2"])
def test_gradient_and_hessian_agree_with_a_complex_step_on_the_equations(law, objective):
    rng = np.random.default_rng(3)
    columns = {"n_params": rng.normal(0, 1.5, 40), "n_tokens": rng.normal(0, 1.5, 40)}
    goal = OBJECTIVES[objective].with_delta(0.01) if objective == "huber" else OBJECTIVES[objective]
    truth = {
        "E": 0.5,
        "alpha": 0.3,
        "beta": 0.4,
        "A": 0.2,
        "B": -0.3,
        "N_c": 9.0,
        "alpha_N": 0.08,
        "D_c": 8.0,
        "alpha_D": 0.1,
    }
    methods = np.full(40, "all")
    first = LAWS[law].lay_out(columns, np.zeros(40), methods)
    theta = np.array([truth[name] for name in first.names])
    log_loss = straight_line_terms(truth, columns, law) + rng.normal(0, 0.02, 40)
    problem = LAWS[law].lay_out(columns, log_loss, methods)
    centres = problem.to_raw  # the random axes are not centred: move the planted theta to the problem's coordinates
    theta_in = np.linalg.solve(centres, theta)
    local = problem.evaluator(goal, np.ones((1, 40)))(theta_in[None], np.arange(1))
    gradient, hessian = np.zeros(len(theta)), np.zeros((len(theta), len(theta)))

    def complex_gradient(at):
        out = np.zeros(len(at))
        for j in range(len(at)):
            moved = at.astype(complex)
            moved[j] += 1j * STEP
            args = (centres @ moved, problem.names, columns, log_loss, law, goal)
            out[j] = straight_line_objective(*args).imag / STEP
        return out

    gradient = complex_gradient(theta_in)
    width = 1e-6  # central differences of the exact gradient: error of order width^2
    for j in range(len(theta)):
        up, down = theta_in.copy(), theta_in.copy()
        up[j], down[j] = up[j] + width, down[j] - width
        hessian[j] = (complex_gradient(up) - complex_gradient(down)) / (2 * width)
    np.testing.assert_allclose(local.gradient[0], gradient, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(local.hessian[0], hessian, rtol=1e-6, atol=1e-7 * np.abs(hessian).max())


@pytest.mark.parametrize("law", [name for name, law in LAWS.items() if not law.is_additive])
def test_the_jacobian_of_a_shaped_law_agrees_with_a_complex_step_on_its_value(law):
    rng = np.random.default_rng(5)
    tokens = rng.uniform(20, 26, 30)
    columns = {
        "n_params": rng.uniform(15, 22, 30),
        "n_tokens": tokens,
        "unique_tokens": tokens - rng.uniform(0, 3, 30),
        "flops": rng.uniform(35, 50, 30),
    }
    theta = {
        "kaplan": [32.0, 0.076, 31.0, 0.095],
        "broken": [0.4, 3.4, 0.05, 0.1, 43.0, -0.2],
        "repeated-data": [0.6, 6.2, 0.35, 7.3, 0.36, 2.7, 1.6],
        "farseer": [0.5, -0.08, 0.17, 8.0, -1.0, -0.1, -0.8, -0.1, 0.12],
    }[law]
    at = np.array([theta])
    jacobian = LAWS[law].jacobian(at, columns)[0]
    for j in range(at.shape[1]):
        moved = at.astype(complex)
        moved[0, j] += 1j * STEP
        np.testing.assert_allclose(
            jacobian[:, j], LAWS[law].value(moved, columns)[0].imag / STEP, rtol=1e-10, atol=1e-12
        )


truths = st.fixed_dictionaries(
    {
        "E": st.floats(0.5, 3.0),
        "alpha": st.floats(0.15, 0.8),
        "beta": st.floats(0.15, 0.8),
        "share": st.tuples(st.floats(0.15, 1.5), st.floats(0.15, 1.5)),
    }
)


@settings(max_examples=30, deadline=None)
@given(
    truth=truths, shape=st.tuples(st.integers(4, 9), st.integers(4, 9)), low=st.floats(5, 9), spread=st.floats(1.5, 4)
)
def test_noise_free_points_give_back_the_law_to_eight_digits(truth, shape, low, spread):
    n = np.repeat(np.logspace(low, low + spread, shape[0]), shape[1])
    d = n * np.tile(np.logspace(0, 2.5, shape[1]), shape[0])
    middle_n, middle_d = np.exp(np.log(n).mean()), np.exp(np.log(d).mean())
    planted = {k: truth[k] for k in ("E", "alpha", "beta")}
    planted |= {"A": truth["share"][0] * middle_n ** truth["alpha"], "B": truth["share"][1] * middle_d ** truth["beta"]}
    frame = pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": chinchilla(n, d, planted)})
    result = fit(frame, profile="never")
    for name, value in planted.items():
        assert result.params[name].value == pytest.approx(value, rel=1e-8)


def test_units_of_parameters_and_tokens_do_not_matter():
    frame = grid(noise=0.005)
    plain = fit(frame)
    scaled = fit(frame.assign(n_params=frame["n_params"] / 1e6, n_tokens=frame["n_tokens"] / 1e9))
    assert scaled.objective_value == pytest.approx(plain.objective_value, rel=1e-9)
    for name in ("E", "alpha", "beta"):
        assert scaled.params[name].value == pytest.approx(plain.params[name].value, rel=1e-8)
        assert scaled.params[name].low == pytest.approx(plain.params[name].low, rel=1e-6)
    assert scaled.params["A"].value * 1e6 ** scaled.value("alpha") == pytest.approx(plain.value("A"), rel=1e-7)


def test_one_diverged_run_does_not_move_a_robust_fit_and_is_listed():
    frame = grid(noise=0.004, diverged=False)
    broken = frame.copy()
    broken.loc[11, "loss_nats"] = 7.5
    clean = fit(frame)
    listed = fit(broken.assign(diverged=broken.index == 11))
    assert [(e.run_id, e.reason) for e in listed.excluded] == [("run-011", "diverged")]
    unflagged = fit(broken)  # the rule did not catch it: the objective must
    for name in ("E", "alpha", "beta"):
        assert abs(unflagged.value(name) - clean.value(name)) < clean.params[name].se
    fooled = fit(broken, objective="log-l2")
    assert abs(fooled.value("E") - clean.value("E")) > clean.params["E"].se


def test_a_collinear_design_is_refused_with_the_reason():
    n = np.geomspace(1e7, 1e10, 12)
    frame = pd.DataFrame({"n_params": n, "n_tokens": 20 * n, "loss_nats": chinchilla(n, 20 * n)})
    with pytest.raises(FittingError, match=r"collinear.*move together.*20 to 20 tokens per parameter"):
        fit(frame)


def test_all_seeds_agree_on_the_small_grid_whose_floor_is_not_identified():
    result = fit(small_study().query("label == 'base'"), objective="log-l2")
    assert result.certificate.converged
    assert result.certificate.share_of_seeds == 1.0
    assert result.certificate.second_best is None


def test_the_optimum_is_not_above_what_many_random_starts_of_scipy_find():
    from scipy.optimize import minimize

    frame = grid(5, 4, noise=0.01, seed=4)
    result = fit(frame)
    columns = {"n_params": np.log(frame["n_params"].to_numpy()), "n_tokens": np.log(frame["n_tokens"].to_numpy())}
    names, log_loss = ("E", "alpha", "beta", "A", "B"), np.log(frame["loss_nats"].to_numpy())

    def objective(theta):
        return straight_line_objective(theta, names, columns, log_loss, "chinchilla", OBJECTIVES["huber"])

    rng = np.random.default_rng(0)
    starts = rng.uniform([-1, 0.1, 0.1, 0, 0], [1, 1, 1, 15, 15], size=(40, 5))
    best = min(minimize(objective, start, method="L-BFGS-B").fun for start in starts)
    assert result.objective_value <= best * (1 + 1e-9)


def test_the_seed_grid_is_complete_when_all_of_it_is_asked_for():
    frame = grid(noise=0.01)
    axes = {"n_params": np.log(frame["n_params"].to_numpy()), "n_tokens": np.log(frame["n_tokens"].to_numpy())}
    problem = LAWS["chinchilla"].lay_out(axes, np.log(frame["loss_nats"].to_numpy()), np.full(len(frame), "all"))
    assert problem.seeds(MANY, 0.0).shape == (32 * 32, 5)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from planted_laws import grid
from scalewright.fitting.bootstrap import bootstrap
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import check_points
points = check_points(grid(40, 25, noise=0.005))
result = fit(points)
print(result.to_json())
print(bootstrap(points, result, 100).draws.tobytes().hex())
"""


def test_output_is_bit_identical_on_one_and_two_threads():
    here = os.path.dirname(__file__)
    root = os.path.dirname(os.path.dirname(here))
    outputs = []
    for threads in ("1", "2"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": root}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, here], env=env, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0].splitlines()[0])["n"] == 1000


def test_truth_lies_inside_the_interval_of_a_large_clean_design():
    result = fit(grid(12, 10, noise=0.003, seed=8))
    for name, value in TRUTH.items():
        assert result.params[name].low < value < result.params[name].high


def test_a_row_that_creeps_is_left_when_its_patience_is_out():
    """x^8 from x = 1: each Newton step shortens x by a seventh, for ever."""

    def eighth_power(theta, rows):
        x = theta[:, 0]
        return Local(x**8, (8 * x**7)[:, None], (56 * x**6)[:, None, None])

    start, box, free = np.ones((1, 1)), Box(np.array([-2.0]), np.array([2.0]), np.ones(1)), np.ones((1, 1), bool)
    whole = minimise(eighth_power, start, box, free)
    short = minimise(eighth_power, start, box, free, patience=Patience(8, 1e-9))
    assert short.n_steps[0] <= 40 < whole.n_steps[0]
    assert whole.value[0] <= short.value[0] < 1e-9


@pytest.mark.parametrize("law", ["kaplan", "broken"])
def test_second_derivatives_of_a_shaped_law_agree_with_a_complex_step_on_its_jacobian(law):
    rng = np.random.default_rng(8)
    columns = {
        "n_params": rng.uniform(15, 22, 30),
        "n_tokens": rng.uniform(20, 26, 30),
        "flops": rng.uniform(35, 50, 30),
    }
    theta = np.array([{"kaplan": [32.0, 0.076, 31.0, 0.095], "broken": [0.4, 3.4, 0.05, 0.1, 43.0, -0.2]}[law]])
    factor = rng.normal(size=(1, 30))
    problem = LAWS[law].lay_out(columns, rng.uniform(0.5, 1, 30), np.full(30, "all"))
    expected = np.empty((theta.shape[1],) * 2)
    for j in range(theta.shape[1]):
        moved = theta.astype(complex)
        moved[0, j] += 1j * STEP
        expected[j] = factor[0] @ (LAWS[law].jacobian(moved, columns)[0].imag / STEP)
    np.testing.assert_allclose(
        problem._second(theta, factor)[0], expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max()
    )


def test_a_coefficient_is_not_profiled_for_lying_far_from_the_runs():
    """log A of A C^-c0 is uncertain by c0's error times log C; that alone makes no interval doubtful."""
    frame = grid(6, 6, noise=0.003)
    assert fit(frame, "broken").params["A"].interval == "robust"
