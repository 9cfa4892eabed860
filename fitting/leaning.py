"""IsoFLOP curves that are no parabolas: one leaning shape for all computes, with its own place and depth at each.

With u = ln N/N*, a law E + A N^-alpha + B D^-beta says at equal compute

    ln L = ln L* + ln(1 + depth ((beta e^(-alpha u) + alpha e^(beta u))/(alpha + beta) - 1)).

A parabola through it is off by alpha - beta, by the width of the profile and by how far its middle lies from N*; an
offset that drifts with compute is an error of the exponent, which the scatter of the minima does not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]

PRIOR_EXPONENT = 0.35  # alpha and beta of public fits lie about it ...
PRIOR_SPREAD = 0.4  # ... by so much in log; profiles too narrow or noisy to show a lean keep this doubt
LEAST_SCATTER = 1e-7  # of log loss: rounding
ROUNDS = 4  # of scatter, which sets the weight of the prior


@dataclass(frozen=True)
class Curve:
    """One compute: log sizes, mean log losses, and where a parabola puts the minimum and how curved it is."""

    x: Array
    y: Array
    at: float
    curvature: float


@dataclass(frozen=True)
class Minima:
    """ln N* of each curve, their covariance (scatter of the losses and the shape's), and its degrees of freedom."""

    at: Array
    covariance: Array
    df: float


def leaning_minima(curves: Sequence[Curve]) -> Minima | None:
    """Fit the shape to all curves; None where there are not more losses than unknowns, or no fit is found."""
    m, n = len(curves), sum(len(curve.x) for curve in curves)
    df = n - 3 * m  # the two exponents bring a prior each
    if df < 1:
        return None
    owner = np.repeat(np.arange(m), [len(curve.x) for curve in curves])
    x, y = (np.concatenate([getattr(curve, name) for curve in curves]) for name in ("x", "y"))
    depth = [np.clip(2 * curve.curvature / PRIOR_EXPONENT**2, 0.02, 0.95) for curve in curves]
    start = np.concatenate(
        [
            [curve.at for curve in curves],
            np.log(depth),
            [float(curve.y.min()) for curve in curves],
            np.log([PRIOR_EXPONENT] * 2),
        ]
    )
    scatter = 0.01
    for _ in range(ROUNDS):
        found = least_squares(_residuals, start, args=(x, y, owner, m, scatter), method="lm", x_scale="jac")
        start, scatter = found.x, scatter * float(np.sqrt((found.fun**2).sum() / df))
        if not np.isfinite(scatter):
            return None
        scatter = max(scatter, LEAST_SCATTER)
    jacobian = np.asarray(found.jac, dtype=np.float64)
    covariance = np.asarray(np.linalg.pinv(jacobian.T @ jacobian)[:m, :m], dtype=np.float64)
    if not np.isfinite(covariance).all():
        return None
    return Minima(found.x[:m], covariance, float(df))


def _residuals(theta: Array, x: Array, y: Array, owner: NDArray[np.intp], m: int, scatter: float) -> Array:
    """Residuals in units of the scatter, and of the prior for the two exponents."""
    at, depth, height = theta[:m], np.exp(np.clip(theta[m : 2 * m], -50, 20)), theta[2 * m : 3 * m]
    exponents = np.exp(np.clip(theta[3 * m :], -5, 2))
    alpha, beta = exponents
    u = np.clip(x - at[owner], -20, 20)
    rise = (beta * np.exp(-alpha * u) + alpha * np.exp(beta * u)) / (alpha + beta) - 1
    told = height[owner] + np.log1p(depth[owner] * rise)
    prior = (theta[3 * m :] - np.log(PRIOR_EXPONENT)) / PRIOR_SPREAD
    return np.concatenate([(y - told) / scatter, prior])
