"""A speed-up in tokens told in FLOPs and in seconds too: each method's own cost of a token, from the same runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.joint.answer import JointComparison

UNITS: dict[str, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs, with each method's own count",
    "seconds": "seconds, with each method's measured throughput",
}


@dataclass(frozen=True)
class Pooled:
    """A speed-up over several cells, with its interval; `high` is inf and `low` 0 where the runs do not bound it.

    `scope` is "pooled", "size NAME", "budget NAME" or "new size"; `unit` one of UNITS.
    """

    scope: str
    unit: str
    ratio: float
    low: float
    high: float
    n_cells: int
    n_sizes: int


def in_unit(joint: JointComparison, unit: str) -> tuple[Pooled, ...]:
    """Tell every speed-up of a joint model in a unit; raises FittingError where a token's cost is unknown."""
    found = []
    for one in joint.speedups:
        name = one.scope.removeprefix("size ")
        sizes = [name] if one.scope.startswith("size ") else list(joint.runs.sizes)
        value, half = log_cost_ratio(joint.runs.frame, sizes, unit, joint.level)
        low, high = (_moved(one.ratio, end, value, half) for end in (one.low, one.high))
        ratio = one.ratio * math.exp(value)
        found.append(Pooled(one.scope, unit, ratio, low, high, one.n_cells, one.n_sizes))
    return tuple(found)


def _moved(ratio: float, end: float, value: float, half: float) -> float:
    """Multiply an end of an interval by a cost ratio whose own error is independent of it."""
    if end in (0.0, math.inf):
        return end
    gap = math.log(end / ratio)
    return ratio * math.exp(value + math.copysign(math.hypot(gap, half), gap))


def log_cost_ratio(frame: pd.DataFrame, sizes: Sequence[str], unit: str, level: float) -> tuple[float, float]:
    """Return the log of the baseline's cost of a token over the method's, mean over sizes, and its half-width.

    frame: as in `Runs`; runs of side +1/2 are the method's. Seconds scatter from run to run of a method and size.
    """
    if unit == "tokens":
        return 0.0, 0.0
    table = pd.DataFrame({"size": frame["_size"], "side": frame["_side"], "cost": _log_cost(frame, unit)}).dropna()
    table = table[table["size"].isin(sizes)]
    groups = table.groupby(["size", "side"])["cost"]
    means = groups.mean().unstack("side").dropna()
    if means.empty or means.shape[1] < 2:
        raise FittingError("seconds-to-loss needs tokens_per_s of both methods")
    value = float((means[-0.5] - means[0.5]).mean())
    residuals = table["cost"] - groups.transform("mean")
    df = len(table) - len(groups)
    if unit == "flops" or df < 1:
        return value, 0.0
    counts = groups.size().unstack("side").loc[means.index]
    variance = float((residuals**2).sum()) / df * float((1 / counts).to_numpy().sum()) / len(means) ** 2
    return value, float(stats.t.ppf(0.5 + level / 2, df)) * math.sqrt(variance)


def _log_cost(frame: pd.DataFrame, unit: str) -> "pd.Series[float]":
    if unit == "flops":
        return pd.Series(np.log(frame["flops"] / frame["n_tokens"]))
    speed = pd.to_numeric(frame.get("tokens_per_s", pd.Series(math.nan, frame.index)), errors="coerce")
    return pd.Series(-np.log(speed.where(speed > 0)))
