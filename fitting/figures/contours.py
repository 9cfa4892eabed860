"""The figure of a law of parameters and tokens: contours of its loss, its frontier, and the runs that bear it."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scalewright.fitting.figures.axes import PARAMETER_UNITS, TOKEN_UNITS, log_axis, unit_for
from scalewright.fitting.figures.style import (
    FAINT,
    GREY,
    footnote,
    legend_above,
    name_of,
    named_artists,
    new_figure,
    style_of,
    styled,
)

N_LEVELS = 9
Array = NDArray[np.float64]


@styled
def contours(
    points: pd.DataFrame, grid: tuple[Array, Array, Array], frontier: tuple[Array, Array], *, note: str = ""
) -> Figure:
    """Draw the loss of a fitted law over parameters and tokens, one label.

    points: columns label, n_params, n_tokens; grid: N (i,), D (j,) and the law's loss (j, i) in nats; frontier: N* and
    D* of each compute, empty where they are not identified.
    """
    figure = new_figure(6.8, 4.8)
    axes = figure.subplots()
    n_params, n_tokens, loss = grid
    levels = np.geomspace(loss.min(), loss.max(), N_LEVELS + 2)[1:-1]
    drawn = axes.contour(n_params, n_tokens, loss, levels=levels, colors=GREY, linewidths=0.9)
    axes.clabel(drawn, fmt="%.3g", fontsize=8)
    label = str(points["label"].iloc[0])
    style = style_of(label)
    if len(frontier[0]):
        axes.plot(*frontier, color=style.colour, label="lowest loss at each compute")
    axes.plot(
        points["n_params"],
        points["n_tokens"],
        style.marker,
        color=style.colour,
        markeredgecolor=FAINT,
        linestyle="none",
        label=f"{name_of(label)}: runs",
    )
    axes.set_xlim(n_params[0], n_params[-1])
    axes.set_ylim(n_tokens[0], n_tokens[-1])
    wide, long = unit_for(points["n_params"], PARAMETER_UNITS), unit_for(points["n_tokens"], TOKEN_UNITS)
    log_axis(axes, "x", f"non-embedding parameters ({wide.words})", scale=wide.scale)
    log_axis(axes, "y", f"training tokens ({long.words})", scale=long.scale)
    axes.grid(visible=False)
    legend_above(figure, named_artists([axes]))
    footnote(figure, note)
    return figure
