"""Loss over parameters, tokens, peak learning rate and batch size: an additive law times a bowl in log rate and batch.

The optima move as power laws: Li et al. 2025, arXiv:2503.04715, eq. 1 (lr* of N and D, batch* of D).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.laws.shaped import Array, Columns, Shape, ShapedLaw, Theta


def _parts(theta: Theta, columns: Columns) -> tuple[Any, ...]:
    n, d, x, y = (columns[name] for name in ("n_params", "n_tokens", "lr_peak", "batch_size"))
    e, a, alpha, b, beta, lr, lr_n, lr_d, lr_b, batch, batch_d, bow_lr, bow_b = (theta[:, [j]] for j in range(13))
    logs = [e + 0 * n, a - alpha * n, b - beta * d]
    top = np.maximum(np.maximum(logs[0].real, logs[1].real), logs[2].real)
    shares = [np.exp(entry - top) for entry in logs]
    total = shares[0] + shares[1] + shares[2]
    off_b = y - batch - batch_d * d
    off_lr = x - lr - lr_n * n - lr_d * d - lr_b * off_b
    return top + np.log(total), [s / total for s in shares], off_lr, off_b, np.exp(bow_lr), np.exp(bow_b), lr_b


def _value(theta: Theta, columns: Columns) -> NDArray[Any]:
    log_loss, _, off_lr, off_b, bow_lr, bow_b, _ = _parts(theta, columns)
    return np.asarray(log_loss + bow_lr * off_lr**2 + bow_b * off_b**2)


def _jacobian(theta: Theta, columns: Columns) -> NDArray[Any]:
    _, (p_e, p_a, p_b), off_lr, off_b, bow_lr, bow_b, lr_b = _parts(theta, columns)
    n, d = columns["n_params"], columns["n_tokens"]
    by_lr = -2 * bow_lr * off_lr
    by_b = -2 * bow_b * off_b - lr_b * by_lr
    slopes = [p_e, p_a, -p_a * n, p_b, -p_b * d, by_lr, by_lr * n, by_lr * d, by_lr * off_b, by_b, by_b * d]
    slopes += [bow_lr * off_lr**2, bow_b * off_b**2]
    return np.stack(np.broadcast_arrays(*slopes), axis=-1)


def _basis(shapes: Array, columns: Columns, log_loss: Array) -> tuple[Array, Array]:
    alpha, beta = shapes[0], shapes[1]
    n, d = columns["n_params"], columns["n_tokens"]
    return np.stack([np.ones(len(n)), np.exp(-alpha * n), np.exp(-beta * d)], axis=1), np.exp(log_loss)


def _place(shapes: Array, solved: Array, columns: Columns) -> Array:
    e, a, b = np.log(solved)
    lr, batch = float(columns["lr_peak"].mean()), float(columns["batch_size"].mean())
    alpha, beta, *rest = shapes
    moves = rest[:3]
    return np.array([e, a, alpha, b, beta, lr, *moves, batch, *rest[3:]])


_EXPONENTS = (0.15, 0.28, 0.4, 0.6)

RATE_BATCH = ShapedLaw(
    "rate-batch",
    "loss from parameters, tokens, peak learning rate and batch size, with an optimum in both that moves",
    "Hoffmann et al. 2022, arXiv:2203.15556, eq. 2; optima as in Li et al. 2025, arXiv:2503.04715, eq. 1",
    "L = (E + A N^-alpha + B D^-beta) exp(h_r ln^2(lr/lr*) + h_b ln^2(b/b*)), lr* = c N^p D^q (b/b*)^k, b* = c_b D^s",
    ("n_params", "n_tokens", "lr_peak", "batch_size"),
    (
        Shape("E", True, -14.0, 5.0),
        Shape("A", True, -20.0, 60.0, term=("alpha", "n_params")),
        Shape("alpha", False, 1e-3, 3.0, _EXPONENTS),
        Shape("B", True, -20.0, 60.0, term=("beta", "n_tokens")),
        Shape("beta", False, 1e-3, 3.0, _EXPONENTS),
        Shape("c", True, -60.0, 60.0),
        Shape("p", False, -3.0, 3.0, (0.0,)),
        Shape("q", False, -3.0, 3.0, (0.0,)),
        Shape("k", False, -3.0, 3.0, (0.0,)),
        Shape("c_b", True, -60.0, 60.0),
        Shape("s", False, -3.0, 3.0, (0.0,)),
        Shape("h_r", True, -14.0, 3.0, (-5.0,)),
        Shape("h_b", True, -14.0, 3.0, (-5.0,)),
    ),
    _value,
    _jacobian,
    _basis,
    _place,
    levels={"n_params": 3, "n_tokens": 3, "lr_peak": 3, "batch_size": 3},
)
