"""What every law looks like to the solver, and the solve: continuation in delta, certificate. Knows numpy only."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import unknown
from scalewright.fitting.objectives import OBJECTIVES, Objective
from scalewright.fitting.solver import Array, Box, Evaluate, Local, Mask, Patience, Solution, minimise

SAME_OPTIMUM = 1e-6  # relative difference of objective values that still counts as the same optimum
APART = 0.15  # share of a coordinate's range by which seeds differ
CREEPING, CREEPING_STEPS = 1e-6, 10  # starts that gain a smaller share of the best value in so many steps are left
MANY = 4096
CHUNK = 64  # resamplings solved together; 64 x 240 points x 15 numbers stay in a cache of 2 MB


class Problem(Protocol):
    """A law laid out on points. `to_raw` maps theta to the coordinates that are reported.

    `to_centred` maps it to those in which a log coefficient is that of its term amid the runs: its error is then not
    that of an exponent, far from them.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of theta, such as `A[gpt+]`."""

    @property
    def is_log(self) -> NDArray[np.bool_]:
        """(n_theta,), true where theta holds the logarithm of a coefficient."""

    @property
    def log_loss(self) -> Array:
        """(n_points,)"""

    @property
    def to_raw(self) -> Array:
        """(n_theta, n_theta)"""

    @property
    def to_centred(self) -> Array:
        """(n_theta, n_theta)"""

    @property
    def box(self) -> Box:
        """The range of each coordinate."""

    @property
    def is_additive(self) -> bool:
        """As the law says."""

    def evaluator(self, objective: Objective, weights: Array) -> Evaluate:
        """Return the function that gives value, gradient and Hessian of the objective to the solver."""

    def seeds(self, n_keep: int, apart: float) -> Array:
        """Return up to n_keep starts (n, n_theta) that differ by the share `apart` of a coordinate's range."""

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return log L_hat (n_points,) and its Jacobian (n_points, n_theta)."""


@dataclass(frozen=True)
class Certificate:
    """Evidence that the optimum is the optimum.

    `predicted_decrease` is what one more Newton step promises, `gradient_norm` and `smallest_eigenvalue` are those of
    the Hessian scaled to a unit diagonal, `share_of_seeds` of `n_seeds` ended at the best value, `second_best`
    is the next distinct value (None when all agree), `at_bound` names coordinates at the edge of their range,
    `condition` is the condition number of the Jacobian with unit columns.
    """

    converged: bool
    predicted_decrease: float
    gradient_norm: float
    smallest_eigenvalue: float
    n_seeds: int
    share_of_seeds: float
    second_best: float | None
    at_bound: tuple[str, ...]
    condition: float
    n_steps: int


def solve(problem: Problem, objective: Objective, starts: Array, weights: Array) -> Solution:
    """Minimise from each start through the continuation in delta; one row of `weights` serves all.

    Laws that are not additive have local minima that least squares hides, so there each start is also solved directly.
    """
    loose = np.ones(starts.shape, dtype=bool)
    theta = starts
    for delta in objective.stages():
        solution = minimise(problem.evaluator(objective.with_delta(delta), weights), theta, problem.box, loose)
        theta = solution.theta
    if problem.is_additive or len(objective.stages()) == 1:
        return solution
    evaluate, gain = problem.evaluator(objective, weights), CREEPING * float(np.nanmin(solution.value))
    direct = minimise(evaluate, starts, problem.box, loose, patience=Patience(CREEPING_STEPS, gain))
    best = direct.take(np.array([best_row(direct)]))  # it may have been given up on while it crept
    return _join(_join(solution, minimise(evaluate, best.theta, problem.box, loose[:1])), direct)


def _join(first: Solution, second: Solution) -> Solution:
    return Solution(
        *(np.concatenate([getattr(s, name) for s in (first, second)]) for name in first.__dataclass_fields__)
    )


def resolve(problem: Problem, objective: Objective, start: Array, weights: Array) -> Array:
    """Re-solve from one warm start under many weight vectors, in chunks that fit the cache; return theta of each."""
    out = np.empty((len(weights), len(start)))
    for first in range(0, len(weights), CHUNK):
        part = weights[first : first + CHUNK]
        starts = np.repeat(start[None], len(part), axis=0)
        loose = np.ones(starts.shape, dtype=bool)
        out[first : first + CHUNK] = minimise(
            problem.evaluator(objective, part), starts, problem.box, loose, max_steps=60
        ).theta
    return out


def best_row(solution: Solution) -> int:
    """Return the row of the lowest finite value."""
    return int(np.argmin(np.where(np.isfinite(solution.value), solution.value, np.inf)))


def held_at_bound(problem: Problem, theta: Array) -> Mask:
    """True for coordinates at the edge of their range."""
    reach = 1e-9 * (problem.box.upper - problem.box.lower)
    return (theta <= problem.box.lower + reach) | (theta >= problem.box.upper - reach)


def certify(problem: Problem, objective: Objective, solution: Solution) -> Certificate:
    """Collect the certificate of the best row of a solution."""
    row = best_row(solution)
    best, values = solution.value[row], solution.value
    slack = SAME_OPTIMUM * abs(best) + 1e-20
    others = values[values > best + slack]
    _, jacobian = problem.predict(solution.theta[row])
    held, pinned = held_at_bound(problem, solution.theta[row]), problem.box.lower == problem.box.upper
    decrease = float(solution.predicted_decrease[row]) * objective.scale
    return Certificate(
        converged=bool(decrease <= 1e-8 * (abs(best) * objective.scale) + 1e-18),
        predicted_decrease=decrease,
        gradient_norm=float(solution.gradient_norm[row]) * objective.scale,
        smallest_eigenvalue=float(solution.smallest_eigenvalue[row]),
        n_seeds=len(values),
        share_of_seeds=float(np.mean(values <= best + slack)),
        second_best=float(others.min()) * objective.scale if len(others) else None,
        at_bound=tuple(name for name, at in zip(problem.names, held & ~pinned, strict=True) if at),
        condition=condition_number(jacobian[:, ~held]),
        n_steps=int(solution.n_steps[row]),
    )


def condition_number(jacobian: Array) -> float:
    """Condition number of a Jacobian (n_points, n_theta) whose columns are scaled to unit length."""
    norms = np.linalg.norm(jacobian, axis=0)
    if not jacobian.shape[1] or np.any(norms == 0):
        return float("inf")
    singular = np.linalg.svd(jacobian / norms, compute_uv=False)
    return float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")


@dataclass(frozen=True)
class Mapped:
    """A problem in linear coordinates phi, theta = matrix @ phi, so that a profile can fix a combination of theta."""

    inner: Problem
    matrix: Array
    names: tuple[str, ...]
    box: Box

    @property
    def is_log(self) -> NDArray[np.bool_]:
        """Those of the inner problem."""
        return self.inner.is_log

    @property
    def log_loss(self) -> Array:
        """That of the inner problem."""
        return self.inner.log_loss

    @property
    def is_additive(self) -> bool:
        """As the inner problem says."""
        return self.inner.is_additive

    @property
    def to_raw(self) -> Array:
        """From phi to the coordinates that are reported."""
        return np.asarray(self.inner.to_raw @ self.matrix)

    @property
    def to_centred(self) -> Array:
        """From phi to those in which an error is local."""
        return np.asarray(self.inner.to_centred @ self.matrix)

    def seeds(self, n_keep: int, apart: float = APART) -> Array:
        """Pick again among all seeds of the inner problem, once they are moved into this problem's box."""
        inner = self.inner.seeds(MANY, 0.0)
        phi = np.asarray(np.linalg.solve(self.matrix, inner.T).T, dtype=np.float64)
        phi = np.unique(np.clip(phi, self.box.lower, self.box.upper), axis=0)
        evaluate = self.evaluator(OBJECTIVES["log-l2"], np.ones((1, len(self.log_loss))))
        return spread_out(phi, evaluate(phi, np.arange(len(phi))).value, n_keep, apart)

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return log L_hat and its Jacobian in phi."""
        value, jacobian = self.inner.predict(self.matrix @ theta)
        return value, jacobian @ self.matrix

    def evaluator(self, objective: Objective, weights: Array) -> Evaluate:
        """Return the inner evaluator in phi; the value is inf where theta leaves the inner box."""
        inside, inner = self.inner.evaluator(objective, weights), self.inner.box
        slack = 1e-9 * (inner.upper - inner.lower) + 1e-12

        def evaluate(phi: Array, rows: NDArray[np.intp]) -> Local:
            theta = phi @ self.matrix.T
            local = inside(theta, rows)
            outside = ((theta < inner.lower - slack) | (theta > inner.upper + slack)).any(axis=1)
            value = np.where(outside, np.inf, local.value)
            return Local(value, local.gradient @ self.matrix, self.matrix.T @ local.hessian @ self.matrix)

        return evaluate


def hold(problem: Problem, fixed: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]) -> Problem:
    """Hold parameters at given values, or between two: the range of each shrinks. Raises FittingError for bad ones."""
    limits = {**bounds, **{name: (value, value) for name, value in fixed.items()}}
    for name, (low, high) in limits.items():
        if name not in problem.names:
            raise FittingError(unknown("parameter", name, problem.names))
        problem = _limit(problem, problem.names.index(name), low, high)
    return problem


def _limit(problem: Problem, index: int, low: float, high: float) -> Problem:
    """Keep one reported coordinate within low and high, as a coordinate of its own where it is a combination."""
    name = problem.names[index]
    if not low <= high:
        raise FittingError(f"bounds of {name}: the lower, {low:g}, is above the upper, {high:g}")
    if problem.is_log[index] and not high > 0:
        raise FittingError(f"{name} is positive, so it cannot be held at {high:g}")
    if np.count_nonzero(problem.to_raw[index]) > 1:
        problem = map_coordinate(problem, index, problem.to_raw[index])
    if problem.is_log[index]:
        low, high = (float(np.log(value)) if value > 0 else -np.inf for value in (low, high))
    return with_box(problem, _within(problem.box, name, index, (low, high)))


def _within(box: Box, name: str, index: int, given: tuple[float, float]) -> Box:
    """Put given ends in the place of a coordinate's own: of open ones always, of limits of the law where they bind."""
    (low, high), width = given, float(box.upper[index] - box.lower[index])
    lower, upper = box.lower.copy(), box.upper.copy()
    below, above = (ends.copy() for ends in box.open_ends)
    least = -np.inf if below[index] else lower[index]
    if low == high:
        low = high = max(low, least)  # a floor held at 0
    if low > least or low == high:
        lower[index], below[index] = low, False
        upper[index] = max(upper[index], low + width) if above[index] else upper[index]
    if high < upper[index] or (above[index] and np.isfinite(high)) or low == high:
        upper[index], above[index] = high, False
        lower[index] = min(lower[index], high - width) if below[index] else lower[index]
    if lower[index] > upper[index]:
        raise FittingError(f"bounds of {name}: no value between them can fit these losses")
    return replace(box, lower=lower, upper=upper, open_below=below, open_above=above)


def with_box(problem: Problem, box: Box) -> Problem:
    """Return the same problem in another box."""
    changed: Problem = replace(problem, box=box)  # type: ignore[type-var]  # every problem is a frozen dataclass
    return changed


def widen(problem: Problem, below: Mask, above: Mask) -> Problem:
    """Return the same problem with these ends of its box as far again from the other end."""
    wider = with_box(problem, problem.box.widened(below, above))
    if not isinstance(wider, Mapped):
        return wider
    return replace(wider, inner=widen(wider.inner, *(ends & inner for ends, inner in zip(
        (below, above), wider.inner.box.open_ends, strict=True))))  # fmt: skip


def spread_out(theta: Array, value: Array, n_keep: int, apart: float = APART) -> Array:
    """Return the best rows of theta that lie apart from each other, by a share of each coordinate's range."""
    if apart <= 0:
        return np.asarray(theta[np.argsort(value, kind="stable")[:n_keep]])
    unit = np.ptp(theta, axis=0) + 1e-12
    kept: list[int] = []
    for candidate in np.argsort(value, kind="stable"):
        if all((np.abs(theta[candidate] - theta[k]) / unit).max() >= apart for k in kept):
            kept.append(int(candidate))
        if len(kept) == n_keep:
            break
    return np.asarray(theta[kept])


def map_coordinate(problem: Problem, index: int, combination: Array) -> Mapped:
    """Replace coordinate `index` by the linear combination of theta given (its own entry must not be zero)."""
    forward = np.eye(len(combination))
    forward[index] = combination
    lower, upper = problem.box.lower.copy(), problem.box.upper.copy()
    ends = np.stack([combination * problem.box.lower, combination * problem.box.upper])
    lower[index], upper[index] = ends.min(axis=0).sum(), ends.max(axis=0).sum()
    matrix = np.asarray(np.linalg.inv(forward), dtype=np.float64)
    curvature = (matrix**2).T @ problem.box.curvature
    others = np.arange(len(combination)) != index
    below, above = (ends & others for ends in problem.box.open_ends)
    return Mapped(problem, matrix, problem.names, Box(lower, upper, curvature, below, above))
