"""A method against its baseline over a whole experiment, and which of the answers are extrapolated. Knows points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewright.fitting.compare import Comparison
    from scalewright.fitting.frame import Points
    from scalewright.fitting.joint.units import Pooled
    from scalewright.fitting.multiplier import Multiplier
    from scalewright.fitting.speedup import SpeedUp

UNITS = ("tokens", "flops", "seconds")
DIRECTIONS = ("baseline-needs", "method-needs")
CURVE = "fitted"  # the straight log-log line through a size's final losses: no cell is lost to the ends of the budgets
SLACK = 0.02  # relative; needs this little past a budget that was run are not called extrapolated


@dataclass(frozen=True)
class PairReading:
    """A comparison, and the cells (direction, size, budget) whose answer lies past the budgets that were run."""

    comparison: "Comparison"
    extrapolated: frozenset[tuple[str, str, str]]

    @property
    def method(self) -> str:
        """Label of the method whose gain is measured."""
        return self.comparison.method

    @property
    def baseline(self) -> str:
        """Label of the method that it is measured against."""
        return self.comparison.baseline

    @property
    def level(self) -> str:
        """The level of the intervals as words say it: `95%`."""
        return f"{100 * self.comparison.level:g}%"

    def ratio(self, unit: str, scope: str = "pooled") -> "Pooled | None":
        """Return a speed-up; None where it was not measured, or where both its ends are open: then it says nothing."""
        found = self.comparison.speedup(unit, scope)
        return found if found is not None and (found.low > 0 or math.isfinite(found.high)) else None

    @property
    def compute(self) -> "list[Multiplier]":
        """The compute multipliers that have a value, cheapest compute first."""
        found = self.comparison.multipliers
        return [one for one in found if one.kind == "compute" and math.isfinite(one.value)]

    def cells_of(self, unit: str, direction: str = DIRECTIONS[0]) -> list["SpeedUp"]:
        """Return the speed-ups of each size and budget, in `unit` (tokens, flops or seconds)."""
        return [cell for cell in self.comparison.speedups if (cell.unit, cell.direction) == (unit, direction)]

    def n_extrapolated(self, direction: str = DIRECTIONS[0]) -> int:
        """Count the sizes and budgets whose answer lies past the budgets that were run."""
        return sum(where == direction for where, _, _ in self.extrapolated)

    def by(self, key: str, unit: str = "tokens") -> dict[str, "Pooled"]:
        """Return the speed-ups of each "size" or each "budget", by its name, smallest first."""
        if self.ratio(unit) is None:
            return {}
        found = [one for one in self.comparison.pooled if one.unit == unit and one.scope.startswith(f"{key} ")]
        return {one.scope.removeprefix(f"{key} "): one for one in found}


def read_pair(points: "Points", method: str, baseline: str, *, curve: str = CURVE, level: float = 0.95) -> PairReading:
    """Compare a method with its baseline; raises FittingError where they share no size and budget."""
    from scalewright.fitting.compare import compare

    comparison = compare(points, method, baseline, curve=curve, level=level)
    return PairReading(comparison, extrapolated(points, comparison.speedups))


def extrapolated(points: "Points", cells: Sequence["SpeedUp"]) -> frozenset[tuple[str, str, str]]:
    """Name the cells whose answer lies outside the budgets that the reference curve was measured at."""
    from scalewright.fitting.curve import size_keys

    table = points.frame.assign(size_key=size_keys(points.frame)).groupby(["label", "size_key"])["n_tokens"]
    ends = {
        key: (float(low), float(high))
        for key, low, high in zip(table.min().index, table.min(), table.max(), strict=True)
    }
    found = set()
    for cell in cells:
        forward = cell.direction == DIRECTIONS[0]
        low, high = ends.get((cell.baseline if forward else cell.method, cell.size), (0.0, math.inf))
        needed = cell.n_tokens * cell.ratio if forward else cell.n_tokens / cell.ratio
        if cell.unit == "tokens" and not low * (1 - SLACK) <= needed <= high * (1 + SLACK):
            found.add((cell.direction, cell.size, cell.budget))
    return frozenset(found)
