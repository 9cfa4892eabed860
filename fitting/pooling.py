"""One number from many cells: speed-ups and log ratios pooled over sizes and budgets. Knows numpy and scipy.

Cells of one size share a reference curve, so they are averaged first; sizes are what Student's t counts as
independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.speedup import SpeedUp


@dataclass(frozen=True)
class Pooled:
    """A pooled ratio with its interval; `n_cells` entered of `n_cells + n_censored` (a censored cell is only a bound).

    `scope` is "pooled", "size <name>" or "budget <name>". `high` is inf and `low` 0 where nothing bounds them.
    """

    scope: str
    direction: str
    unit: str
    ratio: float
    low: float
    high: float
    n_cells: int
    n_censored: int
    n_groups: int


def pool(found: Sequence[SpeedUp], scope: str = "pooled") -> Pooled:
    """Average log ratios within each size, then over sizes.

    The half-width is the wider of Student's t over sizes and the half-widths of the cells carried through: cells of one
    size taken as fully dependent, sizes as independent. Where every cell is censored the answer is the weakest bound.
    Raises FittingError without cells.
    """
    if not found:
        raise FittingError("no cell to pool: the methods share no size and budget")
    exact = [s for s in found if s.censored is None]
    first = found[0]
    if not exact:
        return _bound(found, scope)
    groups: dict[str, list[SpeedUp]] = {}
    for cell in exact:
        groups.setdefault(cell.size, []).append(cell)
    means = np.array([np.mean([math.log(c.ratio) for c in cells]) for cells in groups.values()])
    inside = math.hypot(*(float(np.mean([_half(c) for c in cells])) for cells in groups.values())) / len(groups)
    half = max(inside, _t_half(means, first.level)) if len(means) > 1 else inside
    centre = float(means.mean())
    ends = (math.exp(centre - half), math.exp(centre + half)) if half < 700 else (0.0, math.inf)
    n_censored = len(found) - len(exact)
    return Pooled(scope, first.direction, first.unit, math.exp(centre), *ends, len(exact), n_censored, len(groups))


def pool_each(found: Sequence[SpeedUp], key: str) -> tuple[Pooled, ...]:
    """Pool by "size", in order of appearance, or by "budget", smallest first."""
    ordered = sorted(found, key=lambda s: s.n_tokens) if key == "budget" else found
    names = list(dict.fromkeys(getattr(s, key) for s in ordered))
    return tuple(pool([s for s in found if getattr(s, key) == name], f"{key} {name}") for name in names)


def _half(cell: SpeedUp) -> float:
    """Half-width of a cell on the log scale."""
    if cell.low <= 0 or math.isinf(cell.high):
        return math.inf
    return 0.5 * (math.log(cell.high) - math.log(cell.low))


def _t_half(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", level: float) -> float:
    t = float(stats.t.ppf(0.5 + level / 2, len(values) - 1))
    return t * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _bound(found: Sequence[SpeedUp], scope: str) -> Pooled:
    first = found[0]
    lower = [s.low for s in found if s.censored == "lower"]
    upper = [s.high for s in found if s.censored == "upper"]
    low = min(lower) if lower and not upper else 0.0
    high = max(upper) if upper and not lower else math.inf
    centre = math.exp(float(np.mean([math.log(s.ratio) for s in found])))
    return Pooled(scope, first.direction, first.unit, centre, low, high, 0, len(found), len({s.size for s in found}))
