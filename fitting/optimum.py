"""Compute-optimal sizes straight from the runs: isoFLOP parabolas (approach 2) and the envelope (approach 1).

Hoffmann et al. 2022, arXiv:2203.15556, sections 3.1 and 3.2. Each ends in N* = G_N C^a and D* = G_D C^b.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.interpolate import Akima1DInterpolator

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import Exclusion, PointRules, Points, check_points, unknown
from scalewright.fitting.result import Parameter, jsonable, parameter_line
from scalewright.fitting.threads import single_threaded

Array = NDArray[np.float64]

APPROACHES: dict[str, str] = {
    "isoflop": "the minimum of a parabola of log loss in log N at each compute (approach 2)",
    "isoflop-akima": "the minimum of an Akima spline of log loss in log N at each compute",
    "envelope": "the size of the lowest loss at each compute (approach 1)",
}
FLOP_LEVEL = 0.1  # runs whose log compute differs by less belong to one isoFLOP curve
LEAST_SIZES = 4
LEAST_BUDGETS = 3
FEW = 3  # computes that share a reason are named up to here, and counted from here


@dataclass(frozen=True)
class Valley:
    """One compute's optimum: log L = log loss_star + curvature (ln N/n_star)^2; `refused` says why there is none."""

    flops_budget: float
    n_sizes: int
    curvature: float
    n_star: float
    n_tokens_star: float
    loss_star: float
    refused: str = ""


@dataclass(frozen=True)
class OptimumFit:
    """N* and D* as powers of compute: params a, G_N, b, G_D with intervals; `valleys` and `excluded` behind them."""

    law: str
    equation: str
    n: int
    level: float
    params: dict[str, Parameter]
    valleys: tuple[Valley, ...]
    run_ids: tuple[str, ...]
    data_hash: str
    excluded: tuple[Exclusion, ...]
    warnings: tuple[str, ...]

    def n_star(self, flops: float) -> float:
        """Optimal parameters at a compute in FLOPs."""
        return float(self.params["G_N"].value * flops ** self.params["a"].value)

    def parabolas(self) -> pd.DataFrame:
        """Return one row a compute: flops_budget, curvature, n_star, loss_star, refused."""
        return pd.DataFrame([asdict(valley) for valley in self.valleys])

    def summary(self) -> str:
        """Return the fit as text."""
        lines = [f"{self.law}: {self.equation}", f"{self.n} runs, {len(self.valleys)} computes"]
        lines += [parameter_line(p) for p in self.params.values()]
        lines += [f"refused at {v.flops_budget:.3g} FLOPs: {v.refused}" for v in self.valleys if v.refused]
        lines += [f"excluded {e.run_id}: {e.reason}" for e in self.excluded]
        return "\n".join([*lines, *(f"warning: {w}" for w in self.warnings)])

    def to_record(self) -> dict[str, Any]:
        """Return everything a stored fit needs, as JSON-able values."""
        record: dict[str, Any] = jsonable(asdict(self))
        return record | {"objective": "log-l2", "objective_value": None, "certificate": {}, "format": 1}


def _refusals(valleys: list[Valley]) -> str:
    """Each reason once, with the computes that it holds for: two by name, more by count."""
    cases: dict[str, list[str]] = {}
    for valley in valleys:
        if valley.refused:
            cases.setdefault(valley.refused, []).append(f"{valley.flops_budget:.3g} FLOPs")
    named = ((" and ".join(at) if len(at) < FEW else f"{len(at)} computes", why) for why, at in cases.items())
    return "; ".join(f"{at}: {why}" for at, why in named)


@single_threaded
def fit_optimum(
    points: Points | pd.DataFrame, approach: str = "isoflop", *, rules: PointRules | None = None, level: float = 0.95
) -> OptimumFit:
    """Fit N* and D* as powers of compute by one of APPROACHES, over the runs given (one method's).

    Raises FittingError for an unknown approach, or when fewer than three computes have a usable optimum (with the
    reason of each refusal: fewer than four sizes, curvature not positive, minimum not bracketed by the sizes).
    """
    checked = check_points(points, rules)
    if approach not in APPROACHES:
        raise FittingError(unknown("approach", approach, list(APPROACHES)))
    find = {"isoflop": _isoflop, "isoflop-akima": _isoflop, "envelope": _envelope}[approach]
    valleys = find(checked.frame, approach)
    used = [v for v in valleys if not v.refused]
    if len(used) < LEAST_BUDGETS:
        why = _refusals(valleys) or "one size only"
        raise FittingError(
            f"{approach} needs {LEAST_BUDGETS} computes with an optimum, got {len(used)} of {len(valleys)} ({why})"
        )
    log_c = np.log([v.flops_budget for v in used])
    params = _power("a", "G_N", log_c, np.log([v.n_star for v in used]), level)
    params |= _power("b", "G_D", log_c, np.log([v.n_tokens_star for v in used]), level)
    refused = sum(bool(v.refused) for v in valleys)
    notes = (f"{refused} of {len(valleys)} computes have no usable optimum",) if refused else ()
    ids = tuple(checked.frame["run_id"].tolist())
    return OptimumFit(
        approach, "N* = G_N C^a, D* = G_D C^b", len(checked), level, params, tuple(valleys), ids, checked.data_hash(),
        checked.excluded, notes,
    )  # fmt: skip


def power_law(log_x: Array, log_y: Array, weights: Array | None = None) -> tuple[float, float, Array]:
    """Return slope, intercept and their covariance of a weighted straight line in log-log (residual variance n - 2)."""
    w = np.ones_like(log_x) if weights is None else weights
    design = np.stack([log_x, np.ones_like(log_x)], axis=1)
    gram = np.linalg.inv(design.T @ (w[:, None] * design))
    solved = gram @ (design.T @ (w * log_y))
    residual = log_y - design @ solved
    variance = float((w * residual**2).sum()) / max(len(log_x) - 2, 1)
    return float(solved[0]), float(solved[1]), np.asarray(gram * variance)


def _power(exponent: str, coefficient: str, log_x: Array, log_y: Array, level: float) -> dict[str, Parameter]:
    centre = float(log_x.mean())
    slope, _, covariance = power_law(log_x - centre, log_y)
    middle = float(log_y.mean())
    t = float(stats.t.ppf(0.5 + level / 2, max(len(log_x) - 2, 1)))
    se = float(np.sqrt(covariance[0, 0]))
    log_g, se_g = middle - slope * centre, float(np.sqrt(covariance[1, 1] + covariance[0, 0] * centre**2))
    ends = float(np.exp(log_g - t * se_g)), float(np.exp(log_g + t * se_g))
    return {
        exponent: Parameter(exponent, slope, se, slope - t * se, slope + t * se),
        coefficient: Parameter(coefficient, float(np.exp(log_g)), float(np.exp(log_g) * se_g), *ends),
    }


def flop_levels(flops: Array) -> Array:
    """Group computes: sorted values closer than FLOP_LEVEL in log belong together; return each one's geometric mean."""
    order = np.argsort(flops, kind="stable")
    logs = np.log(flops[order])
    group = np.concatenate([[0], np.cumsum(np.diff(logs) > FLOP_LEVEL)])
    means = np.array([logs[group == g].mean() for g in range(group[-1] + 1)])
    out = np.empty_like(flops)
    out[order] = np.exp(means[group])
    return out


def _isoflop(frame: pd.DataFrame, approach: str) -> list[Valley]:
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    spline = approach == "isoflop-akima"
    return [valley(float(c), frame[levels == c], spline=spline) for c in np.unique(levels)]


def valley(flops: float, runs: pd.DataFrame, *, spline: bool = False) -> Valley:
    """Find the optimum of one isoFLOP curve; losses of equal sizes are averaged in log. It refuses with words."""
    logs = pd.DataFrame({name: np.log(runs[name].astype(float)) for name in ("n_params", "loss_nats")})
    grouped = logs.groupby("n_params")["loss_nats"].mean()
    x, y = grouped.index.to_numpy(dtype=np.float64), grouped.to_numpy(dtype=np.float64)
    tokens_per_flop = float((runs["n_tokens"] * runs["n_params"] / runs["flops"]).median())

    def refuse(why: str) -> Valley:
        return Valley(flops, len(x), float("nan"), float("nan"), float("nan"), float("nan"), why)

    if len(x) < LEAST_SIZES:
        return refuse(f"{len(x)} size{'s' if len(x) != 1 else ''}, needs {LEAST_SIZES}")
    curvature, at, best = _akima(x, y) if spline else _parabola(x, y)
    if not curvature > 0:
        return refuse(f"curvature {curvature:.3g} is not positive: no minimum")
    if not x[0] < at < x[-1]:
        return refuse("the minimum is not bracketed by the sizes that were run")
    n_star = float(np.exp(at))
    return Valley(flops, len(x), curvature, n_star, tokens_per_flop * flops / n_star, float(np.exp(best)))


def _parabola(x: Array, y: Array) -> tuple[float, float, float]:
    """Return curvature, place and height of the vertex of the least-squares parabola."""
    centre = float(x.mean())
    c2, c1, c0 = np.polynomial.polynomial.polyfit(x - centre, y, 2)[::-1]
    if not c2 > 0:
        return float(c2), float("nan"), float("nan")
    at = -c1 / (2 * c2)
    return float(c2), float(centre + at), float(c0 - c1**2 / (4 * c2))


def _akima(x: Array, y: Array) -> tuple[float, float, float]:
    """Return half the second derivative, place and height of the lowest point of an Akima spline."""
    spline = Akima1DInterpolator(x, y)
    dense = np.linspace(x[0], x[-1], 20001)
    values = spline(dense)
    lowest = int(np.argmin(values))
    return max(float(spline.derivative(2)(dense[lowest])) / 2, 1e-12), float(dense[lowest]), float(values[lowest])


def _envelope(frame: pd.DataFrame, approach: str) -> list[Valley]:
    """Keep runs that no cheaper run beats: each is taken as the optimum at its own compute."""
    kept = lower_envelope(frame)
    columns = (kept[name].to_numpy(dtype=np.float64) for name in ("flops", "n_params", "n_tokens", "loss_nats"))
    return [Valley(c, 1, float("nan"), n, d, loss) for c, n, d, loss in zip(*columns, strict=True)]


def lower_envelope(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose loss is below that of every cheaper row, by increasing flops."""
    ordered = frame.sort_values(["flops", "loss_nats"], kind="stable")
    best = ordered["loss_nats"].cummin()
    return ordered[(ordered["loss_nats"] == best) & (best != best.shift(1))]


def pareto(points: Points) -> Points:
    """Return, of each method, the runs on the lower envelope of loss against compute."""
    kept: set[int] = set()
    for method in points.methods:
        kept |= set(lower_envelope(points.frame[points.frame["label"] == method]).index)
    return points.where(pd.Series([i in kept for i in points.frame.index]))
