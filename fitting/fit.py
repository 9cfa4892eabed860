"""Fit a law to points: lay out, solve from many seeds, attach intervals, certificate and provenance."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import PointRules, Points, check_points, log_axes, unknown
from scalewright.fitting.laws import LAWS, Law
from scalewright.fitting.losses import OBJECTIVES, Objective, total
from scalewright.fitting.problem import APART, Problem, best_row, certify, held_at_bound, hold, solve
from scalewright.fitting.profile import ProfileRange, profile_range
from scalewright.fitting.result import Estimate, FitResult, Parameter, Provenance, open_exp
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import Noise, delta_covariance, noise_of, t_quantile

Array = NDArray[np.float64]

FITTING_VERSION = "1"
N_SEEDS = 8
THIN_CONDITION = 300.0  # condition of the scaled Jacobian beyond which the delta method is not trusted alone
LOOSE_SE = 0.5  # standard error of a log coefficient beyond which its interval is profiled


@dataclass(frozen=True)
class FitSettings:
    """How to fit: objective by name, its width (None: its own), confidence level, intervals by profile or not."""

    objective: str = "huber"
    delta: float | None = None
    level: float = 0.95
    profile: str = "auto"  # "auto": where the delta method would mislead; "always"; "never"
    fixed: Mapping[str, float] = field(default_factory=dict)  # parameters held at a value

    def resolve(self) -> Objective:
        """Return the objective. Raises FittingError for an unknown name, or a width or level out of range."""
        if not 0 < self.level < 1:
            raise FittingError(f"level must lie between 0 and 1, got {self.level}")
        if self.objective not in OBJECTIVES:
            raise FittingError(unknown("objective", self.objective, list(OBJECTIVES)))
        objective = OBJECTIVES[self.objective]
        if self.delta is None:
            return objective
        if not self.delta > 0:
            raise FittingError(f"delta must be positive, got {self.delta}")
        return objective.with_delta(self.delta) if self.objective == "huber" else objective


def fit(
    points: Points | pd.DataFrame,
    law: str | Law = "chinchilla",
    objective: str = "huber",
    delta: float | None = None,
    *,
    rules: PointRules | None = None,
    level: float = 0.95,
    profile: str = "auto",
    fixed: Mapping[str, float] | None = None,
) -> FitResult:
    """Fit one law to all the points given (one method's, or several for a law with method-wise parameters).

    Laws are those of `laws.LAWS`; objectives those of `losses.OBJECTIVES` (a sum over runs; Huber's width `delta` is
    in log loss); `fixed` holds parameters at given values. Raises FittingError for
    unknown names, too few points, or a design that cannot tell the parameters apart (too few levels of an axis, or
    axes that move together).
    """
    checked = check_points(points, rules)
    chosen = _law(law)
    return fit_points(checked, chosen, FitSettings(objective, delta, level, profile, dict(fixed or {})))


def fit_each(
    points: Points | pd.DataFrame,
    law: str | Law = "chinchilla",
    objective: str = "huber",
    delta: float | None = None,
    *,
    by: str = "label",
    rules: PointRules | None = None,
    level: float = 0.95,
) -> dict[str, FitResult]:
    """Fit the law to each method on its own, in alphabetical order; `by` is the column that tells methods apart."""
    checked = check_points(points, replace(rules or PointRules(), by=by))
    return {m: fit(checked.of(m), law, objective, delta, level=level) for m in checked.methods}


def _law(law: str | Law) -> Law:
    if not isinstance(law, str):
        return law
    if law not in LAWS:
        raise FittingError(unknown("law", law, list(LAWS)))
    return LAWS[law]


@single_threaded
def fit_points(points: Points, law: Law, settings: FitSettings) -> FitResult:
    """Fit checked points; the function behind `fit`."""
    objective = settings.resolve()
    problem = hold(lay_out(points, law), settings.fixed)
    solution = solve(
        problem, objective, problem.seeds(N_SEEDS if law.is_additive else 3 * N_SEEDS, APART), np.ones((1, len(points)))
    )
    theta = solution.theta[best_row(solution)]
    certificate = certify(problem, objective, solution)
    predicted, jacobian = problem.predict(theta)
    free = ~held_at_bound(problem, theta)
    residuals = predicted - problem.log_loss
    noise = noise_of(residuals, int(free.sum()), objective)
    covariance = delta_covariance(jacobian, free, noise, np.exp(2 * predicted) if objective.raw else None)
    found = _intervals(problem, objective, settings, theta, covariance, noise)
    raw = problem.to_raw
    return FitResult(
        law=law,
        objective=objective.name,
        delta=objective.delta if objective.name == "huber" else float("inf"),
        objective_value=total(objective, float(solution.value[best_row(solution)]), residuals),
        n=len(points),
        level=settings.level,
        params=MappingProxyType(found.params),
        methods=points.methods,
        certificate=certificate,
        provenance=provenance_of(points),
        estimate=Estimate(
            problem.names, problem.is_log, raw @ theta, raw @ covariance @ raw.T, noise, found.alternatives @ raw.T
        ),
        residuals=residuals,
        warnings=_warnings(points, law, found.params),
    )


def provenance_of(points: Points) -> Provenance:
    """Return what entered and what did not."""
    ids = tuple(points.frame["run_id"].tolist())
    return Provenance(ids, points.data_hash(), points.excluded, points.rules, FITTING_VERSION)


def lay_out(points: Points, law: Law) -> Problem:
    """Lay a law out on points after checking that the design can tell its parameters apart."""
    axes = log_axes(points, law.axes)
    check_design(points, law)
    return law.lay_out(axes, np.log(points.column("loss_nats")), points.frame["label"].to_numpy(dtype=str))


def check_design(points: Points, law: Law) -> None:
    """Raise FittingError when there are fewer points than parameters, or too few levels of an axis."""
    needed = law.n_parameters(len(points.methods)) + 1
    if len(points) < needed:
        raise FittingError(
            f"law {law.name} has {needed - 1} parameters and needs {needed} points or more, got {len(points)}"
            f" (methods: {', '.join(points.methods)})"
        )
    for axis, levels in law.levels_needed().items():
        found = len(np.unique(np.round(np.log(points.column(axis)), 6)))
        if found < levels:
            raise FittingError(f"law {law.name} needs {levels} levels of {axis} or more, got {found}")
    _check_collinear(points, law)


def _check_collinear(points: Points, law: Law) -> None:
    """Refuse axes that move together: a fixed ratio of tokens to parameters cannot separate the two exponents."""
    if not {"n_params", "n_tokens"} <= set(law.axes):
        return
    log_n, log_d = np.log(points.column("n_params")), np.log(points.column("n_tokens"))
    correlation = float(np.corrcoef(log_n, log_d)[0, 1])
    if 1 - correlation**2 < 1e-4:
        ratio = np.exp(log_d - log_n)
        raise FittingError(
            f"the design is collinear: n_params and n_tokens move together (correlation {correlation:.5f},"
            f" {ratio.min():.3g} to {ratio.max():.3g} tokens per parameter), so law {law.name} cannot tell them apart;"
            " vary tokens at fixed size, or fit law power"
        )


@dataclass(frozen=True)
class _Intervals:
    params: dict[str, Parameter]
    alternatives: Array  # (n, n_theta) of the problem: fits at the ends of profiled intervals


def _intervals(
    problem: Problem, objective: Objective, settings: FitSettings, theta: Array, covariance: Array, noise: Noise
) -> _Intervals:
    """Turn coordinates into named parameters; profile those whose delta interval cannot be trusted."""
    raw, spread = problem.to_raw @ theta, np.sqrt(np.diag(problem.to_raw @ covariance @ problem.to_raw.T).clip(min=0))
    t = t_quantile(settings.level, noise.df)
    loose = _doubtful(problem, theta, covariance, raw, t * spread)
    params, alternatives = {}, [np.empty((0, len(theta)))]
    for j, name in enumerate(problem.names):
        if name in settings.fixed:
            params[name] = _held(name, settings.fixed[name])
            continue
        ends = None
        if settings.profile == "always" or (settings.profile == "auto" and loose[j]):
            threshold = 0.5 * t * t * noise.deviance_unit
            ends = profile_range(problem, objective, theta, problem.to_raw[j], threshold)
            alternatives.append(ends.theta)
        params[name] = _parameter(problem, j, raw[j], t, spread[j], ends)
    return _Intervals(params, np.concatenate(alternatives))


def _warnings(points: Points, law: Law, params: Mapping[str, Parameter]) -> tuple[str, ...]:
    found = []
    if len(points.methods) > 1 and not law.per_method:
        found.append(f"{len(points.methods)} methods were fitted as one: {', '.join(points.methods)}")
    open_ended = [name for name, p in params.items() if not p.identified]
    if open_ended:
        names = ", ".join(open_ended)
        found.append(f"these runs do not identify {names}: read L(C) and speed-ups, not these values")
    return tuple(found)


def _held(name: str, value: float) -> Parameter:
    return Parameter(name, value, 0.0, value, value, None, "fixed")


def _doubtful(problem: Problem, theta: Array, covariance: Array, raw: Array, half: Array) -> NDArray[np.bool_]:
    """Which coordinates are at a bound, are exponents whose interval reaches zero, or loose log coefficients."""
    pinned = problem.box.lower == problem.box.upper
    centred_se = np.sqrt(np.diag(problem.to_centred @ covariance @ problem.to_centred.T).clip(min=0))
    loose = problem.is_log & (centred_se > LOOSE_SE)
    doubtful = (held_at_bound(problem, theta) | loose | (~problem.is_log & (half >= np.abs(raw)))) & ~pinned
    return np.asarray(doubtful | (problem.is_additive & doubtful.any()))


def _parameter(
    problem: Problem, index: int, raw: float, t: float, spread: float, ends: ProfileRange | None
) -> Parameter:
    low, high = (raw - t * spread, raw + t * spread) if ends is None else (ends.low, ends.high)
    one_sided = {(True, True): "none", (True, False): "upper", (False, True): "lower"}.get((low is None, high is None))
    is_log = bool(problem.is_log[index])
    value = float(open_exp(raw)) if is_log else float(raw)
    least = 0.0 if is_log else float(problem.box.lower[index])
    return Parameter(
        problem.names[index],
        value,
        float(value * spread if is_log else spread),
        least if low is None else float(open_exp(low) if is_log else low),
        float("inf") if high is None else float(open_exp(high) if is_log else high),
        one_sided,
        "delta" if ends is None else "profile",
    )
