"""Fit a law to points: lay out, solve from many seeds, attach intervals, certificate and provenance."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import AXES, PointRules, Points, check_points, log_axes, unknown
from scalewright.fitting.intervals import (
    interval_notes,
    intervals_of,
    params_of,
    size_groups,
    spread_out_over,
    stretch_of,
)
from scalewright.fitting.laws import LAWS
from scalewright.fitting.laws.interface import Law
from scalewright.fitting.losses import total
from scalewright.fitting.problem import APART, Problem, best_row, certify, held_at_bound, hold, solve, widen, with_box
from scalewright.fitting.result import Estimate, FitResult, Parameter, Provenance
from scalewright.fitting.robust import Scores, robust_covariance
from scalewright.fitting.settings import FitSettings
from scalewright.fitting.solver import Solution
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import noise_of

Array = NDArray[np.float64]

FITTING_VERSION = "1"
N_SEEDS = 8
MOST_WIDENINGS = 7  # an end that has moved so often has grown 64 times: the optimum lies at infinity


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
    bounds: Mapping[str, tuple[float, float]] | None = None,
    above: float = 1.0,
) -> FitResult:
    """Fit one law to all the points given (one method's, or several for a law with method-wise parameters).

    Laws are those of `laws.LAWS`; objectives those of `objectives.OBJECTIVES` (a sum over runs; Huber's width `delta`
    is in log loss); `fixed` holds parameters at given values, `bounds` between two; `above` below 1 weighs runs above
    the law less. Raises FittingError for unknown names, too few points, or a design that cannot tell the parameters
    apart (too few levels of an axis, or axes that move together).
    """
    checked = check_points(points, rules)
    chosen = _law(law)
    settings = FitSettings(objective, delta, level, profile, dict(fixed or {}), dict(bounds or {}), above)
    return fit_points(checked, chosen, settings)


def _law(law: str | Law) -> Law:
    if not isinstance(law, str):
        return law
    if law not in LAWS:
        raise FittingError(unknown("law", law, list(LAWS)))
    return LAWS[law]


@single_threaded
def fit_points(points: Points, law: Law, settings: FitSettings) -> FitResult:
    """Fit checked points; the function behind `fit`."""
    if settings.profile == "auto" and not law.profiles:
        settings = replace(settings, profile="never")
    objective = settings.resolve()
    problem, solution = _search(lay_out(points, law), law, settings)
    theta = solution.theta[best_row(solution)]
    certificate = certify(problem, objective, solution)
    predicted, jacobian = problem.predict(theta)
    free = ~held_at_bound(problem, theta)
    residuals = predicted - problem.log_loss
    noise = noise_of(residuals, int(free.sum()), objective)
    factor = np.exp(2 * predicted) if objective.raw else np.ones(len(points))
    scores = Scores(jacobian[:, free], factor, residuals, objective)
    robust = spread_out_over(robust_covariance(scores, noise, settings.level, size_groups(points)), free)
    found = intervals_of(problem, objective, settings, theta, robust, noise)
    params = params_of(law, found, settings, theta, robust, noise)
    raw = problem.to_raw
    held = [*settings.fixed, *(name for name in certificate.at_bound if name in settings.bounds)]
    return FitResult(
        law=law,
        objective=objective.name,
        delta=objective.delta if objective.name == "huber" else float("inf"),
        objective_value=total(objective, float(solution.value[best_row(solution)]), residuals),
        n=len(points),
        level=settings.level,
        params=MappingProxyType(params),
        methods=points.methods,
        certificate=certificate,
        provenance=provenance_of(points),
        estimate=Estimate(
            problem.names,
            problem.is_log,
            raw @ theta,
            raw @ robust.covariance @ raw.T,
            noise,
            found.alternatives @ raw.T,
            stretch_of(problem, robust),
        ),
        residuals=residuals,
        warnings=_warnings(points, law, params, settings, certificate.at_bound),
        notes=interval_notes(problem, robust, noise, points, held),
        settings=settings,
        range=seen_range(points),
        shared=robust.shared,
    )


def _search(problem: Problem, law: Law, settings: FitSettings) -> tuple[Problem, Solution]:
    """Solve from many seeds; where the optimum lies at an end that only says where the search began, move that end."""
    objective, n_seeds = settings.resolve(), N_SEEDS if law.is_additive else 3 * N_SEEDS
    ones = np.ones((1, len(problem.log_loss)))
    wider = hold(problem, settings.fixed, settings.bounds)
    for _ in range(MOST_WIDENINGS):
        problem = wider
        solution = solve(problem, objective, problem.seeds(n_seeds, APART), ones)
        below, above = problem.box.searched_out(solution.theta[best_row(solution)])
        if not (below | above).any():
            break
        wider = widen(problem, below, above)
    return problem, solution


def problem_of(points: Points, result: FitResult) -> Problem:
    """Lay the problem of a fit out again, with what it held. Raises FittingError for points the fit did not use."""
    if points.data_hash() != result.provenance.data_hash:
        raise FittingError("this needs the points of the fit: their data hashes differ")
    return hold_as(lay_out(points, result.law), result)


def hold_as(problem: Problem, result: FitResult) -> Problem:
    """Hold what a fit held, in a box that reaches past its estimate at each end that only says where a search began."""
    theta = np.linalg.solve(problem.to_raw, result.estimate.theta)
    box = problem.box.widened(*problem.box.open_ends)
    lower, upper = np.minimum(box.lower, theta), np.maximum(box.upper, theta)
    wide = with_box(problem, replace(box, lower=lower, upper=upper))
    return hold(wide, result.settings.fixed, result.settings.bounds)


def coordinates_of(problem: Problem, result: FitResult) -> Array:
    """Return the estimate of a fit in a problem's own coordinates."""
    return np.asarray(np.linalg.solve(problem.to_raw, result.estimate.theta), dtype=np.float64)


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
    """Raise FittingError for fewer points than parameters, losses that are all equal, or too few levels of an axis."""
    losses = points.column("loss_nats")
    if len(losses) > 1 and np.ptp(np.log(losses)) < 1e-12:
        raise FittingError(f"all {len(losses)} losses are equal ({losses[0]:g}): they say nothing about any law")
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


def _warnings(
    points: Points, law: Law, params: Mapping[str, Parameter], settings: FitSettings, at_bound: tuple[str, ...]
) -> tuple[str, ...]:
    found = []
    if len(points.methods) > 1 and not law.per_method:
        found.append(f"{len(points.methods)} methods were fitted as one: {', '.join(points.methods)}")
    given = [name for name in at_bound if name in settings.bounds]
    if given:
        found.append(f"{', '.join(given)}: held by the bounds given, past which the runs would take it")
    ended = [name for name in at_bound if name not in settings.bounds]
    if ended:
        found.append(f"{', '.join(ended)}: the optimum lies at the end of its range, so only one end of it is a result")
    open_ended = [name for name, p in params.items() if not p.identified]
    if open_ended:
        names = ", ".join(open_ended)
        found.append(f"these runs do not identify {names}: read L(C) and speed-ups, not these values")
    return tuple(found)


def seen_range(points: Points) -> Mapping[str, tuple[float, float]]:
    """Return the smallest and largest of each axis among the points: past these the law extrapolates."""
    found = {}
    for axis in AXES:
        values = points.column(axis)
        if np.isfinite(values).all():
            found[axis] = (float(values.min()), float(values.max()))
    return MappingProxyType(found)
