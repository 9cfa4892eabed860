"""Intervals by resampling: draw whole runs, or whole sizes, with replacement and re-solve, warm-started, in batches.

Right under unequal scatter where runs are many; wide where they are few (coverage near 1 at 15). Knows fits and points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import coordinates_of, problem_of
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN, Points, unknown
from scalewright.fitting.frontier import NAMES, exponents, frontier, gamma, log_best_loss, log_g, log_k, size_exponent
from scalewright.fitting.intervals import size_groups
from scalewright.fitting.problem import resolve
from scalewright.fitting.result import FitResult, Parameter
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import pair_weights

Array = NDArray[np.float64]
Derived = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Bootstrap:
    """Draws of theta (n_draws, n_theta) in reported coordinates; percentile intervals from them.

    unit: what was drawn, a "run", or a "size" where the runs of one size share an effect.
    """

    names: tuple[str, ...]
    is_log: NDArray[np.bool_]
    draws: Array
    values: Array
    level: float
    seed: int
    unit: str = "run"

    def parameter(self, name: str) -> Parameter:
        """Return one parameter with its percentile interval. Raises FittingError for an unknown name."""
        if name not in self.names:
            raise FittingError(unknown("parameter", name, self.names))
        j = self.names.index(name)
        transform: Callable[[Any], Any] = np.exp if self.is_log[j] else np.asarray
        return self._interval(name, float(transform(self.values[j])), transform(self.draws[:, j]))

    def quantity(self, name: str, function: Callable[[dict[str, Any]], Any]) -> Parameter:
        """Return any function of theta (a dict of coordinates, logs for coefficients) with its percentile interval."""
        draws = function({n: self.draws[:, j] for j, n in enumerate(self.names)})
        value = function({n: self.values[j] for j, n in enumerate(self.names)})
        return self._interval(name, float(value), np.asarray(draws, dtype=np.float64))

    def derived(self, result: FitResult, flops: Sequence[float] = ()) -> dict[str, Parameter]:
        """Return every number derived from the law, as `derived` names them, with percentile intervals."""
        return {name: self.quantity(name, function) for name, function in _derived(result, flops).items()}

    def table(self) -> pd.DataFrame:
        """Return value, se, low and high of every parameter."""
        rows = [self.parameter(name) for name in self.names]
        columns = {c: [getattr(p, c) for p in rows] for c in ("value", "se", "low", "high")}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="name"))

    def _interval(self, name: str, value: float, draws: Array) -> Parameter:
        low, high = np.quantile(draws, [0.5 - self.level / 2, 0.5 + self.level / 2])
        return Parameter(name, value, float(draws.std(ddof=1)), float(low), float(high), None, "bootstrap")


def derived(result: FitResult, flops: Sequence[float] = ()) -> dict[str, Parameter]:
    """Return the exponents of a Chinchilla law's frontier, G and K, and N*, D* and L* at each compute."""
    if not _derived(result):
        return {}
    found = exponents(result)
    if not flops:
        return found
    at = frontier(result, list(flops))
    for star, band in (("N*", at.n_params), ("D*", at.n_tokens), ("L*", at.loss_nats)):
        for c, value, low, high in zip(flops, band.value, band.low, band.high, strict=True):
            name = f"{star} at {c:.3g}"
            found[name] = Parameter(name, float(value), float("nan"), float(low), float(high))
    return found


def _derived(result: FitResult, flops: Sequence[float] = ()) -> dict[str, Derived]:
    """Functions of theta by the names of `derived`; none for a law without a frontier."""
    if not set(NAMES) <= set(result.estimate.names) or not min(result.value("alpha"), result.value("beta")) > 0:
        return {}
    found: dict[str, Derived] = {
        "a": size_exponent,
        "b": lambda t: 1 - size_exponent(t),
        "gamma": gamma,
        "G": lambda t: np.exp(log_g(t)),
        "K": lambda t: np.exp(log_k(t)),
    }
    for c in flops:
        for star, function in _optimum(float(np.log(c / FLOPS_PER_PARAMETER_TOKEN))).items():
            found[f"{star} at {c:.3g}"] = function
    return found


def _optimum(log_c: float) -> dict[str, Derived]:
    """N*, D* and L* at log(C/k)."""
    return {
        "N*": lambda t: np.exp(log_g(t) + size_exponent(t) * log_c),
        "D*": lambda t: np.exp((1 - size_exponent(t)) * log_c - log_g(t)),
        "L*": lambda t: np.exp(log_best_loss(t, np.asarray(log_c))),
    }


@single_threaded
def bootstrap(points: Points, result: FitResult, n_draws: int = 4000, *, seed: int = 0) -> Bootstrap:
    """Re-solve a fit on `n_draws` resamples of its runs (the points must be those of the fit).

    The same seed gives the same draws. Raises FittingError for points that the fit did not use, or fewer than two
    draws.
    """
    if n_draws < 2:
        raise FittingError(f"a bootstrap needs two draws or more, got {n_draws}")
    problem, objective = problem_of(points, result), result.settings.resolve()
    centred = coordinates_of(problem, result)
    sizes = size_groups(points) if result.shared is not None and result.shared.found else None
    clusters = pd.factorize(points.frame["run_id"])[0].astype(np.intp) if sizes is None else sizes
    theta = resolve(problem, objective, centred, pair_weights(clusters, n_draws, seed))
    draws, unit, reported = theta @ problem.to_raw.T, "run" if sizes is None else "size", result.law.reported
    if reported is None:
        return Bootstrap(problem.names, problem.is_log, draws, result.estimate.theta, result.level, seed, unit)
    told, values = reported(result.estimate.theta), np.array([reported(one).values for one in draws])
    plain = np.zeros(len(told.names), dtype=bool)
    return Bootstrap(told.names, plain, values, told.values, result.level, seed, unit)
