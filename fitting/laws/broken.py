"""A power law in compute with one smooth break: Caballero et al. 2022, arXiv:2210.14891, eq. 1 with n = 1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.shaped import Array, Columns, Shape, ShapedLaw, Theta


def _parts(theta: Theta, columns: Columns) -> tuple[Any, ...]:
    floor, coefficient, first, second, where, log_width = (theta[:, [j]] for j in range(6))
    x, width = columns["flops"], np.exp(log_width)
    along = (x - where) / width
    turned = np.where(
        along.real > 0, along + np.log(1 + np.exp(-_positive(along))), np.log(1 + np.exp(_negative(along)))
    )
    power = coefficient - first * x - second * width * turned
    top = np.maximum(floor.real, power.real)
    total = np.exp(floor - top) + np.exp(power - top)
    return top + np.log(total), np.exp(power - top) / total, turned, along, width, second, x


def _positive(along: Any) -> Any:
    return np.where(along.real > 0, along, 0 * along)


def _negative(along: Any) -> Any:
    return np.where(along.real > 0, 0 * along, along)


def _value(theta: Theta, columns: Columns) -> NDArray[Any]:
    return np.asarray(_parts(theta, columns)[0])


def _jacobian(theta: Theta, columns: Columns) -> NDArray[Any]:
    _, share, turned, along, width, second, x = _parts(theta, columns)
    rising = np.where(along.real > 0, 1 / (1 + np.exp(-_positive(along))), 1 - 1 / (1 + np.exp(_negative(along))))
    slopes = [
        1 - share,
        share,
        -share * x,
        -share * width * turned,
        share * second * rising,
        share * second * width * (along * rising - turned),
    ]
    return np.stack(np.broadcast_arrays(*slopes), axis=-1)


def _basis(shapes: Array, columns: Columns, log_loss: Array) -> tuple[Array, Array]:
    first, second, where, log_width = shapes
    x, width = columns["flops"], np.exp(log_width)
    at = x.min() + where * (x.max() - x.min())
    power = -first * (x - x.mean()) - second * width * np.logaddexp(0, (x - at) / width)
    return np.stack([np.ones(len(x)), np.exp(power)], axis=1), np.exp(log_loss)


def _place(shapes: Array, solved: Array, columns: Columns) -> Array:
    first, second, where, log_width = shapes
    x = columns["flops"]
    at = x.min() + where * (x.max() - x.min())
    return np.array([np.log(solved[0]), np.log(solved[1]) + first * x.mean(), first, second, at, log_width])


BROKEN = ShapedLaw(
    "broken",
    "loss from compute with a floor and one smooth break (the break's grid is in fractions of the range seen)",
    "Caballero et al. 2022, arXiv:2210.14891, eq. 1 with one break",
    "L = E + A C^-c0 (1 + (C/d1)^(1/f1))^(-c1 f1)",
    ("flops",),
    (
        Shape("E", True, -14.0, 5.0, limits=("lower",)),
        Shape("A", True, -50.0, 250.0, term=("c0", "flops")),
        Shape("c0", False, -0.5, 3.0, (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)),
        Shape("c1", False, -2.0, 3.0, (-0.2, -0.05, 0.05, 0.2, 0.4, 1.0, 4.0)),
        Shape("d1", True, -50.0, 150.0, (0.2, 0.4, 0.6, 0.8)),
        Shape("f1", True, -4.0, 3.0, (-1.5, 0.0, 1.0), limits=("lower",)),
    ),
    _value,
    _jacobian,
    _basis,
    _place,
    levels={"flops": 7},
)
