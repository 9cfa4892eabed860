"""The answer of `hyper`: the best learning rate or batch at each size and budget, and its law, stored by name."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.report.format import interval, number
from scalewright.orchestrator.report.html import Picture, Table

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.hyper import HyperLaw, HyperResult, Optimum
    from scalewright.fitting.result import Parameter

SWEEP_NOTE = (
    "Parabolas of log loss in the log of the setting, fitted around the lowest loss. Crosses: their minima.\n"
    "Rings: the lowest is at the edge of its sweep, or no parabola has a minimum there. Triangles: above the panel."
)
REMARKS = {
    "AT THE EDGE": "At the edge: the best value is the first or last that was tried; the optimum may lie outside: "
    "widen the sweep.",
    "NO MINIMUM": "No minimum: the best value lies inside its sweep but the losses around it are no parabola; "
    "try values between its neighbours.",
}


def hyper_answer(database: "Database", experiment: str, runs: "pd.DataFrame", setting: str) -> Answer:
    """Fit every cell's optimum and each method's law, store them, and say how to refer to them.

    Raises FittingError where no method, size and budget has three values of the setting.
    """
    from scalewright.fitting.hyper import fit_hyper

    result = fit_hyper(runs, setting)
    fit_id = store(database, experiment, result)
    lines = [*result.warnings, *_use_words(experiment, result, fit_id)]
    value = result.to_record() | {"fit_id": fit_id, "experiment": experiment}
    tables = (_optima_table(result), _laws_table(result))
    return Answer(tables, lines=tuple(lines), pictures=_pictures(runs, result), value=value)


def store(database: "Database", experiment: str, result: "HyperResult") -> str:
    """Store the laws; a later file refers to them by the experiment's name or the fit's id."""
    from scalewright.db.store import record_fit

    record = {"law": f"hyper-{result.setting}", "objective": "log-l2"} | result.to_record()
    excluded = [(exclusion.run_id, exclusion.reason) for exclusion in result.excluded]
    return record_fit(database, record, [], excluded, experiment=experiment)


def _optima_table(result: "HyperResult") -> Table:
    from scalewright.fitting.figures.style import name_of

    apart = any(one.settings for one in result.optima)
    rows = [
        {
            "method": name_of(one.label),
            "size": one.size,
            "budget": one.budget,
            **({"trained with": one.settings} if apart else {}),
            "values tried": one.n_values,
            f"best {result.setting}": number(one.best),
            "95% interval": _interval_words(one),
            "loss there": number(one.loss_best, 4),
            "lowest run at": number(one.best_run),
            "remark": remark(one),
        }
        for one in result.optima
    ]
    notes = [note for remark_words, note in REMARKS.items() if any(row["remark"] == remark_words for row in rows)]
    return Table(f"Best {result.setting}", tuple(rows), tuple(notes))


def remark(one: "Optimum") -> str:
    """Say why an optimum enters no law: at the edge and without a minimum are different, and want different runs."""
    at_edge, no_minimum = REMARKS
    if one.usable:
        return ""
    return at_edge if one.edge else no_minimum


def _interval_words(one: "Optimum") -> str:
    if not one.usable:
        return "-"
    if not (one.low > 0 and math.isfinite(one.high)):
        return f"none from {counted(one.n_near, 'value')}"
    return interval(one.low, one.high) if one.resolved else "wider than the sweep"


def _laws_table(result: "HyperResult") -> Table:
    rows = [_law_row(law) for law in result.laws.values()]
    note = f"{result.setting} = c N^p D^q; N non-embedding parameters, D training tokens; from optima without a remark."
    return Table("Laws", tuple(rows), (note,) if rows else ())


def _law_row(law: "HyperLaw") -> dict[str, Any]:
    from scalewright.fitting.figures.style import name_of

    parts = {name: parameter_words(one) for name, one in law.params.items()}
    held = {name: "0 (one level only)" for name, one in law.params.items() if one.interval == "fixed"}
    return {"method": name_of(law.label), **parts, **held, "from": counted(law.n, "optimum", "optima")}


def parameter_words(one: "Parameter") -> str:
    """Word a parameter of a law; one that its optima do not tell has no value."""
    return f"{number(one.value)} {interval(one.low, one.high)}" if one.identified else "not identified"


def _use_words(experiment: str, result: "HyperResult", fit_id: str) -> list[str]:
    if result.setting != "lr_peak" or not result.laws:
        return []
    return [f"stored as fit {fit_id}; in an experiments.yaml:  lr: {{rule: law, law: {experiment}}}"]


def _pictures(runs: "pd.DataFrame", result: "HyperResult") -> tuple[Picture, ...]:
    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.hyper import sweep_cells

    cell = ["label", "size", "budget"]
    (points, _), optima = sweep_cells(runs, result.setting), apart(result.frame())
    named = apart(points.assign(size=points["_size"], budget=points["_budget"], settings=points["_settings"]))
    swept = named.merge(optima[cell].drop_duplicates(), on=cell)
    figure = partial(FIGURES["sweeps"], swept, optima, setting=result.setting, note=SWEEP_NOTE)
    drawn = [Picture(f"sweeps-{result.setting}", figure, f"Final loss against {result.setting}.")]
    laws = law_lines(result, optima)
    if len(laws):
        note = (
            "Bars: 95% interval of each optimum, none where it is wider than its sweep. Lines: the fitted law.\n"
            "Rings: not in the law."
        )
        figure = partial(FIGURES["best-settings"], optima, laws, setting=result.setting, note=note)
        drawn.append(Picture(f"best-settings-{result.setting}", figure, f"Best {result.setting} against size."))
    return tuple(drawn)


def apart(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Draw cells that differ in what they were trained with as methods of their own."""
    labels = [f"{one}, {words}" if words else one for one, words in zip(cells["label"], cells["settings"], strict=True)]
    return cells.assign(label=labels)


def law_lines(result: "HyperResult", optima: "pd.DataFrame") -> "pd.DataFrame":
    """Evaluate each method's law at the sizes and budgets of its optima: label, budget, n_params, value."""
    known = optima[optima["label"].isin(list(result.laws))]
    values = [
        result.laws[label].at(n_params, n_tokens)
        for label, n_params, n_tokens in zip(known["label"], known["n_params"], known["n_tokens"], strict=True)
    ]
    return known[["label", "budget", "n_params"]].assign(value=values)
