"""N*, D* and L* at chosen computes, with intervals, for any fitted law in N and D and for the isoFLOP approaches.

Where a law has a formula for its optimum it is used (`frontier.py`); otherwise the loss is minimised over N at fixed
compute, and the interval follows how the minimum moves with each coordinate. Every row says how far it lies past the
runs. Knows results and fits.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN
from scalewright.fitting.frontier import NAMES, frontier
from scalewright.fitting.laws import LAWS
from scalewright.fitting.optimum import OptimumFit
from scalewright.fitting.result import FitResult, is_identified, open_exp, widen
from scalewright.fitting.uncertainty import t_quantile

Array = NDArray[np.float64]

FLOOR_LAW = "power"
REACH = 12.0  # e-folds of N searched on each side of the square root of C/k
GRID = 481


@dataclass(frozen=True)
class Value:
    """A number and its interval; None where there is none."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class AtCompute:
    """The optimum at one compute. `past`: how many times beyond the runs' largest each axis lies; 1 or less is inside.

    identified: whether the runs identify the law that this rests on. loss_from: what the loss is read off, where that
    is no law of N and D.
    """

    flops: float
    n_params: Value | None
    n_tokens: Value | None
    loss_nats: Value | None
    past: dict[str, float]
    identified: bool
    loss_from: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return asdict(self)


def at_compute(result: FitResult, flops: Sequence[float]) -> list[AtCompute]:
    """Return the optimum of a fitted law at each compute: N*, D*, L* for laws in N and D, L alone for laws in compute.

    Raises FittingError for a law without an optimum: one in other axes, or with losses that do not fall.
    """
    axes = set(result.law.axes)
    if axes == {"flops"}:
        return [_of_compute(result, c) for c in flops]
    if not {"n_params", "n_tokens"} <= axes or axes - {"n_params", "n_tokens"} or result.law.per_method:
        raise FittingError(f"law {result.law.name} has no optimum at a compute: it reads {', '.join(result.law.axes)}")
    if set(NAMES) <= set(result.estimate.names):
        found = frontier(result, list(flops)).frame().to_dict("records")
        return [_row(result, float(r["flops"]), *(_value(r, n) for n in ("n_params", "n_tokens", "loss_nats")))
                for r in found]  # fmt: skip
    return [_searched(result, c) for c in flops]


def optimum_at(result: OptimumFit, flops: Sequence[float], largest: float) -> list[AtCompute]:
    """Return N*, D* and L* by an isoFLOP approach at each compute; `largest` is the compute of the dearest run.

    L* is that of a law in compute through the lowest losses, with a floor where there are computes enough for one.
    """
    law = law_of_minima(result)
    equation = f"{law.law.equation} through {law.n} minima"
    found = []
    for c in flops:
        n, d = (_power_at(result, *names, c) for names in (("a", "G_N"), ("b", "G_D")))
        told = law.predict(flops=c)
        loss = Value(*(float(end) for end in (told.value, told.low, told.high)))
        found.append(AtCompute(c, n, d, loss, {"flops": c / largest}, True, equation))
    return found


def law_of_minima(result: OptimumFit) -> FitResult:
    """Fit the lowest loss of each compute as a law in compute, by least squares; with a floor from four computes on."""
    used = [one for one in result.valleys if not one.refused]
    frame = pd.DataFrame(
        {"flops": [one.flops_budget for one in used], "loss_nats": [one.loss_star for one in used]}
    ).assign(label="minima")
    law = FLOOR_LAW if len(used) > LAWS[FLOOR_LAW].n_parameters(1) else "pure-power"
    return fit(frame, law, "log-l2", level=result.level)


def _value(row: dict[Any, Any], name: str) -> Value:
    return Value(*(float(row[key]) for key in (name, f"{name}_low", f"{name}_high")))


def _row(result: FitResult, flops: float, n: Value | None, d: Value | None, loss: Value | None) -> AtCompute:
    at = {"flops": flops, "n_params": None if n is None else n.value, "n_tokens": None if d is None else d.value}
    past = {axis: v / result.range[axis][1] for axis, v in at.items() if v is not None and axis in result.range}
    exponents = [p for name, p in result.params.items() if name in ("alpha", "beta")] or list(result.params.values())
    if result.law.reported is not None and n is not None:  # what runs tell of the optimum, they may not of parameters
        known = n.low is not None and n.high is not None and is_identified(n.low, n.high)
    else:
        known = all(p.identified for p in exponents)
    return AtCompute(flops, n, d, loss, past, known)


def _of_compute(result: FitResult, flops: float) -> AtCompute:
    told = result.predict(flops=flops)
    return _row(result, flops, None, None, Value(float(told.value), float(told.low), float(told.high)))


def _power_at(result: OptimumFit, exponent: str, coefficient: str, flops: float) -> Value:
    """A power law's value at a compute; the errors of its two parameters are apart at the middle of the computes."""
    a, g = result.params[exponent], result.params[coefficient]
    centre = float(np.mean([np.log(v.flops_budget) for v in result.valleys if not v.refused]))
    middle = max((g.se / g.value) ** 2 - (a.se * centre) ** 2, 0.0)
    t = (a.high - a.low) / (2 * a.se) if a.se > 0 else 0.0
    log_value = np.log(g.value) + a.value * np.log(flops)
    half = t * float(np.sqrt(middle + (a.se * (np.log(flops) - centre)) ** 2))
    return Value(*(float(open_exp(v)) for v in (log_value, log_value - half, log_value + half)))


def _searched(result: FitResult, flops: float) -> AtCompute:
    """Minimise the loss over N at fixed compute; intervals by how the minimum moves with each coordinate of theta."""
    theta, t = result.estimate.theta, t_quantile(result.level, result.estimate.noise.df)
    best = _lowest(result, theta, flops)
    if best is None:
        raise FittingError(f"law {result.law.name} has no optimum at {flops:.3g} FLOPs: its loss falls to one side")
    log_n, log_loss = best
    steps = np.where(np.diag(result.estimate.covariance) > 0, 1e-4 * np.maximum(np.abs(theta), 1e-3), 0.0)
    slopes = np.zeros((len(theta), 2))
    for j in np.flatnonzero(steps):
        ends = [_lowest(result, theta + sign * steps[j] * np.eye(len(theta))[j], flops) for sign in (1, -1)]
        if ends[0] is not None and ends[1] is not None:
            slopes[j] = (np.array(ends[0]) - np.array(ends[1])) / (2 * steps[j])
    half = t * np.sqrt(np.einsum("pi,pq,qi->i", slopes, result.estimate.covariance, slopes).clip(min=0))
    others = [found for a in result.estimate.alternatives if (found := _lowest(result, a, flops)) is not None]
    low, high = widen(np.array([log_n, log_loss]), half, [np.array(o) for o in others], np.zeros(2))
    log_c = float(np.log(flops / FLOPS_PER_PARAMETER_TOKEN))
    n, d, loss = (
        Value(*(float(open_exp(v)) for v in ends))
        for ends in (
            (log_n, low[0], high[0]),
            (log_c - log_n, log_c - high[0], log_c - low[0]),
            (log_loss, low[1], high[1]),
        )
    )
    return _row(result, flops, n, d, loss)


def _lowest(result: FitResult, theta: Array, flops: float) -> tuple[float, float] | None:
    """Return log N and log L of the lowest valley at a compute: a grid, refined twice, then a parabola."""
    log_c = float(np.log(flops / FLOPS_PER_PARAMETER_TOKEN))
    centre, reach = 0.5 * log_c, REACH
    for _ in range(3):
        x = np.linspace(centre - reach, centre + reach, GRID)
        columns = {"n_params": x, "n_tokens": log_c - x}
        with np.errstate(all="ignore"):
            y = result.law.log_loss_at(result.estimate.names, theta, columns, np.full(GRID, "all"))[0]
        inner = np.flatnonzero((y[1:-1] < y[:-2]) & (y[1:-1] <= y[2:])) + 1  # a law may fall again far outside its runs
        if not len(inner):
            return None
        k = int(inner[np.argmin(y[inner])])
        centre, reach = float(x[k]), 4 * float(x[1] - x[0])
    left, middle, right = y[k - 1 : k + 2]
    shift = 0.5 * (left - right) / (left - 2 * middle + right) if left - 2 * middle + right > 0 else 0.0
    return float(x[k] + shift * (x[1] - x[0])), float(middle - 0.25 * (left - right) * shift)
