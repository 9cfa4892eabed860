"""Kaplan et al. 2020, arXiv:2001.08361, eq. 1.5: parameters and tokens under one outer exponent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.shaped import Array, Columns, Shape, ShapedLaw, Theta


def _parts(theta: Theta, columns: Columns) -> tuple[Any, ...]:
    log_nc, alpha_n, log_dc, alpha_d = (theta[:, [j]] for j in range(4))
    size = log_nc - columns["n_params"]
    inner = alpha_n / alpha_d * size
    data = log_dc - columns["n_tokens"]
    top = np.maximum(inner.real, data.real)
    total = np.exp(inner - top) + np.exp(data - top)
    return alpha_n, alpha_d, size, inner, top + np.log(total), np.exp(inner - top) / total


def _value(theta: Theta, columns: Columns) -> NDArray[Any]:
    _, alpha_d, _, _, log_sum, _ = _parts(theta, columns)
    return np.asarray(alpha_d * log_sum)


def _jacobian(theta: Theta, columns: Columns) -> NDArray[Any]:
    alpha_n, alpha_d, size, inner, log_sum, share = _parts(theta, columns)
    return np.stack([share * alpha_n, share * size, (1 - share) * alpha_d, log_sum - share * inner], axis=-1)


def _basis(shapes: Array, columns: Columns, log_loss: Array) -> tuple[Array, Array]:
    """L^(1/alpha_D) = Nc^(alpha_N/alpha_D) N^-(alpha_N/alpha_D) + Dc / D is linear in its two coefficients."""
    alpha_n, alpha_d = shapes
    terms = [np.exp(-alpha_n / alpha_d * columns["n_params"]), np.exp(-columns["n_tokens"])]
    return np.stack(terms, axis=1), np.exp(log_loss / alpha_d)


def _place(shapes: Array, solved: Array, columns: Columns) -> Array:
    alpha_n, alpha_d = shapes
    return np.array([np.log(solved[0]) * alpha_d / alpha_n, alpha_n, np.log(solved[1]), alpha_d])


_EXPONENTS = tuple(np.geomspace(0.03, 0.6, 14).tolist())

KAPLAN = ShapedLaw(
    "kaplan",
    "loss from parameters and tokens, no floor",
    "Kaplan et al. 2020, arXiv:2001.08361, eq. 1.5",
    "L = [(N_c/N)^(alpha_N/alpha_D) + D_c/D]^alpha_D",
    ("n_params", "n_tokens"),
    (
        Shape("N_c", True, -50.0, 250.0),
        Shape("alpha_N", False, 1e-3, 3.0, _EXPONENTS, limits=("lower",)),
        Shape("D_c", True, -50.0, 250.0),
        Shape("alpha_D", False, 1e-3, 3.0, _EXPONENTS, limits=("lower",)),
    ),
    _value,
    _jacobian,
    _basis,
    _place,
    levels={"n_params": 3, "n_tokens": 3},
)
