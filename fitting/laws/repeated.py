"""Repeated data: Muennighoff et al. 2023, arXiv:2305.16264, eqs. 5 and 6: repetitions decay in worth.

Needs the column unique_tokens: D' = U (1 + R_D (1 - exp(-(D/U - 1)/R_D))), and the same for N over N*(U), the number
of parameters that the unique tokens would be compute-optimal for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.shaped import Array, Columns, Shape, ShapedLaw, Theta

TOKENS_PER_PARAMETER = 20.0  # only to place seeds, before A, B and the exponents are known


@dataclass(frozen=True)
class _Worth:
    """log of a base amount times (1 + r (1 - exp(-x/r))), and its derivatives by x (times 1) and by log r."""

    log_gain: Any
    by_excess: Any
    by_log_rate: Any


def _worth(excess: Any, rate: Any) -> _Worth:
    left = np.exp(-excess / rate)
    gain = 1 + rate * (1 - left)
    return _Worth(np.log(gain), left / gain, (rate * (1 - left) - excess * left) / gain)


def _value(theta: Theta, columns: Columns) -> NDArray[Any]:
    return np.asarray(_all(theta, columns)[0])


def _jacobian(theta: Theta, columns: Columns) -> NDArray[Any]:
    return np.asarray(_all(theta, columns)[1])


def _all(theta: Theta, columns: Columns) -> tuple[Any, Any]:
    """Return log L and its Jacobian in (log E, log A, alpha, log B, beta, log R_D, log R_N)."""
    floor, a, alpha, b, beta, log_rd, log_rn = (theta[:, [j]] for j in range(7))
    log_n, log_u = columns["n_params"], np.minimum(columns["unique_tokens"], columns["n_tokens"])
    data = _worth(np.exp(columns["n_tokens"] - log_u) - 1, np.exp(log_rd))
    log_d = log_u + data.log_gain
    base, base_slopes = _optimal_size(a, alpha, b, beta, log_u)
    over = log_n > base.real  # more parameters than the unique tokens are optimal for
    ratio = np.where(over, np.exp(np.where(over, log_n - base, 0 * base)), 1.0)
    size = _worth(ratio - 1, np.exp(log_rn))
    log_size = np.where(over, base + size.log_gain, log_n)
    by_base = np.where(over, 1 - ratio * size.by_excess, 0)
    logs = [floor + 0 * log_size, a - alpha * log_size, b - beta * log_d]
    top = np.maximum(np.maximum(logs[0].real, logs[1].real), logs[2].real)
    parts = [np.exp(entry - top) for entry in logs]
    total = parts[0] + parts[1] + parts[2]
    p_e, p_a, p_b = (part / total for part in parts)
    through = -p_a * alpha * by_base  # d log L / d base
    slopes = [
        p_e,
        p_a + through * base_slopes[0],
        -p_a * log_size + through * base_slopes[1],
        p_b + through * base_slopes[2],
        -p_b * log_d + through * base_slopes[3],
        -p_b * beta * data.by_log_rate,
        -p_a * alpha * np.where(over, size.by_log_rate, 0),
    ]
    return top + np.log(total), np.stack(np.broadcast_arrays(*slopes), axis=-1)


def _optimal_size(a: Any, alpha: Any, b: Any, beta: Any, log_u: Array) -> tuple[Any, tuple[Any, ...]]:
    """log N*(U) = (beta/alpha)(log U + log G) + log G, G = (alpha A / beta B)^(1/(alpha+beta)), and its derivatives."""
    total, ratio = alpha + beta, beta / alpha
    log_g = (np.log(alpha) + a - np.log(beta) - b) / total
    by_alpha, by_beta = (1 / alpha - log_g) / total, (-1 / beta - log_g) / total
    slopes = (
        (ratio + 1) / total,
        -ratio / alpha * (log_u + log_g) + (ratio + 1) * by_alpha,
        -(ratio + 1) / total,
        (log_u + log_g) / alpha + (ratio + 1) * by_beta,
    )
    return ratio * (log_u + log_g) + log_g, slopes


def _basis(shapes: Array, columns: Columns, log_loss: Array) -> tuple[Array, Array]:
    alpha, beta, log_rd, log_rn = shapes
    log_u = np.minimum(columns["unique_tokens"], columns["n_tokens"])
    base = np.minimum(log_u - np.log(TOKENS_PER_PARAMETER), columns["n_params"])
    log_size = base + _worth(np.exp(columns["n_params"] - base) - 1, np.exp(log_rn)).log_gain
    log_d = log_u + _worth(np.exp(columns["n_tokens"] - log_u) - 1, np.exp(log_rd)).log_gain
    terms = [np.ones(len(log_u)), np.exp(-alpha * log_size), np.exp(-beta * log_d)]
    return np.stack(terms, axis=1), np.exp(log_loss)


def _place(shapes: Array, solved: Array, columns: Columns) -> Array:
    alpha, beta, log_rd, log_rn = shapes
    floor, a, b = np.log(solved)
    return np.array([floor, a, alpha, b, beta, log_rd, log_rn])


_EXPONENTS = (0.15, 0.28, 0.4, 0.6)
_RATES = tuple(np.log([3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0]).tolist())
_SIZE_RATES = tuple(np.log([1.0, 2.0, 4.0, 8.0, 16.0]).tolist())

REPEATED = ShapedLaw(
    "repeated-data",
    "loss from parameters, tokens and unique tokens: how much repeated tokens are worth",
    "Muennighoff et al. 2023, arXiv:2305.16264, eqs. 5 and 6",
    "L = E + A N'^-alpha + B D'^-beta with N', D' of diminishing worth past U_N, U_D",
    ("n_params", "n_tokens", "unique_tokens"),
    (
        Shape("E", True, -14.0, 5.0, limits=("lower",)),
        Shape("A", True, -20.0, 60.0, term=("alpha", "n_params")),
        Shape("alpha", False, 1e-3, 3.0, _EXPONENTS, limits=("lower",)),
        Shape("B", True, -20.0, 60.0, term=("beta", "n_tokens")),
        Shape("beta", False, 1e-3, 3.0, _EXPONENTS, limits=("lower",)),
        Shape("R_D", True, -3.0, 9.0, _RATES, limits=("lower", "upper")),
        Shape("R_N", True, -3.0, 9.0, _SIZE_RATES, limits=("lower", "upper")),
    ),
    _value,
    _jacobian,
    _basis,
    _place,
    levels={"n_params": 3, "n_tokens": 3, "unique_tokens": 2},
)
