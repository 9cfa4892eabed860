"""A batched damped Newton method with bounds: many starts, many resamplings, many profile points in one call.

Shapes: theta (batch, n_theta); value (batch,); gradient (batch, n_theta); hessian (batch, n_theta, n_theta).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FIRST_DAMPING = 1e-4  # relative to a unit diagonal
STIFF = 2e-3  # damping that leaves flat directions alone while the others return to the valley floor
LAST_DAMPING = 1e10  # a row that needs more cannot be improved in double precision
FLAT = 1e-8  # of the least-squares curvature: where Huber's Hessian vanishes, steps are measured in this unit
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
    """Where each coordinate may lie, and the curvature of least squares in it, which sets the unit of a step.

    `open_below` and `open_above` mark ends that only say where the search began: an optimum there moves them. The
    other ends are limits of the law itself, such as an exponent of 0 or a floor that no loss can tell from 0.
    """

    lower: Array
    upper: Array
    curvature: Array
    open_below: Mask | None = None
    open_above: Mask | None = None

    @property
    def open_ends(self) -> tuple[Mask, Mask]:
        """Which lower and which upper ends only say where the search began, each (n_theta,)."""
        below, above = (
            np.zeros(len(self.lower), bool) if ends is None else ends for ends in (self.open_below, self.open_above)
        )
        return below, above

    def searched_out(self, theta: Array) -> tuple[Mask, Mask]:
        """Return the open ends, lower and upper, at which theta lies, or any of several (n, n_theta)."""
        width, rows = self.upper - self.lower, theta.reshape(-1, len(self.lower))
        below, above = self.open_ends
        return (
            below & (rows <= self.lower + 1e-9 * width).any(axis=0),
            above & (rows >= self.upper - 1e-9 * width).any(axis=0),
        )

    def widened(self, below: Mask, above: Mask) -> "Box":
        """Return a box with these ends as far again from the other end."""
        width = self.upper - self.lower
        return replace(self, lower=self.lower - width * below, upper=self.upper + width * above)


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
        """Return the solutions of these rows alone."""
        return Solution(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class _Step:
    move: Array
    predicted: Array
    gradient_norm: Array
    smallest: Array


@dataclass(frozen=True)
class Patience:
    """When to give up on a row: each `n_steps` steps it must gain more than `gain`.

    A row that creeps along a flat valley, or back and forth over the kinks of a robust objective, ends there: what it
    could still gain is less than anything that is read off the result.
    """

    n_steps: int
    gain: float

    def is_out(self, before: Array, now: Array) -> Mask:
        """Whether rows that stood at `before` that many steps ago have gained too little."""
        out: Mask = np.isfinite(before) & ~(now < before - self.gain)
        return out


@dataclass(frozen=True)
class _Limits:
    """What constrains the steps of some rows."""

    box: Box
    free: Mask
    damping: Array


def minimise(
    evaluate: Evaluate,
    start: Array,
    box: Box,
    free: Mask,
    *,
    max_steps: int = 200,
    patience: Patience | None = None,
) -> Solution:
    """Minimise every row from its start; rows that have converged, or that creep, freeze and cost nothing more.

    `free` (batch, n_theta) marks the coordinates that may move (a profile fixes some). A coordinate at its bound whose
    gradient points outwards is held there. A step is taken only if it lowers the objective.
    """
    theta = np.clip(start, box.lower, box.upper)
    rows = np.arange(len(theta))
    local = evaluate(theta, rows)
    damping = np.full(len(theta), FIRST_DAMPING)
    final = _blank(theta, local)
    marks = np.full(len(theta), np.inf)  # each row's value when its patience was last counted anew
    for count in range(max_steps):
        step = _newton_step(theta[rows], local, box, free[rows], damping[rows])
        _record(final, rows, theta, local, step, count)
        going = ~_is_done(step, local, damping[rows])
        if patience is not None and count % patience.n_steps == 0:
            going &= ~patience.is_out(marks[rows], local.value)
            marks[rows] = local.value
        rows, local = rows[going], _take(local, going)
        if not len(rows):
            break
        limits = _Limits(box, free[rows], damping[rows])
        local, better = _try(evaluate, theta, rows, local, step.move[going], limits)
        damping[rows] = np.where(better, damping[rows] * 0.1, np.maximum(damping[rows], 1e-6) * 8.0)
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


def _take(local: Local, keep: Mask | NDArray[np.intp]) -> Local:
    return Local(local.value[keep], local.gradient[keep], local.hessian[keep])


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
    sharp = np.maximum(np.abs(values), 1e-14)
    move = -inverse * np.einsum("bij,bj->bi", vectors, along / (sharp + damping[:, None]))
    norm = np.linalg.norm(local.gradient * inverse, axis=1)
    return _Step(move, 0.5 * (along**2 / sharp).sum(axis=1), norm, values[:, 0])


def _try(
    evaluate: Evaluate, theta: Array, rows: NDArray[np.intp], local: Local, move: Array, limits: _Limits
) -> tuple[Local, Mask]:
    """Take the step in the rows where it lowers the objective; `theta` is updated. Also return which rows took it."""
    trial = np.clip(theta[rows] + move, limits.box.lower, limits.box.upper)
    new = _copy(evaluate(trial, rows))
    _bend(evaluate, trial, rows, new, local.value, limits)
    better: Mask = new.value < local.value  # false for NaN
    theta[rows[better]] = trial[better]
    _put(new, np.flatnonzero(~better), _take(local, ~better))
    return new, better


def _bend(evaluate: Evaluate, trial: Array, rows: NDArray[np.intp], new: Local, before: Array, limits: _Limits) -> None:
    """Where a step went uphill, take one stiff step more from its end before judging it: this follows a curved valley.

    Rows of `trial` and `new` are replaced where this ends below `before`, the value that the step started from.
    """
    failed = np.flatnonzero(~(new.value < before) & np.isfinite(new.gradient).all(axis=1))
    if not len(failed):
        return
    damping = np.maximum(limits.damping[failed], STIFF)
    step = _newton_step(trial[failed], _take(new, failed), limits.box, limits.free[failed], damping)
    bent = np.clip(trial[failed] + step.move, limits.box.lower, limits.box.upper)
    again = evaluate(bent, rows[failed])
    good = again.value < before[failed]
    trial[failed[good]] = bent[good]
    _put(new, failed[good], _take(again, good))


def _copy(local: Local) -> Local:
    return Local(local.value.copy(), local.gradient.copy(), local.hessian.copy())


def _put(local: Local, rows: NDArray[np.intp], other: Local) -> None:
    local.value[rows], local.gradient[rows], local.hessian[rows] = other.value, other.gradient, other.hessian
