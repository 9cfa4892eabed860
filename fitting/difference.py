"""How much lower one method's final loss is: paired by size, budget and seed. Frames in, records out."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fitting.curve import budget_keys, size_keys
from fitting.errors import FittingError
from fitting.frame import Points

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LossDifference:
    """Method minus baseline, in nats and as a ratio of losses, with intervals; negative favours the method.

    `scope` is "pooled", "size <name>", "budget <name>" or "cell <size> <budget>". `basis` is what the interval counts:
    "seeds" within one cell, "cells" otherwise, "none" (infinite interval) for a single pair.
    """

    scope: str
    nats: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    n_pairs: int
    basis: str

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def loss_differences(points: Points, method: str, baseline: str, *, level: float = 0.95) -> tuple[LossDifference, ...]:
    """Return the difference pooled, by size, by budget and by cell.

    Pairs have equal size, budget and, where both have seeds, seed. Within a cell the interval is a paired t over
    seeds; over cells a t over cell means. Raises FittingError when no cell has both methods.
    """
    pairs = paired(points, method, baseline)
    cells = pairs.groupby(["size", "budget"], sort=False)[["nats", "log_ratio"]].mean().reset_index()
    found = [_over(cells, "pooled", "cells", level)]
    for key in ("size", "budget"):
        found += [_over(part, f"{key} {name}", "cells", level) for name, part in cells.groupby(key, sort=False)]
    for (size, budget), part in pairs.groupby(["size", "budget"], sort=False):
        found.append(_over(part, f"cell {size} {budget}", "seeds", level))
    return tuple(found)


def paired(points: Points, method: str, baseline: str) -> pd.DataFrame:
    """Return one row a pair: size, budget, seed (or NaN), nats (method - baseline), log_ratio; sorted by N, D, seed."""
    frame = points.frame.assign(_size=size_keys(points.frame), _budget=budget_keys(points.frame))
    rows = []
    for (size, budget), cell in frame.sort_values(["n_params", "n_tokens"], kind="stable").groupby(
        ["_size", "_budget"], sort=False
    ):
        ours, theirs = cell[cell["label"] == method], cell[cell["label"] == baseline]
        for seed, first, second in _matched(ours, theirs):
            rows.append((str(size), str(budget), seed, first - second, math.log(first / second)))
    if not rows:
        raise FittingError(f"{method} and {baseline} share no size and budget: there is nothing to pair")
    return pd.DataFrame(rows, columns=["size", "budget", "seed", "nats", "log_ratio"])


def _matched(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[tuple[float, float, float]]:
    """(seed, loss of the method, loss of the baseline) by seed; without shared seeds the geometric means are paired."""
    if not len(ours) or not len(theirs):
        return []
    if "seed" in ours:
        first, second = (part.dropna(subset=["seed"]).groupby("seed")["loss_nats"].mean() for part in (ours, theirs))
        shared = sorted(set(first.index) & set(second.index))
        if shared:
            return [(float(seed), float(first[seed]), float(second[seed])) for seed in shared]
    return [(math.nan, _geometric_mean(ours), _geometric_mean(theirs))]


def _geometric_mean(runs: pd.DataFrame) -> float:
    return float(np.exp(np.log(runs["loss_nats"]).mean()))


def _over(part: pd.DataFrame, scope: str, basis: str, level: float) -> LossDifference:
    nats, low, high = t_interval(part["nats"].to_numpy(dtype=np.float64), level)
    log_ratio, log_low, log_high = t_interval(part["log_ratio"].to_numpy(dtype=np.float64), level)
    ratios = math.exp(log_ratio), math.exp(log_low), math.exp(log_high) if log_high < 700 else math.inf
    return LossDifference(scope, nats, low, high, *ratios, len(part), basis if len(part) > 1 else "none")


def t_interval(values: Array, level: float) -> tuple[float, float, float]:
    """Return mean and t interval; infinite ends for one value."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -math.inf, math.inf
    t = float(stats.t.ppf(0.5 + level / 2, len(values) - 1))
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half
