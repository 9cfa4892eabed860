"""What one model of all runs says of a method over its baseline: speed-ups, whether they hold with scale, losses."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.errors import CurveError
from scalewright.fitting.frame import Points
from scalewright.fitting.joint.runs import Runs, read_runs
from scalewright.fitting.joint.shift import Effect, Interval, Test, choose_slopes, f_test, fit_effect

Array = NDArray[np.float64]

SCALE = math.log(10)  # a trend is told for a tenfold of parameters or tokens
FEWEST_GROUPS = 3  # sizes that tell how much sizes differ


@dataclass(frozen=True)
class Trend:
    """By what factor the speed-up changes for a tenfold of `along` ("parameters" or "tokens"), with its interval."""

    along: str
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Speedup:
    """How many times fewer tokens a method needs, over some cells: exp of a shift along ln D.

    `scope` is "pooled", "size NAME", "budget NAME" or "new size" (an interval for a size that was not run).
    """

    scope: str
    ratio: float
    low: float
    high: float
    n_cells: int
    n_sizes: int


@dataclass(frozen=True)
class JointComparison:
    """The answers of one model: `speedups` in tokens, `trends`, and the F tests of one shift against more.

    own_slopes: whether each size has a slope of its own, with the p value of the test that decided it; noise: standard
    deviation of the log loss of one run; shared: of what all runs of a cell, the runs of a seed, and the runs of a
    method at a size have in common.
    """

    level: float
    speedups: tuple[Speedup, ...]
    trends: tuple[Trend, ...]
    tests: tuple[Test, ...]
    own_slopes: bool
    slopes_p: float
    noise: float
    shared: Mapping[str, float]
    df: int
    effect: Effect
    runs: Runs

    def speedup(self, scope: str = "pooled") -> Speedup | None:
        """Return the speed-up of a scope, or None where it could not be measured."""
        return next((one for one in self.speedups if one.scope == scope), None)

    def to_record(self) -> dict[str, Any]:
        """Return what the model says as JSON-able values, without its arrays."""
        names = ("own_slopes", "slopes_p", "noise", "df")
        plain = {name: getattr(self, name) for name in names} | {"shared": dict(self.shared)}
        return plain | {name: [asdict(one) for one in getattr(self, name)] for name in ("trends", "tests")}

    def log_ratio(self, cells: Array) -> Interval:
        """Mean log ratio of losses over `cells` (numbers of shared cells), with the scatter that the model found."""
        c = contrast(self.runs, cells)
        value = float(c @ self.runs.log_loss)
        noise = self.effect.noise
        variance = sum(
            weight * square * float(c @ np.linalg.solve(inverse, c))
            for weight, square, inverse in zip(noise.weights, noise.squares, noise.inverses, strict=True)
        )
        half = float(stats.t.ppf(0.5 + self.level / 2, self.df)) * math.sqrt(variance)
        return Interval(value, value - half, value + half)


def joint_comparison(
    points: Points, method: str, baseline: str, *, level: float = 0.95, scales: bool = True
) -> JointComparison:
    """Fit one model to all runs of two labels; raises CurveError where the runs carry none.

    scales: also by size, by budget and along both.

    L_m(N, D) = L_b(N, s D): the method is worth s times the tokens. One s for all where nothing rejects it.
    """
    runs = read_runs(points.frame, method, baseline)
    if not len(runs.shared_cells):
        raise CurveError(f"{method} and {baseline} share no size and budget")
    own_slopes, p_value = choose_slopes(runs)
    one = fit_effect(runs, "one", own_slopes, level)
    found, tests = [_in_words("pooled", one.intervals[0], runs)], []
    parts = (("size", runs.size, runs.sizes), ("budget", runs.budget, runs.budgets)) if scales else ()
    for form, groups, names in parts:
        present = [g for g in range(len(names)) if has_both(runs, groups == g)]
        effect = richer(runs, form, one, level) if len(present) > 1 else None
        if effect is None:
            intervals = [one.intervals[0]] * len(names)
        else:
            intervals = list(effect.intervals)
            tests.append(f_test(one.fit, effect.fit, len(runs), form))
        found += [_in_words(f"{form} {names[g]}", intervals[g], runs, groups == g) for g in present]
        if form == "size" and effect is not None and len(present) >= FEWEST_GROUPS:
            found.append(
                _in_words("new size", prediction(one.intervals[0], [intervals[g] for g in present], level), runs)
            )
    noise = one.noise
    shared = {name: math.sqrt(noise.mean(k)) for k, name in enumerate(("cell", "seed", "method at a size"))}
    scatter = math.sqrt(float(noise.weights @ noise.squares))
    trends = read_trends(runs, one, level) if scales else ()
    return JointComparison(
        level, tuple(found), trends, tuple(tests), own_slopes, p_value, scatter, shared, noise.df, one, runs
    )


def richer(runs: Runs, form: str, one: Effect, level: float) -> Effect | None:
    """Fit shifts of a form under the noise of one shift, or None where the runs do not carry them."""
    try:
        return fit_effect(runs, form, one.fit.own_slopes, level, one.noise)
    except CurveError:
        return None


def has_both(runs: Runs, chosen: "NDArray[np.bool_]") -> bool:
    """Whether both methods have runs in a group."""
    return bool((chosen & (runs.side > 0)).any() and (chosen & (runs.side < 0)).any())


def _in_words(scope: str, shift: Interval, runs: Runs, chosen: "NDArray[np.bool_] | None" = None) -> Speedup:
    cells = np.intersect1d(runs.shared_cells, runs.cell if chosen is None else runs.cell[chosen])
    sizes = np.unique(runs.size[np.isin(runs.cell, cells)])
    return Speedup(scope, exp(shift.value), exp(shift.low), exp(shift.high), len(cells), len(sizes))


def exp(value: float) -> float:
    """Return e^value, inf where a float cannot hold it."""
    return math.exp(value) if value < 700 else math.inf


def prediction(pooled: Interval, sizes: list[Interval], level: float) -> Interval:
    """For a size that was not run: the spread of the sizes' shifts beyond their own errors, and the pooled error.

    DerSimonian and Laird's between-group variance, with Student's t over the sizes (Higgins et al. 2009).
    """
    values = np.array([one.value for one in sizes])
    reach = float(stats.norm.ppf(0.5 + level / 2))
    errors = np.array([(one.high - one.low) / 2 / reach for one in sizes])
    if not np.isfinite(errors).all() or not math.isfinite(pooled.high - pooled.low):
        return Interval(pooled.value, -math.inf, math.inf)
    between = max(float(values.var(ddof=1)) - float((errors**2).mean()), 0.0)
    half = float(stats.t.ppf(0.5 + level / 2, len(sizes) - 1)) * math.sqrt(between)
    return Interval(
        pooled.value,
        pooled.value - math.hypot(half, pooled.value - pooled.low),
        pooled.value + math.hypot(half, pooled.high - pooled.value),
    )


def read_trends(runs: Runs, one: Effect, level: float) -> tuple[Trend, ...]:
    """Return how the shift changes with ln N and ln D, where there are two sizes and three budgets or more."""
    if len(runs.sizes) < 2 or len(np.unique(np.round(runs.log_tokens, 2))) < FEWEST_GROUPS:
        return ()
    effect = richer(runs, "trend", one, level)
    if effect is None:
        return ()
    return tuple(
        Trend(along, *(exp(SCALE * v) for v in (found.value, found.low, found.high)))
        for along, found in zip(("parameters", "tokens"), effect.intervals[1:], strict=True)
    )


def contrast(runs: Runs, cells: Array) -> Array:
    """Weights that take the mean, over cells, of the method's mean log loss less the baseline's."""
    weights = np.zeros(len(runs))
    for cell in cells:
        for side in (0.5, -0.5):
            chosen = (runs.cell == cell) & (runs.side == side)
            weights[chosen] += np.sign(side) / chosen.sum() / len(cells)
    return weights
