"""Additive laws: L = sum of terms, each a coefficient or a coefficient times a power of one axis. Knows numpy only.

log L is the logsumexp of terms linear in theta = (log coefficients, exponents), which is what the solver exploits.
Shapes: features z (n_terms, n_points, n_theta); theta (batch, n_theta); weights (batch, n_points).
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.losses import loss_terms
from scalewright.fitting.objectives import Objective
from scalewright.fitting.problem import APART, spread_out
from scalewright.fitting.solver import Box, Evaluate, Local

Array = NDArray[np.float64]

EXPONENT_BOX = (0.0, 4.0)
COEFFICIENT_REACH = (12.0, 4.0)  # e-folds that a term, at the centre of the points, may lie below or above the losses
GRID = np.linspace(0.02, 1.5, 32)


@dataclass(frozen=True)
class Term:
    """coefficient * axis^(-exponent), or the coefficient alone."""

    coefficient: str
    exponent: str | None = None
    axis: str | None = None


@dataclass(frozen=True)
class AdditiveLaw:
    """A sum of terms; `per_method` names the parameters that each method has for itself (the others are shared)."""

    name: str
    doc: str
    source: str
    equation: str
    terms: tuple[Term, ...]
    per_method: tuple[str, ...] = ()
    is_additive: bool = True  # one coordinate at its bound spoils the delta intervals of all others
    profiles: bool = True
    shifts: tuple[str, ...] = ()
    reported: None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of points that the law reads."""
        return tuple(dict.fromkeys(term.axis for term in self.terms if term.axis is not None))

    @property
    def coefficients(self) -> tuple[str, ...]:
        """One name for each term."""
        return tuple(term.coefficient for term in self.terms)

    @property
    def exponents(self) -> tuple[str, ...]:
        """Names in the order of the terms, a shared one once."""
        return tuple(dict.fromkeys(term.exponent for term in self.terms if term.exponent is not None))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names in the order of the equation: each coefficient followed by its exponent."""
        names = [n for term in self.terms for n in (term.coefficient, term.exponent) if n is not None]
        return tuple(dict.fromkeys(names))

    def n_parameters(self, n_methods: int) -> int:
        """Count the coordinates of theta for this many methods."""
        return sum(n_methods if name in self.per_method else 1 for name in self.parameters)

    def levels_needed(self) -> dict[str, int]:
        """Distinct values of each axis below which the law cannot be told apart from a simpler one."""
        return dict.fromkeys(self.axes, 3 if len(self.terms) > 1 else 2)

    def lay_out(self, log_axes: dict[str, Array], log_loss: Array, methods: NDArray[np.str_]) -> "AdditiveProblem":
        """Lay the law out on points."""
        return build(self, log_axes, log_loss, methods)

    def log_loss_at(
        self, names: tuple[str, ...], theta: Array, log_axes: dict[str, Array], methods: NDArray[np.str_]
    ) -> tuple[Array, Array]:
        """Return log L_hat and its Jacobian at points, for theta of uncentred axes."""
        return predict_log_loss(features(self, names, log_axes, methods), theta)


@dataclass(frozen=True)
class AdditiveProblem:
    """One law on one set of points, in centred coordinates; `names` labels theta, e.g. `A[gpt+]`."""

    law: AdditiveLaw
    names: tuple[str, ...]
    is_log: NDArray[np.bool_]  # (n_theta,) true where theta holds the logarithm of a coefficient
    z: Array
    log_loss: Array
    to_raw: Array  # (n_theta, n_theta): theta of uncentred axes = to_raw @ theta
    box: Box

    @property
    def n_points(self) -> int:
        """How many runs there are."""
        return len(self.log_loss)

    @property
    def to_centred(self) -> Array:
        """The identity: theta is centred already."""
        return np.eye(len(self.to_raw))

    @property
    def is_additive(self) -> bool:
        """As the law says."""
        return self.law.is_additive

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return log L_hat (n_points,) and its Jacobian (n_points, n_theta) for one theta."""
        return predict_log_loss(self.z, theta)

    def evaluator(self, objective: Objective, weights: Array) -> Evaluate:
        """Return the function that the solver calls; row b of a batch uses row b of `weights` (or the only one)."""
        return evaluator(self, objective, weights)

    def seeds(self, n_keep: int = 8, apart: float = APART) -> Array:
        """Return starts by variable projection, (n_seeds, n_theta)."""
        return seeds(self, n_keep, apart)


def theta_names(law: AdditiveLaw, methods: tuple[str, ...]) -> tuple[str, ...]:
    """Name every coordinate: shared ones first by their own name, then `name[method]`."""
    shared = [name for name in law.parameters if name not in law.per_method]
    own = [f"{name}[{method}]" for name in law.parameters if name in law.per_method for method in methods]
    return (*shared, *own)


def build(law: AdditiveLaw, log_axes: dict[str, Array], log_loss: Array, methods: NDArray[np.str_]) -> AdditiveProblem:
    """Lay out a law on points. `log_axes` holds the natural log of each axis, `methods` the method of each point."""
    levels = tuple(sorted(set(methods.tolist())))
    names = theta_names(law, levels)
    centres = {axis: float(values.mean()) for axis, values in log_axes.items()}
    centred = {axis: values - centres[axis] for axis, values in log_axes.items()}
    z = features(law, names, centred, methods)
    is_log = np.array([name.split("[")[0] in law.coefficients for name in names])
    return AdditiveProblem(
        law,
        names,
        is_log,
        z,
        log_loss,
        _uncentre(law, names, centres),
        _box(is_log, _is_floor(law, names), log_loss, z),
    )


def features(law: AdditiveLaw, names: tuple[str, ...], log_axes: dict[str, Array], methods: NDArray[np.str_]) -> Array:
    """Return z with log(term k at point i) = z[k, i] . theta."""
    index = {name: j for j, name in enumerate(names)}
    z = np.zeros((len(law.terms), len(methods), len(names)))
    rows = np.arange(len(methods))
    for k, term in enumerate(law.terms):
        z[k, rows, _columns(term.coefficient, law, index, methods)] = 1.0
        if term.exponent is not None and term.axis is not None:
            z[k, rows, _columns(term.exponent, law, index, methods)] = -log_axes[term.axis]
    return z


def _columns(name: str, law: AdditiveLaw, index: dict[str, int], methods: NDArray[np.str_]) -> NDArray[np.intp]:
    if name not in law.per_method:
        return np.full(len(methods), index[name])
    return np.array([index[f"{name}[{method}]"] for method in methods])


def _uncentre(law: AdditiveLaw, names: tuple[str, ...], centres: dict[str, float]) -> Array:
    """log A of raw axes = log A of centred axes + exponent * centre."""
    index = {name: j for j, name in enumerate(names)}
    matrix = np.eye(len(names))
    for term in law.terms:
        if term.exponent is None or term.axis is None:
            continue
        for name in names:
            base, _, method = name.partition("[")
            if base == term.coefficient:
                own = term.exponent in law.per_method
                matrix[index[name], index[f"{term.exponent}[{method}" if own else term.exponent]] = centres[term.axis]
    return matrix


def _is_floor(law: AdditiveLaw, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """True for coefficients without an exponent: they cannot exceed the losses."""
    floors = {term.coefficient for term in law.terms if term.exponent is None}
    return np.array([name.split("[")[0] in floors for name in names])


def _box(is_log: NDArray[np.bool_], is_floor: NDArray[np.bool_], log_loss: Array, z: Array) -> Box:
    below, above = COEFFICIENT_REACH
    lower = np.where(is_log, log_loss.min() - below, EXPONENT_BOX[0])
    upper = np.where(is_log, log_loss.max() + above * ~is_floor, EXPONENT_BOX[1])
    return Box(lower, upper, (z**2).sum(axis=(0, 1)) / len(z) ** 2, np.zeros(len(lower), bool), ~is_floor)


def predict_log_loss(z: Array, theta: Array) -> tuple[Array, Array]:
    """Return log L_hat (n_points,) and its Jacobian (n_points, n_theta) for one theta and features z."""
    logs = z @ theta  # (n_terms, n_points)
    top = logs.max(axis=0)
    parts = np.exp(logs - top)
    total = parts.sum(axis=0)
    return top + np.log(total), np.einsum("kn,knp->np", parts / total, z)


def evaluator(problem: AdditiveProblem, objective: Objective, weights: Array) -> Evaluate:
    """Return the function that the solver calls; row b of a batch uses row b of `weights` (or the only one)."""
    n_terms, n_points, n_theta = problem.z.shape
    pairs = list(combinations_with_replacement(range(n_terms), 2))
    upper = np.triu_indices(n_theta)
    flat = np.ascontiguousarray(problem.z.reshape(-1, n_theta))
    outer = np.concatenate([_pair_features(problem.z, k, m, upper) for k, m in pairs])

    def evaluate(theta: Array, rows: NDArray[np.intp]) -> Local:
        weight = weights if len(weights) == 1 else weights[rows]
        logs = (theta @ flat.T).reshape(len(theta), n_terms, n_points)
        top = logs.max(axis=1)
        share = np.exp(logs - top[:, None])
        total = share.sum(axis=1)
        share /= total[:, None]  # softmax over terms, (batch, n_terms, n_points)
        terms = loss_terms(objective, top + np.log(total), problem.log_loss)
        gradient = (share * (weight * terms.slope)[:, None]).reshape(len(theta), -1) @ flat
        square, curvature = weight * terms.square, weight * terms.curvature
        mixed = np.empty((len(theta), len(pairs), n_points))
        for slot, (k, m) in enumerate(pairs):
            np.multiply(share[:, k] * share[:, m], square, out=mixed[:, slot])
            if k == m:
                mixed[:, slot] += curvature * share[:, k]
        packed = mixed.reshape(len(theta), -1) @ outer
        return Local((weight * terms.value).sum(axis=1), gradient, _unpack(packed, upper, n_theta))

    return evaluate


def _pair_features(z: Array, k: int, m: int, upper: tuple[NDArray[np.intp], ...]) -> Array:
    """Return z_k z_m' (plus its transpose for two different terms) of each point, packed: (n_points, n_packed)."""
    square = z[k][:, :, None] * z[m][:, None, :]
    full = square if k == m else square + square.transpose(0, 2, 1)
    return np.ascontiguousarray(full[:, upper[0], upper[1]])


def _unpack(packed: Array, upper: tuple[NDArray[np.intp], ...], n_theta: int) -> Array:
    full = np.empty((len(packed), n_theta, n_theta))
    full[:, upper[0], upper[1]] = packed
    full[:, upper[1], upper[0]] = packed
    return full


def seeds(problem: AdditiveProblem, n_keep: int, apart: float) -> Array:
    """Return starts by variable projection: on a grid of exponents, the best coefficients by linear least squares.

    Exponents of the same kind are tied over methods; of the grid the best points that lie well apart are kept. Each
    term depends on one exponent only, so the normal equations of all grid points are looked up in products of pairs.
    """
    exponents = problem.law.exponents
    grid = GRID if len(exponents) > 1 else np.linspace(GRID[0], GRID[-1], 96)
    places = np.array(list(product(range(len(grid)), repeat=len(exponents))), dtype=np.intp)
    coefficients = np.flatnonzero(problem.is_log).tolist()
    columns = [_column_basis(problem, j, grid) for j in coefficients]
    where = [_grid_index(problem, j, places) for j in coefficients]
    solved, value = _project(columns, where, problem)
    theta = np.zeros((len(places), len(problem.names)))
    for k, exponent in enumerate(exponents):
        tied = [j for j, name in enumerate(problem.names) if name.split("[")[0] == exponent]
        theta[:, tied] = grid[places[:, [k]]]
    theta[:, problem.is_log] = np.log(solved)
    return spread_out(theta, value, n_keep, apart)


def _column_basis(problem: AdditiveProblem, index: int, grid: Array) -> Array:
    """Return a coefficient's function of the points, over the loss, at each exponent: (n_grid, n_points)."""
    law = problem.law
    term = next(t for t in law.terms if t.coefficient == problem.names[index].split("[")[0])
    k = law.terms.index(term)
    member = problem.z[k, :, index]  # one where the point belongs to this coefficient
    relative = member * np.exp(-problem.log_loss)
    if term.exponent is None:
        return relative[None]
    tied = [j for j, name in enumerate(problem.names) if name.split("[")[0] == term.exponent]
    return np.asarray(relative * np.exp(grid[:, None] * problem.z[k][:, tied].sum(axis=1)))


def _grid_index(problem: AdditiveProblem, index: int, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Which row of the column's basis each grid point uses."""
    term = next(t for t in problem.law.terms if t.coefficient == problem.names[index].split("[")[0])
    if term.exponent is None:
        return np.zeros(len(places), dtype=np.intp)
    return places[:, problem.law.exponents.index(term.exponent)]


def _project(columns: list[Array], where: list[NDArray[np.intp]], problem: AdditiveProblem) -> tuple[Array, Array]:
    """Solve for the coefficients at every grid point; return them, floored, and the relative squares left."""
    n = len(columns)
    gram = np.empty((len(where[0]), n, n))
    for c, d in combinations_with_replacement(range(n), 2):
        gram[:, c, d] = gram[:, d, c] = (columns[c] @ columns[d].T)[where[c], where[d]]
    target = np.stack([columns[c].sum(axis=1)[where[c]] for c in range(n)], axis=1)
    ridge = 1e-10 * np.einsum("gii->gi", gram).max(axis=1)
    solved = np.linalg.solve(gram + ridge[:, None, None] * np.eye(n), target[:, :, None])[:, :, 0]
    solved = np.maximum(solved, 0.01 * np.exp(problem.log_loss.min()))
    left = problem.n_points - 2 * (solved * target).sum(axis=1) + np.einsum("gc,gcd,gd->g", solved, gram, solved)
    return solved, left
