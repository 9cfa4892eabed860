"""Laws that are not a plain sum: a value and an analytic Jacobian of log L in (log coefficients, shapes).

Both functions accept complex theta, by which the tests check the Jacobian; second derivatives are its differences.
Seeds are by variable projection: a grid over the shapes, the coefficients by linear least squares.
Shapes: theta (batch, n_theta); log L (batch, n_points); Jacobian (batch, n_points, n_theta).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.interface import Reported
from scalewright.fitting.losses import loss_terms
from scalewright.fitting.objectives import Objective
from scalewright.fitting.problem import APART, spread_out
from scalewright.fitting.solver import Box, Evaluate, Local

Array = NDArray[np.float64]
Columns = dict[str, Array]
Theta = NDArray[Any]  # float64, or complex128 in a complex step of the tests

DIFFERENCE = 1e-6
CACHED = 2048  # rows times points whose intermediate values stay in a cache


@dataclass(frozen=True)
class Shape:
    """One coordinate: whether theta holds its log, its range in theta, and the values tried as seeds (in theta).

    term: for a coefficient, the exponent and the axis that stand beside it, as in A N^-alpha. limits: the ends of the
    range, "lower" and "upper", that are limits of the law; the others move where the optimum lies at them.
    """

    name: str
    is_log: bool
    lower: float
    upper: float
    grid: tuple[float, ...] = ()
    term: tuple[str, str] | None = None
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShapedLaw:
    """A law given by functions.

    For one seed, `basis` returns the functions of the points that the coefficients multiply and the target they should
    add up to, (n_points, n_coefficients) and (n_points,); `place` puts shapes and solved coefficients into theta.
    A law whose coefficients are not linear gives its `starts` (n_starts, n_theta) for axes and log losses instead.
    `reported` turns coordinates that are good to solve in into the parameters of the equation.
    """

    name: str
    doc: str
    source: str
    equation: str
    axes: tuple[str, ...]
    coordinates: tuple[Shape, ...]
    value: Callable[[Theta, Columns], Theta]
    jacobian: Callable[[Theta, Columns], Theta]
    basis: Callable[[Array, Columns, Array], tuple[Array, Array]] | None = None
    place: Callable[[Array, Array, Columns], Array] | None = None
    starts: Callable[[Columns, Array], Array] | None = None
    reported: Callable[[Array], Reported] | None = None
    per_method: tuple[str, ...] = ()
    levels: dict[str, int] = field(default_factory=dict)
    is_additive: bool = False
    profiles: bool = True
    shifts: tuple[str, ...] = ()

    @property
    def theta_names(self) -> tuple[str, ...]:
        """Names of the coordinates that are solved for."""
        return tuple(c.name for c in self.coordinates)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names as reported: those of theta, unless the law reports others."""
        return self.theta_names if self.reported is None else self.reported(np.ones(len(self.coordinates))).names

    def n_parameters(self, n_methods: int) -> int:
        """Count the coordinates of theta; the same for any number of methods."""
        return len(self.coordinates)

    def levels_needed(self) -> dict[str, int]:
        """Distinct values of each axis below which the law cannot be told apart from a simpler one."""
        return dict(self.levels)

    def lay_out(self, log_axes: Columns, log_loss: Array, methods: NDArray[np.str_]) -> "ShapedProblem":
        """Lay the law out on points."""
        return ShapedProblem(self, log_axes, log_loss, _box(self, log_axes, log_loss))

    def log_loss_at(
        self, names: tuple[str, ...], theta: Array, log_axes: Columns, methods: NDArray[np.str_]
    ) -> tuple[Array, Array]:
        """Return log L_hat and its Jacobian at points."""
        return self.value(theta[None], log_axes)[0], self.jacobian(theta[None], log_axes)[0]


def _box(law: ShapedLaw, columns: Columns, log_loss: Array) -> Box:
    lower, upper = (np.array([getattr(c, end) for c in law.coordinates]) for end in ("lower", "upper"))
    centre = 0.5 * (lower + upper)
    jacobian = law.jacobian(centre[None], columns)[0]
    curvature = np.nan_to_num((jacobian**2).sum(axis=0), nan=1.0, posinf=1.0) + 1e-12
    below, above = (np.array([end not in c.limits for c in law.coordinates]) for end in ("lower", "upper"))
    return Box(lower, upper, curvature, below, above)


@dataclass(frozen=True)
class ShapedProblem:
    """A shaped law on one set of points; coordinates are reported as they are solved."""

    law: ShapedLaw
    columns: Columns
    log_loss: Array
    box: Box

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of theta."""
        return self.law.theta_names

    @property
    def is_log(self) -> NDArray[np.bool_]:
        """(n_theta,), true where theta holds a logarithm."""
        return np.array([c.is_log for c in self.law.coordinates])

    @property
    def to_raw(self) -> Array:
        """The identity: axes are not centred."""
        return np.eye(len(self.law.coordinates))

    @property
    def to_centred(self) -> Array:
        """Each log coefficient less its exponent times the mean log of its axis."""
        out = np.eye(len(self.names))
        for j, coordinate in enumerate(self.law.coordinates):
            if coordinate.term is not None:
                exponent, axis = coordinate.term
                out[j, self.names.index(exponent)] = -float(self.columns[axis].mean())
        return out

    @property
    def is_additive(self) -> bool:
        """As the law says."""
        return self.law.is_additive

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return log L_hat (n_points,) and its Jacobian for one theta."""
        return self.law.value(theta[None], self.columns)[0], self.law.jacobian(theta[None], self.columns)[0]

    def evaluator(self, objective: Objective, weights: Array) -> Evaluate:
        """Return the function that the solver calls; row b of a batch uses row b of `weights` (or the only one)."""

        def evaluate(theta: Array, rows: NDArray[np.intp]) -> Local:
            weight = weights if len(weights) == 1 else weights[rows]
            with np.errstate(all="ignore"):  # a wild step may overflow; it is then refused
                predicted, jacobian = self.law.value(theta, self.columns), self.law.jacobian(theta, self.columns)
                terms = loss_terms(objective, predicted, self.log_loss)
                outer = jacobian * (weight * (terms.square + terms.curvature))[:, :, None]
                bent = self._second(theta, weight * terms.curvature)
            value = np.nan_to_num((weight * terms.value).sum(axis=1), nan=np.inf)
            gradient = np.einsum("bn,bnp->bp", weight * terms.slope, jacobian)
            hessian = jacobian.transpose(0, 2, 1) @ outer + bent
            return Local(value, np.nan_to_num(gradient), np.nan_to_num(hessian))

        return evaluate

    def _second(self, theta: Array, factor: Array) -> Array:
        """Return sum_i factor_i d2 log L_i / d theta2, by central differences of the Jacobian in each coordinate.

        It steers Newton's steps and the certificate and enters no estimate, so eight digits are plenty: a complex step
        would give all sixteen at several times the cost of everything else in a fit.
        """
        n_rows, n_theta = theta.shape
        shift = DIFFERENCE * np.concatenate([np.eye(n_theta), -np.eye(n_theta)])
        moved = (theta[None] + shift[:, None]).reshape(-1, n_theta)
        rows = max(1, CACHED // factor.shape[1])
        parts = [self.law.jacobian(moved[k : k + rows], self.columns) for k in range(0, len(moved), rows)]
        slopes = np.concatenate(parts).reshape(2, n_theta, n_rows, -1, n_theta)
        out = np.einsum("bn,jbnp->bjp", factor, slopes[0] - slopes[1]) / (2 * DIFFERENCE)
        return np.asarray(0.5 * (out + out.transpose(0, 2, 1)))

    def seeds(self, n_keep: int = 8, apart: float = APART) -> Array:
        """Return the best starts of the grid over shapes, coefficients projected out, (n_keep, n_theta)."""
        if self.law.starts is not None:
            starts = self.law.starts(self.columns, self.log_loss)
        else:
            grids = [c.grid for c in self.law.coordinates if c.grid]
            starts = np.array([self._project(np.array(point)) for point in product(*grids)])
        starts = np.clip(starts, self.box.lower, self.box.upper)
        with np.errstate(all="ignore"):
            squares = ((self.law.value(starts, self.columns) - self.log_loss) ** 2).sum(axis=1)
        return spread_out(starts, np.nan_to_num(squares, nan=np.inf), n_keep, apart)

    def _project(self, shapes: Array) -> Array:
        """Solve for the coefficients in relative least squares at one grid point of shapes."""
        assert self.law.basis is not None and self.law.place is not None, self.law.name
        basis, target = self.law.basis(shapes, self.columns, self.log_loss)
        relative = basis / target[:, None]
        solved = np.linalg.lstsq(relative, np.ones(len(target)), rcond=1e-10)[0]
        floor = 1e-3 / np.abs(relative).mean(axis=0)
        return self.law.place(shapes, np.maximum(solved, floor), self.columns)
