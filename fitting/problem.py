"""What every law looks like to the solver, and the solve: continuation in delta, certificate. Knows numpy only."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fitting.losses import Objective
from fitting.solver import Array, Box, Evaluate, Local, Mask, Solution, minimise

SAME_OPTIMUM = 1e-6  # relative difference of objective values that still counts as the same optimum
CHUNK = 64  # resamplings solved together; 64 x 240 points x 15 numbers stay in a cache of 2 MB


class Problem(Protocol):
    """A law laid out on points. Coordinates theta are centred; `to_raw` maps them to those that are reported."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def is_log(self) -> NDArray[np.bool_]: ...
    @property
    def log_loss(self) -> Array: ...
    @property
    def to_raw(self) -> Array: ...
    @property
    def box(self) -> Box: ...
    def evaluator(self, objective: Objective, weights: Array) -> Evaluate: ...
    def seeds(self, n_keep: int) -> Array: ...
    def predict(self, theta: Array) -> tuple[Array, Array]: ...


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


def solve(problem: Problem, objective: Objective, starts: Array, weights: Array, free: Mask | None = None) -> Solution:
    """Minimise from each start through the continuation in delta. One row of `weights` serves all, or one each."""
    loose = np.ones(starts.shape, dtype=bool) if free is None else free
    theta = starts
    for delta in objective.stages():
        solution = minimise(problem.evaluator(objective.with_delta(delta), weights), theta, problem.box, loose)
        theta = solution.theta
    return solution


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
    held = held_at_bound(problem, solution.theta[row])
    decrease = float(solution.predicted_decrease[row]) * objective.scale
    return Certificate(
        converged=decrease <= 1e-8 * (abs(best) * objective.scale) + 1e-18,
        predicted_decrease=decrease,
        gradient_norm=float(solution.gradient_norm[row]) * objective.scale,
        smallest_eigenvalue=float(solution.smallest_eigenvalue[row]),
        n_seeds=len(values),
        share_of_seeds=float(np.mean(values <= best + slack)),
        second_best=float(others.min()) * objective.scale if len(others) else None,
        at_bound=tuple(name for name, at in zip(problem.names, held, strict=True) if at),
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
        return self.inner.is_log

    @property
    def log_loss(self) -> Array:
        return self.inner.log_loss

    @property
    def to_raw(self) -> Array:
        return np.asarray(self.inner.to_raw @ self.matrix)

    def seeds(self, n_keep: int) -> Array:
        return np.asarray(np.linalg.solve(self.matrix, self.inner.seeds(n_keep).T).T)

    def predict(self, theta: Array) -> tuple[Array, Array]:
        value, jacobian = self.inner.predict(self.matrix @ theta)
        return value, jacobian @ self.matrix

    def evaluator(self, objective: Objective, weights: Array) -> Evaluate:
        inside, inner = self.inner.evaluator(objective, weights), self.inner.box
        slack = 1e-9 * (inner.upper - inner.lower)

        def evaluate(phi: Array, rows: NDArray[np.intp]) -> Local:
            theta = phi @ self.matrix.T
            local = inside(theta, rows)
            outside = ((theta < inner.lower - slack) | (theta > inner.upper + slack)).any(axis=1)
            value = np.where(outside, np.inf, local.value)
            return Local(value, local.gradient @ self.matrix, self.matrix.T @ local.hessian @ self.matrix)

        return evaluate


def map_coordinate(problem: Problem, index: int, combination: Array) -> Mapped:
    """Replace coordinate `index` by the linear combination of theta given (its own entry must not be zero)."""
    forward = np.eye(len(combination))
    forward[index] = combination
    lower, upper = problem.box.lower.copy(), problem.box.upper.copy()
    ends = np.stack([combination * problem.box.lower, combination * problem.box.upper])
    lower[index], upper[index] = ends.min(axis=0).sum(), ends.max(axis=0).sum()
    matrix = np.asarray(np.linalg.inv(forward), dtype=np.float64)
    curvature = (matrix**2).T @ problem.box.curvature
    return Mapped(problem, matrix, problem.names, Box(lower, upper, curvature))
