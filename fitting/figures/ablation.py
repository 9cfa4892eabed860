"""Figure of an ablation: each variant's final loss against the base, with its interval, best first."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scalewright.fitting.figures.style import footnote, name_of, row_names, rows_figure, rows_height, style_of, styled


@styled
def ablation(rows: pd.DataFrame, *, base: str, note: str = "") -> Figure:
    """Draw the difference of the final loss from the base (nats per token), one row a variant, lowest first.

    rows: columns label, nats, low, high (infinite: no interval) and n (runs of the variant). Left of 0 is better.
    """
    ordered = rows.sort_values("nats", kind="stable").reset_index(drop=True)
    names = row_names(name_of(label) for label in ordered["label"])
    told = row_names(_words(row) for row in ordered.itertuples())
    figure = rows_figure(8.4, 1.2 + rows_height(names, told))
    axes = figure.subplots()
    nats, low, high = (ordered[name].to_numpy(float) for name in ("nats", "low", "high"))
    known = np.isfinite(low) & np.isfinite(high)
    for place, label in enumerate(ordered["label"]):
        style = style_of(str(label))
        if known[place]:
            axes.plot([low[place], high[place]], [place, place], color=style.colour)
        axes.plot([nats[place]], [place], style.marker, color=style.colour, markersize=7)
    axes.axvline(0, color="#555555", linewidth=1)
    axes.set_yticks(range(len(ordered)), names, fontsize=8)
    axes.set_ylim(len(ordered) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("final loss minus that of the base (nats per token)")
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(ordered)), told, fontsize=8)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    footnote(figure, f"Base: {name_of(base)}. {note}")
    return figure


def _words(row: object) -> str:
    nats, low, high, n = (getattr(row, name) for name in ("nats", "low", "high", "n"))
    ends = f" [{low:+.3f}, {high:+.3f}]" if np.isfinite(low) and np.isfinite(high) else " (no interval)"
    return f"{nats:+.3f}{ends}, n = {n}".replace("-", "−")
