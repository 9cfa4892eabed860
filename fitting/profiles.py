"""The profile of one parameter of a fit, as a curve to look at: how much worse the fit gets as it is held elsewhere."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import coordinates_of, problem_of
from scalewright.fitting.frame import Points, unknown
from scalewright.fitting.problem import map_coordinate
from scalewright.fitting.profile import Held, profile_curve, profile_from, profile_range
from scalewright.fitting.result import FitResult, is_identified
from scalewright.fitting.solver import Array
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import profile_threshold, t_quantile

N_VALUES = 48


@dataclass(frozen=True)
class ProfileOfParameter:
    """`values` of the parameter and the `rise` of the objective there.

    The interval is where the rise stays under `threshold`. `low` is 0 or -inf and `high` inf where the profile never
    reaches the threshold: the interval is open-ended.
    """

    name: str
    estimate: float
    low: float
    high: float
    threshold: float
    values: Array
    rise: Array

    @property
    def identified(self) -> bool:
        """Whether the interval is narrow enough for the value to be worth printing."""
        return is_identified(self.low, self.high)

    def frame(self) -> pd.DataFrame:
        """Return the columns value and rise."""
        return pd.DataFrame({"value": self.values, "rise": self.rise})


@single_threaded
def profile_of(points: Points, result: FitResult, name: str) -> ProfileOfParameter:
    """Profile one parameter of a fit over its interval and half as far again (the points must be those of the fit).

    Raises FittingError for an unknown parameter or other points.
    """
    if name not in result.estimate.names:
        raise FittingError(unknown("parameter", name, result.estimate.names))
    problem, objective = problem_of(points, result), result.settings.resolve()
    j = result.estimate.names.index(name)
    best, noise = coordinates_of(problem, result), result.estimate.noise
    threshold = profile_threshold(t_quantile(result.level, noise.df), noise, float(result.estimate.stretch[j]))
    ends = profile_range(problem, objective, best, problem.to_raw[j], threshold)
    index = int(np.argmax(np.abs(problem.to_raw[j])))
    mapped = map_coordinate(problem, index, problem.to_raw[j])
    phi = np.asarray(np.linalg.solve(mapped.matrix, best), dtype=np.float64)
    centre = float(phi[index])
    left, right = _window(centre, ends.low, ends.high, mapped.box.lower[index], mapped.box.upper[index])
    values = np.concatenate([np.linspace(left, centre, N_VALUES)[:-1], np.linspace(centre, right, N_VALUES)])
    held = Held(mapped, objective, index, threshold)
    at_ends = np.linalg.solve(mapped.matrix, ends.theta.T).T  # else a second valley would not be seen from the optimum
    curve = profile_from(held, profile_curve(held, phi, values), np.asarray(at_ends, dtype=np.float64))
    rise = np.maximum(curve.objective - curve.objective.min(), 0.0) * objective.scale
    shown = np.exp(values) if problem.is_log[j] else values
    low, high = (_end(end, bool(problem.is_log[j]), open_end) for end, open_end in zip(
        (ends.low, ends.high), (0.0 if problem.is_log[j] else -np.inf, np.inf), strict=True))  # fmt: skip
    return ProfileOfParameter(name, result.params[name].value, low, high, threshold * objective.scale, shown, rise)


def _end(end: float | None, is_log: bool, open_end: float) -> float:
    if end is None:
        return float(open_end)
    return float(np.exp(end)) if is_log else end


def _window(centre: float, low: float | None, high: float | None, least: float, most: float) -> tuple[float, float]:
    """A window that shows the whole interval: half as wide again, or a stretch of the range where it is open."""
    known = [abs(end - centre) for end in (low, high) if end is not None]
    reach = 1.5 * max(known) if known else 0.2 * (most - least)
    return max(least, centre - reach), min(most, centre + reach)
