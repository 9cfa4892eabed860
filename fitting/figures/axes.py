"""Axes in plain numbers: ticks of log axes, units that keep their numbers short, counts in words."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, NullLocator


class PlainLogLocator(Locator):
    """Ticks of a log axis: 1, 2, 5 times tens over a wide range, evenly spaced round numbers over a narrow one."""

    def __init__(self, n_ticks: int = 6) -> None:
        self.n_ticks = n_ticks

    def __call__(self) -> Sequence[float]:
        """Return the ticks of what the axis shows now, in data units."""
        low, high = self.axis.get_view_interval()  # type: ignore[union-attr]
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return about `n_ticks` ticks, from linear ones where the range is under a factor of 4 or not positive."""
        low, high = sorted((vmin, vmax))
        if low <= 0 or high / low < 4:
            return list(MaxNLocator(self.n_ticks, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = _round_numbers(low, high, steps)
            if len(ticks) <= self.n_ticks + 2:
                return ticks
        return ticks[:: math.ceil(len(ticks) / self.n_ticks)]


def _round_numbers(low: float, high: float, steps: tuple[int, ...]) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def plain(value: float) -> str:
    """Write a tick's number as people do: no exponent between 0.0001 and a million, no needless zeros."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:.3g}"


def log_axis(axes: Axes, which: Literal["x", "y"], label: str = "", *, scale: float = 1.0, n_ticks: int = 6) -> None:
    """Make the `which` axis logarithmic with plain numbers in `scale` units; the data stay in their own unit."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(ScaledLocator(scale, n_ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value / scale)))
    axis.set_label_text(label)


class ScaledLocator(PlainLogLocator):
    """Round numbers in another unit than the data's."""

    def __init__(self, scale: float, n_ticks: int) -> None:
        super().__init__(n_ticks)
        self.scale = scale

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return ticks in data units that are round once divided by `scale`."""
        return [tick * self.scale for tick in super().tick_values(vmin / self.scale, vmax / self.scale)]


@dataclass(frozen=True)
class Unit:
    """A unit that keeps an axis' numbers short: `scale` of the base unit, and its words."""

    scale: float
    words: str


TOKEN_UNITS = (Unit(1e12, "trillions"), Unit(1e9, "billions"), Unit(1e6, "millions"), Unit(1e3, "thousands"))
PARAMETER_UNITS = TOKEN_UNITS[1:]
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
FLOP_UNITS = tuple(
    Unit(10.0**power, f"10{str(power).translate(SUPERSCRIPTS)} FLOP") for power in (24, 21, 18, 15, 12, 9)
)


def unit_for(values: Iterable[float], units: tuple[Unit, ...]) -> Unit:
    """Choose the largest unit in which the middle of the values is at least about one tenth."""
    finite = [value for value in values if value > 0 and math.isfinite(value)]
    middle = math.exp(sum(map(math.log, finite)) / len(finite)) if finite else 1.0
    return next((unit for unit in units if middle >= 0.1 * unit.scale), units[-1])


def short(value: float) -> str:
    """Write a count in 3 digits with its unit: 55.3k, 524k, 7B."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"
