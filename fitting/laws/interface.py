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
    def name(self) -> str: ...
    @property
    def doc(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def equation(self) -> str: ...
    @property
    def per_method(self) -> tuple[str, ...]: ...
    @property
    def is_additive(self) -> bool: ...
    @property
    def profiles(self) -> bool: ...
    @property
    def shifts(self) -> tuple[str, ...]: ...
    @property
    def reported(self) -> Callable[[Array], Reported] | None: ...
    @property
    def axes(self) -> tuple[str, ...]: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...
    def n_parameters(self, n_methods: int) -> int: ...
    def levels_needed(self) -> dict[str, int]: ...
    def lay_out(self, log_axes: dict[str, Array], log_loss: Array, methods: NDArray[np.str_]) -> Problem: ...
    def log_loss_at(
        self, names: tuple[str, ...], theta: Array, log_axes: dict[str, Array], methods: NDArray[np.str_]
    ) -> tuple[Array, Array]: ...
