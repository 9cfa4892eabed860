"""A method against its baseline, pooled over an experiment's sizes and budgets. Knows points and speed-ups."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitting.frame import Points
    from fitting.speedup import SpeedUp

UNITS = ("tokens", "flops", "seconds")
DIRECTIONS = ("baseline-needs", "method-needs")
LEVEL = 0.95


@dataclass(frozen=True)
class PooledRatio:
    """How many times less the method needs, over every shared cell (size and budget).

    `n_sizes` is what the interval counts as independent. `n_extrapolated` cells lie past the budgets that were run.
    """

    unit: str
    direction: str
    ratio: float
    low: float
    high: float
    n_sizes: int
    n_cells: int
    n_extrapolated: int


@dataclass(frozen=True)
class LossGap:
    """The method's loss over the baseline's: geometric mean over shared cells, and the noise that it stands against.

    `noise`: scatter of the log loss of one run; `from_seeds` says whether repeated seeds measured it.
    """

    ratio: float
    low: float
    high: float
    n_cells: int
    n_sizes: int
    noise: float
    from_seeds: bool


@dataclass(frozen=True)
class PairReading:
    """A comparison: its loss gap, pooled speed-ups by unit and direction, and the cells they are pooled from."""

    method: str
    baseline: str
    gap: LossGap
    pooled: tuple[PooledRatio, ...]
    cells: tuple["SpeedUp", ...]
    extrapolated: frozenset[tuple[str, str, str]]  # (direction, size, budget)

    def ratio(self, unit: str, direction: str = DIRECTIONS[0]) -> PooledRatio | None:
        return next((one for one in self.pooled if (one.unit, one.direction) == (unit, direction)), None)

    def cells_of(self, unit: str, direction: str = DIRECTIONS[0]) -> list["SpeedUp"]:
        return [cell for cell in self.cells if (cell.unit, cell.direction) == (unit, direction)]


def read_pair(points: "Points", method: str, baseline: str, *, units: Sequence[str] = UNITS) -> PairReading:
    """Measure what it takes to the same loss, in `units` and both directions at each shared cell, and pool it.

    The reference curve at each size is the straight log-log line through its final losses, so that no cell is lost;
    those past its budgets are counted as extrapolated. Raises FittingError where no size is shared.
    """
    from fitting.errors import FittingError
    from fitting.speedup import speedups

    cells: list[SpeedUp] = []
    for direction in DIRECTIONS:
        for unit in units:
            try:
                cells += speedups(points, method, baseline, direction=direction, unit=unit, curve="fitted")
            except FittingError:
                if unit == "tokens" and direction == DIRECTIONS[0]:
                    raise
    past = extrapolated(points, method, baseline, cells)
    by_kind: dict[tuple[str, str], list[SpeedUp]] = {}
    for cell in cells:
        by_kind.setdefault((cell.unit, cell.direction), []).append(cell)
    pooled = tuple(pool(found, past) for found in by_kind.values())
    return PairReading(method, baseline, loss_gap(points, method, baseline), pooled, tuple(cells), past)


def extrapolated(
    points: "Points", method: str, baseline: str, cells: Sequence["SpeedUp"]
) -> frozenset[tuple[str, str, str]]:
    """Name the cells whose answer lies outside the budgets that the reference curve was measured at."""
    frame = points.frame
    tokens = {
        label: frame[frame["label"] == label].groupby(frame["size"].astype(str))["n_tokens"].agg(["min", "max"])
        for label in (method, baseline)
    }
    found = set()
    for cell in cells:
        if cell.unit != "tokens" or cell.size not in tokens[method].index:
            continue
        reference = tokens[baseline if cell.direction == DIRECTIONS[0] else method].loc[cell.size]
        needed = cell.n_tokens * (cell.ratio if cell.direction == DIRECTIONS[0] else 1 / cell.ratio)
        if not reference["min"] * 0.98 <= needed <= reference["max"] * 1.02:
            found.add((cell.direction, cell.size, cell.budget))
    return frozenset(found)


def pool(found: Sequence["SpeedUp"], past: frozenset[tuple[str, str, str]]) -> PooledRatio:
    """Average log ratios within each size, then over sizes.

    The half-width is the wider of Student's t over sizes and the scatter of runs carried through, where cells of one
    size are taken as fully dependent (they share a curve).
    """
    first = found[0]
    centre, half, n_sizes = average(
        [(cell.size, math.log(cell.ratio), half_width(cell)) for cell in found if cell.ratio > 0]
    )
    n_past = sum((cell.direction, cell.size, cell.budget) in past for cell in found)
    high = math.exp(centre + half) if half < 100 else math.inf
    low = math.exp(centre - half)
    return PooledRatio(first.unit, first.direction, math.exp(centre), low, high, n_sizes, len(found), n_past)


def half_width(cell: "SpeedUp") -> float:
    if cell.low <= 0 or not math.isfinite(cell.high):
        return math.inf
    return 0.5 * math.log(cell.high / cell.low)


def average(values: Sequence[tuple[str, float, float]]) -> tuple[float, float, int]:
    """Average (group, value, half-width) within groups, then over them: the mean, its half-width, how many groups."""
    import numpy as np
    from scipy import stats

    groups: dict[str, list[tuple[float, float]]] = {}
    for group, value, half in values:
        groups.setdefault(group, []).append((value, half))
    means = np.array([np.mean([value for value, _ in group]) for group in groups.values()])
    carried = np.array([np.mean([half for _, half in group]) for group in groups.values()])
    n = len(means)
    over_groups = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1) * means.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    noise = float(np.sqrt((carried**2).sum()) / n)
    return float(means.mean()), max(over_groups, noise) if n > 1 else noise, n


def loss_gap(points: "Points", method: str, baseline: str) -> LossGap:
    """Average the log ratio of final losses over shared cells, seeds averaged first, as `pool` does."""
    import numpy as np
    from scipy import stats

    from fitting.curve import budget_keys, scatter, size_keys

    frame = points.frame.assign(cell_size=size_keys(points.frame), cell_budget=budget_keys(points.frame))
    logs = frame.assign(y=np.log(frame["loss_nats"])).groupby(["label", "cell_size", "cell_budget"])["y"]
    means, counts = logs.mean().unstack("label"), logs.size().unstack("label")
    shared = means[[method, baseline]].dropna()
    noise, df = scatter(frame)
    spread = noise * np.sqrt(1 / counts.loc[shared.index, method] + 1 / counts.loc[shared.index, baseline])
    t = float(stats.t.ppf(0.5 + LEVEL / 2, df)) if df else math.inf
    gaps = shared[method] - shared[baseline]
    rows = zip(gaps.index.get_level_values("cell_size"), gaps, t * spread, strict=True)
    centre, half, n_sizes = average([(str(size), float(gap), float(wide)) for size, gap, wide in rows])
    from_seeds = bool((counts.fillna(0) > 1).any().any())
    ratio, low, high = (math.exp(end) for end in (centre, centre - half, centre + half))
    return LossGap(ratio, low, high, len(shared), n_sizes, noise, from_seeds)


def pooled_by(pair: PairReading, key: Callable[["SpeedUp"], str], unit: str = "tokens") -> dict[str, PooledRatio]:
    """Pool the cells of one unit apart by size or by budget."""
    groups: dict[str, list[SpeedUp]] = {}
    for cell in pair.cells_of(unit):
        groups.setdefault(key(cell), []).append(cell)
    return {name: pool(found, pair.extrapolated) for name, found in groups.items()}
