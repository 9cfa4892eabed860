"""The intervals of a fit's parameters: robust, profiled where that would mislead, and what their width is due to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.frame import Points
from scalewright.fitting.laws.interface import Law
from scalewright.fitting.objectives import Objective
from scalewright.fitting.problem import Problem, held_at_bound, widen
from scalewright.fitting.profile import ProfileRange, profile_range
from scalewright.fitting.result import Parameter, open_exp
from scalewright.fitting.robust import FEWEST_GROUPS, Robust
from scalewright.fitting.settings import FitSettings
from scalewright.fitting.uncertainty import Noise, profile_threshold, t_quantile
from scalewright.fitting.words import counted

Array = NDArray[np.float64]
Params = dict[str, Parameter]

FEW_RUNS = 5
FEW_SIZES = 4  # intervals of studies with a shared effect cover .84 to .86 at so many: docs/fitting.md
HIGH_LEVERAGE = 0.9
MUCH = 1.25  # times as uncertain as equal scatter would make it: worth a word
PROFILE_WIDENINGS = 3  # an end of a range that has grown eight times is taken for infinity
LOOSE_SE = 0.5  # standard error of a log coefficient beyond which its interval is profiled


@dataclass(frozen=True)
class Intervals:
    params: Params
    alternatives: Array  # (n, n_theta) of the problem: fits at the ends of profiled intervals
    at_limit: NDArray[np.bool_]  # (n_theta,) of the problem


def intervals_of(
    problem: Problem, objective: Objective, settings: FitSettings, theta: Array, robust: Robust, noise: Noise
) -> Intervals:
    """Turn coordinates into named parameters; profile those whose delta interval cannot be trusted.

    A profile rises by what equal scatter would call t^2; it is stretched as the robust variance is.
    """
    raw = problem.to_raw @ theta
    spread = np.sqrt(np.diag(problem.to_raw @ robust.covariance @ problem.to_raw.T).clip(min=0))
    stretch = stretch_of(problem, robust)
    t = t_quantile(settings.level, noise.df)
    loose = _doubtful(problem, theta, robust.covariance, raw, t * spread)
    params, alternatives = {}, [np.empty((0, len(theta)))]
    for j, name in enumerate(problem.names):
        if name in settings.fixed:
            params[name] = _held(name, settings.fixed[name])
            continue
        ends = None
        if settings.profile == "always" or (settings.profile == "auto" and loose[j]):
            threshold = profile_threshold(t, noise, float(stretch[j]))
            ends = _profiled(problem, objective, theta, j, threshold)
            alternatives.append(ends.theta)
        params[name] = _parameter(problem, j, raw[j], t, spread[j], ends)
    limits = at_limit(problem, theta)
    for name in np.array(problem.names)[limits].tolist():
        params[name] = replace(params[name], at_limit=True)
    return Intervals(params, np.concatenate(alternatives), limits)


def params_of(law: Law, found: Intervals, settings: FitSettings, theta: Array, robust: Robust, noise: Noise) -> Params:
    """Return the parameters of the law's equation: the coordinates themselves, or what the law reports of them.

    A reported parameter that moves with a coordinate at its limit has no interval.
    """
    if law.reported is None:
        return found.params
    told, t = law.reported(theta), t_quantile(settings.level, noise.df)
    spread = np.sqrt(np.einsum("kp,pq,kq->k", told.jacobian, robust.covariance, told.jacobian).clip(min=0))
    params = {}
    for name, value, se, moves in zip(told.names, told.values.tolist(), spread.tolist(), told.jacobian, strict=True):
        limited = bool(moves[found.at_limit].any())
        one = Parameter(name, value, se, value - t * se, value + t * se, shift=name in law.shifts)
        params[name] = _held(name, settings.fixed[name]) if name in settings.fixed else one
        if limited:
            params[name] = replace(one, low=-np.inf, high=np.inf, one_sided="none", at_limit=True)
    return params


def _profiled(problem: Problem, objective: Objective, theta: Array, index: int, threshold: float) -> ProfileRange:
    """Profile a reported coordinate; where an open end stops another one, move that end and profile again.

    An end of the interval that still rests on the end of a range is no bound.
    """
    for _ in range(PROFILE_WIDENINGS + 1):
        ends = profile_range(problem, objective, theta, problem.to_raw[index], threshold)
        bounded = ends.theta[[end is not None for end in (ends.low, ends.high)]]
        below, above = problem.box.searched_out(bounded)
        if not (below | above).any():
            return ends
        held, problem = problem, widen(problem, below, above)
    stopped = [np.any(held.box.searched_out(at)) for at in ends.theta]
    low, high = (None if rests else end for rests, end in zip(stopped, (ends.low, ends.high), strict=True))
    return ProfileRange(low, high, ends.theta)


def _held(name: str, value: float) -> Parameter:
    return Parameter(name, value, 0.0, value, value, None, "fixed")


def _doubtful(problem: Problem, theta: Array, covariance: Array, raw: Array, half: Array) -> NDArray[np.bool_]:
    """Which coordinates are at a bound, are exponents whose interval reaches zero, or loose log coefficients.

    One at its bound spoils the delta intervals of all others.
    """
    pinned = problem.box.lower == problem.box.upper
    centred_se = np.sqrt(np.diag(problem.to_centred @ covariance @ problem.to_centred.T).clip(min=0))
    loose = problem.is_log & (centred_se > LOOSE_SE)
    doubtful = (held_at_bound(problem, theta) | loose | (~problem.is_log & (half >= np.abs(raw)))) & ~pinned
    at_bound = bool((held_at_bound(problem, theta) & ~pinned).any())
    return np.asarray((doubtful | (problem.is_additive & doubtful.any()) | at_bound) & ~pinned)


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
        "robust" if ends is None else "profile",
    )


def spread_out_over(robust: Robust, free: NDArray[np.bool_]) -> Robust:
    """Put covariances of the free coordinates among all of them: zero for those that did not move."""
    return replace(robust, covariance=_among(robust.covariance, free), equal=_among(robust.equal, free))


def _among(covariance: Array, free: NDArray[np.bool_]) -> Array:
    full = np.zeros((len(free), len(free)))
    full[np.ix_(free, free)] = covariance
    return full


def stretch_of(problem: Problem, robust: Robust) -> Array:
    """Return the variance of each reported coordinate over what equal scatter would give."""
    raw = problem.to_raw
    own, equal = (np.diag(raw @ c @ raw.T) for c in (robust.covariance, robust.equal))
    return np.where(equal > 0, own / np.where(equal > 0, equal, 1.0), 1.0)


def at_limit(problem: Problem, theta: Array) -> NDArray[np.bool_]:
    """True for coordinates at an end of their range that are not held at one value."""
    return np.asarray(held_at_bound(problem, theta) & (problem.box.lower != problem.box.upper))


def size_groups(points: Points) -> NDArray[np.intp] | None:
    """Number the runs that may share an effect: those of one trunk where that is known, else of one method and size."""
    frame = points.frame
    if "trunk" in frame and bool(frame["trunk"].notna().all()):
        return np.asarray(pd.factorize(frame["trunk"])[0], dtype=np.intp)
    sizes = points.column("n_params")
    if not np.isfinite(sizes).all():
        return None
    labels, levels = (pd.factorize(values)[0] for values in (frame["label"], np.round(np.log(sizes), 6)))
    return np.asarray(pd.factorize(labels * len(levels) + levels)[0], dtype=np.intp)


def interval_notes(
    problem: Problem, robust: Robust, noise: Noise, points: Points, held: Sequence[str]
) -> tuple[str, ...]:
    """Say what the intervals allow for beyond equal, independent scatter, and what makes them wide."""
    stretch = np.sqrt(stretch_of(problem, robust))
    found = []
    shared = robust.shared
    if shared is not None and shared.found and held:
        found.append(
            f"runs of one size lie off the law together ({100 * shared.share:.0f}% of the variance): perhaps because"
            f" {', '.join(held)} is held where these runs would not have it, and no effect of a size"
        )
    elif shared is not None and shared.found:
        found.append(
            f"runs of one size share an effect ({100 * shared.share:.0f}% of the variance, {shared.n_groups} sizes):"
            " intervals allow for it, and only more sizes narrow them"
        )
    if noise.sigma > 0 and 1 < _n_sizes(points) <= FEW_SIZES:
        found.append(_few_sizes(_n_sizes(points), shared is not None and shared.found))
    worst = int(robust.leverage.argmax())
    if noise.sigma > 0 and robust.leverage[worst] > HIGH_LEVERAGE:
        found.append(
            f"run {points.frame['run_id'].iloc[worst]} has a leverage of {robust.leverage[worst]:.2f}: the law follows"
            " it, so that its own error is not seen"
        )
    if noise.sigma > 0 and stretch.max() > MUCH and not (shared is not None and shared.found):
        j = int(stretch.argmax())
        found.append(
            f"scatter is unequal, larger where a run counts most: {problem.names[j]} is {stretch[j]:.1f} times as"
            " uncertain as equal scatter would make it"
        )
    if noise.df <= FEW_RUNS:
        found.append(f"only {counted(noise.df, 'run')} more than parameters: most of the width is Student's t")
    return tuple(found)


def _few_sizes(n_sizes: int, found: bool) -> str:
    """Say what an effect shared by the runs of a size does to intervals that rest on few sizes."""
    if found:
        return (
            f"few sizes: {n_sizes} tell how much an effect of a size varies, and such intervals may still be too narrow"
        )
    if n_sizes < FEWEST_GROUPS:
        return f"few sizes: of {n_sizes}, an effect shared by the runs of a size cannot be seen and is not allowed for"
    return f"few sizes: of {n_sizes}, an effect shared by the runs of a size is seldom seen, and then not allowed for"


def _n_sizes(points: Points) -> int:
    groups = size_groups(points)
    return 0 if groups is None else int(groups.max()) + 1
