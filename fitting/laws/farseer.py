"""Farseer: the floor, the coefficient and the exponent of tokens each a stretched exponential in N.

Each exponent k N^p + K is solved for as m + g h(x), h(x) = (exp(p x) - 1)/p, x = ln(N / REFERENCE), which stays smooth
where p passes 0 and k passes infinity; k, p and K are reported. theta is (m, g, p) of the floor, coefficient, exponent.
"""

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.interface import Reported
from scalewright.fitting.laws.shaped import Array, Columns, Shape, ShapedLaw, Theta
from scalewright.fitting.solver import Box, Local, minimise

REFERENCE = 1e8  # parameters
FLATTEST = 1e-3  # power of N taken for 0
BENDS = (-0.3, 0.15)  # powers of N that starts try
SEARCH_STEPS = 40
DATA_EXPONENTS = np.linspace(0.1, 1.0, 10)
SIZE_EXPONENTS = np.linspace(0.05, 1.0, 8)
N_PLANES = 3  # additive laws that starts are made of
NEAR_BEST = 1.5  # times the least squares up to which a start is kept: the objective may prefer another of these


def _parts(theta: Theta, columns: Columns) -> tuple[Any, ...]:
    x = columns["n_params"] - np.log(REFERENCE)
    exponents, slopes = [], []
    for j in (0, 3, 6):
        m, g, p = theta[:, [j]], theta[:, [j + 1]], _not_flat(theta[:, [j + 2]])
        grown = np.exp(p * x)
        h = (grown - 1) / p
        exponents.append(m + g * h)
        slopes += [np.ones_like(h), h, g * (x * grown - h) / p]
    floor, steepness = exponents[0], np.exp(exponents[2])
    falling = exponents[1] - steepness * columns["n_tokens"]
    top = np.maximum(floor.real, falling.real)
    total = np.exp(floor - top) + np.exp(falling - top)
    return top + np.log(total), np.exp(floor - top) / total, steepness, slopes


def _value(theta: Theta, columns: Columns) -> NDArray[Any]:
    return np.asarray(_parts(theta, columns)[0])


def _jacobian(theta: Theta, columns: Columns) -> NDArray[Any]:
    _, share, steepness, slopes = _parts(theta, columns)
    factors = (share, 1 - share, -(1 - share) * steepness * columns["n_tokens"])
    return np.stack([factors[k // 3] * slope for k, slope in enumerate(slopes)], axis=-1)


def _not_flat(p: Any) -> Any:
    return np.where(np.abs(p) < FLATTEST, np.where(p.real < 0, -FLATTEST, FLATTEST) + (p - p.real), p)


def _reported(theta: Array) -> Reported:
    """Return k, p, K of each exponent and their Jacobian."""
    x0, values, jacobian = np.log(REFERENCE), np.empty(9), np.zeros((9, 9))
    for j in (0, 3, 6):
        m, g, p = theta[j], theta[j + 1], float(_not_flat(theta[j + 2]))
        unit = np.exp(-p * x0) / p
        values[j : j + 3] = g * unit, p, m - g / p
        jacobian[j : j + 3, j : j + 3] = [[0, unit, -g * unit * (1 / p + x0)], [0, 0, 1], [1, -1 / p, g / p**2]]
    return Reported(("s", "q", "S", "B", "b", "Q", "A", "a", "E"), values, jacobian)


def _starts(columns: Columns, log_loss: Array) -> Array:
    """Return starts (n, 9): the best additive laws, bent in each way, and solved by least squares."""

    def evaluate(theta: Array, rows: NDArray[np.intp]) -> Local:
        with np.errstate(all="ignore"):  # a wild step may overflow; it is then refused
            r, jacobian = _value(theta, columns) - log_loss, _jacobian(theta, columns)
            value = np.nan_to_num(0.5 * (r**2).sum(axis=1), nan=np.inf)
            gradient = np.einsum("bn,bnp->bp", r, jacobian)
            return Local(value, np.nan_to_num(gradient), np.nan_to_num(jacobian.transpose(0, 2, 1) @ jacobian))

    bends = list(product(BENDS, repeat=3))
    theta = np.array([_bent(plane, bend, columns) for plane in _planes(columns, log_loss) for bend in bends])
    box = Box(np.tile(LOWER, 3), np.tile(UPPER, 3), np.ones(9))
    found = minimise(evaluate, theta, box, np.ones(theta.shape, bool), max_steps=SEARCH_STEPS)
    return np.asarray(found.theta[found.value <= NEAR_BEST * found.value.min()])


Plane = tuple[Array, float, float]  # E + A N^-alpha at the runs, B, beta


def _planes(columns: Columns, log_loss: Array) -> list[Plane]:
    """Return the additive laws nearest to the runs, each of another beta."""
    loss, found = np.exp(log_loss), []
    x, y = (columns[axis] - columns[axis].mean() for axis in ("n_params", "n_tokens"))
    for beta in DATA_EXPONENTS:
        some = []
        for alpha in SIZE_EXPONENTS:
            terms = np.stack([np.ones_like(loss), np.exp(-alpha * x), np.exp(-beta * y)], axis=1)
            solved = np.linalg.lstsq(terms / loss[:, None], np.ones_like(loss), rcond=1e-10)[0]
            coefficient = max(float(solved[2]), 1e-3 * float(loss.min()))
            plane = (terms[:, :2] @ solved[:2], np.log(coefficient) + beta * columns["n_tokens"].mean(), float(beta))
            some.append((float(((terms @ solved / loss - 1) ** 2).sum()), plane))
        found.append(min(some, key=lambda pair: pair[0]))
    return [plane for _, plane in sorted(found, key=lambda pair: pair[0])[:N_PLANES]]


def _bent(plane: Plane, bend: tuple[float, ...], columns: Columns) -> Array:
    floor, log_coefficient, beta = plane
    log_floor = np.log(np.maximum(floor, 0.1 * floor.max()))
    h = np.expm1(bend[0] * (columns["n_params"] - np.log(REFERENCE))) / bend[0]
    slope, level = np.polyfit(h, log_floor, 1)
    return np.array([level, slope, bend[0], log_coefficient, 0.0, bend[1], np.log(beta), 0.0, bend[2]])


LOWER, UPPER = (-100.0, -50.0, -3.0), (100.0, 50.0, 3.0)


def _exponent(level: str, slope: str, power: str) -> tuple[Shape, ...]:
    ends = zip((level, slope, power), LOWER, UPPER, strict=True)
    return tuple(Shape(name, False, lower, upper) for name, lower, upper in ends)


FARSEER = ShapedLaw(
    "farseer",
    "loss from parameters and tokens, the exponent of tokens moving with size",
    "Li et al. 2025, arXiv:2506.10972",
    "L = exp(s N^q + S) + exp(B N^b + Q) D^(-exp(A N^a + E))",
    ("n_params", "n_tokens"),
    (
        *_exponent("floor level", "floor slope", "q"),
        *_exponent("coefficient level", "coefficient slope", "b"),
        *_exponent("exponent level", "exponent slope", "a"),
    ),
    _value,
    _jacobian,
    starts=_starts,
    reported=_reported,
    levels={"n_params": 4, "n_tokens": 4},
    profiles=False,
    shifts=("S", "Q", "E"),
)
