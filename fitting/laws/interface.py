"""What every law offers to a fit: its axes, its layout on points, its value and Jacobian. Knows numpy only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reported:
    """The parameters of an equation at some theta, and their Jacobian (n_parameters, n_theta)."""

    names: tuple[str, ...]
    values: Array
    jacobian: Array


class Law(Protocol):
    """A functional form of the loss. `per_method` names the parameters that each method has for itself.

    profiles: whether loose parameters are profiled; not where they are `reported` from other coordinates, whose
    covariance then tells how loose they are. shifts: parameters that stand in an exponent and may be 0.
    """

    @property
    def name(self) -> str:
        """Its key in LAWS."""

    @property
    def doc(self) -> str:
        """What it predicts from what, in a line."""

    @property
    def source(self) -> str:
        """The paper and equation."""

    @property
    def equation(self) -> str:
        """The equation in plain text, by the names of `parameters`."""

    @property
    def per_method(self) -> tuple[str, ...]:
        """Parameters that each method has for itself."""

    @property
    def is_additive(self) -> bool:
        """Whether it is a sum of terms: one coordinate at its bound then spoils all delta intervals."""

    @property
    def profiles(self) -> bool:
        """Whether loose parameters are profiled."""

    @property
    def shifts(self) -> tuple[str, ...]:
        """Parameters that stand in an exponent and may be 0."""

    @property
    def reported(self) -> Callable[[Array], Reported] | None:
        """The map from theta to the equation's parameters, or None where theta holds them."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of points that it reads."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names in the order of the equation."""

    def n_parameters(self, n_methods: int) -> int:
        """Count the coordinates of theta for this many methods."""

    def levels_needed(self) -> dict[str, int]:
        """Return how many distinct values of each axis it takes to tell it from a simpler law."""

    def lay_out(self, log_axes: dict[str, Array], log_loss: Array, methods: NDArray[np.str_]) -> Problem:
        """Lay the law out on points: logs of axes (n_points,) by name, log losses, and the method of each."""

    def log_loss_at(
        self, names: tuple[str, ...], theta: Array, log_axes: dict[str, Array], methods: NDArray[np.str_]
    ) -> tuple[Array, Array]:
        """Return log L_hat (n_points,) and its Jacobian (n_points, n_theta) at theta of uncentred axes."""
