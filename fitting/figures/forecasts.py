"""Figures of what is not measured yet: forecast losses of pending runs, and the spread of a planned grid."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewright.fitting.figures.axes import PARAMETER_UNITS, TOKEN_UNITS, log_axis, plain, unit_for
from scalewright.fitting.figures.losses import LOSS_LABEL
from scalewright.fitting.figures.style import (
    BLACK,
    FAINT,
    GREY,
    footnote,
    in_order,
    legend_above,
    mark,
    name_of,
    named_artists,
    new_figure,
    row_names,
    rows_figure,
    rows_height,
    style_of,
    styled,
)


@styled
def forecast(rows: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw each run's predicted loss with its new-run interval, and the measured loss where the run is done.

    rows: columns name (what the row is called), label, predicted, low, high, measured (missing: still to come).
    """
    names = row_names(rows["name"].astype(str))
    figure = rows_figure(7.4, 1.2 + max(rows_height(names, gap=0.12), 1.12))
    axes = figure.subplots()
    for place, label in enumerate(rows["label"]):
        style = style_of(str(label))
        low, middle, high, measured = rows.iloc[place][["low", "predicted", "high", "measured"]].to_numpy(float)
        axes.plot([low, high], [place, place], color=style.colour, linewidth=5, alpha=0.3, solid_capstyle="butt")
        axes.plot([middle], [place], "|", color=style.colour, markersize=12, markeredgewidth=2)
        axes.plot([measured], [place], style.marker, color=BLACK, markersize=6)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(LOSS_LABEL)
    entries = [mark("forecast", "|", face=GREY, colour=GREY)]
    if rows["measured"].notna().any():
        entries.append(mark("measured (black)", "o", face=BLACK, colour=BLACK))
    legend_above(figure, entries)
    footnote(figure, note)
    return figure


@styled
def design(points: pd.DataFrame, *, note: str = "") -> Figure:
    """Draw where a grid's runs lie in parameters and tokens, over lines of equal tokens per parameter.

    points: columns label, n_params, n_tokens. Runs along one line cannot tell parameters from tokens.
    """
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    unit_n, unit_d = unit_for(points["n_params"], PARAMETER_UNITS), unit_for(points["n_tokens"], TOKEN_UNITS)
    left, right = points["n_params"].min() / 1.4, points["n_params"].max() * 1.4
    bottom, top = points["n_tokens"].min() / 1.4, points["n_tokens"].max() * 1.4
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    for ratio in 10.0 ** np.arange(-1, 5, 0.5):
        axes.plot([left, right], [left * ratio, right * ratio], color=FAINT, linewidth=1, zorder=0)
        name_ratio(axes, ratio, (right, bottom, top))
    labels = in_order(points["label"])
    for place, label in enumerate(labels):
        some, style = points[points["label"] == label], style_of(label)
        shift = 1.03 ** (place - (len(labels) - 1) / 2)
        axes.plot(some["n_params"] * shift, some["n_tokens"], style.marker, color=style.colour, label=name_of(label))
    log_axis(axes, "x", f"non-embedding parameters ({unit_n.words})", scale=unit_n.scale)
    log_axis(axes, "y", f"training tokens ({unit_d.words})", scale=unit_d.scale)
    axes.set_title("Where the runs lie (grey: tokens per parameter)", pad=14)
    legend_above(figure, named_artists([axes]))
    footnote(figure, note)
    return figure


def name_ratio(axes: Axes, ratio: float, edges: tuple[float, float, float]) -> None:
    """Name a line of equal tokens per parameter where it leaves the picture: at the right edge, or at the top."""
    right, bottom, top = edges
    words = f"{plain(round(ratio, 1 if ratio < 10 else 0))}:1"
    if bottom < right * ratio <= top:
        axes.text(right, right * ratio, f" {words}", fontsize=8, color="#777777", va="center")
    elif right * ratio > top and axes.get_xlim()[0] < top / ratio:
        axes.text(top / ratio, top, words, fontsize=8, color="#777777", ha="center", va="bottom")
