"""A method against its baseline, pooled over an experiment's sizes and budgets. Knows frames and speed-ups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitting.frame import Points
    from fitting.speedup import SpeedUp

UNITS = ("tokens", "flops", "seconds")
DIRECTION = "baseline-needs"


@dataclass(frozen=True)
class PooledRatio:
    """How many times less the method needs, over all shared sizes and budgets; the interval is over `n` sizes."""

    unit: str
    ratio: float
    low: float
    high: float
    n: int
    n_cells: int


@dataclass(frozen=True)
class PairReading:
    method: str
    baseline: str
    pooled: tuple[PooledRatio, ...]
    cells: tuple["SpeedUp", ...]


def read_pair(points: "Points", method: str, baseline: str) -> PairReading:
    """Measure speed-ups in every unit at each shared (size, budget) and pool them. Raises FittingError."""
    from fitting.errors import FittingError
    from fitting.speedup import speedups

    pooled: list[PooledRatio] = []
    cells: list[SpeedUp] = []
    for unit in UNITS:
        try:
            fitted = speedups(points, method, baseline, direction=DIRECTION, unit=unit, curve="fitted")
            cells += speedups(points, method, baseline, direction=DIRECTION, unit=unit)
        except FittingError:
            if unit == "tokens":
                raise
            continue
        pooled.append(pool(unit, fitted))
    return PairReading(method, baseline, tuple(pooled), tuple(cells))


def pool(unit: str, found: Sequence["SpeedUp"]) -> PooledRatio:
    """Average log ratios within each size, then over sizes; the interval is Student's t over the sizes."""
    import numpy as np
    from scipy import stats

    sizes: dict[str, list[float]] = {}
    for one in found:
        sizes.setdefault(one.size, []).append(math.log(one.ratio))
    means = np.array([np.mean(logs) for logs in sizes.values()])
    half = math.inf
    if len(means) > 1:
        half = float(stats.t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / math.sqrt(len(means)))
    centre = float(np.mean(means))
    high = math.exp(centre + half) if half < 100 else math.inf
    return PooledRatio(unit, math.exp(centre), math.exp(centre - half), high, len(means), len(found))
