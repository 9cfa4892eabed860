"""One law fitted as a person asks: which runs, which objective, labels apart or together; stored, then worded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import record_result
from scalewright.orchestrator.analysis.inputs import require_ended
from scalewright.orchestrator.analysis.settings import with_settings
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.at_compute import AtCompute
    from scalewright.fitting.frame import PointRules, Points
    from scalewright.fitting.result import FitResult

TOGETHER = "none"
HELD_OUT = ("exclude", "include")
LOSSES = {"loss_nats": "nats per token", "bits_per_byte": "bits per byte"}
PAST = (1.0, 10.0, 100.0)  # computes at which the optimum is given, in units of the largest run's


@dataclass(frozen=True)
class FitRequest:
    """What `scalewright fit` was asked.

    by: a column whose values are fitted apart, or "none" for all runs in one fit. holdout: "exclude" (runs marked
    holdout stay out and are predicted), "include", or a condition such as "n_tokens > 4e5" that marks more runs.
    fixed and bounds: what is known of parameters; above: the weight of runs above the law; at: computes at which the
    optimum is told; loss: what is fitted.
    """

    law: str = "chinchilla"
    objective: str = "huber"
    delta: float | None = None
    n_convention: str = "non-embedding"
    flop_convention: str = "stored"
    by: str = "label"
    holdout: str = "exclude"
    exclude_worst: int = 0
    n_bootstrap: int = 0
    level: float = 0.95
    profile: str = "auto"
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    above: float = 1.0
    at: tuple[float, ...] = ()
    loss: str = "loss_nats"

    def __post_init__(self) -> None:
        if self.delta is not None and self.objective != "huber":
            raise UserError(f"--delta {self.delta:g}: only the objective huber has a width, not {self.objective}")
        if self.loss not in LOSSES:
            raise UserError(f"--loss {self.loss}: no such loss; valid: {', '.join(LOSSES)}")
        wrong = [flops for flops in self.at if not 0 < flops < float("inf")]
        if wrong:
            raise UserError(f"--at {wrong[0]:g}: a compute in FLOP is positive, for example 3.8e25")

    def rules(self) -> "PointRules":
        """Which runs become points; a fit of all methods together still knows each point's label."""
        from scalewright.fitting.frame import PointRules

        return PointRules(
            n_convention=self.n_convention,
            flop_convention=self.flop_convention,
            by="label" if self.by == TOGETHER else self.by,
            holdout=self.holdout == "include",
            exclude_worst=self.exclude_worst,
        )


@dataclass(frozen=True)
class Fitted:
    """One fit: of which label ("all" for several together), its id where it is stored, and how held-out runs fared."""

    label: str
    result: "FitResult"
    fit_id: str | None
    held_out: "pd.DataFrame"
    flops: float | None = None  # the largest compute among the runs that entered
    advice: str | None = None  # another law that tells the dearest runs better


def fit_as_asked(study: Study, experiment: str, request: FitRequest) -> tuple[Fitted, ...]:
    """Fit each label (or all together), store each fit, and return them in the order of figures.

    Raises FittingError for a law that the runs cannot carry, UserError where no run has ended, DbError for a condition
    that cannot be read.
    """
    from scalewright.db.engine import open_database

    database = open_database(study.database, create=False)
    runs = runs_to_fit(database, experiment, request.holdout)
    return fit_runs(runs, request, lambda label, result: record_result(database, experiment, result, label=label))


def fit_runs(
    runs: "pd.DataFrame", request: FitRequest, store: "Callable[[str, FitResult], str] | None" = None
) -> tuple[Fitted, ...]:
    """Do what `fit_as_asked` does with a frame at hand; store: keeps the fit of a label and returns its id."""
    from scalewright.fitting.frame import check_points

    runs = measured_in(runs, request.loss)
    points = check_points(runs, request.rules())
    held_out = held_out_points(runs, request)
    fitted = []
    for label, group in groups(points, request):
        result = fit_group(group, request)
        fit_id = store(label, result) if store else None
        most = result.range.get("flops", (0.0, None))[1]
        fitted.append(Fitted(label, result, fit_id, predict(result, label, held_out), most, advice(group, request)))
    return tuple(fitted)


def advice(points: "Points", request: FitRequest) -> str | None:
    """Name a law that tells the dearest runs better; None too where the person holds parameters of their own law."""
    from scalewright.fitting.rivals import better_law

    if request.fixed or request.bounds or request.above < 1:
        return None
    found = better_law(points, request.law)
    return None if found is None else found.sentence


def read_runs(study: Study, experiment: str, holdout: str = "exclude", loss: str = "loss_nats") -> "pd.DataFrame":
    """Read the runs of a study's experiment, with the loss that is to be fitted; raises UserError where none has it."""
    from scalewright.db.engine import open_database

    database = open_database(study.database, create=False)
    try:
        return measured_in(runs_to_fit(database, experiment, holdout), loss)
    finally:
        database.close()


def read_evaluations(study: Study, experiment: str) -> "pd.DataFrame":
    """Read the validation losses of an experiment's runs, during training and at its end."""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import evaluations

    database = open_database(study.database, create=False)
    try:
        found = evaluations(database, experiment=experiment)
        return found[found["split"] == "validation"]
    finally:
        database.close()


def runs_to_fit(database: "Database", experiment: str, holdout: str = "exclude") -> "pd.DataFrame":
    """Read the runs of an experiment, those that meet the condition `holdout` marked as held out."""
    from scalewright.db.frames import final_losses
    from scalewright.db.frames import runs as list_runs

    runs = with_settings(database, experiment, final_losses(database, experiment))
    require_ended(runs, experiment)
    if holdout in HELD_OUT:
        return runs
    met = list_runs(database, experiment, where=holdout)["run_id"]
    return runs.assign(holdout=runs["holdout"].fillna(False).astype(bool) | runs["run_id"].isin(met))


def measured_in(runs: "pd.DataFrame", loss: str) -> "pd.DataFrame":
    """Put the loss that is to be fitted where laws read it. Raises UserError where no run has it."""
    if loss == "loss_nats":
        return runs
    if loss not in runs or not runs[loss].notna().any():
        raise UserError(f"--loss {loss}: none of {counted(len(runs), 'run')} has it")
    return runs.assign(loss_nats=runs[loss])


def read_fixed(given: Sequence[str]) -> dict[str, float]:
    """Read `E=1.6`. Raises UserError for anything else."""
    return {name: _number_of("--fix", text, value, "E=1.6") for text in given for name, value in [_named_value(text)]}


def read_bounds(given: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read `E=1.5:1.8`; an end left out is open. Raises UserError for anything else."""
    found = {}
    for text in given:
        name, value = _named_value(text)
        low, colon, high = value.partition(":")
        if not colon:
            raise UserError(f"--bounds {text}: expected two ends, for example E=1.5:1.8, or one: E=1.5:")
        found[name] = (
            _number_of("--bounds", text, low, "E=1.5:1.8") if low else float("-inf"),
            _number_of("--bounds", text, high, "E=1.5:1.8") if high else float("inf"),
        )
    return found


def _named_value(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _number_of(flag: str, text: str, value: str, example: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UserError(f"{flag} {text}: expected a parameter and a number, for example {example}") from None
    if number != number:
        raise UserError(f"{flag} {text}: expected a number, for example {example}")
    return number


def groups(points: "Points", request: FitRequest) -> list[tuple[str, "Points"]]:
    """Return the points of each fit by its label: a single one where methods share a law's parameters."""
    from scalewright.fitting.figures.style import in_order
    from scalewright.fitting.laws import LAWS

    shared = request.law in LAWS and bool(LAWS[request.law].per_method)
    if request.by == TOGETHER or shared:
        label = points.methods[0] if len(points.methods) == 1 else "all"
        return [(label, points)]
    return [(label, points.of(label)) for label in in_order(points.methods)]


def fit_group(points: "Points", request: FitRequest) -> "FitResult":
    """Fit the points of one label as the request says; raises FitError where they do not allow it."""
    from scalewright.fitting.fit import fit

    return fit(
        points,
        request.law,
        request.objective,
        request.delta,
        level=request.level,
        profile=request.profile,
        fixed=request.fixed,
        bounds=request.bounds,
        above=request.above,
    )


def optima(fitted: Fitted, request: FitRequest) -> "list[AtCompute]":
    """Return the optimum at the computes asked for, else at the fit's largest and past it; none where there is none.

    Raises FittingError where computes were asked for and the law has no optimum.
    """
    from scalewright.fitting.at_compute import at_compute
    from scalewright.fitting.errors import FittingError

    flops = request.at or (() if fitted.flops is None else tuple(fitted.flops * factor for factor in PAST))
    if not request.at and set(fitted.result.law.axes) != {"n_params", "n_tokens"}:
        return []
    try:
        return at_compute(fitted.result, flops)
    except FittingError:
        if request.at:
            raise
        return []


def held_out_points(runs: "pd.DataFrame", request: FitRequest) -> "pd.DataFrame":
    """Return the runs that are held out and could have entered, in the request's conventions."""
    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.frame import check_points

    marked = runs[runs["holdout"].fillna(False).astype(bool)] if "holdout" in runs else runs.iloc[:0]
    if request.holdout == "include" or not len(marked):
        return marked.iloc[:0]
    try:
        return check_points(marked.assign(holdout=False), replace(request.rules(), exclude_worst=0)).frame
    except FittingError:  # held out and not finished: nothing to compare with yet
        return marked.iloc[:0]


def predict(result: "FitResult", label: str, held_out: "pd.DataFrame") -> "pd.DataFrame":
    """Predict held-out runs of a label: run_id, label, n_params, n_tokens, measured, predicted, low, high, error %."""
    own = held_out if label == "all" else held_out[held_out["label"] == label] if len(held_out) else held_out
    columns = ["run_id", "label", "n_params", "n_tokens"]
    if not len(own):
        return own.reindex(columns=[*columns, "measured", "predicted", "low", "high", "error"])
    parts = []
    for method, some in own.groupby("label"):
        told = result.predict(
            some["n_params"], some["n_tokens"], flops=some["flops"], method=str(method), new_run=True
        ).frame()
        parts.append(some[columns].assign(measured=some["loss_nats"], predicted=told["loss_nats"].to_numpy(),
                                          low=told["low"].to_numpy(), high=told["high"].to_numpy()))  # fmt: skip
    table = _pd_concat(parts)
    return table.assign(error=100 * (table["predicted"] / table["measured"] - 1))


def _pd_concat(parts: Sequence["pd.DataFrame"]) -> "pd.DataFrame":
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def to_json(fitted: Fitted, request: FitRequest) -> dict[str, Any]:
    """Return the one object that `fit --json` prints for a fit."""
    result = fitted.result
    return {
        "law": result.law.name,
        "equation": result.law.equation,
        "label": fitted.label,
        "objective": result.objective,
        "delta": result.delta,
        "objective_value": result.objective_value,
        "n": result.n,
        "excluded": [{"run": exclusion.run_id, "reason": exclusion.reason} for exclusion in result.excluded],
        "params": {
            name: parameter_json(asdict(parameter))
            | {"identified": parameter.identified, "at_limit": parameter.at_limit}
            for name, parameter in result.params.items()
        },
        "certificate": asdict(result.certificate),
        "fit_id": fitted.fit_id,
        "level": result.level,
        "n_convention": request.n_convention,
        "flop_convention": request.flop_convention,
        "scatter": result.estimate.noise.sigma,
        "warnings": list(result.warnings),
        "interval_notes": list(result.notes),
        "advice": fitted.advice,
        "fixed": dict(request.fixed),
        "bounds": {name: list(ends) for name, ends in request.bounds.items()},
        "above": request.above,
        "loss": request.loss,
        "range": {axis: list(ends) for axis, ends in result.range.items()},
        "optimum": [one.row() for one in optima(fitted, request)],
        "held_out": fitted.held_out.to_dict("records"),
    }


def parameter_json(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a parameter that `--json` shows of every law."""
    return {name: parameter[name] for name in ("value", "low", "high", "se", "one_sided", "interval")}


def together_json(fits: Sequence[Fitted], request: FitRequest) -> dict[str, Any]:
    """Return one object for several fits: the single fit's keys, sums over labels, and every fit under `fits`."""
    every = [to_json(fitted, request) for fitted in fits]
    if len(every) == 1:
        return every[0]
    named = {f"{name}[{one['label']}]": value for one in every for name, value in one["params"].items()}
    excluded = {item["run"]: item for one in every for item in one["excluded"]}
    return {
        "law": every[0]["law"],
        "objective": every[0]["objective"],
        "objective_value": sum(one["objective_value"] for one in every),
        "n": sum(one["n"] for one in every),
        "excluded": list(excluded.values()),
        "params": named,
        "certificate": {one["label"]: one["certificate"] for one in every},
        "fit_id": [one["fit_id"] for one in every],
        "fits": every,
    }
