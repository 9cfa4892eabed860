"""The answer of `forecast`: the loss expected of runs to come, and how earlier forecasts fared."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.forecasts import held_out, pending_runs, predict
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.report.forecast_tables import (
    forecast_picture,
    forecast_table,
    held_out_table,
    held_out_words,
    model_errors,
    reasons,
)
from scalewright.orchestrator.report.format import number, percent
from scalewright.orchestrator.report.html import Picture, Table

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.forecast import Forecast

LAW = "forecast"  # the name under which a forecast is stored


def forecast_answer(database: "Database", experiment: str, runs: "pd.DataFrame", planned: "pd.DataFrame") -> Answer:
    """Predict every run not yet ended from those that have, store the forecast, and score the ones made before.

    Runs marked holdout are predicted too, from the others, and set beside what was measured; that is not stored.
    runs: final losses; planned: run_id, n_tokens_planned, flops_planned of every run. Raises FittingError where no
    method has enough finished runs.
    """
    scores = score(earlier(database, experiment), runs)
    pending = pending_runs(runs, planned)
    made = predict(runs, pending) if len(pending) else None
    held = held_out(runs)
    checked = predict(runs, held) if len(held) else None
    if made is not None:
        _store(database, experiment, made)
    tables = [forecast_table(made.rows, reasons(made))] if made is not None else []
    tables += [held_out_table(checked)] if checked is not None else []
    tables += [_score_table(scores)] if len(scores) else []
    lines = [*(made.warnings if made is not None else ["every run has ended: nothing left to forecast"])]
    lines += held_out_words(checked) if checked is not None else []
    lines += [score_words(scores)] if len(scores) else []
    lines += diverged_words(earlier(database, experiment), runs)
    value = {
        "pending": made.rows.to_dict("records") if made is not None else [],
        "held_out": checked.rows.drop(columns=["information", "advice"]).to_dict("records") if checked else [],
        "model_error": model_errors(made or checked),
        "scored": scores.to_dict("records"),
        "warnings": lines,
    }
    return Answer(tuple(tables), lines=tuple(lines), pictures=_pictures(made, checked, scores), value=value)


def _store(database: "Database", experiment: str, made: "Forecast") -> str:
    from scalewright.db.store import record_fit
    from scalewright.fitting.result import jsonable

    record = {"law": LAW, "objective": None, "rows": jsonable(made.rows.to_dict("records"))}
    entered = [run for result in made.fits.values() for run in result.provenance.run_ids]
    return record_fit(database, record, entered, experiment=experiment)


def earlier(database: "Database", experiment: str) -> dict[str, Mapping[str, Any]]:
    """Return the oldest stored forecast of each run: what was said when least was known."""
    from scalewright.db.frames import fits

    stored = fits(database, experiment)
    found: dict[str, Mapping[str, Any]] = {}
    for record in stored.loc[stored["law"] == LAW, "record"]:  # newest first, so the oldest stays
        found |= {row["run_id"]: row for row in json.loads(record)["rows"]}
    return found


def score(told: Mapping[str, Mapping[str, Any]], runs: "pd.DataFrame") -> "pd.DataFrame":
    """Set measured losses beside the forecasts made before: predicted, low, high, measured, error, inside."""
    import pandas as pd

    ended = runs[(runs["state"] == "completed") & runs["loss_nats"].notna()].set_index("run_id")["loss_nats"].to_dict()
    rows = [
        {name: row[name] for name in ("run_id", "name", "label", "law", "predicted", "low", "high")}
        | {"measured": float(ended[run_id])}
        for run_id, row in told.items()
        if run_id in ended
    ]
    columns = ["run_id", "name", "label", "law", "predicted", "low", "high", "measured"]
    table = pd.DataFrame(rows, columns=columns)
    inside = (table["measured"] >= table["low"]) & (table["measured"] <= table["high"])
    return table.assign(error=table["predicted"] / table["measured"] - 1, inside=inside)


def _score_table(scores: "pd.DataFrame") -> Table:
    rows = [
        {
            "run": str(row["run_id"])[:8],
            "name": row["name"],
            "predicted": f"{number(row['predicted'], 4)} [{number(row['low'], 4)}, {number(row['high'], 4)}]",
            "measured": number(row["measured"], 4),
            "error": percent(row["error"], 2),
            "in the 95% interval": bool(row["inside"]),
        }
        for row in scores.to_dict("records")
    ]
    note = "Of each run the oldest forecast: what was said when least was known, and before the run had a loss."
    return Table("Forecasts made before, against what was measured", tuple(rows), (note,))


def score_words(scores: "pd.DataFrame") -> str:
    """Say how many intervals held, beside how many should, and how little so few forecasts tell about the share."""
    from scipy.stats import beta

    n, inside = len(scores), int(scores["inside"].sum())
    least = beta.ppf(0.025, inside, n - inside + 1) if inside else 0.0
    most = beta.ppf(0.975, inside + 1, n - inside) if inside < n else 1.0
    typical = 100 * float((scores["error"] ** 2).mean() ** 0.5)
    return (
        f"{inside} of {counted(n, 'forecast')} made before the run held its loss in the 95% interval "
        f"({number(0.95 * n, 2)} expected); so few leave the true share between {100 * least:.0f}% and "
        f"{100 * most:.0f}% at best, as forecasts from one fit err together; typical error {number(typical, 2)}%"
    )


def diverged_words(told: Mapping[str, Mapping[str, Any]], runs: "pd.DataFrame") -> list[str]:
    """Name the forecast runs that diverged: a score of the others alone would hide them."""
    bad = runs.loc[runs["run_id"].isin(list(told)) & (runs["state"] == "diverged"), "run_id"]
    if bad.empty:
        return []
    return [f"{counted(len(bad), 'forecast run')} diverged and could not be scored: no forecast allows for that"]


def _pictures(made: "Forecast | None", checked: "Forecast | None", scores: "pd.DataFrame") -> tuple[Picture, ...]:
    import pandas as pd

    columns = ["name", "label", "predicted", "low", "high", "measured"]
    parts = [scores[columns]] if len(scores) else []
    parts += [one.rows[columns] for one in (checked, made) if one is not None]
    return (forecast_picture(pd.concat(parts, ignore_index=True)),) if parts else ()
