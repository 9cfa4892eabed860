"""A batched damped Newton method with bounds: many starts, many resamplings, many profile points in one call.

Shapes: theta (batch, n_theta); value (batch,); gradient (batch, n_theta); hessian (batch, n_theta, n_theta).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FIRST_DAMPING = 1e-4  # relative to a unit diagonal
LAST_DAMPING = 1e10  # a row that needs more cannot be improved in double precision
FLAT = 1e-4  # of the least-squares curvature: where Huber's Hessian vanishes, steps are measured in this unit
STEP_TOLERANCE = 1e-13
DECREASE_TOLERANCE = 1e-15


@dataclass(frozen=True)
class Local:
    """An objective near theta: value, gradient and Hessian, one row a problem."""

    value: Array
    gradient: Array
    hessian: Array


Evaluate = Callable[[Array, NDArray[np.intp]], Local]  # (theta of some rows, which rows) -> Local


@dataclass(frozen=True)
class Box:
    """Where each coordinate may lie, and the curvature of least squares in it, which sets the unit of a step."""

    lower: Array
    upper: Array
    curvature: Array


@dataclass(frozen=True)
class Solution:
    """Where each row ended: theta, value, scaled gradient norm, predicted decrease, smallest eigenvalue, steps."""

    theta: Array
    value: Array
    gradient_norm: Array
    predicted_decrease: Array
    smallest_eigenvalue: Array
    n_steps: NDArray[np.int64]

    def take(self, rows: NDArray[np.intp]) -> "Solution":
        return Solution(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class _Step:
    move: Array
    predicted: Array
    gradient_norm: Array
    smallest: Array


def minimise(evaluate: Evaluate, start: Array, box: Box, free: Mask, *, max_steps: int = 200) -> Solution:
    """Minimise every row from its start; rows that have converged freeze and cost nothing more.

    `free` (batch, n_theta) marks the coordinates that may move (a profile fixes some). A coordinate at its bound whose
    gradient points outwards is held there. A step is taken only if it lowers the objective.
    """
    theta = np.clip(start, box.lower, box.upper)
    rows = np.arange(len(theta))
    local = evaluate(theta, rows)
    damping = np.full(len(theta), FIRST_DAMPING)
    final = _blank(theta, local)
    for count in range(max_steps):
        step = _newton_step(theta[rows], local, box, free[rows], damping[rows])
        _record(final, rows, theta, local, step, count)
        done = _is_done(step, local, damping[rows])
        rows, local, step = rows[~done], _take(local, ~done), _take_step(step, ~done)
        if not len(rows):
            break
        local = _try(evaluate, theta, rows, local, step, box, damping)
    return final


def _blank(theta: Array, local: Local) -> Solution:
    n = len(theta)
    zeros = np.zeros((3, n))
    return Solution(theta.copy(), local.value.copy(), zeros[0], zeros[1], zeros[2], np.zeros(n, np.int64))


def _record(final: Solution, rows: NDArray[np.intp], theta: Array, local: Local, step: _Step, count: int) -> None:
    final.theta[rows], final.value[rows] = theta[rows], local.value
    final.gradient_norm[rows], final.predicted_decrease[rows] = step.gradient_norm, step.predicted
    final.smallest_eigenvalue[rows], final.n_steps[rows] = step.smallest, count


def _is_done(step: _Step, local: Local, damping: Array) -> Mask:
    small_gain = step.predicted <= DECREASE_TOLERANCE * np.abs(local.value)
    small_step = np.abs(step.move).max(axis=1) <= STEP_TOLERANCE
    done: Mask = (small_gain & (damping <= 1.0)) | small_step | (damping > LAST_DAMPING)
    return done


def _take(local: Local, keep: Mask) -> Local:
    return Local(local.value[keep], local.gradient[keep], local.hessian[keep])


def _take_step(step: _Step, keep: Mask) -> _Step:
    return _Step(step.move[keep], step.predicted[keep], step.gradient_norm[keep], step.smallest[keep])


def _newton_step(theta: Array, local: Local, box: Box, free: Mask, damping: Array) -> _Step:
    """Solve (|H| + damping) move = -gradient in coordinates scaled to a unit diagonal, over the free coordinates."""
    held = ((theta <= box.lower) & (local.gradient > 0)) | ((theta >= box.upper) & (local.gradient < 0))
    loose = free & ~held
    diagonal = np.abs(np.einsum("bii->bi", local.hessian))
    scale = np.sqrt(np.maximum(diagonal, FLAT * box.curvature))
    inverse = loose / scale
    scaled = local.hessian * inverse[:, :, None] * inverse[:, None, :]
    np.einsum("bii->bi", scaled)[...] += ~loose
    values, vectors = np.linalg.eigh(scaled)
    along = np.einsum("bij,bi->bj", vectors, local.gradient * inverse)
    stiffness = np.maximum(np.abs(values), 1e-14)
    move = -inverse * np.einsum("bij,bj->bi", vectors, along / (stiffness + damping[:, None]))
    norm = np.linalg.norm(local.gradient * inverse, axis=1)
    return _Step(move, 0.5 * (along**2 / stiffness).sum(axis=1), norm, values[:, 0])


def _try(
    evaluate: Evaluate, theta: Array, rows: NDArray[np.intp], local: Local, step: _Step, box: Box, damping: Array
) -> Local:
    """Take the step in the rows where it lowers the objective, raise the damping in the others; `theta` is updated."""
    trial = np.clip(theta[rows] + step.move, box.lower, box.upper)
    new = evaluate(trial, rows)
    better = new.value < local.value  # false for NaN
    theta[rows] = np.where(better[:, None], trial, theta[rows])
    relaxed = np.maximum(damping[rows] * 0.1, 1e-14)
    damping[rows] = np.where(better, relaxed, np.maximum(damping[rows], 1e-6) * 8.0)
    return Local(
        np.where(better, new.value, local.value),
        np.where(better[:, None], new.gradient, local.gradient),
        np.where(better[:, None, None], new.hessian, local.hessian),
    )
