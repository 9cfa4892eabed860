"""Laws that extrapolate from few runs: priors stand in for what the runs do not say. Knows points and numpy.

Each is fitted to log losses and tells log loss at new (N, D), with a standard error that holds the scatter of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]

AXES = ("n_params", "n_tokens")
LEAST_RANGE = 0.05  # of log N or log D, under which runs say nothing along that axis

FLOOR, FLOOR_SPREAD = 0.5, 1.5  # log odds of E in the lowest loss: E is between .1 and .97 of it
EXPONENT, EXPONENT_SPREAD = 0.35, 0.5  # alpha and beta of public fits, and their spread in log
TERM_SPREAD = 3.0  # of log A and log B, about a fifth of the middle loss: hardly any
LOG_FIFTH = -1.5
SLOPE, SLOPE_SPREAD = -0.07, 0.1  # of log loss in log N or log D near the dearest runs

SCATTER = 0.003  # of the loss of a run; counts as one run, so that two runs on a line are not exact
LEAST_SCATTER = 1e-4
ROUNDS = 6  # of scatter, which sets the weight of the priors
STEP_LIMIT = 400
LEAST_LOCAL = 3


@dataclass(frozen=True)
class Told:
    """Log loss of new runs by one law, and its standard error."""

    log_loss: Array
    se: Array


Teller = Callable[[pd.DataFrame], Told]


def additive(runs: pd.DataFrame) -> Teller:
    """Fit L = E + A N^-alpha + B D^-beta by least squares with priors; an axis along which nothing varies drops out."""
    axes, centre, x, y = _read(runs)
    k, lowest = len(axes), float(y.min())
    prior = np.concatenate([[FLOOR], np.full(k, y.mean() + LOG_FIFTH), np.full(k, np.log(EXPONENT))])
    spread = np.concatenate([[FLOOR_SPREAD], np.full(k, TERM_SPREAD), np.full(k, EXPONENT_SPREAD)])

    def residuals(theta: Array, scatter: float) -> Array:
        return np.concatenate([(_sum_of_terms(theta, x, lowest)[0] - y) / scatter, (theta - prior) / spread])

    def slopes(theta: Array, scatter: float) -> Array:
        return np.concatenate([_sum_of_terms(theta, x, lowest)[1] / scatter, np.diag(1 / spread)])

    theta, scatter = prior, 0.02
    for _ in range(ROUNDS):
        found = least_squares(residuals, theta, slopes, method="lm", args=(scatter,), max_nfev=STEP_LIMIT)
        theta = np.asarray(found.x, dtype=np.float64)
        scatter = _scatter(_sum_of_terms(theta, x, lowest)[0] - y, k + 1)
    jacobian = slopes(theta, scatter)
    covariance = np.linalg.pinv(jacobian.T @ jacobian)

    def tell(rows: pd.DataFrame) -> Told:
        at = np.log(rows[axes].to_numpy(dtype=np.float64)) - centre
        value, gradient = _sum_of_terms(theta, at, lowest)
        return Told(value, np.sqrt(scatter**2 + np.einsum("ip,pq,iq->i", gradient, covariance, gradient)))

    return tell


def _sum_of_terms(theta: Array, x: Array, lowest: float) -> tuple[Array, Array]:
    """Return log loss and its gradient; theta: log odds of E in the lowest loss, logs of A, B and of exponents."""
    k = x.shape[1]
    exponents = np.exp(np.clip(theta[1 + k :], -6, 2))
    floor = lowest - np.logaddexp(0, -theta[0])
    terms = np.column_stack([np.full(len(x), floor), theta[1 : 1 + k] - exponents * x])
    value = np.logaddexp.reduce(terms, axis=1)
    share = np.exp(terms - value[:, None])
    by_floor = share[:, :1] * np.exp(-np.logaddexp(0, theta[0]))
    return value, np.concatenate([by_floor, share[:, 1:], -share[:, 1:] * exponents * x], axis=1)


def local_power(runs: pd.DataFrame) -> Teller:
    """Fit a plane of log loss in log N and log D to the dearer half of the runs: no floor, and the slope of the end."""
    half = runs.sort_values("flops", kind="stable").tail(max(LEAST_LOCAL, (len(runs) + 1) // 2))
    axes, centre, x, y = _read(half)
    k = len(axes)
    design = np.column_stack([np.ones(len(y)), x])
    prior = np.array([0.0] + [SLOPE] * k)
    weight = np.diag([0.0] + [SLOPE_SPREAD**-2] * k)
    scatter = 0.02
    for _ in range(ROUNDS):
        covariance = np.linalg.pinv(design.T @ design / scatter**2 + weight)
        theta = covariance @ (design.T @ y / scatter**2 + weight @ prior)
        scatter = _scatter(design @ theta - y, k + 1)

    def tell(rows: pd.DataFrame) -> Told:
        at = np.column_stack([np.ones(len(rows)), np.log(rows[axes].to_numpy(dtype=np.float64)) - centre])
        return Told(at @ theta, np.sqrt(scatter**2 + np.einsum("ip,pq,iq->i", at, covariance, at)))

    return tell


def _read(runs: pd.DataFrame) -> tuple[list[str], Array, Array, Array]:
    """Return the axes along which runs vary, the middle of their logs, the logs about it (n, axes), and log losses."""
    axes = [axis for axis in AXES if np.ptp(np.log(runs[axis].to_numpy(dtype=np.float64))) > LEAST_RANGE]
    logs = np.log(runs[axes].to_numpy(dtype=np.float64)).reshape(len(runs), len(axes))
    centre = logs.mean(axis=0)
    return axes, centre, logs - centre, np.log(runs["loss_nats"].to_numpy(dtype=np.float64))


def _scatter(residuals: Array, n_free: int) -> float:
    df = len(residuals) - min(n_free, len(residuals) / 2)
    return max(float(np.sqrt(((residuals**2).sum() + SCATTER**2) / max(df, 1.0))), LEAST_SCATTER)


FORECAST_LAWS: dict[str, Callable[[pd.DataFrame], Teller]] = {"additive": additive, "local power": local_power}
