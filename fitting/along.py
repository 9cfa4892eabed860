"""Convergence speed-up along one training curve: when does a run pass the baseline's final loss? Un-annealed.

The learning rate has not decayed where the curve passes the target, so this understates what a shorter, annealed run
would reach; it is kept apart from tokens-to-loss at a budget and never mixed with it.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from scalewright.fitting.curve import budget_keys, size_keys
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import Points, check_points
from scalewright.fitting.speedup import SpeedUp

UNANNEALED = "read along one training curve: the learning rate had not decayed there"


def speedups_along(
    points: Points | pd.DataFrame, curves: pd.DataFrame, method: str, baseline: str, *, level: float = 0.95
) -> tuple[SpeedUp, ...]:
    """Return, per (size, budget), the baseline's tokens over those at which the method's curve passes its final loss.

    `curves` has run_id, n_tokens and loss_nats of evaluations during training. Runs of equal seed are paired; a run
    that never passes is right-censored. Raises FittingError when no cell has both methods and a curve.
    """
    checked = check_points(points)
    frame = checked.frame.assign(_size=size_keys(checked.frame), _budget=budget_keys(checked.frame))
    found = []
    for (size, budget), cell in frame.groupby(["_size", "_budget"], sort=False):
        ours, theirs = cell[cell["label"] == method], cell[cell["label"] == baseline]
        pairs = _pairs(ours, theirs)
        reached = [_reach(curves[curves["run_id"] == run], loss, tokens) for run, loss, tokens in pairs]
        if reached:
            kind = ("along-curve", "method-needs", "tokens", "training", method, baseline)
            blank = SpeedUp(*kind, str(size), level, str(budget), float(theirs["n_tokens"].mean()))
            found.append(_record(blank, reached))
    if not found:
        raise FittingError(f"no size and budget has finished runs of both {method} and {baseline}")
    return tuple(sorted(found, key=lambda s: (s.size, s.n_tokens)))


def _pairs(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(run of the method, target loss, the baseline's tokens) by shared seed; without these, against the mean."""
    if not len(ours) or not len(theirs):
        return []
    if "seed" in ours:
        both = ours.merge(theirs, on="seed", suffixes=("", "_0"))
        if len(both):
            return list(zip(both["run_id"], both["loss_nats_0"], both["n_tokens_0"], strict=True))
    target, tokens = float(np.exp(np.log(theirs["loss_nats"]).mean())), float(theirs["n_tokens"].mean())
    return [(run, target, tokens) for run in ours["run_id"]]


def _reach(curve: pd.DataFrame, loss: float, tokens: float) -> tuple[float, bool]:
    """log(baseline tokens / tokens where the curve first passes the loss), and whether it never does."""
    ordered = curve.sort_values("n_tokens")
    x, y = ordered["n_tokens"].to_numpy(dtype=np.float64), ordered["loss_nats"].to_numpy(dtype=np.float64)
    below = np.flatnonzero(y <= loss)
    if not len(below):
        return (math.log(tokens / x[-1]) if len(x) else -math.inf), True
    k = int(below[0])
    if k == 0:
        return math.log(tokens / x[0]), False
    part = (math.log(loss) - math.log(y[k - 1])) / (math.log(y[k]) - math.log(y[k - 1]))
    at = math.log(x[k - 1]) + part * (math.log(x[k]) - math.log(x[k - 1]))
    return math.log(tokens) - at, False


def _record(blank: SpeedUp, reached: list[tuple[float, bool]]) -> SpeedUp:
    values, censored = np.array([r for r, _ in reached]), any(c for _, c in reached)
    centre, n = float(values.mean()), len(values)
    half = math.inf
    if n > 1:
        half = float(stats.t.ppf(0.5 + blank.level / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    low = 0.0 if censored or math.isinf(half) else math.exp(centre - half)
    high = math.inf if math.isinf(half) else math.exp(centre + half)
    notes = (UNANNEALED, *(("a run never passes the target: one-sided",) if censored else ()))
    ratio, side = math.exp(centre), "upper" if censored else None
    return replace(blank, ratio=ratio, low=low, high=high, censored=side, n_pairs=n, warnings=notes)
