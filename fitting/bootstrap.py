"""A second opinion on intervals: resample whole runs with replacement and re-solve, warm-started, in batches.

Pairs by run are wide for few runs (coverage near 1 at 15), so the delta method stays the default. Knows fits and
points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import coordinates_of, problem_of
from scalewright.fitting.frame import Points, unknown
from scalewright.fitting.problem import resolve
from scalewright.fitting.result import FitResult, Parameter
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import pair_weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bootstrap:
    """Draws of theta (n_draws, n_theta) in reported coordinates; percentile intervals from them."""

    names: tuple[str, ...]
    is_log: NDArray[np.bool_]
    draws: Array
    values: Array
    level: float
    seed: int

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

    def table(self) -> pd.DataFrame:
        """Return value, se, low and high of every parameter."""
        rows = [self.parameter(name) for name in self.names]
        columns = {c: [getattr(p, c) for p in rows] for c in ("value", "se", "low", "high")}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="name"))

    def _interval(self, name: str, value: float, draws: Array) -> Parameter:
        low, high = np.quantile(draws, [0.5 - self.level / 2, 0.5 + self.level / 2])
        return Parameter(name, value, float(draws.std(ddof=1)), float(low), float(high), None, "bootstrap")


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
    clusters = pd.factorize(points.frame["run_id"])[0].astype(np.intp)
    theta = resolve(problem, objective, centred, pair_weights(clusters, n_draws, seed))
    draws = theta @ problem.to_raw.T
    return Bootstrap(problem.names, problem.is_log, draws, result.estimate.theta, result.level, seed)
