"""A comparison as one model: all runs of two methods in one likelihood, the method a shift along ln D. Knows arrays."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from scalewright.fitting.errors import CurveError
from scalewright.fitting.joint.curve import CurveFit, curve_columns, fit_curves, jacobian, shift_columns
from scalewright.fitting.joint.noise import Noise, weigh
from scalewright.fitting.joint.runs import Runs
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

REJECT = 0.05
FARTHEST = 5.0  # largest |log shift| that is looked at: beyond it an end of an interval is open
STEPS = np.array([0, 0.15, 0.4, 0.7, 1, 1.35, 1.7, 2.1, 2.6, 3.2, 4, 5, 7, 10, 15, 25])  # standard errors


@dataclass(frozen=True)
class Interval:
    """A shift in log with its interval; an end is infinite where the runs do not bound it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """Shifts of one form ("one", "trend", "size", "budget", "cell") with their fit and noise."""

    names: tuple[str, ...]
    fit: CurveFit
    noise: Noise
    intervals: tuple[Interval, ...]


@dataclass(frozen=True)
class Test:
    """An F test of one shift against a richer form."""

    against: str
    f: float
    p_value: float


def effect_columns(runs: Runs, form: str) -> tuple[tuple[str, ...], Array]:
    """Return the names and columns of the shifts of a form."""
    if form == "one":
        return ("pooled",), np.ones((len(runs), 1))
    if form == "trend":
        logs = [c - c.mean() for c in (runs.log_params, runs.log_tokens)]
        return ("pooled", "ln N", "ln D"), np.column_stack([np.ones(len(runs)), *logs])
    groups, names = {
        "size": (runs.size, tuple(f"size {s}" for s in runs.sizes)),
        "budget": (runs.budget, tuple(f"budget {b}" for b in runs.budgets)),
    }[form]
    return names, np.equal.outer(groups, np.arange(len(names))).astype(np.float64)


def fit_effect(runs: Runs, form: str, own_slopes: bool, level: float = 0.95, noise: Noise | None = None) -> Effect:
    """Fit the curves with shifts of one form and return their intervals; raises CurveError for too few runs.

    noise: that of one shift, where it is known. Shifts by size stand for what a method shares at a size, so they weigh
    noise anew, without that.
    """
    names, z = effect_columns(runs, form)
    fit = fit_curves(runs, z, own_slopes=own_slopes)
    if len(runs) <= fit.n_parameters:
        raise CurveError(
            f"{counted(len(runs), 'run')} for {fit.n_parameters} parameters: no scatter to tell a shift from"
        )
    if noise is None or form == "size":
        noise = weigh(runs, jacobian(runs, fit), fit.residuals, arms=form != "size")
    else:
        noise = replace(noise, df=len(runs) - fit.n_parameters)
    found = tuple(shift_interval(runs, fit, noise, k, level) for k in range(z.shape[1]))
    return Effect(names, fit, noise, found)


def choose_slopes(runs: Runs) -> tuple[bool, float]:
    """Whether each size has a slope of its own: where an F test rejects a shared one; with the test's p value.

    Each size has a shift of its own in the test, so that speed-ups that differ are not taken for slopes that do.
    """
    z = effect_columns(runs, "size")[1]
    if len(runs.sizes) < 2:
        return False, math.nan
    try:
        test = f_test(fit_curves(runs, z), fit_curves(runs, z, own_slopes=True), len(runs))
    except CurveError:
        return False, math.nan
    return test.p_value < REJECT, test.p_value


def f_test(small: CurveFit, large: CurveFit, n: int, against: str = "") -> Test:
    """Test whether the larger of two nested fits of n runs is needed; NaN without a degree of freedom."""
    q, df = large.n_parameters - small.n_parameters, n - large.n_parameters
    if q < 1 or df < 1:
        return Test(against, math.nan, math.nan)
    s0, s1 = float((small.residuals**2).sum()), float((large.residuals**2).sum())
    f = max(s0 - s1, 0.0) / q / max(s1 / df, 1e-300)
    return Test(against, f, float(stats.f.sf(f, q, df)))


def shift_interval(runs: Runs, fit: CurveFit, noise: Noise, k: int, level: float) -> Interval:
    """Profile one shift: at each value all else is solved again, under every noise structure; then average.

    The signed root of each profile is a t on n - p degrees of freedom; the mixture of these is inverted. The interval
    holds the plain least squares too: where speed-ups differ much by size, what a size shares would stand for them.
    """
    grid = _grid(runs, fit, noise, k)
    score = _scores(runs, fit, noise, k, grid)
    ends = [float(stats.norm.ppf(q)) for q in (0.5, 0.5 - level / 2, 0.5 + level / 2)]
    value, low, high = np.array([np.interp(end, score, grid) for end in ends]).tolist()
    plain = float(fit.shift[k])
    low, high = min(low, plain), max(high, plain)
    return Interval(value, low if score[0] < ends[1] else -math.inf, high if score[-1] > ends[2] else math.inf)


def _grid(runs: Runs, fit: CurveFit, noise: Noise, k: int) -> Array:
    x = jacobian(runs, fit)
    scale = np.linalg.norm(x, axis=0) + 1e-300
    inverse = noise.inverses[noise.typical]
    gram = (x / scale).T @ inverse @ (x / scale)
    covariance = np.linalg.pinv(gram, rcond=1e-13, hermitian=True)
    at = len(scale) - len(fit.shift) + k
    se = math.sqrt(max(covariance[at, at], 0.0) * noise.squares[noise.typical]) / scale[at]
    se = min(max(se, 1e-9), 1.0)
    steps = np.concatenate([-STEPS[:0:-1], STEPS]) * se
    far = np.array([-FARTHEST, -2.5, 2.5, FARTHEST])
    return np.unique(np.concatenate([fit.shift[k] + steps[np.abs(steps) < FARTHEST], fit.shift[k] + far]))


def _scores(runs: Runs, fit: CurveFit, noise: Noise, k: int, grid: Array) -> Array:
    """Return, at each shift of the grid, the normal score of the averaged confidence distribution."""
    u = runs.log_tokens - fit.centre + runs.side * (fit.z @ fit.shift)
    u = u + runs.side * fit.z[:, k] * (grid - fit.shift[k])[:, None]  # (shifts, runs)
    columns = curve_columns(runs, fit, u)
    others = np.delete(fit.z, k, axis=1)
    if others.shape[1]:
        side = np.broadcast_to(shift_columns(runs, fit, others), (*u.shape, others.shape[1]))
        columns = np.concatenate([columns, side], axis=-1)
    x = columns / fit.fitted[:, None]
    x = x / (np.linalg.norm(x, axis=-2, keepdims=True) + 1e-300)
    target = 1 + fit.residuals
    start = (np.linalg.pinv(x, rcond=1e-11) @ target)[..., None]
    y = target - (x @ start)[..., 0]
    squares = np.empty((len(noise.weights), len(grid)))
    for row, inverse in enumerate(noise.inverses):
        xv = np.swapaxes(x, -1, -2) @ inverse
        moment = (xv @ y[..., None])[..., 0]
        solved = (np.linalg.pinv(xv @ x, rcond=1e-13, hermitian=True) @ moment[..., None])[..., 0]
        squares[row] = np.maximum(((y @ inverse) * y).sum(axis=-1) - (moment * solved).sum(axis=-1), 0.0)
    centre, least = _lowest(squares, grid)
    roots = np.sqrt(np.maximum(squares / least[:, None] - 1, 0.0) * noise.df)
    sign = np.where(grid < centre[:, None], -1.0, 1.0)
    roots = roots / robust_factor(runs, fit, noise, k)
    chance = (noise.weights[:, None] * special.stdtr(noise.df, sign * roots)).sum(axis=0)
    return np.maximum.accumulate(special.ndtri(np.clip(chance, 1e-300, 1 - 1e-16)))


def robust_factor(runs: Runs, fit: CurveFit, noise: Noise, k: int) -> float:
    """How much larger the standard error of a shift is than the model has it: halfway to the jackknife over cells.

    At least 1. Halfway, since the jackknife of a dozen cells is itself uncertain (its coverage: docs/fitting.md).
    """
    whiten = np.linalg.cholesky(noise.inverses[noise.typical]).T
    x = whiten @ jacobian(runs, fit)
    x = x / (np.linalg.norm(x, axis=0) + 1e-300)
    y = whiten @ fit.residuals
    bread = np.linalg.pinv(x.T @ x, rcond=1e-13, hermitian=True)
    at = x.shape[1] - len(fit.shift) + k
    e = y - x @ (bread @ (x.T @ y))
    squares = 0.0
    groups = np.unique(runs.cell)
    for group in groups:
        own = runs.cell == group
        hat = x[own] @ bread @ x[own].T
        kept = np.eye(len(hat)) - hat
        squares += float(bread[at] @ x[own].T @ np.linalg.pinv(kept, rcond=1e-6) @ e[own]) ** 2
    model = bread[at, at] * float(e @ e) / noise.df
    share = (len(groups) - 1) / len(groups)
    return (1 + max(1.0, math.sqrt(share * squares / model))) / 2 if model > 0 else 1.0


def _lowest(squares: Array, grid: Array) -> tuple[Array, Array]:
    """Where each row is least, and how low: the vertex of the parabola through its three lowest neighbours."""
    k = np.clip(np.argmin(squares, axis=1), 1, len(grid) - 2)
    rows = np.arange(len(squares))
    x0, x1, x2 = grid[k - 1], grid[k], grid[k + 1]
    y0, y1, y2 = squares[rows, k - 1], squares[rows, k], squares[rows, k + 1]
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (right - left) / (x2 - x0)
    at = np.where(bend > 0, (x0 + x1) / 2 - left / (2 * np.where(bend > 0, bend, 1.0)), x1)
    inside = (at >= x0) & (at <= x2)
    at = np.where(inside, at, x1)
    least = np.where(inside, y0 + left * (at - x0) + bend * (at - x0) * (at - x1), y1)
    return at, np.maximum(np.minimum(least, squares.min(axis=1)), 1e-24)
