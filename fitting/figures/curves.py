"""Figure of training curves: validation loss along each run, its end marked as annealed or not."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewright.fitting.figures.axes import TOKEN_UNITS, log_axis, unit_for
from scalewright.fitting.figures.losses import label_outer, panel_title, sizes_in_order
from scalewright.fitting.figures.style import (
    footnote,
    in_order,
    legend_above,
    name_of,
    name_panel,
    named_artists,
    panels,
    style_of,
    styled,
)


@styled
def training_curves(evaluations: pd.DataFrame, *, what: str = "validation loss", note: str = "") -> Figure:
    """Draw loss along training, one panel a size; the end of an annealed run is a filled marker. `what` names the loss.

    evaluations: columns run_id, label, size, n_params, n_tokens, loss_nats, final, annealed. Points before the end are
    at a learning rate that is still high: they lie above what a run that ends there would reach.
    """
    sizes = sizes_in_order(evaluations)
    figure, all_axes = panels(len(sizes))
    unit = unit_for(evaluations["n_tokens"], TOKEN_UNITS)
    for axes, size in zip(all_axes, sizes, strict=True):
        some = evaluations[evaluations["size"] == size]
        _draw_runs(axes, some)
        name_panel(axes, panel_title(size, float(some["n_params"].median())))
        log_axis(axes, "x", scale=unit.scale, n_ticks=5)
        log_axis(axes, "y")
    label_outer(figure, all_axes, f"training tokens ({unit.words})", f"{what} (nats per token)")
    legend_above(figure, named_artists(all_axes))
    footnote(figure, note)
    return figure


def _draw_runs(axes: Axes, evaluations: pd.DataFrame) -> None:
    for label in in_order(evaluations["label"]):
        style = style_of(label)
        runs = evaluations[evaluations["label"] == label].sort_values("n_tokens").groupby("run_id", sort=True)
        for place, (_, run) in enumerate(runs):
            words = name_of(label) if place == 0 else None
            axes.plot(  # the marker is for the legend: here it stands at no point
                run["n_tokens"], run["loss_nats"], color=style.colour, alpha=0.7, linewidth=1.2, label=words,
                marker=style.marker, markevery=[],
            )  # fmt: skip
            end = run[run["final"].astype(bool)]
            face = style.colour if bool(end["annealed"].all()) else "white"
            axes.plot(end["n_tokens"], end["loss_nats"], style.marker, color=style.colour, markerfacecolor=face)
