"""Does a 95% interval hold the truth 95% of the time? Simulated designs of 15, 35 and 72 runs, fitted in batches."""

from dataclasses import replace

import numpy as np
import pytest
from planted_laws import TRUTH, chinchilla

from scalewright.fitting.laws import LAWS
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.robust import Scores, robust_covariance
from scalewright.fitting.solver import minimise
from scalewright.fitting.threads import one_thread
from scalewright.fitting.uncertainty import noise_of, t_quantile

SHAPES = {15: (5, 3), 35: (7, 5), 72: (9, 8)}
N_REPLICATES = 400  # standard error of a coverage near .95: .011


def simulated(n_runs, noise, seed):
    n_sizes, n_ratios = SHAPES[n_runs]
    n = np.repeat(np.logspace(7.5, 9.8, n_sizes), n_ratios)
    d = n * np.tile(np.logspace(0, 2.3, n_ratios), n_sizes)
    scatter = noise * np.random.default_rng(seed).normal(size=(N_REPLICATES, n_runs))
    log_loss = np.log(chinchilla(n, d))
    axes = {"n_params": np.log(n), "n_tokens": np.log(d)}
    return LAWS["chinchilla"].lay_out(axes, log_loss, np.full(n_runs, "all")), log_loss + scatter


def fit_all(problem, observed, objective):
    """Fit every replicate: the same solver and continuation as `fit`, each row with its own losses."""
    theta = np.repeat(problem.seeds(1, 0.0), len(observed), axis=0)
    ones, free = np.ones((1, problem.n_points)), np.ones((100, theta.shape[1]), dtype=bool)
    for delta in objective.stages():
        for first in range(0, len(observed), 100):
            part = observed[first : first + 100]

            def evaluate(at, rows, part=part, delta=delta):
                return replace(problem, log_loss=part[rows]).evaluator(objective.with_delta(delta), ones)(at, rows)

            chunk = slice(first, first + 100)
            theta[chunk] = minimise(evaluate, theta[chunk], problem.box, free).theta
    return theta


@pytest.mark.parametrize("n_runs", SHAPES)
def test_under_equal_scatter_its_interval_covers_95_percent_and_the_default_no_less(n_runs):
    """The default allows for unequal scatter as well, which costs width here: it has no upper end to keep."""
    objective = OBJECTIVES["huber"]
    problem, observed = simulated(n_runs, noise=0.005, seed=n_runs)
    truth = np.array([np.log(TRUTH[n]) if n in "EAB" else TRUTH[n] for n in problem.names])
    total = TRUTH["alpha"] + TRUTH["beta"]
    to_a = np.zeros(5)  # gradient of a = beta / (alpha + beta)
    to_a[problem.names.index("alpha")], to_a[problem.names.index("beta")] = (
        -TRUTH["beta"] / total**2,
        TRUTH["alpha"] / total**2,
    )
    with one_thread():
        fitted = fit_all(problem, observed, objective)
    inside = np.zeros((2, N_REPLICATES, 6), dtype=bool)
    for row, theta in enumerate(fitted):
        predicted, jacobian = problem.predict(theta)
        residuals = predicted - observed[row]
        noise = noise_of(residuals, 5, objective)
        robust = robust_covariance(Scores(jacobian, np.ones(n_runs), residuals, objective), noise, 0.95)
        error = problem.to_raw @ theta - truth
        t = t_quantile(0.95, noise.df)
        for k, theta_covariance in enumerate((robust.equal, robust.covariance)):
            covariance = problem.to_raw @ theta_covariance @ problem.to_raw.T
            inside[k, row, :5] = np.abs(error) < t * np.sqrt(np.diag(covariance))
            inside[k, row, 5] = abs(to_a @ error) < t * np.sqrt(to_a @ covariance @ to_a)
    equal, default = inside.mean(axis=1)
    names = [*problem.names, "a"]
    assert (equal > 0.92).all() and (equal < 0.98).all(), dict(zip(names, equal, strict=True))
    assert (default > 0.92).all(), dict(zip(names, default, strict=True))
