"""Is a grid able to answer? Expected standard errors of a design under an assumed law, before anything is launched.

Knows laws, not results: a design is a table with n_params and n_tokens (flops if it has its own count).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.choices import ASSUMED
from scalewright.fitting.curve import level_of
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN
from scalewright.fitting.laws import LAWS
from scalewright.fitting.laws.additive import AdditiveLaw, features, predict_log_loss, theta_names
from scalewright.fitting.problem import condition_number
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

ASSUMED_SCATTER = 0.003  # of the loss of one run
LEAST_LEVELS = 3
LEAST_SPREAD = 0.5  # decades of tokens per parameter
USELESS_SE = 0.1  # standard error of the exponent a beyond which a design says nothing about it
TOO_CONDITIONED = 1e3


@dataclass(frozen=True)
class DesignReport:
    """What a design can be expected to tell.

    `se` holds expected standard errors (E absolute; A and B of their logs; exponents; a of N*). `problems` says in
    words what is wrong; empty means the design passes. `total_flops` is its cost.
    """

    n_runs: int
    n_sizes: int
    n_budgets: int
    spread_decades: float
    condition: float
    se: dict[str, float]
    total_flops: float
    problems: tuple[str, ...]


@single_threaded
def assess(
    design: pd.DataFrame, assumed: dict[str, float] | None = None, scatter: float = ASSUMED_SCATTER
) -> DesignReport:
    """Return what a design can tell about E, A, alpha, B, beta and a.

    It supposes the law `assumed` (see ASSUMED) and runs whose loss scatters by the share `scatter`.

    Raises FittingError for a table without n_params and n_tokens, or values that are not positive.
    """
    if not {"n_params", "n_tokens"} <= set(design):
        raise FittingError("a design needs the columns n_params and n_tokens")
    n, d = (design[c].to_numpy(dtype=np.float64) for c in ("n_params", "n_tokens"))
    if not ((n > 0).all() and (d > 0).all() and len(n)):
        raise FittingError("a design needs positive n_params and n_tokens")
    truth = {**ASSUMED, **(assumed or {})}
    jacobian = _jacobian(n, d, truth)
    se = _standard_errors(jacobian, truth, scatter, (float(np.log(n).mean()), float(np.log(d).mean())))
    flops = design["flops"].to_numpy(dtype=np.float64) if "flops" in design else FLOPS_PER_PARAMETER_TOKEN * n * d
    levels = tuple(len(np.unique(level_of(v))) for v in (n, d))
    spread = float(np.ptp(np.log10(d / n)))
    condition = condition_number(jacobian)
    problems = _problems(len(n), levels, spread, condition, se["a"])
    return DesignReport(len(n), levels[0], levels[1], spread, condition, se, float(flops.sum()), problems)


def _jacobian(n: Array, d: Array, truth: dict[str, float]) -> Array:
    """d log L / d theta in centred coordinates (log E, alpha, log A, beta, log B)."""
    law = LAWS["chinchilla"]
    assert isinstance(law, AdditiveLaw)
    names = theta_names(law, ("all",))
    x, y = np.log(n), np.log(d)
    z = features(law, names, {"n_params": x - x.mean(), "n_tokens": y - y.mean()}, np.full(len(n), "all"))
    centred = {
        "E": np.log(truth["E"]),
        "A": np.log(truth["A"]) - truth["alpha"] * x.mean(),
        "B": np.log(truth["B"]) - truth["beta"] * y.mean(),
    }
    theta = np.array([centred.get(name, truth[name]) for name in names])
    _, jacobian = predict_log_loss(z, theta)
    order = [names.index(name) for name in ("E", "alpha", "A", "beta", "B")]
    return np.asarray(jacobian[:, order])


def _standard_errors(
    jacobian: Array, truth: dict[str, float], scatter: float, centres: tuple[float, float]
) -> dict[str, float]:
    """Expected standard errors; centres: means of ln N and ln D, which turn centred coefficients into A and B."""
    norms = np.linalg.norm(jacobian, axis=0)
    norms[norms == 0] = 1.0  # an exponent of an axis with one level: nothing is known of it
    rows = np.zeros((max(jacobian.shape), jacobian.shape[1]))  # of fewer runs than parameters too, all directions
    rows[: len(jacobian)] = jacobian / norms
    _, singular, rotation = np.linalg.svd(rows, full_matrices=False)
    factor = rotation.T / np.maximum(singular, 1e-14)
    root = scatter * factor / norms[:, None]  # covariance = root @ root.T

    def se(direction: list[float]) -> float:
        return float(np.linalg.norm(np.array(direction) @ root))

    total = truth["alpha"] + truth["beta"]
    return {
        "E": truth["E"] * se([1, 0, 0, 0, 0]),
        "log A": se([0, centres[0], 1, 0, 0]),
        "alpha": se([0, 1, 0, 0, 0]),
        "log B": se([0, 0, 0, centres[1], 1]),
        "beta": se([0, 0, 0, 1, 0]),
        "a": se([0, -truth["beta"] / total**2, 0, truth["alpha"] / total**2, 0]),
    }


def _problems(n_runs: int, levels: tuple[int, ...], spread: float, condition: float, se_a: float) -> tuple[str, ...]:
    found = []
    if n_runs < 6:
        found.append(f"{counted(n_runs, 'run')} for 5 parameters: 6 or more are needed")
    for what, count in zip(("size", "budget"), levels, strict=True):
        if count < LEAST_LEVELS:
            found.append(f"{counted(count, what)}: {LEAST_LEVELS} or more are needed")
    if spread < LEAST_SPREAD:
        found.append(f"tokens per parameter spread over {spread:.2g} decades: {LEAST_SPREAD} or more are needed")
    if condition > TOO_CONDITIONED:
        found.append(f"condition number {condition:.3g}: above {TOO_CONDITIONED:g} the parameters cannot be separated")
    if se_a > USELESS_SE:
        found.append(f"expected standard error of a is {se_a:.3g}: above {USELESS_SE:g} the exponent is not measured")
    return tuple(found)


def isoflop_alternative(design: pd.DataFrame, n_curves: int = 3, decades: float = 1.0) -> pd.DataFrame:
    """Return a design of as many runs and the same compute spread as isoFLOP curves: n_params, n_tokens, flops.

    Each of `n_curves` curves spans +-`decades` of tokens per parameter around the design's own mean; the curves'
    computes span the design's range, scaled so that the total cost is the same.
    """
    n, d = (design[c].to_numpy(dtype=np.float64) for c in ("n_params", "n_tokens"))
    flops = FLOPS_PER_PARAMETER_TOKEN * n * d
    ratio = float(np.exp(np.log(d / n).mean()))
    n_curves = max(1, min(n_curves, len(n) // 3))
    counts = [len(part) for part in np.array_split(np.arange(len(n)), n_curves)]
    computes = np.geomspace(flops.min(), flops.max(), n_curves) if n_curves > 1 else np.array([flops.mean()])
    computes *= flops.sum() / float((computes * np.array(counts)).sum())
    rows = []
    for compute, count in zip(computes, counts, strict=True):
        for tokens_per_parameter in ratio * 10.0 ** np.linspace(-decades, decades, count):
            size = float(np.sqrt(compute / (FLOPS_PER_PARAMETER_TOKEN * tokens_per_parameter)))
            rows.append((size, size * tokens_per_parameter, compute))
    return pd.DataFrame(rows, columns=["n_params", "n_tokens", "flops"])
