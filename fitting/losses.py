"""What a residual costs, with the first and second derivatives that a Newton step needs. Knows numpy only.

The residual of a run is log L_hat - log L (or L_hat - L for `raw-l2`); an objective is the *sum* over runs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.objectives import Objective

Array = NDArray[np.float64]


def tilt(objective: Objective, residual: Array) -> Array:
    """Return the weight of each residual (log L_hat - log L): `above` for runs above the law, 1 for the others."""
    return np.asarray(np.where(residual < 0, objective.above, 1.0), dtype=np.float64)


def total(objective: Objective, value: float, residuals: Array) -> float:
    """Return the objective of a fit as it is reported: the solver's value in the objective's own scale.

    For `lad` it is the sum of |r| itself, not its smooth stand-in.
    """
    if objective.name == "lad":
        return float((tilt(objective, residuals) * np.abs(residuals)).sum())
    return value * objective.scale


@dataclass(frozen=True)
class Terms:
    """Per-run pieces of an objective: its value, d/d(log L_hat), and the factors of J J' and of sum_k p_k z_k z_k'."""

    value: Array
    slope: Array
    square: Array
    curvature: Array


def loss_terms(objective: Objective, predicted: Array, observed: Array) -> Terms:
    """Evaluate the objective at predicted and observed log loss (any one shape), before weights and `scale`.

    With r the residual, psi = rho'(r), h = rho''(r) and L_hat = exp(predicted): on log loss the Hessian is
    (h - psi) J J' + psi sum_k p_k z_k z_k'; on raw loss it is h L_hat^2 J J' + psi L_hat sum_k p_k z_k z_k'.
    """
    if objective.raw:
        return _raw_terms(predicted, observed)
    residual = predicted - observed
    psi = np.clip(residual, -objective.delta, objective.delta)
    if objective.above == 1.0:
        return Terms(psi * (residual - 0.5 * psi), psi, (psi == residual) - psi, psi)
    weight = tilt(objective, residual)
    slope = weight * psi
    return Terms(slope * (residual - 0.5 * psi), slope, weight * (psi == residual) - slope, slope)


def _raw_terms(predicted: Array, observed: Array) -> Terms:
    fitted = np.exp(predicted)
    residual = fitted - np.exp(observed)
    slope = residual * fitted
    return Terms(0.5 * residual * residual, slope, fitted * fitted, slope)
