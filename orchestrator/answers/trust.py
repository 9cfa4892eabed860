"""How far a fit can be trusted: bootstrap, every specification, rolling origins, a profile, diagnostics.

Each takes the runs and the request of `fit`, and answers with a table and a figure for each label.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.answers.answer import Answer
from orchestrator.law_fits import FitRequest, fit_group, groups
from orchestrator.report import Picture, Table
from orchestrator.wording import interval, number, percent

if TYPE_CHECKING:
    import pandas as pd

    from fitting.frame import Points
    from fitting.result import FitResult, Parameter
    from fitting.specification import SpecificationCurve

N_VALUES = 41  # of a profile


@dataclass(frozen=True)
class Group:
    """One label's runs as a fit would take them: `raw` before any rule, `points` after."""

    label: str
    raw: "pd.DataFrame"
    points: "Points"

    @property
    def suffix(self) -> str:
        """What a figure's file name carries; characters that a file name cannot hold become dashes."""
        return "".join(c if c.isalnum() or c in "-_." else "-" for c in self.label)


def grouped(runs: "pd.DataFrame", request: FitRequest) -> Iterator[Group]:
    from fitting.frame import check_points

    for label, points in groups(check_points(runs, request.rules()), request):
        raw = runs if label == "all" or request.by == "none" else runs[runs[request.by].astype(str) == label]
        yield Group(label, raw, points)


def named(label: str) -> str:
    from fitting.figures.style import name_of

    return name_of(label)


def draw(name: str, group: Group, caption: str, *frames: Any, **options: Any) -> Picture:
    from fitting.figures.gallery import FIGURES

    return Picture(f"{name}-{group.suffix}", FIGURES[name](*frames, **options), f"{named(group.label)}: {caption}")


def bootstrap_answer(runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Resample whole runs with replacement, and set percentile intervals beside the fit's own."""
    from fitting.bootstrap import bootstrap

    tables, value = [], {}
    for group in grouped(runs, request):
        result = fit_group(group.points, request)
        drawn = bootstrap(group.points, result, request.n_bootstrap)
        found = {name: drawn.parameter(name) for name in drawn.names}
        rows = [bootstrap_row(result.params[name], one) for name, one in found.items()]
        title = f"{named(group.label)}: {request.n_bootstrap} bootstraps of whole runs ({result.n} runs)"
        note = "Percentile intervals of few runs are wide (coverage near 1 at 15 runs): a second opinion only."
        tables.append(Table(title, tuple(rows), (note,)))
        value[group.label] = {
            name: {"value": one.value, "low": one.low, "high": one.high, "se": one.se} for name, one in found.items()
        }
    return Answer(tuple(tables), value={"n_bootstrap": request.n_bootstrap, "labels": value})


def bootstrap_row(own: "Parameter", drawn: "Parameter") -> dict[str, Any]:
    from fitting.result import interval_text

    return {
        "parameter": own.name,
        "value": number(own.value, 4),
        "interval of the fit": interval_text(own),
        "bootstrap interval": interval(drawn.low, drawn.high, 4),
        "bootstrap se": number(drawn.se, 3),
    }


def specification_answer(runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Fit the law under every objective, N convention and exclusion rule; print all, draw the law's exponents."""
    from fitting.specification import specification_curve

    tables, pictures, value, lines = [], [], {}, []
    for group in grouped(runs, request):
        curve = specification_curve(group.raw, request.law, rules=request.rules())
        names = list(dict.fromkeys(curve.rows["parameter"]))
        rows = [specification_row(curve, name) for name in names]
        title = f"{named(group.label)}: {request.law} under {len(curve.of(names[0]))} specifications"
        tables.append(Table(title, tuple(rows)))
        pictures += [specification_picture(group, curve, name) for name in names if name in DRAWN]
        value[group.label] = {"rows": curve.rows.to_dict("records"), "failed": list(curve.failed)}
        lines += [f"{group.label}: not fitted: {failure}" for failure in curve.failed]
    return Answer(tuple(tables), lines=tuple(lines), pictures=tuple(pictures), value=value)


DRAWN = ("alpha", "beta", "a", "gamma")


def specification_row(curve: "SpecificationCurve", name: str) -> dict[str, Any]:
    low, high = curve.envelope(name)
    own = curve.headline.params.get(name)
    return {
        "parameter": name,
        "headline": "-" if own is None else f"{number(own.value)} {interval(own.low, own.high)}",
        "lowest": number(low),
        "highest": number(high),
        "interval to report": interval(*curve.interval(name)),
    }


def specification_picture(group: Group, curve: "SpecificationCurve", name: str) -> Picture:
    from fitting.specification import CHOICES

    rows = curve.of(name)
    headline = curve.headline.params.get(name)
    middle = float(rows["value"].median()) if headline is None else headline.value
    note = f"{named(group.label)}, law {curve.law}, {curve.headline.n} runs. Bars: 95% interval of each fit."
    caption = f"{name} under every specification"
    drawn = draw("specification-curve", group, caption, rows, CHOICES, parameter=name, headline=middle, note=note)
    return replace(drawn, name=f"{drawn.name}-{name}")


def rolling_answer(runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Fit the cheapest runs and predict the dearer ones, for every cut; beside two baselines that a law must beat."""
    from fitting.extrapolation import rolling_origin

    tables, pictures, value = [], [], {}
    for group in grouped(runs, request):
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
        tables.append(Table(f"{named(group.label)}: forecasts of dearer runs from cheaper ones", tuple(rows)))
        pictures.append(draw("rolling-origin", group, "forecasts of dearer runs", rolled.rows, note=note))
        value[group.label] = rolled.rows.to_dict("records")
    return Answer(tuple(tables), pictures=tuple(pictures), value=value)


def diagnostics_answer(runs: "pd.DataFrame", request: FitRequest) -> Answer:
    """Show residuals, leverage and what leaving out each run would do."""
    from fitting.diagnostics import diagnose

    tables, pictures, value, lines = [], [], {}, []
    for group in grouped(runs, request):
        result = fit_group(group.points, request)
        found = diagnose(group.points, result)
        rows = [diagnostic_row(row) for row in found.most_influential().to_dict("records")]
        tables.append(Table(f"{named(group.label)}: the runs that move {request.law} most", tuple(rows)))
        note = (
            f"{named(group.label)}, law {request.law}, {result.n} runs. Influence: largest change of a "
            "parameter, in standard errors, when the run is left out."
        )
        pictures.append(draw("diagnostics", group, "residuals and influence", found.rows, note=note))
        value[group.label] = found.rows.to_dict("records")
        lines += [f"{group.label}: residual of {run} is beyond chance" for run in found.outliers]
    return Answer(tuple(tables), lines=tuple(lines), pictures=tuple(pictures), value=value)


def diagnostic_row(row: dict[Any, Any]) -> dict[str, Any]:
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
    from fitting.result import interval_text

    rows, pictures, value = [], [], {}
    for group in grouped(runs, request):
        result = fit_group(group.points, replace(request, profile="always"))
        one = parameter_of(result, parameter)
        curve, threshold = profile_of(group.points, result, parameter)
        rows.append({"method": named(group.label), "value": number(one.value, 4), "95% interval": interval_text(one)})
        low, high = ends_of(one)
        note = f"{named(group.label)}, law {request.law}, {result.n} runs. Shaded: values that the runs do not exclude."
        options = {"parameter": parameter, "estimate": one.value, "low": low, "high": high, "threshold": threshold}
        pictures.append(draw("profile", group, f"profile of {parameter}", curve, **options, note=note))
        value[group.label] = {"value": one.value, "low": one.low, "high": one.high, "one_sided": one.one_sided,
                              "profile": curve.to_dict("records"), "threshold": threshold}  # fmt: skip
    table = Table(f"Profile of {parameter} ({request.law})", tuple(rows))
    return Answer((table,), pictures=tuple(pictures), value=value)


def parameter_of(result: "FitResult", name: str) -> "Parameter":
    result.value(name)  # raises FittingError with the names that exist
    return result.params[name]


def ends_of(parameter: "Parameter") -> tuple[float, float]:
    """Return both ends of an interval, infinite where the data give no bound."""
    infinite = float("inf")
    low = -infinite if parameter.one_sided in ("upper", "none") else parameter.low
    high = infinite if parameter.one_sided in ("lower", "none") else parameter.high
    return low, high


def profile_of(points: "Points", result: "FitResult", parameter: str) -> "tuple[pd.DataFrame, float]":
    """Return the profile of a parameter (columns value, rise) and the rise that the fit's confidence level allows."""
    import pandas as pd

    from fitting.losses import OBJECTIVES
    from fitting.uncertainty import t_quantile

    values = profile_values(result.params[parameter])
    heights = [held_objective(points, result, parameter, value) for value in values]
    noise, scale = result.estimate.noise, OBJECTIVES[result.objective].scale
    threshold = 0.5 * t_quantile(result.level, noise.df) ** 2 * noise.deviance_unit * scale
    rises = [max(height - result.objective_value, 0.0) for height in heights]
    return pd.DataFrame({"value": values, "rise": rises}), threshold


def profile_values(parameter: "Parameter") -> list[float]:
    """Choose values around the interval, evenly or by equal factors where it spans more than one order of magnitude."""
    import numpy as np

    low, high = ends_of(parameter)
    first = low if np.isfinite(low) and low > 0 else min(parameter.value, high) * 0.02
    last = high if np.isfinite(high) else max(parameter.value, first) * 20
    first = max(first, last * 1e-3)
    if last > 10 * first:
        return [float(value) for value in np.geomspace(first / 1.6, last * 1.6, N_VALUES)]
    return [float(value) for value in np.linspace(max(first - 0.3 * (last - first), first / 3), last * 1.15, N_VALUES)]


def held_objective(points: "Points", result: "FitResult", parameter: str, value: float) -> float:
    from fitting.fit import fit

    held = {parameter: value}
    again = fit(points, result.law, result.objective, delta_of(result), profile="never", fixed=held)
    return again.objective_value


def delta_of(result: "FitResult") -> float | None:
    return result.delta if result.objective == "huber" else None


TRUST: dict[str, Callable[["pd.DataFrame", FitRequest], Answer]] = {
    "bootstrap": bootstrap_answer,
    "specification-curve": specification_answer,
    "rolling-origin": rolling_answer,
    "diagnostics": diagnostics_answer,
}
