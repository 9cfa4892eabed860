"""Forecasts in words, tables and one picture."""

from functools import partial
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.report.format import number, percent
from scalewright.orchestrator.report.html import Picture, Table

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.forecast import Forecast

N_DRAWN = 40


def forecast_table(rows: "pd.DataFrame", reasons: tuple[str, ...]) -> Table:
    """Show what each run to come should reach, and what it would teach."""
    from scalewright.fitting.figures.style import name_of

    shown = [
        {
            "run": str(row["run_id"])[:8],
            "method": name_of(row["label"]),
            "N": f"{row['n_params']:,.0f}",
            "tokens": f"{row['n_tokens']:,.0f}",
            "predicted loss": number(row["predicted"], 4),
            "95% of a new run": f"[{number(row['low'], 4)}, {number(row['high'], 4)}]",
            "decades past": number(max(row["decades"], 0.0), 2),
            "information (nats)": number(row["information"], 2),
            "advice": row["advice"],
        }
        for row in rows.to_dict("records")
    ]
    note = (
        "Decades past: of compute, beyond the dearest finished run of the method. Information: what the run would "
        "teach about the law; a run that teaches little can be skipped."
    )
    return Table("Forecast of runs to come", tuple(shown), (note, *reasons))


def held_out_table(checked: "Forecast") -> Table:
    """Show each held-out run's forecast beside what was measured."""
    from scalewright.fitting.figures.style import name_of

    rows = [
        {
            "run": str(row["run_id"])[:8],
            "method": name_of(row["label"]),
            "N": f"{row['n_params']:,.0f}",
            "tokens": f"{row['n_tokens']:,.0f}",
            "predicted": f"{number(row['predicted'], 4)} [{number(row['low'], 4)}, {number(row['high'], 4)}]",
            "measured": number(row["measured"], 4),
            "error": percent(row["predicted"] / row["measured"] - 1, 2),
            "in the 95% interval": bool(row["low"] <= row["measured"] <= row["high"]),
            "decades past": number(max(row["decades"], 0.0), 2),
        }
        for row in checked.rows.to_dict("records")
    ]
    return Table("Runs held out, predicted from the others", tuple(rows), reasons(checked))


def held_out_words(checked: "Forecast") -> list[str]:
    """Say how many held-out runs lie in their 95% interval, and what to be careful with."""
    rows = checked.rows
    inside = int(((rows["measured"] >= rows["low"]) & (rows["measured"] <= rows["high"])).sum())
    return [f"{inside} of {counted(len(rows), 'held-out run')} in the 95% interval", *checked.warnings]


def reasons(made: "Forecast") -> tuple[str, ...]:
    """Say for each label which laws were averaged and what widens the intervals."""
    return tuple(f"{label}: {one.name}; {one.reason}." for label, one in made.averages.items())


def model_errors(made: "Forecast | None") -> list[dict[str, Any]]:
    """Return, for each label, how laws were weighted and the error of the forms past their runs (nats per e-fold)."""
    if made is None:
        return []
    return [
        {"label": label, "weights": dict(one.weights), "per_efold": one.error.per_efold, "n_cuts": one.error.n_cuts}
        for label, one in made.averages.items()
    ]


def forecast_picture(rows: "pd.DataFrame") -> Picture:
    """Draw forecasts and what was measured: columns name, label, predicted, low, high, measured."""
    from scalewright.fitting.figures.gallery import FIGURES

    note = "Bar: 95% interval of a new run. Black marker: measured; none: still to come."
    drawing = partial(FIGURES["forecast"], rows.head(N_DRAWN), note=note)
    return Picture("forecast", drawing, "Forecast and measured loss.")
