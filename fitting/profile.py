"""Profile likelihood: how far one parameter can move before the fit gets worse than chance allows. Knows numpy only.

One coordinate (or a linear combination of them) is fixed at a grid of values, the rest re-solved in one batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fitting.losses import Objective
from fitting.problem import Problem, map_coordinate
from fitting.solver import Array, minimise

GRID_POINTS = 24
ZOOMS = 2


@dataclass(frozen=True)
class ProfileRange:
    """Ends of a profile interval; None where the deviance never reaches the threshold within the parameter's range."""

    low: float | None
    high: float | None


def deviance_along(problem: Problem, objective: Objective, best: Array, index: int, values: Array) -> Array:
    """Return f(value) minimised over the other coordinates, at each value of coordinate `index`."""
    starts = np.repeat(best[None], len(values), axis=0)
    starts[:, index] = values
    free = np.ones(starts.shape, dtype=bool)
    free[:, index] = False
    theta, weights = starts, np.ones((1, len(problem.log_loss)))
    for delta in objective.stages()[-2:]:
        solution = minimise(problem.evaluator(objective.with_delta(delta), weights), theta, problem.box, free)
        theta = solution.theta
    return solution.value


def profile_range(
    problem: Problem, objective: Objective, best: Array, combination: Array, threshold: float
) -> ProfileRange:
    """Return where the objective has risen by `threshold`, on each side of `best`, along a combination of theta."""
    index = _own_index(combination)
    mapped = map_coordinate(problem, index, combination)
    phi = np.asarray(np.linalg.solve(mapped.matrix, best), dtype=np.float64)
    floor = float(problem.evaluator(objective, np.ones((1, len(problem.log_loss))))(best[None], np.arange(1)).value[0])

    def rise(values: Array) -> Array:
        return deviance_along(mapped, objective, phi, index, values) - floor - threshold

    low = _crossing(rise, phi[index], mapped.box.lower[index])
    return ProfileRange(low, _crossing(rise, phi[index], mapped.box.upper[index]))


def _own_index(combination: Array) -> int:
    """The coordinate that the combination replaces: the one with coefficient one."""
    return int(np.argmin(np.abs(combination - 1.0)))


def _crossing(rise: "Callable[[Array], Array]", centre: float, end: float) -> float | None:
    """Find the first crossing between the optimum and the end of the range by two batched zooms."""
    start, stop, above_stop = centre, end, np.nan
    steps = np.linspace(0, 1, GRID_POINTS + 1)[1:] ** 3  # dense near the optimum
    for _ in range(ZOOMS + 1):
        values = start + (stop - start) * steps
        height = np.asarray(rise(values))
        over = np.flatnonzero(height > 0)
        if not len(over):
            return None if np.isnan(above_stop) else float(stop)
        first = int(over[0])
        above_stop = height[first]
        start, stop = (start if first == 0 else float(values[first - 1])), float(values[first])
        steps = np.linspace(0, 1, GRID_POINTS + 1)[1:]
    return 0.5 * (start + stop)
