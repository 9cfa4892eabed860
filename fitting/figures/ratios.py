"""Figure of convergence speed-ups: pooled ratios with their intervals, the cells they are pooled from behind them."""

import math
import textwrap
from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from scalewright.fitting.figures.axes import plain
from scalewright.fitting.figures.style import (
    FAINT,
    WIDTH,
    footnote,
    name_of,
    row_names,
    rows_figure,
    rows_height,
    style_of,
    styled,
)

TITLE_LETTERS = 14  # of a title on one line, past those of a row
RATIO_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


@styled
def speed_ups(pooled: pd.DataFrame, cells: pd.DataFrame, *, title: str = "", note: str = "") -> Figure:
    """Draw how many times less a method needs than its baseline: one row a comparison and unit.

    pooled: columns method, baseline, unit, ratio, low, high, n (low or high infinite or missing: one-sided), and where
    known `past`: how many times outside the baseline's runs it was read (hollow past 1; missing: inside);
    cells: the same comparisons at each size and budget (columns method, baseline, unit, ratio, extrapolated):
    those that lie past the budgets that were run are drawn hollow.
    """
    rows = list(pooled.itertuples(index=False))
    names = row_names(_row_name(row) for row in rows)
    told = [_in_lines(_interval_words(row)) for row in rows]
    figure = rows_figure(9.0, 1.5 + max(rows_height(names, told, gap=0.26), 0.84))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        _draw_cells(axes, place, cells[_matches(cells, row.method, row.baseline, row.unit)], str(row.method))
        _draw_pooled(axes, place, row)
    finish(axes, names, told, [*pooled["ratio"], *pooled["low"], *pooled["high"], *cells["ratio"]])
    shown = title or "Convergence speed-up of a method over its baseline"
    axes.set_title(textwrap.fill(shown, WIDTH.get().row_letters + TITLE_LETTERS))
    footnote(figure, note)
    return figure


def _matches(cells: pd.DataFrame, method: object, baseline: object, unit: object) -> "pd.Series[bool]":
    return (cells["method"] == method) & (cells["baseline"] == baseline) & (cells["unit"] == unit)


def _draw_cells(axes: Axes, place: int, cells: pd.DataFrame, method: str) -> None:
    colour = style_of(method).colour
    past = cells["extrapolated"].to_numpy(bool)
    for mask, face in ((~past, colour), (past, "none")):
        some = cells.loc[mask, "ratio"]
        axes.scatter(
            some, [place + 0.24] * len(some), s=18, facecolors=face, edgecolors=colour, alpha=0.55, linewidth=1
        )


def _draw_pooled(axes: Axes, place: int, row: object) -> None:
    method, ratio, low, high = (getattr(row, name) for name in ("method", "ratio", "low", "high"))
    style = style_of(str(method))
    if not math.isfinite(ratio):
        return
    left = low if low is not None and math.isfinite(low) and low > 0 else None
    right = high if high is not None and math.isfinite(high) else None
    axes.plot([left or RATIO_TICKS[0] / 10, right or RATIO_TICKS[-1] * 10], [place, place], color=style.colour)
    face = "white" if _is_past(row) else style.colour
    axes.plot([ratio], [place], marker=style.marker, color=style.colour, markersize=8, markerfacecolor=face)


def _is_past(row: object) -> bool:
    past = getattr(row, "past", None)
    return past is not None and bool(past > 1)


def finish(axes: Axes, names: Sequence[str], told: Sequence[str], values: Iterable[float]) -> None:
    """Set limits that hold every finite value and 1, name the rows, and write each row's words at the right edge."""
    finite = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    low, high = min([*finite, 0.9]) / 1.08, max([*finite, 1.1]) * 1.08
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks_between(low, high, _most_ticks(axes))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value) + "×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvspan(low, 1.0, color=FAINT, alpha=0.35, linewidth=0, zorder=0)
    axes.axvline(1.0, color="#555555", linewidth=1)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("times less needed by the method (grey: the method needs more)")
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(names)), told, fontsize=9)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)


def _most_ticks(axes: Axes) -> int:
    """Allow a tick an inch of the figure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return min(int(figure.get_figwidth()), 7)


def ticks_between(low: float, high: float, n_most: int = 7) -> list[float]:
    """Choose round ratios that stand apart by a part of the axis each; 1 always, then the roundest."""
    apart, chosen = math.log(high / low) / n_most, [1.0]
    for tick in sorted(RATIO_TICKS, key=lambda tick: (len(plain(tick)), abs(math.log(tick)))):
        if low <= tick <= high and all(abs(math.log(tick / other)) >= apart for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _row_name(row: object) -> str:
    method, baseline, unit = (str(getattr(row, name)) for name in ("method", "baseline", "unit"))
    return f"{name_of(method)} over {name_of(baseline)}, {unit}"


def _in_lines(words: str) -> str:
    return words if len(words) <= WIDTH.get().row_letters else words.replace("], ", "],\n")


def _interval_words(row: object) -> str:
    ratio, low, high, n = (getattr(row, name) for name in ("ratio", "low", "high", "n"))
    if not math.isfinite(ratio):
        return f"not reached, n = {n}"
    ends = [f"{end:.2f}" if end is not None and math.isfinite(end) else "open" for end in (low, high)]
    told = f"extrapolated {plain(float(f'{row.past:.2g}'))}×" if _is_past(row) else f"n = {n}"  # type: ignore[attr-defined]
    return f"{ratio:.2f}× [{ends[0]}, {ends[1]}], {told}"
