"""What the page shows of an experiment, as plain JSON values: progress, curves, final losses, what they say by now."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalewright.db import frames
from scalewright.db.engine import Database
from scalewright.db.experiments import ARCHIVE
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.progress import headline, measure

if TYPE_CHECKING:
    import pandas as pd

MOST_CURVES = 24
MOST_POINTS = 200  # of a curve: a screen shows no more
CURVE_ORDER = {"running": 0, "completed": 1, "diverged": 1}


def experiment_names(db: Database) -> list[str]:
    """List the experiments that are not archived."""
    return [str(name) for name in frames.experiments(db)["name"] if not str(name).startswith(ARCHIVE)]


def progress_state(db: Database, experiment: str) -> dict[str, Any]:
    """Return how far the experiment is: headline, share (of the tokens, 0 to 1), n_open, one row a method and size."""
    progress = measure(frames.progress(db, experiment))
    return {
        "headline": headline(progress),
        "share": progress.share,
        "n_open": progress.n_open,
        "n_done": progress.n_done,
        "rows": [{key: _plain(value) for key, value in row.items()} for row in progress.groups],
    }


def curves_state(db: Database, experiment: str) -> list[dict[str, Any]]:
    """Return training curves of at most MOST_CURVES runs, those that train now first, the largest of the rest next.

    Each: run_id, label, size, budget, state, colour, n_tokens, loss (nats a token; at most MOST_POINTS each).
    """
    runs = frames.progress(db, experiment)
    runs = runs[runs["step"].fillna(0) > 0].drop_duplicates("run_id")
    order = runs["state"].map(CURVE_ORDER).fillna(2)
    chosen = runs.assign(order=order).sort_values(
        ["order", "n_tokens_planned", "n_params"], ascending=[True, False, False]
    )
    chosen = chosen.head(MOST_CURVES)
    if chosen.empty:
        return []
    points = dict(list(frames.curves(db, chosen["run_id"].tolist()).groupby("run_id")))
    return [_curve(row, points[row["run_id"]]) for row in chosen.to_dict("records") if row["run_id"] in points]


def _curve(row: Mapping[Any, Any], points: "pd.DataFrame") -> dict[str, Any]:
    from scalewright.fitting.figures.style import name_of, style_of

    shown = points.iloc[:: max(1, math.ceil(len(points) / MOST_POINTS))]
    return {
        "run_id": row["run_id"],
        "label": name_of(row["label"]),
        "size": row["size"],
        "budget": row["budget"],
        "state": row["state"],
        "colour": style_of(row["label"]).colour,
        "n_tokens": [int(n) for n in shown["n_tokens"]],
        "loss": [_plain(float(value)) for value in shown["value"]],
    }


def losses_state(db: Database, experiment: str) -> list[dict[str, Any]]:
    """Return the final losses by method: label, colour, and of each run its id, FLOPs, loss and place in words."""
    from scalewright.fitting.figures.style import in_order, name_of, style_of

    runs = frames.final_losses(db, experiment)
    ended = runs[runs["loss_nats"].notna()]
    return [
        {
            "label": name_of(label),
            "colour": style_of(label).colour,
            "flops": [float(value) for value in rows["flops"]],
            "loss": [float(value) for value in rows["loss_nats"]],
            "words": [f"{row['size']}, {row['budget']}, {row['run_id'][:8]}" for row in rows.to_dict("records")],
        }
        for label in in_order(ended["label"])
        for rows in [ended[ended["label"] == label]]
    ]


def answer_state(db: Database, experiment: str, pairs: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return what the runs say by now: sentences of comparisons, and forecasts of runs to come (nats a token).

    pairs: (method, baseline) to compare, the usual ones by default. Nothing is stored; every sentence of an experiment
    that is not over is about the runs that have ended.
    """
    from scalewright.fitting.errors import FittingError
    from scalewright.orchestrator.analysis.analyze import analyze_frame
    from scalewright.orchestrator.analysis.forecasts import expected
    from scalewright.orchestrator.analysis.settings import with_settings
    from scalewright.orchestrator.report.comparison_tables import sentence

    runs = with_settings(db, experiment, frames.final_losses(db, experiment))
    try:
        analysis = analyze_frame(runs, experiment, compare=pairs)
        to_come, _ = expected(runs, frames.runs(db, experiment))
    except (UserError, FittingError) as error:
        return {"sentences": [], "reason": str(error), "forecasts": []}
    rows = [] if to_come is None else to_come.rows.to_dict("records")
    kept = ("name", "label", "predicted", "low", "high")
    return {
        "sentences": [*(sentence(pair) for pair in analysis.comparisons), *analysis.refusals],
        "reason": "",
        "forecasts": [{key: _plain(row[key]) for key in kept} for row in rows],
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON has: no NaN, no infinity, no numpy type."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
