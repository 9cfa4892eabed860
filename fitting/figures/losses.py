"""Figures of final losses: against compute with each method's fit, against tokens in one panel a size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter
from numpy.typing import NDArray

from scalewright.fitting.figures.axes import FLOP_UNITS, TOKEN_UNITS, log_axis, short, unit_for
from scalewright.fitting.figures.style import (
    drawable,
    footnote,
    in_order,
    legend_above,
    mark,
    name_of,
    name_panel,
    named_artists,
    new_figure,
    panels,
    style_of,
    styled,
)

Floats = NDArray[np.float64]
LOSS_LABEL = "final validation loss (nats per token)"
MOST_BANDS = 2  # labels whose intervals can be told apart when they lie on one another
MOST_PANELS = 9
DIVERGED = "X"


@dataclass(frozen=True)
class Band:
    """One fitted curve to draw: x, the fitted value and its interval, and the words for the legend.

    Past `last` no run lies: what is drawn there is dashed.
    """

    x: Floats
    middle: Floats
    low: Floats
    high: Floats
    words: str
    last: float = np.inf


@styled
def loss_against_compute(
    points: pd.DataFrame,
    bands: Mapping[str, Band],
    *,
    minima: pd.DataFrame | None = None,
    diverged: pd.DataFrame | None = None,
    note: str = "",
) -> Figure:
    """Draw final loss against training compute, every finished run, with each label's fitted curve and interval.

    points: final losses (columns label, flops, loss_nats, on_frontier); bands: by label, x in FLOP, loss in nats per
    token. Runs that the curve is fitted to (on_frontier) are filled, the others are hollow; where curves are fitted to
    the minima of isoFLOP parabolas these are crosses (columns label, flops, loss_nats). Runs that diverged (columns
    label, flops) stand at the upper edge. Bands never stretch the axis, and are left out past MOST_BANDS labels.
    """
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    labels = in_order(points["label"])
    for label in labels:
        scatter_runs(axes, points[points["label"] == label], label, is_named=label not in bands)
        if label in bands:
            _draw_curve(axes, bands[label], label)
    entries = named_artists([axes]) + kinds(points)
    if minima is not None and len(minima):
        entries.append(_draw_minima(axes, minima))
    unit = unit_for(points["flops"], FLOP_UNITS)
    log_axis(axes, "x", f"training compute ({unit.words})", scale=unit.scale)
    log_axis(axes, "y", LOSS_LABEL)
    axes.set_ylim(axes.get_ylim())  # of runs and curves: bands are drawn within it
    for label in labels if len(bands) <= MOST_BANDS else []:
        _shade(axes, bands, label)
    if diverged is not None and len(diverged):
        entries.append(draw_diverged(axes, diverged))
    legend_above(figure, entries)
    footnote(figure, note)
    return figure


def kinds(points: pd.DataFrame) -> list[tuple[str, Artist]]:
    """Say in the legend what filled and hollow markers are, where any is hollow."""
    if "on_frontier" not in points or points["on_frontier"].all():
        return []
    filled = [mark("filled: lowest at its compute", "o", face="#555555")] if points["on_frontier"].any() else []
    return [*filled, mark("hollow: other runs", "o", face="white")]


def scatter_runs(axes: Axes, points: pd.DataFrame, label: str, *, is_named: bool) -> None:
    """Mark the runs; is_named: these stand for their label in the legend, as no curve does."""
    style = style_of(label)
    frontier = points["on_frontier"].to_numpy(bool) if "on_frontier" in points else np.ones(len(points), bool)
    named = (frontier if frontier.any() else ~frontier) & is_named
    for mask, face in ((frontier, style.colour), (~frontier, "white")):
        some = points[mask]
        axes.scatter(
            some["flops"], some["loss_nats"], s=34, marker=style.marker, facecolor=face, edgecolor=style.colour,
            zorder=3, label=name_of(label) if (mask & named).any() else "_nolegend_",
        )  # fmt: skip


def _draw_curve(axes: Axes, band: Band, label: str) -> None:
    style = style_of(label)
    axes.plot(band.x, band.middle, "-", color=style.colour, marker=style.marker, markevery=[], label=band.words)


def _shade(axes: Axes, bands: Mapping[str, Band], label: str) -> None:
    if label in bands:
        band = bands[label]
        axes.fill_between(band.x, band.low, band.high, color=style_of(label).colour, alpha=0.12, linewidth=0)


def _draw_minima(axes: Axes, minima: pd.DataFrame) -> tuple[str, Artist]:
    for label in in_order(minima["label"]):
        some = minima[minima["label"] == label]
        axes.plot(
            some["flops"], some["loss_nats"], "x", color=style_of(label).colour, markersize=9, markeredgewidth=2,
            zorder=4,
        )  # fmt: skip
    return mark("minimum of the parabola at its compute", "x", face="#555555")


def draw_diverged(axes: Axes, diverged: pd.DataFrame) -> tuple[str, Artist]:
    """Mark runs that diverged at the upper edge: their loss has no place on the axis."""
    for label in in_order(diverged["label"]):
        flops = diverged.loc[diverged["label"] == label, "flops"]
        axes.plot(
            flops, np.full(len(flops), 0.985), DIVERGED, color=style_of(label).colour, markersize=9, zorder=5,
            transform=axes.get_xaxis_transform(), markerfacecolor="white", clip_on=False,
        )  # fmt: skip
    return mark(f"diverged ({len(diverged)})", DIVERGED, face="white")


@styled
def loss_against_tokens(points: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw final loss against training tokens, one panel a size, one line a label; bars span the seeds.

    points: final losses (columns label, size, n_params, n_tokens, loss_nats, seed); each point is a run of its own,
    trained to the end of its schedule, not a moment of a longer run. Past MOST_PANELS sizes so many are drawn, evenly
    spread from the smallest to the largest, and the note says so.
    """
    every = sizes_in_order(points)
    sizes = spread(every, MOST_PANELS)
    points = points[points["size"].astype(str).isin(sizes)]
    figure, all_axes = panels(len(sizes), share_y=False)  # methods differ by less than sizes do
    unit = unit_for(points["n_tokens"], TOKEN_UNITS)
    for axes, size in zip(all_axes, sizes, strict=True):
        some = points[points["size"].astype(str) == size]
        _draw_size(axes, some)
        name_panel(axes, panel_title(size, float(some["n_params"].median())))
        log_axis(axes, "x", scale=unit.scale, n_ticks=5)
        log_axis(axes, "y")
    tick_budgets(all_axes, points["n_tokens"], unit.scale)
    label_outer(figure, all_axes, f"training tokens ({unit.words})", LOSS_LABEL)
    entries = dict(named_artists(all_axes))
    legend_above(figure, [(name_of(one), entries[name_of(one)]) for one in in_order(points["label"])])
    own = "Each panel has its own loss axis. " if len(sizes) > 1 else ""
    some_of = "" if sizes == every else f"{len(sizes)} of {len(every)} sizes are drawn. "
    footnote(figure, f"{some_of}{own}{note}")
    return figure


def spread(names: Sequence[str], n_most: int) -> list[str]:
    """Choose at most so many, evenly spread, the first and the last among them."""
    places = np.linspace(0, len(names) - 1, min(n_most, len(names))).round().astype(int)
    return [names[place] for place in places]


def sizes_in_order(points: pd.DataFrame) -> list[str]:
    """Return the names of sizes, smallest median number of parameters first."""
    return [str(size) for size in points.groupby("size")["n_params"].median().sort_values().index]


def _draw_size(axes: Axes, points: pd.DataFrame) -> None:
    for label in in_order(points["label"]):
        style = style_of(label)
        seeds = points[points["label"] == label].groupby("n_tokens")["loss_nats"].agg(["mean", "min", "max"])
        spread = np.vstack([seeds["mean"] - seeds["min"], seeds["max"] - seeds["mean"]]).clip(
            min=0
        )  # a mean is rounded
        axes.errorbar(
            seeds.index.to_numpy(float), seeds["mean"], yerr=spread, fmt=style.marker, linestyle="-",
            color=style.colour, capsize=2, label=name_of(label),
        )  # fmt: skip


def panel_title(size: str, n_params: float) -> str:
    """Name a size with its number of parameters, once where the name is the number."""
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
