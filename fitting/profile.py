"""Profile likelihood: how far one parameter can move before the fit gets worse than chance allows. Knows numpy only.

One coordinate (or a linear combination of them) is fixed at a grid of values, the rest re-solved in one batch.
Each value is tried from the solutions of its neighbours as well, so that a second valley is found where there is one.
"""

from dataclasses import dataclass

import numpy as np

from fitting.losses import Objective
from fitting.problem import Problem, map_coordinate
from fitting.solver import Array, minimise

GRID_POINTS = 16
MAX_STEPS = 60  # a value that has not converged by then is met again from its neighbours


@dataclass(frozen=True)
class ProfileRange:
    """Ends of a profile interval; None where the objective never rises enough within the parameter's range.

    `theta` (2, n_theta) is the best fit at each end (or at the edge of the range): what the runs still allow.
    """

    low: float | None
    high: float | None
    theta: Array


@dataclass(frozen=True)
class ProfileCurve:
    """The objective minimised over the other coordinates at each value of one; `theta` (n_values, n_theta)."""

    values: Array
    objective: Array
    theta: Array


def profile_range(
    problem: Problem, objective: Objective, best: Array, combination: Array, threshold: float
) -> ProfileRange:
    """Return where the objective has risen by `threshold`, on each side of `best`, along a combination of theta."""
    index = int(np.argmax(np.abs(combination)))  # the one that bends most: the others start where they were
    mapped = map_coordinate(problem, index, combination)
    phi = np.asarray(np.linalg.solve(mapped.matrix, best), dtype=np.float64)
    steps = np.linspace(0, 1, GRID_POINTS + 1)[1:] ** 3  # dense near the optimum
    sides = [phi[index] + (end - phi[index]) * steps for end in (mapped.box.lower[index], mapped.box.upper[index])]
    coarse = profile_curve(mapped, objective, phi, index, np.concatenate(sides))
    ceiling = _value_at(mapped, objective, phi) + threshold
    parts = (slice(0, GRID_POINTS), slice(GRID_POINTS, None))
    low, high = (_crossing(mapped, objective, index, _with_centre(coarse, part, phi, index), ceiling) for part in parts)
    return ProfileRange(low[0], high[0], np.stack([low[1], high[1]]) @ mapped.matrix.T)


def profile_curve(problem: Problem, objective: Objective, best: Array, index: int, values: Array) -> ProfileCurve:
    """Profile coordinate `index` over `values` (any order), from `best` and then from neighbouring solutions."""
    curve = _solve_at(problem, objective, index, values, np.repeat(best[None], len(values), axis=0))
    return _from_neighbours(problem, objective, index, curve)


def _from_neighbours(problem: Problem, objective: Objective, index: int, curve: ProfileCurve) -> ProfileCurve:
    order = np.argsort(curve.values, kind="stable")
    for shift in (1, -1):
        starts = curve.theta.copy()
        starts[order] = curve.theta[np.roll(order, shift)]
        curve = _better(curve, _solve_at(problem, objective, index, curve.values, starts, n_stages=1))
    return curve


def _solve_at(
    problem: Problem, objective: Objective, index: int, values: Array, starts: Array, *, n_stages: int = 2
) -> ProfileCurve:
    """Solve with coordinate `index` held at each value, through the last `n_stages` widths of the continuation."""
    theta = starts.copy()
    theta[:, index] = values
    free = np.ones(theta.shape, dtype=bool)
    free[:, index] = False
    weights = np.ones((1, len(problem.log_loss)))
    for delta in objective.stages()[-n_stages:]:
        evaluate = problem.evaluator(objective.with_delta(delta), weights)
        solution = minimise(evaluate, theta, problem.box, free, max_steps=MAX_STEPS)
        theta = solution.theta
    return ProfileCurve(values, solution.value, solution.theta)


def _better(first: ProfileCurve, second: ProfileCurve) -> ProfileCurve:
    wins = second.objective < first.objective
    return ProfileCurve(
        first.values,
        np.where(wins, second.objective, first.objective),
        np.where(wins[:, None], second.theta, first.theta),
    )


def _value_at(problem: Problem, objective: Objective, phi: Array) -> float:
    evaluate = problem.evaluator(objective, np.ones((1, len(problem.log_loss))))
    return float(evaluate(phi[None], np.arange(1)).value[0])


def _with_centre(curve: ProfileCurve, part: slice, phi: Array, index: int) -> ProfileCurve:
    """One side of the coarse curve, with the optimum in front."""
    return ProfileCurve(
        np.concatenate([[phi[index]], curve.values[part]]),
        np.concatenate([[-np.inf], curve.objective[part]]),
        np.concatenate([phi[None], curve.theta[part]]),
    )


def _crossing(
    problem: Problem, objective: Objective, index: int, side: ProfileCurve, ceiling: float
) -> tuple[float | None, Array]:
    """Find the last value below the ceiling, zoom between it and the next, and interpolate; also return theta there."""
    below = np.flatnonzero(side.objective <= ceiling)
    last = int(below[-1])
    if last == len(side.values) - 1:
        return None, side.theta[last]
    values = np.linspace(side.values[last], side.values[last + 1], GRID_POINTS + 1)
    starts = (np.repeat(side.theta[[k]], len(values), axis=0) for k in (last, last + 1))
    first, second = (_solve_at(problem, objective, index, values, start, n_stages=1) for start in starts)
    zoomed = _from_neighbours(problem, objective, index, _better(first, second))
    fine = zoomed.objective
    k = max(int(np.flatnonzero(fine <= ceiling)[-1]) if (fine <= ceiling).any() else 0, 0)
    if k == len(values) - 1:
        return float(values[-1]), zoomed.theta[-1]
    rise = fine[k + 1] - fine[k]
    part = (ceiling - fine[k]) / rise if np.isfinite(rise) and rise > 0 else 0.0
    return float(values[k] + np.clip(part, 0, 1) * (values[k + 1] - values[k])), zoomed.theta[k]
