"""Convergence speed-up of a method over a baseline, each kind under its own name. Frames in, records out.

At a budget (from final losses of annealed runs):
    "baseline-needs": D at which the baseline's curve reaches the method's loss at D0, over D0.
    "method-needs":   D0 over the D at which the method's curve reaches the baseline's loss at D0.
The two differ because they use different slopes; both are greater than one where the method is faster.
"""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from scalewright.fitting.choices import CURVES
from scalewright.fitting.curve import Reach, budget_keys, loss_curve, scatter, size_keys
from scalewright.fitting.errors import CurveError, FittingError
from scalewright.fitting.frame import Points, check_points, unknown
from scalewright.fitting.joint.units import UNITS

DIRECTIONS = ("baseline-needs", "method-needs")


@dataclass(frozen=True)
class SpeedUp:
    """How many times less a method needs than the baseline to the same loss, at one size and budget.

    `ratio` with its interval [low, high]; `censored` is "lower" when only `low` is a bound (the reference curve never
    gets there, `high` is inf), "upper" when only `high` is. `slope` is d log L / d log D used; `n_pairs` the
    seeds paired.
    """

    kind: str
    direction: str
    unit: str
    curve: str
    method: str
    baseline: str
    size: str
    level: float
    budget: str = ""
    n_tokens: float = math.nan
    ratio: float = math.nan
    low: float = 0.0
    high: float = math.inf
    censored: str | None = None
    slope: float = math.nan
    n_pairs: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Side:
    """The two sides of a comparison at one size: runs whose loss is the target, runs whose curve must reach it."""

    target: pd.DataFrame
    reference: pd.DataFrame


def speedups(
    points: Points | pd.DataFrame,
    method: str,
    baseline: str,
    *,
    direction: str = "baseline-needs",
    unit: str = "tokens",
    curve: str = "fitted",
    level: float = 0.95,
) -> tuple[SpeedUp, ...]:
    """Return tokens-to-loss at each (size, budget) that both methods have, sorted by size and tokens.

    Only annealed finals enter (`check_points` sees to it). Seeds are paired: the interval is a paired t on the log
    ratio; with one seed it comes from the pooled scatter of runs. A size whose reference curve does not fall is left
    out, which every record then says. Raises FittingError for unknown names or when no size is shared.
    """
    checked = check_points(points)
    _check_names(checked, (method, baseline), direction, unit, curve)
    frame = checked.frame.assign(_size=size_keys(checked.frame), _budget=budget_keys(checked.frame))
    noise = scatter(frame)
    found: list[SpeedUp] = []
    left_out: list[str] = []
    order = frame.groupby("_size")["n_params"].min().sort_values(kind="stable").index
    for size in order:
        rows = frame[frame["_size"] == size]
        ours, theirs = rows[rows["label"] == method], rows[rows["label"] == baseline]
        if not len(ours) or theirs["n_tokens"].nunique() < 2:
            continue
        side = _Side(ours, theirs) if direction == "baseline-needs" else _Side(theirs, ours)
        record = SpeedUp("at-budget", direction, unit, curve, method, baseline, str(size), level)
        try:
            found += _at_size(record, side, noise)
        except CurveError as error:
            left_out.append(f"size {size} left out: {error}")
    if not found:
        why = "; ".join(left_out) or f"no size has {method} and two budgets of {baseline}"
        raise FittingError(f"{why}: tokens-to-loss needs a curve of both")
    return tuple(replace(s, warnings=(*s.warnings, *left_out)) for s in found)


def _check_names(points: Points, methods: tuple[str, str], direction: str, unit: str, curve: str) -> None:
    for name in methods:
        if name not in points.methods:
            raise FittingError(unknown("method", name, points.methods))
    if direction not in DIRECTIONS:
        raise FittingError(unknown("direction", direction, DIRECTIONS))
    if unit not in UNITS:
        raise FittingError(unknown("unit", unit, list(UNITS)))
    if curve not in CURVES:
        raise FittingError(unknown("curve", curve, list(CURVES)))


def _at_size(blank: SpeedUp, side: _Side, noise: tuple[float, int]) -> list[SpeedUp]:
    found = []
    if side.reference["n_tokens"].nunique() < 2:
        return []
    for budget, runs in side.target.groupby("_budget", sort=False):
        if not (side.reference["_budget"] == budget).any():
            continue
        record = replace(blank, budget=str(budget), n_tokens=float(runs["n_tokens"].mean()))
        found.append(_one(record, runs, side, noise))
    return sorted(found, key=lambda s: s.n_tokens)


def _one(record: SpeedUp, runs: pd.DataFrame, side: _Side, noise: tuple[float, int]) -> SpeedUp:
    """Fill one record: from paired seeds where both sides have two or more, else from the pooled scatter."""
    shared = _paired_seeds(runs, side.reference)
    if len(shared) >= 2:
        return _paired(record, runs, side, shared)
    reach = loss_curve(side.reference, record.curve).reach(float(np.log(runs["loss_nats"]).mean()))
    sigma, df = noise
    spread = sigma * math.sqrt(1 / len(runs) + reach.variance_factor) / abs(reach.slope) if df else math.inf
    half = float(stats.t.ppf(0.5 + record.level / 2, df)) * spread if df else math.inf
    note = "one seed: the interval is from the pooled scatter of runs" if df else "one seed and no scatter known"
    record = replace(record, slope=reach.slope, n_pairs=len(shared), warnings=(note,))
    return _finish(record, [_log_ratio(record, reach, runs, side)], [reach], half)


def _paired_seeds(runs: pd.DataFrame, reference: pd.DataFrame) -> list[float]:
    """Seeds for which the target is known and the reference has a whole curve."""
    if "seed" not in runs:
        return []
    full = reference["_budget"].nunique()
    counts = reference.groupby("seed")["_budget"].nunique()
    return sorted(set(runs["seed"].dropna()) & set(counts[counts == full].index))


def _paired(record: SpeedUp, runs: pd.DataFrame, side: _Side, seeds: list[float]) -> SpeedUp:
    """Pair seed by seed; a seed that never reaches the target bounds the answer and is not dropped."""
    reaches, ratios = [], []
    for seed in seeds:
        own = runs[runs["seed"] == seed]
        curve = loss_curve(side.reference[side.reference["seed"] == seed], record.curve)
        reaches.append(curve.reach(float(np.log(own["loss_nats"]).mean())))
        ratios.append(_log_ratio(record, reaches[-1], own, side))
    sign = 1.0 if record.direction == "baseline-needs" else -1.0
    full = [ratio + sign * reach.beyond for ratio, reach in zip(ratios, reaches, strict=True)]
    half = float(stats.t.ppf(0.5 + record.level / 2, len(seeds) - 1) * np.std(full, ddof=1) / math.sqrt(len(seeds)))
    slope = float(np.mean([reach.slope for reach in reaches]))
    return _finish(replace(record, slope=slope, n_pairs=len(seeds)), ratios, reaches, half)


def _log_ratio(record: SpeedUp, reach: Reach, runs: pd.DataFrame, side: _Side) -> float:
    """Log of the ratio in the record's unit, greater than zero where the method needs less."""
    log_cost = _log_cost_per_token(side.reference, record.unit) - _log_cost_per_token(runs, record.unit)
    ratio = reach.log_tokens - float(np.log(runs["n_tokens"]).mean()) + log_cost
    return ratio if record.direction == "baseline-needs" else -ratio


def _log_cost_per_token(runs: pd.DataFrame, unit: str) -> float:
    if unit == "tokens":
        return 0.0
    if unit == "flops":
        return float(np.log(runs["flops"] / runs["n_tokens"]).mean())
    speed = pd.to_numeric(runs["tokens_per_s"], errors="coerce") if "tokens_per_s" in runs else pd.Series(dtype=float)
    if not (speed > 0).any():
        raise FittingError("seconds-to-loss needs tokens_per_s of both methods")
    return float(-np.log(speed[speed > 0]).median())


def _finish(record: SpeedUp, ratios: list[float], reaches: list[Reach], half: float) -> SpeedUp:
    """Put numbers into the record; a censored answer keeps only the end that is a bound."""
    sign = 1.0 if record.direction == "baseline-needs" else -1.0
    centre, beyond = float(np.mean(ratios)), sign * float(np.mean([reach.beyond for reach in reaches]))
    bounds = {_BOUND[reach.censored, sign] for reach in reaches if reach.censored is not None}
    censored = None if not bounds else bounds.pop() if len(bounds) == 1 else "both"
    low, high = min(centre, centre + beyond - half), max(centre, centre + beyond + half)
    notes = record.warnings
    if censored is not None:
        notes = (*notes, "the curve does not reach this loss within its budgets: a one-sided bound")
    return replace(
        record,
        ratio=math.exp(centre),
        low=0.0 if censored in ("upper", "both") else math.exp(low),
        high=math.inf if censored in ("lower", "both") or high > 700 else math.exp(high),
        censored=censored,
        warnings=notes,
    )


_BOUND = {("above", 1.0): "lower", ("below", 1.0): "upper", ("above", -1.0): "upper", ("below", -1.0): "lower"}


def table(found: tuple[SpeedUp, ...]) -> pd.DataFrame:
    """Return speed-ups as a table, one row each."""
    return pd.DataFrame([asdict(s) for s in found])
