"""Figures of the compute-optimal frontier: isoFLOP profiles with their minima, and N* and D* against compute."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewright.fitting.figures.axes import (
    FLOP_UNITS,
    PARAMETER_UNITS,
    SUPERSCRIPTS,
    TOKEN_UNITS,
    Unit,
    log_axis,
    unit_for,
)
from scalewright.fitting.figures.losses import LOSS_LABEL, Band
from scalewright.fitting.figures.style import (
    Colour,
    footnote,
    in_order,
    legend_above,
    named_artists,
    new_figure,
    style_of,
    styled,
)

ROOM = 4.0  # times below and above the lines: wider intervals run out of the panel
MOST_NAMED = 8  # computes that a legend names; past that the lowest, the highest and some between


@styled
def isoflop_profiles(points: pd.DataFrame, parabolas: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw loss against parameters at each compute budget, with the parabola in log N and its minimum.

    points: columns flops_budget, n_params, loss_nats; parabolas: columns flops_budget, curvature, n_star, loss_star
    (log L = log loss_star + curvature * (ln N - ln n_star)^2) and refused (words, empty when the minimum is usable).
    """
    figure = new_figure(7.2, 4.8)
    axes = figure.subplots()
    unit = unit_for(points["n_params"], PARAMETER_UNITS)
    budgets = sorted(points["flops_budget"].unique())
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(budgets)))
    named = {budgets[place] for place in np.linspace(0, len(budgets) - 1, MOST_NAMED).round().astype(int)}
    for budget, colour in zip(budgets, colours, strict=True):
        words = power_of_ten(budget) if budget in named else "_"  # what begins so gets no line in the legend
        some = points[points["flops_budget"] == budget].sort_values("n_params")
        axes.plot(some["n_params"], some["loss_nats"], "o", color=colour, markersize=5, label=words)
        _draw_parabola(axes, some, parabolas[parabolas["flops_budget"] == budget], colour)
    log_axis(axes, "x", f"non-embedding parameters ({unit.words})", scale=unit.scale)
    log_axis(axes, "y", LOSS_LABEL)
    drawn = (parabolas["refused"] == "").any() and parabolas["curvature"].notna().any()
    axes.set_title("IsoFLOP profiles (cross: fitted minimum)" if drawn else "Loss against parameters at each compute")
    legend_above(figure, named_artists([axes]), size=8)
    footnote(figure, note)
    return figure


def power_of_ten(flops: float) -> str:
    """Write a compute as 4.6 × 10¹⁸ FLOP."""
    digits, power = f"{flops:.1e}".split("e")
    return f"{digits.removesuffix('.0')} × 10{str(int(power)).translate(SUPERSCRIPTS)} FLOP"


def _draw_parabola(axes: Axes, points: pd.DataFrame, parabola: pd.DataFrame, colour: Colour) -> None:
    if parabola.empty or parabola["refused"].iloc[0]:
        return
    row = parabola.iloc[0]
    x = np.geomspace(points["n_params"].min(), points["n_params"].max(), 100)
    y = row["loss_star"] * np.exp(row["curvature"] * np.log(x / row["n_star"]) ** 2)
    axes.plot(x, y, color=colour, linewidth=1.2)
    axes.plot([row["n_star"]], [row["loss_star"]], "x", color=colour, markersize=9, markeredgewidth=2)


@styled
def compute_optimal(optima: Mapping[str, Band], tokens: Mapping[str, Band], *, note: str = "") -> Figure:
    """Draw the compute-optimal parameters (left) and tokens (right) against compute with their intervals, by label."""
    figure = new_figure(8.6, 4.2)
    left, right = figure.subplots(1, 2)
    for axes, bands, units, words in (
        (left, optima, PARAMETER_UNITS, "optimal parameters"),
        (right, tokens, TOKEN_UNITS, "optimal tokens"),
    ):
        for label in in_order(bands):
            style, band = style_of(label), bands[label]
            axes.fill_between(band.x, band.low, band.high, color=style.colour, alpha=0.13, linewidth=0)
            inside = band.x <= band.last
            axes.plot(band.x[inside], band.middle[inside], color=style.colour, label=band.words)
            axes.plot(band.x[~inside], band.middle[~inside], "--", color=style.colour)
        middles = np.concatenate([band.middle for band in bands.values()])
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, middles.min() / ROOM), min(high, middles.max() * ROOM))
        _draw_frontier_axes(axes, bands, units, words)
    legend_above(figure, named_artists([left, right]))
    footnote(figure, note)
    return figure


def _draw_frontier_axes(axes: Axes, bands: Mapping[str, Band], units: tuple[Unit, ...], words: str) -> None:
    compute = unit_for(np.concatenate([band.x for band in bands.values()]), FLOP_UNITS)
    unit = unit_for(np.concatenate([band.middle for band in bands.values()]), units)
    log_axis(axes, "x", f"training compute ({compute.words})", scale=compute.scale, n_ticks=5)
    log_axis(axes, "y", f"{words} ({unit.words})", scale=unit.scale)
