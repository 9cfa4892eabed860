"""Figures of hyper-parameters: loss against a setting at each size and budget, and the law of the best setting."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewright.fitting.figures.axes import PARAMETER_UNITS, log_axis, unit_for
from scalewright.fitting.figures.losses import LOSS_LABEL, label_outer
from scalewright.fitting.figures.style import (
    VERMILION,
    Colour,
    footnote,
    in_order,
    legend_above,
    name_of,
    name_panel,
    named_artists,
    panels,
    styled,
)

MANY = 6  # labels past which panels are small
TOP = 1.25  # highest loss drawn in its place, over the worst cell's lowest
ROOM = 4.0  # times above and below the best settings: longer intervals run out of the panel
N_TICKS = 3
SETTINGS = {"lr_peak": "peak learning rate", "batch_tokens": "batch (tokens)"}


@styled
def sweeps(points: pd.DataFrame, optima: pd.DataFrame, *, setting: str = "lr_peak", note: str = "") -> Figure:
    """Draw loss against a setting, one panel a label, one colour a (size, budget); crosses are fitted optima.

    points: columns label, size, budget, n_params, n_tokens, loss_nats and `setting`; optima: columns label, size,
    budget, best, loss_best, curvature (log L = log loss_best + curvature * ln(setting / best)^2) and usable (false: the
    lowest is first or last of its sweep, or no parabola has a minimum there: a ring, and no parabola). Losses far above
    every cell's lowest are triangles at the top, so that they do not press the optima together.
    """
    labels = in_order(points["label"])
    figure, all_axes = sweep_panels(len(labels))
    top = TOP * float(points.groupby(["label", "size", "budget"])["loss_nats"].min().max())
    ordered = points.sort_values(["n_params", "n_tokens"], kind="stable")
    cells = list(dict.fromkeys(zip(ordered["size"].astype(str), ordered["budget"].astype(str), strict=True)))
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(cells)))
    for axes, label in zip(all_axes, labels, strict=True):
        name_panel(axes, name_of(label))
        for (size, budget), colour in zip(cells, colours, strict=True):
            some = _at(points, label, size, budget)
            _draw_sweep(axes, some, setting, colour, f"{size} × {budget}", top)
            draw_optimum(axes, _at(optima, label, size, budget), some[setting], colour)
        log_axis(axes, "x", n_ticks=N_TICKS)
        log_axis(axes, "y")
    margin = (top / float(points["loss_nats"].min())) ** 0.06
    all_axes[0].set_ylim(float(points["loss_nats"].min()) / margin, min(top, points["loss_nats"].max()) * margin)
    label_outer(figure, all_axes, SETTINGS.get(setting, setting), LOSS_LABEL)
    legend_above(figure, named_artists(all_axes), title="size × tokens", size=8)
    footnote(figure, note)
    return figure


def _at(frame: pd.DataFrame, label: str, size: str, budget: str) -> pd.DataFrame:
    named = (frame["size"].astype(str) == size) & (frame["budget"].astype(str) == budget)
    return frame[(frame["label"] == label) & named]


def sweep_panels(n_labels: int) -> tuple[Figure, list[Axes]]:
    """Two wide columns for a few labels, four narrow ones for many: a page stays a page."""
    few = n_labels <= MANY
    return panels(n_labels, width=3.8 if few else 2.9, height=3.4 if few else 2.5, n_columns=2 if few else 4)


def _draw_sweep(axes: Axes, points: pd.DataFrame, setting: str, colour: Colour, words: str, top: float) -> None:
    some = points.sort_values(setting)
    above = some["loss_nats"].to_numpy(float) > top
    axes.plot(some[setting][~above], some["loss_nats"][~above], "o", color=colour, markersize=4.5, label=words)
    axes.plot(some[setting][above], np.full(above.sum(), top), "^", color=colour, markersize=6, fillstyle="none")


def draw_optimum(axes: Axes, optima: pd.DataFrame, tried: "pd.Series[float]", colour: Colour) -> None:
    """Draw the parabola over the values that were tried, and its minimum."""
    for place in range(len(optima)):
        best, loss, curvature = optima.iloc[place][["best", "loss_best", "curvature"]].to_numpy(float)
        if not optima["usable"].iloc[place]:
            axes.plot([best], [loss], "o", color=VERMILION, markersize=10, fillstyle="none", markeredgewidth=1.8)
            continue
        x = np.geomspace(max(best / 3, tried.min()), min(best * 3, tried.max()), 60)
        inside = curvature * np.log(x / best) ** 2 < 0.06
        axes.plot(x[inside], (loss * np.exp(curvature * np.log(x / best) ** 2))[inside], color=colour, linewidth=1.1)
        axes.plot([best], [loss], "x", color=colour, markersize=10, markeredgewidth=1.8)


@styled
def best_settings(optima: pd.DataFrame, laws: pd.DataFrame, *, setting: str = "lr_peak", note: str = "") -> Figure:
    """Draw each (size, budget)'s best setting with its interval against parameters, and the fitted law's lines.

    optima: columns label, budget, n_params, n_tokens, best, low, high, resolved (an interval worth a bar), usable;
    laws: columns label, budget, n_params, value: the law evaluated where a line is wanted.
    """
    labels = in_order(optima["label"])
    unit = unit_for(optima["n_params"], PARAMETER_UNITS)
    figure, all_axes = sweep_panels(len(labels))
    budgets = list(dict.fromkeys(optima.sort_values("n_tokens", kind="stable")["budget"].astype(str)))
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(budgets)))
    for axes, label in zip(all_axes, labels, strict=True):
        name_panel(axes, name_of(label))
        for budget, colour in zip(budgets, colours, strict=True):
            own, line = (frame[(frame["label"] == label) & (frame["budget"] == budget)] for frame in (optima, laws))
            _draw_best(axes, own, colour, f"{budget} tokens")
            axes.plot(
                *line.sort_values("n_params")[["n_params", "value"]].to_numpy(float).T, color=colour, linewidth=1.2
            )
        log_axis(axes, "x", scale=unit.scale, n_ticks=N_TICKS)
        log_axis(axes, "y")
    seen = np.concatenate([optima["best"].to_numpy(float), laws["value"].to_numpy(float)])
    all_axes[0].set_ylim(seen.min() / ROOM, seen.max() * ROOM)
    label_outer(figure, all_axes, f"non-embedding parameters ({unit.words})", f"best {SETTINGS.get(setting, setting)}")
    legend_above(figure, named_artists(all_axes), size=8)
    footnote(figure, note)
    return figure


def _draw_best(axes: Axes, optima: pd.DataFrame, colour: Colour, words: str) -> None:
    best, low, high = (optima[name].to_numpy(float) for name in ("best", "low", "high"))
    told = optima["resolved"].to_numpy(bool) & (low > 0) & np.isfinite(high)
    below, above = np.where(told, best - low, 0.0), np.where(told, high - best, 0.0)
    spread = np.vstack([below, above]).clip(min=0)
    axes.errorbar(optima["n_params"], best, yerr=spread, fmt="o", color=colour, capsize=2, label=words)
    out = ~optima["usable"].to_numpy(bool)
    axes.plot(optima["n_params"][out], best[out], "o", color=VERMILION, markersize=11, fillstyle="none")
