"""Figures of hyper-parameters: loss against a setting at each size and budget, and the law of the best setting."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fitting.figures.losses import LOSS_LABEL, label_outer
from fitting.figures.style import (
    PARAMETER_UNITS,
    VERMILION,
    Colour,
    footnote,
    log_axis,
    name_of,
    panels,
    short,
    styled,
    unit_for,
)

SETTINGS = {"lr_peak": "peak learning rate", "batch_tokens": "batch (tokens)"}


@styled
def sweeps(points: pd.DataFrame, optima: pd.DataFrame, *, setting: str = "lr_peak", note: str = "") -> Figure:
    """Draw loss against a setting, one panel a label, one colour a (size, budget); crosses are fitted optima.

    points: columns label, n_params, n_tokens, loss_nats and `setting`; optima: columns label, n_params, n_tokens, best,
    loss_best, curvature (log L = log loss_best + curvature * ln(setting / best)^2) and edge (the best run is the first
    or last of its sweep, so the optimum may lie outside: drawn as a ring).
    """
    labels = [str(label) for label in dict.fromkeys(points["label"])]
    figure, all_axes = panels(len(labels), width=3.8, height=3.6, n_columns=2)
    cells = sorted(set(zip(points["n_params"], points["n_tokens"], strict=True)))
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(cells)))
    for axes, label in zip(all_axes, labels, strict=True):
        axes.set_title(name_of(label))
        for (n_params, n_tokens), colour in zip(cells, colours, strict=True):
            cell = f"{short(n_params)} × {short(n_tokens)}"
            draw_sweep(axes, at(points, label, n_params, n_tokens), setting, colour, cell)
            draw_optimum(axes, at(optima, label, n_params, n_tokens), colour)
        log_axis(axes, "x", n_ticks=5)
        log_axis(axes, "y")
    label_outer(figure, all_axes, SETTINGS.get(setting, setting), LOSS_LABEL)
    handles, words = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper left", ncols=5, fontsize=8, title="parameters × tokens")
    footnote(figure, note)
    return figure


def at(frame: pd.DataFrame, label: str, n_params: float, n_tokens: float) -> pd.DataFrame:
    return frame[(frame["label"] == label) & (frame["n_params"] == n_params) & (frame["n_tokens"] == n_tokens)]


def draw_sweep(axes: Axes, points: pd.DataFrame, setting: str, colour: Colour, words: str) -> None:
    some = points.sort_values(setting)
    axes.plot(some[setting], some["loss_nats"], "o", color=colour, markersize=4.5, label=words)


def draw_optimum(axes: Axes, optima: pd.DataFrame, colour: Colour) -> None:
    for place in range(len(optima)):
        best, loss, curvature = optima.iloc[place][["best", "loss_best", "curvature"]].to_numpy(float)
        if not np.isfinite([best, loss, curvature]).all():
            continue
        x = np.geomspace(best / 3, best * 3, 60)
        inside = curvature * np.log(x / best) ** 2 < 0.06
        axes.plot(x[inside], (loss * np.exp(curvature * np.log(x / best) ** 2))[inside], color=colour, linewidth=1.1)
        marker, edge = ("o", VERMILION) if optima["edge"].iloc[place] else ("x", colour)
        axes.plot([best], [loss], marker, color=edge, markersize=10, fillstyle="none", markeredgewidth=1.8)


@styled
def best_settings(optima: pd.DataFrame, laws: pd.DataFrame, *, setting: str = "lr_peak", note: str = "") -> Figure:
    """Draw each (size, budget)'s best setting with its interval against parameters, and the fitted law's lines.

    optima: columns label, n_params, n_tokens, best, low, high, edge; laws: columns label, n_params, n_tokens,
    value: the law evaluated where a line is wanted.
    """
    labels = [str(label) for label in dict.fromkeys(optima["label"])]
    unit = unit_for(optima["n_params"], PARAMETER_UNITS)
    figure, all_axes = panels(len(labels), width=3.8, height=3.6, n_columns=2)
    budgets = sorted(optima["n_tokens"].unique())
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, len(budgets)))
    for axes, label in zip(all_axes, labels, strict=True):
        axes.set_title(name_of(label))
        for budget, colour in zip(budgets, colours, strict=True):
            draw_best(axes, optima[(optima["label"] == label) & (optima["n_tokens"] == budget)], colour, budget)
            line = laws[(laws["label"] == label) & (laws["n_tokens"] == budget)].sort_values("n_params")
            axes.plot(line["n_params"], line["value"], color=colour, linewidth=1.2)
        log_axis(axes, "x", scale=unit.scale, n_ticks=5)
        log_axis(axes, "y")
    label_outer(figure, all_axes, f"non-embedding parameters ({unit.words})", f"best {SETTINGS.get(setting, setting)}")
    handles, words = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper left", ncols=5, fontsize=8)
    footnote(figure, note)
    return figure


def draw_best(axes: Axes, optima: pd.DataFrame, colour: Colour, budget: float) -> None:
    best, low, high = (optima[name].to_numpy(float) for name in ("best", "low", "high"))
    below = np.where(np.isfinite(low), best - low, 0.0)
    above = np.where(np.isfinite(high), high - best, 0.0)
    axes.errorbar(
        optima["n_params"], best, yerr=np.vstack([below, above]).clip(min=0), fmt="o", color=colour, capsize=2,
        label=f"{short(budget)} tokens",
    )  # fmt: skip
    edge = optima["edge"].to_numpy(bool)
    axes.plot(optima["n_params"][edge], best[edge], "o", color=VERMILION, markersize=11, fillstyle="none")
