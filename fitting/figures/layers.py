"""Figure of what each layer does: a quantity over layers and steps, one row a quantity, one column a label."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scalewright.fitting.figures.axes import log_axis, short
from scalewright.fitting.figures.entry import Analysed
from scalewright.fitting.figures.style import (
    footnote,
    in_order,
    legend_above,
    name_of,
    name_panel,
    named_artists,
    new_figure,
    styled,
)

MOST_STEPS = 6  # that are drawn, evenly spread from the first to the last
MOST_LABELS = 4
LAYERS_CAPTION = "What each layer does as training goes on: variance of its output, norms of its gradient and weights."


@styled
def layers(values: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw each quantity against the layer, one line a step, light early and dark late; rows share their axis.

    values: columns label, metric, step, n_tokens, layer (from 0), value; of one run a label.
    """
    labels = in_order(values["label"])[:MOST_LABELS]
    metrics = list(dict.fromkeys(values["metric"]))
    figure = new_figure(1.2 + 2.6 * max(len(labels), 2), 0.6 + 2.0 * len(metrics))
    grid = figure.subplots(len(metrics), len(labels), sharex=True, sharey="row", squeeze=False)
    for row, metric in zip(grid, metrics, strict=True):
        for axes, label in zip(row, labels, strict=True):
            _draw_steps(axes, values[(values["label"] == label) & (values["metric"] == metric)])
        row[0].set_ylabel(metric.replace("_", " "))
    for axes, label in zip(grid[0], labels, strict=True):
        name_panel(axes, name_of(label))
    for axes in grid[-1]:
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    legend_above(figure, named_artists(grid.flat), size=8)
    footnote(figure, note)
    return figure


def largest_runs(analysis: Analysed) -> Mapping[str, Any] | None:
    """Take what each layer did, where runs logged it, and say of which runs."""
    values = analysis.layers
    if values is None or not len(values):
        return None
    labels = in_order(values["label"])
    runs = values.drop_duplicates("label").set_index("label")
    which = [f"{name_of(one)} {runs.loc[one, 'size']!s}, {runs.loc[one, 'budget']!s}" for one in labels[:MOST_LABELS]]
    more = f" {len(labels) - MOST_LABELS} more methods are left out." if len(labels) > MOST_LABELS else ""
    note = f"One run a method, its largest: {'; '.join(which)}. On one validation batch.{more}"
    return {"values": values, "note": note}


def _draw_steps(axes: Axes, values: pd.DataFrame) -> None:
    steps = _drawn_steps(sorted(values["step"].unique()))
    for step, colour in zip(steps, colormaps["viridis_r"](np.linspace(0.15, 1.0, len(steps))), strict=True):
        some = values[values["step"] == step].sort_values("layer")
        axes.plot(some["layer"] + 1, some["value"], "o-", color=colour, markersize=3.5, label=f"step {short(step)}")
    if len(values) and (values["value"] > 0).all():
        log_axis(axes, "y", n_ticks=4)


def _drawn_steps(steps: Sequence[int]) -> list[int]:
    places = np.linspace(0, len(steps) - 1, min(MOST_STEPS, len(steps))).round().astype(int)
    return [steps[place] for place in places]
