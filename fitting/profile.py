"""Profile likelihood: how far one parameter can move before the fit gets worse than chance allows. Knows numpy only.

One coordinate (or a linear combination of them) is fixed at a grid of values, the rest re-solved in one batch.
Each value is tried from the solutions of its neighbours as well, so that a second valley is found where there is one.
"""

from dataclasses import dataclass

import numpy as np

from scalewright.fitting.objectives import Objective
from scalewright.fitting.problem import Problem, map_coordinate
from scalewright.fitting.solver import Array, Patience, minimise

GRID_POINTS = 16
MAX_STEPS = 60  # a value that has not converged by then is met again from its neighbours
PATIENCE, NEGLIGIBLE = 8, 1e-4  # steps that together gain less than this share of the threshold are not worth more


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


@dataclass(frozen=True)
class Held:
    """A problem with one coordinate held; its objective matters to a small share of `threshold`."""

    problem: Problem
    objective: Objective
    index: int
    threshold: float


def profile_range(
    problem: Problem, objective: Objective, best: Array, combination: Array, threshold: float
) -> ProfileRange:
    """Return where the objective has risen by `threshold`, on each side of `best`, along a combination of theta."""
    index = int(np.argmax(np.abs(combination)))  # the one that bends most: the others start where they were
    mapped = map_coordinate(problem, index, combination)
    phi = np.asarray(np.linalg.solve(mapped.matrix, best), dtype=np.float64)
    steps = np.linspace(0, 1, GRID_POINTS + 1)[1:] ** 3  # dense near the optimum
    sides = [phi[index] + (end - phi[index]) * steps for end in (mapped.box.lower[index], mapped.box.upper[index])]
    held = Held(mapped, objective, index, threshold)
    coarse = profile_curve(held, phi, np.concatenate(sides))
    ceiling = _value_at(mapped, objective, phi) + threshold
    parts = (slice(0, GRID_POINTS), slice(GRID_POINTS, None))
    low, high = (_crossing(held, _with_centre(coarse, part, phi, index), ceiling) for part in parts)
    return ProfileRange(low[0], high[0], np.stack([low[1], high[1]]) @ mapped.matrix.T)


def profile_curve(held: Held, best: Array, values: Array) -> ProfileCurve:
    """Profile the held coordinate over `values` (any order), from `best` and then from neighbouring solutions."""
    return _from_neighbours(held, _solve_at(held, values, np.repeat(best[None], len(values), axis=0)))


def profile_from(held: Held, curve: ProfileCurve, starts: Array) -> ProfileCurve:
    """Solve a profile again from each row of `starts` (in the held problem's coordinates), and keep what is better."""
    for start in starts:
        curve = _better(curve, _solve_at(held, curve.values, np.repeat(start[None], len(curve.values), axis=0)))
    return _from_neighbours(held, curve)


def _from_neighbours(held: Held, curve: ProfileCurve) -> ProfileCurve:
    order = np.argsort(curve.values, kind="stable")
    for shift in (1, -1):
        starts = curve.theta.copy()
        starts[order] = curve.theta[np.roll(order, shift)]
        curve = _better(curve, _solve_at(held, curve.values, starts, n_stages=1))
    return curve


def _solve_at(held: Held, values: Array, starts: Array, *, n_stages: int = 2) -> ProfileCurve:
    """Solve with the coordinate held at each value, through the last `n_stages` widths of the continuation."""
    problem, theta = held.problem, starts.copy()
    theta[:, held.index] = values
    free = np.ones(theta.shape, dtype=bool)
    free[:, held.index] = False
    weights = np.ones((1, len(problem.log_loss)))
    patience = Patience(PATIENCE, NEGLIGIBLE * held.threshold)
    for delta in held.objective.stages()[-n_stages:]:
        evaluate = problem.evaluator(held.objective.with_delta(delta), weights)
        solution = minimise(evaluate, theta, problem.box, free, max_steps=MAX_STEPS, patience=patience)
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


def _crossing(held: Held, side: ProfileCurve, ceiling: float) -> tuple[float | None, Array]:
    """Find the last value below the ceiling, zoom between it and the next, and interpolate; also return theta there."""
    below = np.flatnonzero(side.objective <= ceiling)
    last = int(below[-1])
    if last == len(side.values) - 1:
        return None, side.theta[last]
    values = np.linspace(side.values[last], side.values[last + 1], GRID_POINTS + 1)
    starts = (np.repeat(side.theta[[k]], len(values), axis=0) for k in (last, last + 1))
    first, second = (_solve_at(held, values, start, n_stages=1) for start in starts)
    zoomed = _from_neighbours(held, _better(first, second))
    fine = zoomed.objective
    k = max(int(np.flatnonzero(fine <= ceiling)[-1]) if (fine <= ceiling).any() else 0, 0)
    if k == len(values) - 1:
        return float(values[-1]), zoomed.theta[-1]
    rise = fine[k + 1] - fine[k]
    part = (ceiling - fine[k]) / rise if np.isfinite(rise) and rise > 0 else 0.0
    return float(values[k] + np.clip(part, 0, 1) * (values[k + 1] - values[k])), zoomed.theta[k]
