"""Compute-optimal sizes straight from the runs: isoFLOP parabolas (approach 2) and the envelope (approach 1).

Hoffmann et al. 2022, arXiv:2203.15556, sections 3.1 and 3.2. Each ends in N* = G_N C^a and D* = G_D C^b.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.interpolate import Akima1DInterpolator

from scalewright.fitting.choices import APPROACHES
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import Exclusion, PointRules, Points, check_points, unknown
from scalewright.fitting.leaning import Curve, Minima, leaning_minima
from scalewright.fitting.result import Parameter, jsonable, parameter_line
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

FLOP_LEVEL = 0.1  # runs within this much log compute of the cheapest of them have the same compute
LEAST_SIZES = 4
LEAST_BUDGETS = 3
EXACT = 1e-3  # of an exponent: less is of no account
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
    """N* and D* as powers of compute: params a, G_N, b, G_D with intervals; `valleys` and `excluded` behind them.

    `leaning` has the same four by one leaning shape for all isoFLOP curves (empty where it can't be fitted); the
    intervals of a parabola hold its intervals too, for what a parabola is off by.
    """

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
    leaning: dict[str, Parameter] = field(default_factory=dict)

    def n_star(self, flops: float) -> float:
        """Optimal parameters at a compute in FLOPs."""
        return float(self.params["G_N"].value * flops ** self.params["a"].value)

    def parabolas(self) -> pd.DataFrame:
        """Return one row a compute: flops_budget, curvature, n_star, loss_star, refused."""
        return pd.DataFrame([asdict(valley) for valley in self.valleys])

    def summary(self) -> str:
        """Return the fit as text."""
        lines = [f"{self.law}: {self.equation}", f"{counted(self.n, 'run')}, {counted(len(self.valleys), 'compute')}"]
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
    notes = [f"no usable optimum at {refused} of {counted(len(valleys), 'compute')}"] if refused else []
    curved = approach != "isoflop-akima" and all(one.n_sizes >= LEAST_SIZES for one in used)
    leaning = _leaning(checked.frame, used, level) if curved else {}
    if leaning:
        notes += _bias(params["a"], leaning["a"])
        params = {name: _holding(one, leaning[name]) for name, one in params.items()}
    elif curved:
        notes.append("too few sizes for what a parabola may be off by; the intervals hold the scatter alone")
    ids = tuple(checked.frame["run_id"].tolist())
    return OptimumFit(
        approach, "N* = G_N C^a, D* = G_D C^b", len(checked), level, params, tuple(valleys), ids, checked.data_hash(),
        checked.excluded, tuple(notes), leaning,
    )  # fmt: skip


def _leaning(frame: pd.DataFrame, used: list[Valley], level: float) -> dict[str, Parameter]:
    """Return a, G_N, b and G_D by one leaning shape for all curves; empty where it can't be fitted."""
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    runs = [frame[levels == one.flops_budget] for one in used]
    curves = [
        Curve(*_means(own), float(np.log(one.n_star)), one.curvature) for own, one in zip(runs, used, strict=True)
    ]
    minima = leaning_minima(curves)
    if minima is None:
        return {}
    log_c = np.log([one.flops_budget for one in used])
    log_tokens = log_c + np.log([_tokens_per_flop(own) for own in runs]) - minima.at
    other = Minima(log_tokens, minima.covariance, minima.df)
    return _line("a", "G_N", log_c, minima, level) | _line("b", "G_D", log_c, other, level)


def _line(exponent: str, coefficient: str, log_c: Array, minima: Minima, level: float) -> dict[str, Parameter]:
    """Draw a straight line through minima of known covariance; where they scatter more than that, by their scatter."""
    design = np.stack([log_c, np.ones_like(log_c)], axis=1)
    solve = np.linalg.pinv(design)
    solved = solve @ minima.at
    covariance, df = solve @ minima.covariance @ solve.T, minima.df
    by_scatter = power_law(log_c, minima.at)[2]
    if by_scatter[0, 0] > covariance[0, 0] * float(stats.f.ppf(level, len(log_c) - 2, df)):
        covariance, df = by_scatter, float(len(log_c) - 2)
    half = float(stats.t.ppf(0.5 + level / 2, df)) * np.sqrt(np.diag(covariance))
    slope, log_g = (float(one) for one in solved)
    g, se = float(np.exp(log_g)), float(np.sqrt(covariance[1, 1]))
    return {
        exponent: Parameter(exponent, slope, float(np.sqrt(covariance[0, 0])), slope - half[0], slope + half[0]),
        coefficient: Parameter(coefficient, g, g * se, float(np.exp(log_g - half[1])), float(np.exp(log_g + half[1]))),
    }


def _bias(parabola: Parameter, leaning: Parameter) -> list[str]:
    """Say when parabolas are off by more than chance moves the exponent."""
    if abs(parabola.value - leaning.value) <= max(leaning.se, EXACT):
        return []
    return [
        f"the curves are no parabolas: one leaning shape for all of them gives a = {leaning.value:.4g} "
        f"[{leaning.low:.4g}, {leaning.high:.4g}], parabolas {parabola.value:.4g}; the intervals hold both"
    ]


def _holding(one: Parameter, other: Parameter) -> Parameter:
    return replace(one, low=min(one.low, other.low), high=max(one.high, other.high))


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
    """Group computes: each level takes what lies within FLOP_LEVEL of its cheapest run; return its geometric mean."""
    out = np.full_like(flops, np.nan)
    while np.isnan(out).any():
        left = np.isnan(out)
        cheapest = flops[left].min()
        level = left & (flops <= cheapest * np.exp(FLOP_LEVEL))
        out[level] = cheapest * np.exp(np.log(flops[level] / cheapest).mean())  # equal computes stay as they are
    return out


def _isoflop(frame: pd.DataFrame, approach: str) -> list[Valley]:
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    spline = approach == "isoflop-akima"
    return [valley(float(c), frame[levels == c], spline=spline) for c in np.unique(levels)]


def valley(flops: float, runs: pd.DataFrame, *, spline: bool = False) -> Valley:
    """Find the optimum of one isoFLOP curve; losses of equal sizes are averaged in log. It refuses with words."""
    x, y = _means(runs)

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
    return Valley(flops, len(x), curvature, n_star, _tokens_per_flop(runs) * flops / n_star, float(np.exp(best)))


def _means(runs: pd.DataFrame) -> tuple[Array, Array]:
    """Return log sizes, rising, and the mean log loss of each."""
    logs = pd.DataFrame({name: np.log(runs[name].astype(float)) for name in ("n_params", "loss_nats")})
    grouped = logs.groupby("n_params")["loss_nats"].mean()
    return grouped.index.to_numpy(dtype=np.float64), grouped.to_numpy(dtype=np.float64)


def _tokens_per_flop(runs: pd.DataFrame) -> float:
    """N D / C, the same for all runs of one convention."""
    return float((runs["n_tokens"] * runs["n_params"] / runs["flops"]).median())


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
    """Keep the optimum of each compute that no cheaper one beats: of an isoFLOP curve its minimum, else a run.

    The lowest run of an isoFLOP curve says where its grid has a size, which is the same place on every curve.
    """
    kept: list[Valley] = []
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    for compute in np.unique(levels):
        runs = frame[levels == compute]
        best = valley(float(compute), runs)
        if best.refused:
            lowest = runs.loc[runs["loss_nats"].idxmin()]
            c, n, d, loss = (float(lowest[name]) for name in ("flops", "n_params", "n_tokens", "loss_nats"))
            best = Valley(c, 1, float("nan"), n, d, loss)
        if not kept or best.loss_star < kept[-1].loss_star:
            kept.append(best)
    return kept


def lower_envelope(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the lowest row of each compute (`flop_levels`) that beats every cheaper one, by increasing flops."""
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    ordered = frame.iloc[np.lexsort((frame["flops"], frame["loss_nats"], levels))]
    lowest = ordered[~pd.Series(np.sort(levels)).duplicated().to_numpy()]
    best = lowest["loss_nats"].cummin()
    return lowest[(lowest["loss_nats"] == best) & (best != best.shift(1))]


def pareto(points: Points) -> Points:
    """Return, of each method, the runs on the lower envelope of loss against compute."""
    kept: set[int] = set()
    for method in points.methods:
        kept |= set(lower_envelope(points.frame[points.frame["label"] == method]).index)
    return points.where(pd.Series([i in kept for i in points.frame.index]))
