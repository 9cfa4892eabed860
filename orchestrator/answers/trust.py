"""How far a fit can be trusted: bootstrap, every specification, rolling origins, a profile, diagnostics.

Each takes the runs and the request of `fit`, and answers with a table and a figure for each label.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.fits import FitRequest, fit_group
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.answers.groups import Group, draw, each_group, named
from scalewright.orchestrator.report.format import interval, number, percent
from scalewright.orchestrator.report.html import Picture, Table
from scalewright.orchestrator.report.law_tables import limits_in_words

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.extrapolation import RollingOrigin
    from scalewright.fitting.profiles import ProfileOfParameter
    from scalewright.fitting.result import FitResult, Parameter
    from scalewright.fitting.specification import SpecificationCurve


def bootstrap_answer(runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Resample whole runs (sizes where they share an effect), and set percentile intervals beside the fit's own."""
    answer = each_group(runs, request, _bootstrap_of)
    return replace(answer, value={"n_bootstrap": request.n_bootstrap, "labels": answer.value})


def _bootstrap_of(group: Group, request: FitRequest) -> Answer:
    from scalewright.fitting.bootstrap import bootstrap, derived

    result = fit_group(group.points, request)
    drawn = bootstrap(group.points, result, request.n_bootstrap)
    own = {**result.params, **derived(result, request.at)}
    found = {name: drawn.parameter(name) for name in drawn.names} | drawn.derived(result, request.at)
    rows = [_bootstrap_row(own[name], one) for name, one in found.items()]
    times = counted(request.n_bootstrap, "bootstrap")
    title = f"{named(group.label)}: {times} of whole {drawn.unit}s ({counted(result.n, 'run')})"
    value = {
        name: {"value": one.value, "low": one.low, "high": one.high, "se": one.se, "identified": own[name].identified}
        for name, one in found.items()
    }
    table = Table(title, tuple(rows), bootstrap_notes(result.n, drawn.unit))
    return Answer((table,), lines=caveats(group, result), value=value)


def bootstrap_notes(n_runs: int, unit: str) -> tuple[str, ...]:
    """Say what these intervals are good for: right for many runs, too wide for few."""
    if unit == "size":
        return ("Whole sizes are drawn, since the runs of a size share an effect.",)
    if n_runs < MANY_RUNS:
        return (
            f"Percentile intervals of {counted(n_runs, 'run')} are wide (coverage near 1 at 15 runs): prefer the fit's",
        )
    return ("They allow for unequal scatter; not for an effect that the runs of one size share.",)


def value_words(parameter: "Parameter", digits: int = 3) -> str:
    """Write a value, or a dash where the runs do not identify it: then only its interval may be read."""
    return number(parameter.value, digits) if parameter.identified else "-"


def caveats(group: Group, result: "FitResult") -> tuple[str, ...]:
    """What the fit itself admits, such as parameters that the runs do not identify."""
    return tuple(f"{named(group.label)}: {warning}" for warning in result.warnings)


def _bootstrap_row(own: "Parameter", drawn: "Parameter") -> dict[str, Any]:
    from scalewright.fitting.result import interval_text

    return {
        "parameter": own.name,
        "value": value_words(own, 4),
        "interval of the fit": interval_text(own),
        "bootstrap interval": interval(drawn.low, drawn.high, 4) if own.identified else "-",
        "bootstrap se": number(drawn.se, 3) if own.identified else "-",
    }


def specification_of(group: Group, request: FitRequest) -> Answer:
    """Fit the law under every objective, N convention and exclusion rule; print all, draw the law's exponents."""
    from scalewright.fitting.specification import specification_curve

    curve = specification_curve(group.raw, request.law, rules=request.rules())
    names = list(dict.fromkeys(curve.rows["parameter"]))
    rows = [specification_row(curve, name) for name in names]
    title = f"{named(group.label)}: {request.law} under {counted(len(curve.of(names[0])), 'specification')}"
    failed = [f"{named(group.label)}: not fitted: {failure}" for failure in curve.failed]
    return Answer(
        (Table(title, tuple(rows)),),
        lines=(*failed, *caveats(group, curve.headline)),
        pictures=tuple(_specification_picture(group, curve, name) for name in names if name in DRAWN),
        value={"rows": curve.rows.to_dict("records"), "failed": list(curve.failed)},
    )


MANY_RUNS = 50
DRAWN = ("alpha", "beta", "a", "gamma")


def specification_row(curve: "SpecificationCurve", name: str) -> dict[str, Any]:
    """One parameter: its headline, and the range over the specifications that identify it."""
    from scalewright.fitting.result import interval_text, is_identified

    own, rows = curve.parameter(name), curve.of(name)
    low, high = curve.envelope(name)
    widest = curve.interval(name)
    return {
        "parameter": name,
        "headline": f"{number(own.value)} {interval(own.low, own.high)}" if own.identified else interval_text(own),
        "identified by": f"{int(rows['identified'].sum())} of {len(rows)}",
        "lowest": "-" if math.isnan(low) else number(low),
        "highest": "-" if math.isnan(high) else number(high),
        "interval to report": interval(*widest) if own.identified and is_identified(*widest) else "not identified",
    }


def _specification_picture(group: Group, curve: "SpecificationCurve", name: str) -> Picture:
    from scalewright.fitting.specification import CHOICES

    rows, headline = curve.of(name), curve.parameter(name)
    told = "Bars: 95% interval of each fit." if headline.identified else "The headline fit does not identify it."
    note = f"{named(group.label)}, law {curve.law}, {counted(curve.headline.n, 'run')}. {told}"
    caption = f"{name} under every specification"
    drawn = draw(
        "specification-curve", group, caption, rows, CHOICES, parameter=name, headline=headline.value, note=note
    )
    return replace(drawn, name=f"{drawn.name}-{name}")


def rolling_of(group: Group, request: FitRequest) -> Answer:
    """Fit the cheapest runs and predict the dearer ones, for every cut; beside two baselines that a law must beat."""
    from scalewright.fitting.extrapolation import rolling_origin

    rolled = rolling_origin(group.points, request.law)
    rows = [
        {
            "law": row["law"],
            "decades of compute": f"up to {row['within']}",
            "typical error (RMS)": percent(row["rms_error"], 2).lstrip("+"),
            "predictions": row["n"],
        }
        for row in rolled.summary().to_dict("records")
    ]
    note = f"{named(group.label)}. Each point: one run predicted from cheaper runs only."
    return Answer(
        (Table(f"{named(group.label)}: forecasts of dearer runs from cheaper ones", tuple(rows)),),
        lines=loose_cuts(group, request.law, rolled),
        pictures=(draw("rolling-origin", group, "forecasts of dearer runs", rolled.rows, note=note),),
        value=rolled.rows.to_dict("records"),
    )


def loose_cuts(group: Group, law: str, rolled: "RollingOrigin") -> tuple[str, ...]:
    """Say at how many cuts the cheaper runs do not identify the law that forecasts the dearer ones."""
    cuts = rolled.rows[rolled.rows["law"] == law].groupby("n_train")["identified"].first()
    if cuts.all():
        return ()
    n_loose = f"{(~cuts).sum()} of {counted(len(cuts), 'cut')}"
    return (f"{named(group.label)}: {law} is not identified by the cheaper runs at {n_loose}",)


def diagnostics_of(group: Group, request: FitRequest) -> Answer:
    """Show residuals, leverage and what leaving out each run would do."""
    from scalewright.fitting.diagnostics import diagnose

    result = fit_group(group.points, request)
    found = diagnose(group.points, result)
    rows = [_diagnostic_row(row) for row in found.most_influential().to_dict("records")]
    note = (
        f"{named(group.label)}, law {request.law}, {counted(result.n, 'run')}. Influence: largest change of a "
        "parameter, in standard errors, when the run is left out."
    )
    outliers = [f"{named(group.label)}: residual of {run} is beyond chance" for run in found.outliers]
    return Answer(
        (Table(f"{named(group.label)}: the runs that move {request.law} most", tuple(rows)),),
        lines=(*outliers, *excluded_lines(group, result), *caveats(group, result)),
        pictures=(draw("diagnostics", group, "residuals and influence", found.rows, note=note),),
        value=found.rows.to_dict("records"),
    )


def excluded_lines(group: Group, result: "FitResult") -> list[str]:
    """Say of each run that was left out why, and what it would have done to the fit."""
    from scalewright.fitting.diagnostics import influence_of_excluded

    if not result.excluded:
        return []
    own = set(group.raw["run_id"])
    rows = influence_of_excluded(group.raw, result).to_dict("records")
    return [
        f"{named(group.label)}: left out {row['run_id'][:8]} ({row['reason']}); {_influence_words(row)}"
        for row in rows
        if row["run_id"] in own
    ]


def _influence_words(row: dict[Any, Any]) -> str:
    if math.isnan(row["influence"]):
        return "it has no numbers to enter with"
    return f"with it {row['moves']} would move by {number(row['influence'], 2)} standard errors"


def _diagnostic_row(row: dict[Any, Any]) -> dict[str, Any]:
    return {
        "run": str(row["run_id"])[:8],
        "N": f"{row['n_params']:,.0f}",
        "tokens": f"{row['n_tokens']:,.0f}",
        "residual": percent(row["residual"], 2),
        "leverage": number(row["leverage"], 2),
        "influence (se)": number(row["influence"], 2),
        "on": row["moves"],
    }


def profile_answer(runs: "pd.DataFrame", request: FitRequest, parameter: str) -> Answer:
    """Hold one parameter at many values, re-solve the rest, and show how much worse the fit gets."""

    def profile_of_group(group: Group, request: FitRequest) -> Answer:
        from scalewright.fitting.profiles import profile_of

        result = fit_group(group.points, request)
        found = profile_of(group.points, result, parameter)
        is_open = not found.low > 0 or math.isinf(found.high)
        table = Table(title, (_profile_row(group, found),), (OPEN_ENDS,) if is_open else ())
        limit = result.params[parameter].at_limit if parameter in result.params else False
        pictures = (_profile_picture(group, request, found, limits_in_words(result)),)
        return Answer((table,), (), caveats(group, result), pictures, _profile_json(found) | {"at_limit": limit})

    title = f"Profile of {parameter} ({request.law})"
    answer = each_group(runs, request, profile_of_group)
    rows = tuple(row for table in answer.tables for row in table.rows)
    notes = tuple(dict.fromkeys(note for table in answer.tables for note in table.notes))
    return replace(answer, tables=(Table(title, rows, notes),))


OPEN_ENDS = "Open ends: within its range the parameter never makes the fit worse than chance allows."


def _profile_row(group: Group, found: "ProfileOfParameter") -> dict[str, Any]:
    told = interval(found.low if found.low > 0 else None, found.high, 4)
    if found.identified:
        return {"method": named(group.label), "value": number(found.estimate, 4), "profile interval": told}
    told = told if told == "not identified" else f"{told}, not identified"
    return {"method": named(group.label), "value": "-", "profile interval": told}


def _profile_json(found: "ProfileOfParameter") -> dict[str, Any]:
    return {
        "value": found.estimate,
        "low": found.low,
        "high": found.high,
        "identified": found.identified,
        "threshold": found.threshold,
        "profile": found.frame().to_dict("records"),
    }


def _profile_picture(group: Group, request: FitRequest, found: "ProfileOfParameter", limits: str) -> Picture:
    low = found.low if found.low > 0 else -math.inf
    runs = counted(len(group.points), "run")
    note = f"{named(group.label)}, law {request.law}, {runs}{limits}. Shaded: what runs do not exclude."
    options = {"parameter": found.name, "estimate": found.estimate, "low": low, "high": found.high}
    caption = f"profile of {found.name}"
    drawn = draw("profile", group, caption, found.frame(), **options, threshold=found.threshold, note=note)
    return replace(drawn, name=f"{drawn.name}-{found.name}")


def approaches_of(group: Group, request: FitRequest) -> Answer:
    """Set the exponent of optimal parameters by envelope, isoFLOP parabolas and fitted law side by side."""
    from scalewright.fitting.agreement import approaches

    found = approaches(group.points, level=request.level)
    rows = [
        {
            "approach": row["approach"],
            "law": row["law"],
            "a of N* ~ C^a": f"{number(row['a'])} {interval(row['low'], row['high'])}",
            "se": number(row["se"], 2),
        }
        for row in found.frame().to_dict("records")
    ]
    told = {None: "too few to test", True: "agree", False: "DISAGREE"}[found.agree]
    note = f"{told} (chi-square p = {number(found.p_value, 2)}; lenient: the same runs stand behind all)"
    return Answer(
        (Table(f"{named(group.label)}: approaches 1, 2 and 3", tuple(rows), (note,)),),
        lines=tuple(f"{named(group.label)}: {law} refused: {why}" for law, why in found.refused.items()),
        value={
            "a": {law: vars(one) for law, one in found.a.items()},
            "refused": found.refused,
            "p_value": found.p_value,
            "agree": found.agree,
        },
    )


def _by_group(answer_of: Callable[[Group, FitRequest], Answer]) -> Callable[["pd.DataFrame", FitRequest], Answer]:
    return lambda runs, request: each_group(runs, request, answer_of)


TRUST: dict[str, Callable[["pd.DataFrame", FitRequest], Answer]] = {
    "bootstrap": bootstrap_answer,
    "specification-curve": _by_group(specification_of),
    "rolling-origin": _by_group(rolling_of),
    "diagnostics": _by_group(diagnostics_of),
    "approaches": _by_group(approaches_of),
}
