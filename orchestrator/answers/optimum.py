"""The answer of `fit --law isoflop | isoflop-akima | envelope`: compute-optimal sizes straight from the runs."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.fits import FitRequest, parameter_json
from scalewright.orchestrator.answers.answer import Answer, merge
from scalewright.orchestrator.answers.groups import Group, draw, grouped, named
from scalewright.orchestrator.report.format import interval, number
from scalewright.orchestrator.report.html import Picture, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.at_compute import AtCompute, Value
    from scalewright.fitting.optimum import OptimumFit


def optimum_answer(database: "Database", experiment: str, runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Fit N* and D* as powers of compute for each label, and store each fit.

    Raises FittingError with the reason of every refused minimum where fewer than three computes have one.
    """
    from scalewright.db.store import record_fit
    from scalewright.fitting.optimum import fit_optimum

    answers = {}
    for group in grouped(runs, request):
        result = fit_optimum(group.points, request.law, level=request.level)
        excluded = [(exclusion.run_id, exclusion.reason) for exclusion in result.excluded]
        fit_id = record_fit(
            database, result.to_record(), result.run_ids, excluded, experiment=experiment, label=group.label
        )
        answers[group.label] = _group_answer(group, result, fit_id, request)
    if len(answers) == 1:
        return next(iter(answers.values()))
    return merge(answers)


def _group_answer(group: Group, result: "OptimumFit", fit_id: str, request: FitRequest) -> Answer:
    from scalewright.fitting.at_compute import optimum_at

    lines = [f"{named(group.label)} at {one.flops_budget:.3g} FLOP: refused, {one.refused}" for one in _refused(result)]
    lines += [f"left out {exclusion.run_id}: {exclusion.reason}" for exclusion in result.excluded]
    at = optimum_at(result, request.at, float(group.points.column("flops").max()))
    title = f"{named(group.label)}: optimum where asked, by {result.law}"
    asked = (at_table(at, title, (f"L* by {at[0].loss_from}.",)),) if at else ()
    return Answer(
        (_powers_table(group, result, fit_id), _optima_table(group, result), *asked),
        lines=(*lines, *(f"note: {warning}" for warning in result.warnings)),
        pictures=(_picture(group, result),),
        value=to_json(group, result, fit_id) | {"optimum": [one.row() for one in at]},
    )


def _refused(result: "OptimumFit") -> list[Any]:
    return [valley for valley in result.valleys if valley.refused]


def _powers_table(group: Group, result: "OptimumFit", fit_id: str) -> Table:
    rows = [
        {
            "parameter": name,
            "value": number(one.value, 4),
            "se": number(one.se, 2),
            f"{100 * result.level:g}% interval": interval(one.low, one.high, 4),
        }
        for name, one in result.params.items()
    ]
    note = f"{result.equation}; {counted(result.n, 'run')}, fit {fit_id}"
    return Table(f"{named(group.label)}: {result.law}", tuple(rows), (note,))


def _optima_table(group: Group, result: "OptimumFit") -> Table:
    rows = [
        {
            "compute (FLOP)": number(one.flops_budget),
            "sizes": one.n_sizes,
            "N*": number(one.n_star, 4) if not one.refused else "-",
            "D*": number(one.n_tokens_star, 4) if not one.refused else "-",
            "loss": number(one.loss_star, 4) if not one.refused else "-",
        }
        for one in result.valleys
    ]
    return Table(f"{named(group.label)}: optimum at each compute", tuple(rows))


def _picture(group: Group, result: "OptimumFit") -> Picture:
    from scalewright.fitting.optimum import flop_levels

    points = group.points.frame.assign(flops_budget=flop_levels(group.points.column("flops")))
    note = f"{named(group.label)}, {result.law}, {counted(result.n, 'run')}; {len(_refused(result))} minima refused."
    return draw("isoflop-profiles", group, "loss at equal compute", points, result.parabolas(), note=note)


def to_json(group: Group, result: "OptimumFit", fit_id: str) -> dict[str, Any]:
    """Return the record of a group, with the keys that `fit --json` has of any law and its optima."""
    return {
        "law": result.law,
        "equation": result.equation,
        "label": group.label,
        "objective": "log-l2",
        "objective_value": None,
        "n": result.n,
        "excluded": [{"run": exclusion.run_id, "reason": exclusion.reason} for exclusion in result.excluded],
        "params": {name: parameter_json(asdict(one)) for name, one in result.params.items()},
        "certificate": {},
        "fit_id": fit_id,
        "leaning": {name: parameter_json(asdict(one)) for name, one in result.leaning.items()},
        "optima": [asdict(valley) for valley in result.valleys],
        "warnings": list(result.warnings),
    }


def at_table(found: "Sequence[AtCompute]", title: str, notes: tuple[str, ...] = ()) -> Table:
    """Show model, tokens and loss that are best at given compute, with intervals."""
    columns = {"n_params": 3, "n_tokens": 3, "loss_nats": 4}
    rows = [
        {
            "compute (FLOP)": number(one.flops),
            "past the runs": past_words(one.past),
            **{STAR[name]: _value_words(getattr(one, name), digits) for name, digits in columns.items()},
        }
        for one in found
    ]
    return Table(title, tuple(rows), notes)


STAR = {"n_params": "N*", "n_tokens": "D*", "loss_nats": "L*"}
AXIS = {"flops": "compute", "n_params": "N", "n_tokens": "D"}


def past_words(past: "Mapping[str, float]") -> str:
    """Say how many times beyond the largest run each axis lies: `10× compute, 3.1× N`, or `inside the runs`."""
    beyond = [f"{number(factor, 2)}× {AXIS.get(axis, axis)}" for axis, factor in past.items() if factor > 1.005]
    return ", ".join(beyond) or "inside the runs"


def _value_words(one: "Value | None", digits: int = 3) -> str:
    return "-" if one is None else f"{number(one.value, digits)} {interval(one.low, one.high, digits)}"
