"""Figures of the trust section: every specification, rolling origins, profiles of the objective, residuals."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.figures.axes import FLOP_UNITS, log_axis, unit_for
from scalewright.fitting.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SPARE_MARKERS,
    VERMILION,
    footnote,
    in_order,
    legend_above,
    name_of,
    named_artists,
    new_figure,
    style_of,
    styled,
)
from scalewright.fitting.result import is_identified
from scalewright.fitting.words import counted

LAW_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY)
MOST_ERROR = 50.0  # percent; a forecast further off is counted, and does not flatten the others


@styled
def specification_curve(
    specifications: pd.DataFrame, choices: Sequence[str], *, parameter: str, headline: float, note: str = ""
) -> Figure:
    """Draw one parameter's estimate under every specification, sorted, over a chart of what each one chose.

    specifications: columns value, low, high (missing or infinite: open-ended), identified (all, where the column is
    missing; others are drawn hollow and do not stretch the axis) and those named in `choices`, whose entries are words;
    `headline` is the value that is reported first.
    """
    if "identified" not in specifications:
        specifications = specifications.assign(identified=True)
    rows = specifications.sort_values("value", kind="stable").reset_index(drop=True)
    levels = [(choice, level) for choice in choices for level in rows[choice].unique()]
    figure = new_figure(7.6, 3.0 + 0.24 * len(levels))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2.6, 0.24 * len(levels) + 0.2])
    _draw_estimates(top, rows, headline)
    top.set_ylabel(parameter)
    n_loose = int((~rows["identified"]).sum())
    loose = f", not identified by {n_loose}" if n_loose else ""
    top.set_title(f"{parameter} under {counted(len(rows), 'specification')}{loose}")
    _draw_choices(bottom, rows, levels)
    legend_above(figure, named_artists([top]))
    footnote(figure, note)
    return figure


def _draw_estimates(axes: Axes, rows: pd.DataFrame, headline: float) -> None:
    values, low, high = (rows[name].to_numpy(float) for name in ("value", "low", "high"))
    known = rows["identified"].to_numpy(bool) & np.isfinite(values)
    bottom, top = estimate_window(values, low, high, known)
    barred = np.flatnonzero(known)
    axes.vlines(
        barred,
        np.where(np.isfinite(low), low, bottom)[barred],
        np.where(np.isfinite(high), high, top)[barred],
        color=BLUE,
        alpha=0.35,
        linewidth=2,
    )
    axes.plot(barred, values[barred], "o", color=BLUE, markersize=4)
    loose = np.flatnonzero(~known)
    axes.plot(loose, np.clip(values[loose], bottom, top), "o", color=GREY, markersize=4, fillstyle="none")
    axes.axhline(headline, color=VERMILION, linewidth=1.2, label=f"headline {headline:.4g}")
    axes.set_ylim(bottom, top)


def estimate_window(
    values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], known: NDArray[np.bool_]
) -> tuple[float, float]:
    """The range of identified estimates and their intervals; without any, that of the middle half of all values."""
    edges = np.concatenate([values[known], low[known & np.isfinite(low)], high[known & np.isfinite(high)]])
    if not len(edges):
        edges = np.quantile(values[np.isfinite(values)], [0.25, 0.75])
    pad = 0.05 * float(np.ptp(edges)) or 0.1 * abs(float(edges[0])) or 1.0
    return float(edges.min()) - pad, float(edges.max()) + pad


def _draw_choices(axes: Axes, rows: pd.DataFrame, levels: list[tuple[str, str]]) -> None:
    for place, (choice, level) in enumerate(levels):
        chosen = np.flatnonzero((rows[choice] == level).to_numpy())
        axes.plot(chosen, [place] * len(chosen), "s", color="#444444", markersize=3.5)
    for place in range(1, len(levels)):
        if levels[place][0] != levels[place - 1][0]:
            axes.axhline(place - 0.5, color="#BBBBBB", linewidth=0.8)
    axes.set_yticks(range(len(levels)), [level for _, level in levels], fontsize=8)
    axes.set_ylim(len(levels) - 0.4, -0.6)
    axes.set_xlabel("specification, sorted by its estimate")
    axes.grid(visible=False)


@styled
def rolling_origin(forecasts: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw the error of predicting larger runs from smaller ones, against how far they were extrapolated.

    forecasts: columns law, decades (of compute past the largest run that entered), error (predicted over measured
    loss, minus 1); one row a held-out run and law.
    """
    figure = new_figure(7.0, 4.2)
    axes = figure.subplots()
    for place, law in enumerate(forecasts["law"].unique()):
        some = forecasts[forecasts["law"] == law].sort_values("decades")
        colour, marker = LAW_COLOURS[place % len(LAW_COLOURS)], SPARE_MARKERS[place % len(SPARE_MARKERS)]
        typical = 100 * float(some["error"].abs().median())
        axes.plot(
            some["decades"],
            100 * some["error"],
            marker,
            color=colour,
            alpha=0.8,
            label=f"{law}: median |error| {typical:.2g}%",
        )
    axes.axhline(0, color="#555555", linewidth=1)
    axes.set_xlabel("extrapolation (decades of compute past the runs that were fitted)")
    axes.set_ylabel("predicted over measured loss, minus 1 (%)")
    axes.set_title("Forecasting the larger runs from the smaller ones")
    widest = 100 * float(forecasts["error"].abs().max())
    if widest > MOST_ERROR:
        axes.set_ylim(-MOST_ERROR, MOST_ERROR)
        n_past = int((100 * forecasts["error"].abs() > MOST_ERROR).sum())
        axes.set_title(f"Forecasting the larger runs from the smaller ones ({n_past} past the axis)")
    legend_above(figure, named_artists([axes]))
    footnote(figure, note)
    return figure


@styled
def profile(
    curve: pd.DataFrame, *, parameter: str, estimate: float, low: float, high: float, threshold: float, note: str = ""
) -> Figure:
    """Draw how much worse the best fit gets as one parameter is held at other values.

    curve: columns value, rise (of the objective over its minimum, in the units of `threshold`); where the curve stays
    under `threshold` the data do not exclude the value, and an infinite end of the interval says that it never leaves.
    """
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    curve = curve.dropna()
    rise = curve["rise"] / threshold
    axes.plot(curve["value"], rise, color=BLUE)
    axes.axhline(1.0, color=VERMILION, linewidth=1.2, label="what chance allows (95%)")
    told = f"estimate {estimate:.4g}" if is_identified(low, high) else "best fit"
    axes.axvline(estimate, color="#555555", linewidth=1, label=told)
    left, right = float(curve["value"].min()), float(curve["value"].max())
    axes.axvspan(max(low, left), min(high, right), color=BLUE, alpha=0.1, linewidth=0)
    axes.set_xlim(left, right)
    axes.set_ylim(0, min(max(float(rise.max()) * 1.05, 1.2), 6.0))
    if right > 20 * left > 0:
        log_axis(axes, "x")
    axes.set_xlabel(parameter)
    axes.set_ylabel("how much worse the fit gets (1: the 95% limit)")
    axes.set_title(f"{parameter}: {interval_in_words(low, high)}")
    legend_above(figure, named_artists([axes]))
    footnote(figure, note)
    return figure


def interval_in_words(low: float, high: float) -> str:
    """Say an interval that may be open: `[0.1, 0.4]`, `at least 0.1`, `at most 0.4`, `not identified`."""
    if np.isfinite(low) and np.isfinite(high):
        loose = "" if is_identified(low, high) else ", not identified"
        return f"95% interval [{low:.4g}, {high:.4g}]{loose}"
    if np.isfinite(low):
        return f"at least {low:.4g}, no upper bound (one-sided)"
    if np.isfinite(high):
        return f"at most {high:.4g}, no lower bound (one-sided)"
    return "not identified by these runs"


@styled
def diagnostics(residuals: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw residuals against compute and tokens per parameter, their quantiles, and the most influential runs.

    residuals: columns label, flops, n_params, n_tokens, residual (log of fitted over measured loss), influence (share
    of the objective's change when the run is left out, or any nonnegative measure of it).
    """
    figure = new_figure(8.2, 6.6)
    grid = figure.subplots(2, 2)
    unit = unit_for(residuals["flops"], FLOP_UNITS)
    _scatter_residuals(grid[0, 0], residuals, residuals["flops"])
    log_axis(grid[0, 0], "x", f"training compute ({unit.words})", scale=unit.scale, n_ticks=5)
    _scatter_residuals(grid[0, 1], residuals, residuals["n_tokens"] / residuals["n_params"])
    log_axis(grid[0, 1], "x", "tokens per non-embedding parameter", n_ticks=5)
    draw_quantiles(grid[1, 0], 100 * residuals["residual"].to_numpy(float))
    _draw_influence(grid[1, 1], residuals)
    legend_above(figure, named_artists([grid[0, 0]]))
    footnote(figure, note)
    return figure


def _scatter_residuals(axes: Axes, residuals: pd.DataFrame, x: "pd.Series[float]") -> None:
    for label in in_order(residuals["label"]):
        some, style = residuals["label"] == label, style_of(label)
        axes.plot(
            x[some], 100 * residuals.loc[some, "residual"], style.marker, color=style.colour, label=name_of(label)
        )
    axes.axhline(0, color="#555555", linewidth=1)
    axes.set_ylabel("fitted over measured, minus 1 (%)")


def draw_quantiles(axes: Axes, residuals: NDArray[np.float64]) -> None:
    """Plot sorted residuals against the normal's quantiles: a straight line if they are normal."""
    n = len(residuals)
    expected = stats.norm.ppf((np.arange(1, n + 1) - 0.5) / n)
    axes.plot(expected, np.sort(residuals), "o", color=BLUE, markersize=4)
    spread = float(np.std(residuals, ddof=1)) if n > 1 else 0.0
    axes.plot(expected, float(np.mean(residuals)) + spread * expected, color=GREY, linewidth=1)
    axes.set_xlabel("quantile of a normal distribution")
    axes.set_ylabel("residual (%)")
    axes.set_title("Are the residuals normal?")


def _draw_influence(axes: Axes, residuals: pd.DataFrame, n_most: int = 10) -> None:
    most = residuals.sort_values("influence", ascending=False, kind="stable").head(n_most)
    colours = [style_of(str(label)).colour for label in most["label"]]
    axes.barh(range(len(most)), most["influence"], color=colours, height=0.65)
    axes.set_yticks(range(len(most)), [str(run)[:8] for run in most["run_id"]], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("influence on the fit")
    axes.set_title(f"The {len(most)} most influential runs")
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=FAINT)
