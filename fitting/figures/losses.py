"""Figures of final losses: against compute with each method's fit, against tokens in one panel a size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter
from numpy.typing import NDArray

from scalewright.fitting.figures.style import (
    FLOP_UNITS,
    TOKEN_UNITS,
    drawable,
    footnote,
    in_order,
    log_axis,
    name_of,
    new_figure,
    panels,
    short,
    style_of,
    styled,
    unit_for,
)

Floats = NDArray[np.float64]
LOSS_LABEL = "final validation loss (nats per token)"


@dataclass(frozen=True)
class Band:
    """One fitted curve to draw: x, the fitted value and its interval, and the words for the legend."""

    x: Floats
    middle: Floats
    low: Floats
    high: Floats
    words: str


@styled
def loss_against_compute(points: pd.DataFrame, bands: Mapping[str, Band], *, note: str = "") -> Figure:
    """Draw final loss against training compute, every finished run, with each label's fitted curve and interval.

    points: final losses (columns label, flops, loss_nats, on_frontier); bands: by label, x in FLOP, loss in nats per
    token. Runs that the curve is fitted to (on_frontier) are filled, the others are hollow.
    """
    figure = new_figure(7.2, 4.8)
    axes = figure.subplots()
    for label in in_order(points["label"]):
        scatter_runs(axes, points[points["label"] == label], label, is_named=label not in bands)
        if label in bands:
            draw_band(axes, bands[label], label)
    unit = unit_for(points["flops"], FLOP_UNITS)
    log_axis(axes, "x", f"training compute ({unit.words})", scale=unit.scale)
    log_axis(axes, "y", LOSS_LABEL)
    axes.set_title("Final loss against training compute")
    axes.legend(loc="upper right")
    footnote(figure, note)
    return figure


def scatter_runs(axes: Axes, points: pd.DataFrame, label: str, *, is_named: bool) -> None:
    """Mark the runs; is_named: these stand for their label in the legend, as no curve does."""
    style = style_of(label)
    frontier = points["on_frontier"].to_numpy(bool) if "on_frontier" in points else np.ones(len(points), bool)
    words = name_of(label) if is_named else "_nolegend_"
    for mask, face, name in ((frontier, style.colour, words), (~frontier, "white", "_nolegend_")):
        some = points[mask]
        axes.scatter(
            some["flops"],
            some["loss_nats"],
            s=34,
            marker=style.marker,
            facecolor=face,
            edgecolor=style.colour,
            zorder=3,
            label=name,
        )


def draw_band(axes: Axes, band: Band, label: str) -> None:
    style = style_of(label)
    axes.fill_between(band.x, band.low, band.high, color=style.colour, alpha=0.1, linewidth=0)
    axes.plot(band.x, band.middle, style.dash, color=style.colour, marker=style.marker, markevery=[], label=band.words)


@styled
def loss_against_tokens(points: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw final loss against training tokens, one panel a size, one line a label; bars span the seeds.

    points: final losses (columns label, size, n_params, n_tokens, loss_nats, seed); each point is a run of its own,
    trained to the end of its schedule, not a moment of a longer run.
    """
    sizes = sizes_in_order(points)
    figure, all_axes = panels(len(sizes))
    unit = unit_for(points["n_tokens"], TOKEN_UNITS)
    for axes, size in zip(all_axes, sizes, strict=True):
        some = points[points["size"] == size]
        draw_size(axes, some)
        axes.set_title(panel_title(size, float(some["n_params"].median())))
        log_axis(axes, "x", scale=unit.scale, n_ticks=5)
        log_axis(axes, "y")
    tick_budgets(all_axes, points["n_tokens"], unit.scale)
    label_outer(figure, all_axes, f"training tokens ({unit.words})", LOSS_LABEL)
    handles, words = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper left", ncols=min(len(words), 4))
    footnote(figure, note)
    return figure


def sizes_in_order(points: pd.DataFrame) -> list[str]:
    return [str(size) for size in points.groupby("size")["n_params"].median().sort_values().index]


def draw_size(axes: Axes, points: pd.DataFrame) -> None:
    for label in in_order(points["label"]):
        style = style_of(label)
        seeds = points[points["label"] == label].groupby("n_tokens")["loss_nats"].agg(["mean", "min", "max"])
        spread = np.vstack([seeds["mean"] - seeds["min"], seeds["max"] - seeds["mean"]]).clip(
            min=0
        )  # a mean is rounded
        axes.errorbar(
            seeds.index.to_numpy(float), seeds["mean"], yerr=spread, fmt=style.marker, linestyle=style.dash,
            color=style.colour, capsize=2, label=name_of(label),
        )  # fmt: skip


def panel_title(size: str, n_params: float) -> str:
    named_by_it = size in {short(n_params), short(float(f"{n_params:.2g}"))}
    return f"{size} parameters" if named_by_it else f"{drawable(size)} ({short(n_params)} parameters)"


def tick_budgets(all_axes: Sequence[Axes], n_tokens: "pd.Series[int]", scale: float, n_most: int = 6) -> None:
    """Put the ticks at the budgets themselves where they are few."""
    budgets = sorted(set(n_tokens))
    if len(budgets) <= n_most:
        for axes in all_axes:
            axes.xaxis.set_major_locator(FixedLocator(budgets))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:.3g}"))


def label_outer(figure: Figure, all_axes: Sequence[Axes], x_label: str, y_label: str) -> None:
    """Name the axes once: x below the last panel of each column, y at the figure's side."""
    grid = all_axes[0].get_gridspec()
    columns = grid.ncols if grid is not None else 1
    for place, axes in enumerate(all_axes):
        last = place + columns >= len(all_axes)
        axes.set_xlabel(x_label if last else "")
        axes.tick_params(labelbottom=last)
    figure.supylabel(y_label, fontsize=10)
