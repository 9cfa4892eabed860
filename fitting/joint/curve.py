"""One smooth curve of loss against tokens for each size, a method as a shift along ln D. Arrays in, fits out.

    L_m(N, D) = a_N + b_N h(v),   h(v) = (exp(c v) - 1) / c,   v = ln D - centre + side * shift,   side = -1/2 or +1/2

Each size has its own level a_N; slopes b_N are shared or own; the bend c is shared. With shared slopes this is the
additive law E + A(N) + B D^-beta with any A(N); with c = 0 a straight line in ln D. The shift is Z theta: one number,
one a size, one a budget, or a trend.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.errors import CurveError
from scalewright.fitting.joint.runs import Runs

Array = NDArray[np.float64]

BEND = -0.3  # of two budgets, which cannot show one: about the exponent of data in published laws
STEEPEST = 3.0  # largest |bend|
N_STEPS = 60
FIRST_SHIFTS = np.linspace(-4.0, 4.0, 33)


@dataclass(frozen=True)
class CurveFit:
    """Curves and shifts at the least squares of log loss. `linear` holds levels then slopes; `shift` is theta."""

    own_slopes: bool
    curved: bool
    bend: float
    linear: Array
    shift: Array
    z: Array
    centre: float
    fitted: Array
    residuals: Array

    @property
    def n_parameters(self) -> int:
        """How many numbers were fitted, shifts among them."""
        return len(self.linear) + int(self.curved) + len(self.shift)


def stretch(v: Array, bend: float) -> Array:
    """h(v) = (exp(c v) - 1)/c, and v where c is 0."""
    return v if abs(bend) < 1e-9 else np.expm1(bend * v) / bend


def bent(v: Array, bend: float) -> Array:
    """dh/dc."""
    if abs(bend) < 1e-4:
        return v**2 / 2 + bend * v**3 / 3
    return (v * np.exp(bend * v) - stretch(v, bend)) / bend


def _level_columns(runs: Runs) -> Array:
    return np.equal.outer(runs.size, np.arange(len(runs.sizes))).astype(np.float64)


def slope_columns(runs: Runs, h: Array, own: bool) -> Array:
    """Columns that the slopes multiply; h may have leading axes before that of the runs."""
    return h[..., None] * _level_columns(runs) if own else h[..., None]


def curve_columns(runs: Runs, fit: CurveFit, v: Array) -> Array:
    """Levels, slopes and bend at v (..., runs), in nats: what the curve is linear in around its fit."""
    levels = np.broadcast_to(_level_columns(runs), (*v.shape, len(runs.sizes)))
    parts = [levels, slope_columns(runs, stretch(v, fit.bend), fit.own_slopes)]
    if fit.curved:
        parts.append((slopes(runs, fit) * bent(v, fit.bend))[..., None])
    return np.concatenate(parts, axis=-1)


def slopes(runs: Runs, fit: CurveFit) -> Array:
    """b of each run's size."""
    b = fit.linear[len(runs.sizes) :]
    return b[runs.size] if fit.own_slopes else np.full(len(runs), b[0])


def place(runs: Runs, fit: CurveFit) -> Array:
    """v of each run."""
    return runs.log_tokens - fit.centre + runs.side * (fit.z @ fit.shift)


def shift_columns(runs: Runs, fit: CurveFit, z: Array) -> Array:
    """Derivative of the loss, in nats, along the shifts that z defines."""
    steep = slopes(runs, fit) * np.exp(fit.bend * place(runs, fit))
    return (steep * runs.side)[:, None] * z


def jacobian(runs: Runs, fit: CurveFit) -> Array:
    """Derivative of log loss along levels, slopes, bend and shifts."""
    columns = np.hstack([curve_columns(runs, fit, place(runs, fit)), shift_columns(runs, fit, fit.z)])
    return columns / fit.fitted[:, None]


def fit_curves(runs: Runs, z: Array, *, own_slopes: bool = False, weight: Array | None = None) -> CurveFit:
    """Fit curves and shifts by least squares of log loss, weighted where runs scatter differently.

    Raises CurveError where a size has no two budgets, or where losses do not fall with tokens.
    """
    if len(np.unique(np.round(runs.log_tokens, 2))) < 2:
        raise CurveError("a curve of loss against tokens needs two budgets or more")
    root = np.ones(len(runs)) if weight is None else np.sqrt(weight)
    fit = _start(runs, z, own_slopes, root)
    for _ in range(N_STEPS):
        step = _solve(jacobian(runs, fit) * root[:, None], fit.residuals * root)
        better = _advance(runs, fit, step, root)
        if better is None:
            break
        gained = _squares(fit, root) - _squares(better, root)
        fit = better
        if gained <= 1e-13 * _squares(fit, root):
            break
    if not (slopes(runs, fit) < 0).any():
        raise CurveError("losses do not fall with tokens")
    return fit


def _solve(x: Array, y: Array) -> Array:
    with np.errstate(over="ignore"):  # a column past all bounds becomes zeros: no step along it
        scale = np.linalg.norm(x, axis=0) + 1e-300
    return np.asarray(np.linalg.lstsq(x / scale, y, rcond=1e-12)[0] / scale)


def _squares(fit: CurveFit, root: Array) -> float:
    return float(((fit.residuals * root) ** 2).sum())


def _budgets_of_curves(runs: Runs) -> int:
    """The most budgets that any size has."""
    return max(len(np.unique(runs.cell[runs.size == s])) for s in range(len(runs.sizes)))


def _start(runs: Runs, z: Array, own: bool, root: Array) -> CurveFit:
    """Take the best of a grid of common shifts, solved linearly with the usual bend."""
    centre = float(runs.log_tokens.mean())
    loss = np.exp(runs.log_loss)
    u = runs.log_tokens - centre + runs.side * FIRST_SHIFTS[:, None]
    levels = np.broadcast_to(_level_columns(runs), (*u.shape, len(runs.sizes)))
    x = np.concatenate([levels, slope_columns(runs, stretch(u, BEND), own)], axis=-1) * (root / loss)[:, None]
    solved = np.linalg.pinv(x, rcond=1e-10) @ root
    squares = ((x @ solved[..., None])[..., 0] - root) ** 2
    ordered = np.argsort(squares.sum(axis=1) + 1e-9 * np.abs(FIRST_SHIFTS), kind="stable")
    shift = _solve(z, np.full(len(runs), 1.0))  # theta that makes z theta = 1, where z holds a constant
    for best in ordered:
        curved = _budgets_of_curves(runs) > 2
        blank = CurveFit(
            own, curved, BEND, solved[best], FIRST_SHIFTS[best] * shift, z, centre, loss, np.zeros(len(runs))
        )
        ready = _evaluated(runs, blank)
        if ready is not None:
            return ready
    raise CurveError("no smooth curve goes through these losses")


def _evaluated(runs: Runs, fit: CurveFit) -> CurveFit | None:
    """Fill fitted losses and residuals; None where a loss would not be positive."""
    levels = fit.linear[: len(runs.sizes)][runs.size]
    loss = levels + slopes(runs, fit) * stretch(place(runs, fit), fit.bend)
    if not (np.isfinite(loss).all() and (loss > 0).all()):
        return None
    return replace(fit, fitted=loss, residuals=runs.log_loss - np.log(loss))


def _advance(runs: Runs, fit: CurveFit, step: Array, root: Array) -> CurveFit | None:
    """Take the longest half of the step that lowers the squares; None where no part of it does."""
    n, m = len(fit.linear), int(fit.curved)
    for part in 0.5 ** np.arange(12):
        bend = fit.bend + float(part * step[n : n + m].sum())
        moved = replace(
            fit,
            linear=fit.linear + part * step[:n],
            bend=float(np.clip(bend, -STEEPEST, STEEPEST)),
            shift=np.clip(fit.shift + part * step[n + m :], -20, 20),
        )
        ready = _evaluated(runs, moved)
        if ready is not None and _squares(ready, root) < _squares(fit, root):
            return ready
    return None
