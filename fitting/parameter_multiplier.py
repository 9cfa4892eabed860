"""How many times the parameters a baseline needs for a method's loss, budget by budget. Points in, records out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.curve import budget_keys, level_of, scatter
from scalewright.fitting.frame import Points
from scalewright.fitting.multiplier import Multiplier
from scalewright.fitting.uncertainty import t_quantile

Array = NDArray[np.float64]

FEWEST_SIZES = 3
LARGEST_LOG = 700.0
BASIS = "log-log line over sizes"


@dataclass(frozen=True)
class _Sides:
    """Log parameters and log losses at one budget: the method's runs, and the baseline's through which a line goes."""

    log_n: Array
    log_loss: Array
    line_log_n: Array
    line_log_loss: Array


def parameter_multipliers(points: Points, method: str, baseline: str, *, level: float = 0.95) -> tuple[Multiplier, ...]:
    """Return, per budget, the parameters at which the baseline's line over sizes reaches the method's loss, over N.

    Budgets come smallest first. The line is straight in log-log, through three sizes or more. The interval is
    Fieller's, with the scatter of single runs pooled over the comparison or that about the line, whichever is larger:
    infinite ends where the line's slope is not resolved. Past the range of sizes that were run nothing is worth a
    number. A budget whose line does not fall is left out.
    """
    noise = scatter(points.frame)
    sizes = points.frame.loc[points.frame["label"].isin([method, baseline]), "n_params"]
    span = float(sizes.max() / sizes.min())
    found = []
    for budget, sides in _budgets(points, method, baseline):
        ends = _ends(sides, noise, level)
        if ends is not None:
            value, low, high = (math.exp(min(end, LARGEST_LOG)) if end < LARGEST_LOG else math.inf for end in ends)
            one = Multiplier("parameters", f"budget {budget}", value, low, high, BASIS, _outside(sides, value))
            found.append(_resolved(one, span))
    return tuple(found)


def _outside(sides: _Sides, value: float) -> float:
    """How many times outside the baseline's sizes the one lies that reaches the method's loss at its middle size."""
    needed = float(sides.log_n.mean()) + math.log(value)
    beyond = max(needed - sides.line_log_n.max(), sides.line_log_n.min() - needed)
    return math.exp(min(float(beyond), LARGEST_LOG))


def _resolved(one: Multiplier, span: float) -> Multiplier:
    """Take the number from a multiplier past the sizes that were run, or whose interval is on both sides."""
    if not 1 / span <= one.value <= span:
        return one.unresolved(f"{'more' if one.value > 1 else 'fewer'} than the sizes that were run span ({span:.3g}×)")
    if one.low < 1 / span and one.high > span:
        return one.unresolved(f"not resolved: its interval reaches past all sizes that were run ({span:.3g}×)")
    return replace(one, reason="no interval: the noise of single runs is not known") if math.isnan(one.low) else one


def _budgets(points: Points, method: str, baseline: str) -> Iterator[tuple[str, _Sides]]:
    frame = points.frame.assign(_budget=budget_keys(points.frame)).sort_values("n_tokens", kind="stable")
    for budget, cell in frame.groupby("_budget", sort=False):
        ours, theirs = cell[cell["label"] == method], cell[cell["label"] == baseline]
        sizes = level_of(theirs["n_params"].to_numpy(dtype=np.float64))
        if len(ours) and len(np.unique(sizes)) >= FEWEST_SIZES:
            yield str(budget), _Sides(*_logs(ours), *_logs(theirs))


def _logs(runs: pd.DataFrame) -> tuple[Array, Array]:
    log_n, log_loss = (np.log(runs[c].to_numpy(dtype=np.float64)) for c in ("n_params", "loss_nats"))
    return log_n, log_loss


def _ends(sides: _Sides, noise: tuple[float, int], level: float) -> tuple[float, float, float] | None:
    """Return the mean log ratio with Fieller's interval (Fieller 1954); None where the line does not fall."""
    x = sides.line_log_n - sides.line_log_n.mean()
    squares = float((x**2).sum())
    slope = float((x * sides.line_log_loss).sum()) / squares
    if not slope < 0:
        return None
    gap = float(sides.log_loss.mean() - sides.line_log_loss.mean())
    shift = float(sides.line_log_n.mean() - sides.log_n.mean())
    sigma, df = _scatter(sides, x, slope, noise)
    t = t_quantile(level, df)
    variances = sigma**2 * (1 / len(sides.log_n) + 1 / len(x)), sigma**2 / squares
    low, high = fieller(gap, slope, variances, t)
    return shift + gap / slope, shift + low, shift + high


def _scatter(sides: _Sides, x: Array, slope: float, noise: tuple[float, int]) -> tuple[float, int]:
    """The scatter of single runs, or of the baseline's runs about their line where that is larger beyond chance."""
    residuals = sides.line_log_loss - sides.line_log_loss.mean() - slope * x
    df = len(x) - 2
    own = float(np.sqrt((residuals**2).sum() / df))
    sigma, known = noise
    if not known:
        return own, df
    beyond = own > sigma * math.sqrt(float(stats.f.ppf(0.95, df, known)))
    return (own, df) if beyond else (sigma, known)


def fieller(top: float, bottom: float, variances: tuple[float, float], t: float) -> tuple[float, float]:
    """Return the values r for which top - r bottom is within t standard errors of zero (independent, `variances`).

    Infinite ends where `bottom` is not resolved from zero.
    """
    a = bottom**2 - t**2 * variances[1]
    if a <= 0:
        return -math.inf, math.inf
    half_b, c = top * bottom, top**2 - t**2 * variances[0]
    root = math.sqrt(max(half_b**2 - a * c, 0.0))
    return (half_b - root) / a, (half_b + root) / a
