"""The compute-optimal frontier of a fitted Chinchilla law, with intervals by the delta method on the log scale.

With C = k N D: a = beta/(alpha+beta), G = (alpha A / beta B)^(1/(alpha+beta)), N* = G (C/k)^a, D* = (C/k)/N*,
L* = E + K (C/k)^-gamma, gamma = alpha beta/(alpha+beta), K = A G^-alpha + B G^beta.  (Hoffmann et al. 2022,
arXiv:2203.15556, eq. 4.) Knows results, not points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN
from scalewright.fitting.result import FitResult, Parameter, open_exp, widen
from scalewright.fitting.uncertainty import t_quantile

Array = NDArray[np.float64]
Theta = dict[str, Any]  # log E, alpha, log A, beta, log B: float64, or complex128 in a complex step

COMPLEX_STEP = 1e-30
NAMES = ("E", "A", "alpha", "B", "beta")


@dataclass(frozen=True)
class Band:
    """A positive quantity at several computes, with an interval."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Frontier:
    """Optimal parameters, tokens and loss at given compute; `reliable` is False where the law is not identified."""

    flops: Array
    n_params: Band
    n_tokens: Band
    loss_nats: Band
    reliable: bool

    def frame(self) -> pd.DataFrame:
        """Return one row a compute: flops, and value, low and high of each quantity."""
        columns: dict[str, Array] = {"flops": self.flops}
        for name in ("n_params", "n_tokens", "loss_nats"):
            band: Band = getattr(self, name)
            columns |= {name: band.value, f"{name}_low": band.low, f"{name}_high": band.high}
        return pd.DataFrame(columns)


def frontier(
    result: FitResult, flops: ArrayLike, *, method: str | None = None, k: float = FLOPS_PER_PARAMETER_TOKEN
) -> Frontier:
    """Return N*, D* and L* at each compute `flops` (FLOPs), for C = k N D.

    Raises FittingError for a law without E, A, alpha, B, beta, or an unknown method of a shared law.
    """
    compute = np.atleast_1d(np.asarray(flops, dtype=np.float64))
    names = _names(result, method)
    log_c = np.log(compute / k)
    return Frontier(
        compute,
        _band(result, names, lambda t: log_g(t) + size_exponent(t) * log_c),
        _band(result, names, lambda t: (1 - size_exponent(t)) * log_c - log_g(t)),
        _band(result, names, lambda t: log_best_loss(t, log_c)),
        result.identified,
    )


def exponents(result: FitResult, *, method: str | None = None) -> dict[str, Parameter]:
    """Return a (of N*), b (of D*), gamma (of L* - E), G and K with intervals.

    Raises FittingError as `frontier` does.
    """
    names = _names(result, method)
    plain = {"a": size_exponent, "b": lambda t: 1 - size_exponent(t), "gamma": gamma}
    logs: dict[str, Callable[[Theta], Any]] = {"G": log_g, "K": log_k}
    found = {name: _parameter(result, names, name, function, False) for name, function in plain.items()}
    return found | {name: _parameter(result, names, name, function, True) for name, function in logs.items()}


def quantity(result: FitResult, function: Callable[[Theta], Any], *, method: str | None = None) -> tuple[Array, Array]:
    """Return any function of the law and its standard error, by the delta method with a complex step.

    `function` gets a dict with log E, log A, alpha, log B and beta under the names E, A, alpha, B, beta.
    """
    names = _names(result, method)
    value, gradient = _gradient(result, names, function)
    return value, np.sqrt(np.einsum("pi,pq,qi->i", gradient, result.estimate.covariance, gradient).clip(min=0))


def _names(result: FitResult, method: str | None) -> dict[str, int]:
    """Map the law's five names to coordinates of theta."""
    index = {name: j for j, name in enumerate(result.estimate.names)}
    found = {}
    for name in NAMES:
        full = f"{name}[{method}]" if name in result.law.per_method else name
        if full not in index:
            need = f"a method among {', '.join(result.methods)}" if result.law.per_method else "a Chinchilla law"
            raise FittingError(f"the frontier of law {result.law.name} needs {need}: no parameter {full}")
        found[name] = index[full]
    for name in ("alpha", "beta"):
        if not result.estimate.theta[found[name]] > 0:
            raise FittingError(f"the frontier needs falling losses: the fitted {name} is 0")
    return found


def _at(theta: Array, names: dict[str, int], function: Callable[[Theta], Any]) -> Array:
    with np.errstate(all="ignore"):  # an alternative may have an exponent of 0: its frontier is anywhere
        return np.atleast_1d(np.asarray(function({n: theta[j] for n, j in names.items()}), dtype=np.float64))


def _gradient(result: FitResult, names: dict[str, int], function: Callable[[Theta], Any]) -> tuple[Array, Array]:
    """Return the value (n,) and its gradient by theta (n_theta, n)."""
    theta = result.estimate.theta
    value = _at(theta, names, function)
    gradient = np.zeros((len(theta), len(value)))
    for name, j in names.items():
        moved: Theta = {n: complex(theta[i]) for n, i in names.items()}
        moved[name] += 1j * COMPLEX_STEP
        gradient[j] = np.imag(np.atleast_1d(function(moved))) / COMPLEX_STEP
    return value, gradient


def _band(result: FitResult, names: dict[str, int], function: Callable[[Theta], Any]) -> Band:
    value, gradient = _gradient(result, names, function)
    variance = np.einsum("pi,pq,qi->i", gradient, result.estimate.covariance, gradient).clip(min=0)
    half = t_quantile(result.level, result.estimate.noise.df) * np.sqrt(variance)
    others = [_at(alternative, names, function) for alternative in result.estimate.alternatives]
    low, high = widen(value, half, others, np.zeros_like(half))
    return Band(open_exp(value), open_exp(low), open_exp(high))


def _parameter(
    result: FitResult, names: dict[str, int], name: str, function: Callable[[Theta], Any], is_log: bool
) -> Parameter:
    value, gradient = _gradient(result, names, function)
    se = float(np.sqrt(max(float(gradient[:, 0] @ result.estimate.covariance @ gradient[:, 0]), 0.0)))
    half = np.array([t_quantile(result.level, result.estimate.noise.df) * se])
    others = [_at(alternative, names, function) for alternative in result.estimate.alternatives]
    low, high = (float(end[0]) for end in widen(value, half, others, np.zeros(1)))
    how = "profile" if others else "robust"
    if not is_log:
        return Parameter(name, float(value[0]), se, low, high, None, how)
    scale = float(open_exp(value[0]))
    return Parameter(name, scale, scale * se, float(open_exp(low)), float(open_exp(high)), None, how)


def size_exponent(t: Theta) -> Any:
    """a = beta/(alpha+beta), the exponent of N* in C."""
    return t["beta"] / (t["alpha"] + t["beta"])


def gamma(t: Theta) -> Any:
    """gamma = alpha beta/(alpha+beta), the exponent of L* - E in C."""
    return t["alpha"] * t["beta"] / (t["alpha"] + t["beta"])


def log_g(t: Theta) -> Any:
    """log G = log(alpha A / beta B) / (alpha+beta)."""
    return (np.log(t["alpha"]) + t["A"] - np.log(t["beta"]) - t["B"]) / (t["alpha"] + t["beta"])


def log_k(t: Theta) -> Any:
    """log K, K = A G^-alpha + B G^beta."""
    g = log_g(t)
    return np.log(np.exp(t["A"] - t["alpha"] * g) + np.exp(t["B"] + t["beta"] * g))


def log_best_loss(t: Theta, log_c: Array) -> Any:
    """log L* at log(C/k)."""
    return np.log(np.exp(t["E"]) + np.exp(log_k(t) - gamma(t) * log_c))
