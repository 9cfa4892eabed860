"""Hyper-parameters: the best learning rate or batch of each (method, N, D), and how it moves with N and D.

A quadratic of log loss in the log of the setting; an optimum at the edge of its sweep is flagged and does not enter
the law lr* = c N^p D^q, which is fitted in logs. Frames in, frozen results out.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.cells import CELL, with_cells
from scalewright.fitting.curve import level_of
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import Exclusion, PointRules, Points, check_points
from scalewright.fitting.result import Parameter, is_identified, jsonable, open_exp, parameter_line
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.uncertainty import t_quantile
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

LEAST_VALUES = 3
NEAREST = 5  # values of a sweep that a quadratic may take in
WITHIN = 0.1  # log loss above the lowest up to which a sweep is taken for parabolic
AT_EDGE = "the best value is at the edge of its sweep"
NO_MINIMUM = "the best value lies inside its sweep, but the quadratic has no minimum there"


@dataclass(frozen=True)
class Optimum:
    """The best setting of one cell: log L = log loss_best + curvature ln(setting/best)^2.

    `settings` names what else the runs were trained with, where cells of one method, size and budget differ in it.
    `best`, `low`, `high` come from the quadratic; `best_run` is the setting of the run with the lowest loss. `edge`:
    the lowest mean loss is at the first or last value of the sweep, with nothing tried beyond it. `inside`: the
    quadratic has its minimum among the values tried; where it has not, `best` is the value with the lowest mean and
    the interval NaN. `usable`, inside and not at the edge: enters the law. `n_near` values entered the quadratic.
    `resolved`: the interval does not hold the whole sweep.
    """

    label: str
    size: str
    budget: str
    n_params: float
    n_tokens: float
    n_values: int
    best: float
    low: float
    high: float
    loss_best: float
    curvature: float
    best_run: float
    edge: bool
    inside: bool
    usable: bool
    n_near: int
    resolved: bool
    note: str = ""
    settings: str = ""

    @property
    def group(self) -> str:
        """The runs that one law is fitted to: the method, and what else they were trained with where that differs."""
        return f"{self.label}, {self.settings}" if self.settings else self.label

    @property
    def where(self) -> str:
        """The cell in words."""
        return f"{self.label} {self.size} {self.budget}" + (f" ({self.settings})" if self.settings else "")


@dataclass(frozen=True)
class HyperLaw:
    """setting* = c N^p D^q of one method, with intervals; exponents not tried over two or more levels are held at 0."""

    setting: str
    label: str
    params: dict[str, Parameter]
    n: int
    warnings: tuple[str, ...]

    def at(self, n_params: float, n_tokens: float) -> float:
        """Return the recommended setting for a model of N parameters on D tokens."""
        c, p, q = (self.params[name].value for name in ("c", "p", "q"))
        return float(c * n_params**p * n_tokens**q)


@dataclass(frozen=True)
class HyperResult:
    """Optima of every cell and the law of each method; one without enough usable optima has a warning instead."""

    setting: str
    optima: tuple[Optimum, ...]
    laws: dict[str, HyperLaw]
    warnings: tuple[str, ...]
    excluded: tuple[Exclusion, ...]
    data_hash: str

    def frame(self) -> pd.DataFrame:
        """Return the optima as a table."""
        return pd.DataFrame([asdict(o) for o in self.optima])

    def summary(self) -> str:
        """Return optima, laws and warnings as text."""
        lines = [_optimum_line(self.setting, o) for o in self.optima]
        for law in self.laws.values():
            lines += [f"{law.label}: {self.setting}* = c N^p D^q from {law.n} optima"]
            lines += [parameter_line(p) for p in law.params.values()]
        return "\n".join([*lines, *(f"warning: {w}" for w in self.warnings)])

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON-able values."""
        record: dict[str, Any] = jsonable(asdict(self))
        for label, law in self.laws.items():
            for name, one in law.params.items():
                record["laws"][label]["params"][name]["identified"] = one.identified
        return record


def _optimum_line(setting: str, o: Optimum) -> str:
    note = f"  {o.note}" if o.note else ""
    return f"{o.where}: {setting} {o.best:.3g} ({o.low:.3g} to {o.high:.3g}), {counted(o.n_values, 'value')}{note}"


@single_threaded
def fit_hyper(
    points: Points | pd.DataFrame, setting: str = "lr_peak", *, rules: PointRules | None = None, level: float = 0.95
) -> HyperResult:
    """Find the optimum of `setting` in every cell that sweeps it, and each method's law.

    A cell is a method, size and budget; runs in it that were trained differently (another batch, another precision, a
    column whose name begins with SETTING) are cells of their own, with laws of their own. Diverged runs do not enter
    the quadratic but count as tried: an optimum next to one is not at the edge. Raises FittingError when the column is
    missing or nowhere has three values.
    """
    checked = check_points(points, rules)
    frame, diverged = sweep_cells(points, setting, rules)
    optima = []
    for names, cell in frame.groupby(CELL, sort=False):
        if cell[setting].nunique() >= LEAST_VALUES:
            same = (diverged[CELL] == pd.Series(names, index=CELL)).all(axis=1)
            optima.append(_optimum(cell, setting, level, diverged.loc[same, setting].to_numpy(dtype=np.float64)))
    if not optima:
        apart = " trained alike" if frame["_settings"].any() else ""
        raise FittingError(
            f"no method, size and budget has {LEAST_VALUES} values of {setting}{apart}: there is no sweep to fit"
        )
    laws, refused = _laws(optima, setting, level)
    warnings = (*(f"{o.where}: {o.note}" for o in optima if o.note), *refused)
    return HyperResult(setting, tuple(optima), laws, warnings, checked.excluded, checked.data_hash())


def _laws(optima: list[Optimum], setting: str, level: float) -> tuple[dict[str, HyperLaw], list[str]]:
    """The law of each label that has one, and one line for each reason why others have none."""
    laws: dict[str, HyperLaw] = {}
    refused: dict[str, list[str]] = {}
    loose: list[str] = []
    found = list(dict.fromkeys(o.group for o in optima))
    for label in found:
        own = [o for o in optima if o.group == label and o.usable]
        try:
            laws[label] = fit_hyper_law(own, setting, label, level)
            loose += [f"law of {label}: {warning}" for warning in laws[label].warnings]
        except FittingError as error:
            refused.setdefault(str(error).removeprefix(f"{label}: "), []).append(label)
    named = {why: ", ".join(some) if len(some) < len(found) else "any method" for why, some in refused.items()}
    return laws, [*loose, *(f"no law for {some}: {why}" for why, some in named.items())]


def sweep_cells(
    points: Points | pd.DataFrame, setting: str, rules: PointRules | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs that sweep the setting and those that diverged in it, both with the columns of CELL.

    Raises FittingError when the column is missing.
    """
    frame, diverged = check_points(points, rules).frame, _diverged(points, setting)
    if setting not in frame or frame[setting].isna().all():
        raise FittingError(f"points have no column {setting} to optimise")
    tried = pd.concat([frame.assign(_ended=True), diverged.assign(_ended=False)], ignore_index=True)
    table = with_cells(tried[tried[setting] > 0].reset_index(drop=True), setting)
    table = table.sort_values(["label", "n_params", "n_tokens", "_settings", setting], kind="stable")
    ended = table["_ended"].astype(bool)
    return table[ended], table[~ended]


def _diverged(points: Points | pd.DataFrame, setting: str) -> pd.DataFrame:
    """Runs that diverged: they say what was tried."""
    frame = points.frame if isinstance(points, Points) else points
    if "diverged" not in frame or setting not in frame:
        return frame.iloc[:0]
    bad = frame[frame["diverged"].fillna(False).astype(bool)]
    return bad.assign(label=bad["label"] if "label" in bad else bad.get("method", "all"))


def _optimum(cell: pd.DataFrame, setting: str, level: float, diverged: Array) -> Optimum:
    log_loss = np.log(cell["loss_nats"].to_numpy(dtype=np.float64))
    x, y = np.log(cell[setting].to_numpy(dtype=np.float64)), log_loss
    mean = pd.Series(y).groupby(x).mean()
    values, losses = mean.index.to_numpy(dtype=np.float64), mean.to_numpy(dtype=np.float64)
    lowest = int(np.argmin(losses))
    edge = _is_edge(lowest, values, np.log(diverged))
    near = _near(values, losses, lowest)
    best, half, loss, curvature = _vertex(x, y, near, float(values[lowest]), level)
    inside = bool(np.isfinite(best) and values[0] <= best <= values[-1])
    centre, width = (best, half) if inside else (float(values[lowest]), np.nan)
    label, size, budget, settings = (str(cell[name].iloc[0]) for name in CELL)
    return Optimum(
        label,
        size,
        budget,
        n_params=float(cell["n_params"].mean()),
        n_tokens=float(cell["n_tokens"].mean()),
        n_values=len(values),
        best=float(np.exp(centre)),
        low=float(np.exp(centre - width)),
        high=float(np.exp(centre + width)),
        loss_best=float(np.exp(loss if inside else losses[lowest])),
        curvature=curvature,
        best_run=float(np.exp(x[np.argmin(y)])),
        edge=edge,
        inside=inside,
        usable=inside and not edge,
        n_near=len(near),
        resolved=bool(inside and not (centre - width < values[0] and centre + width > values[-1])),
        note=AT_EDGE if edge else "" if inside else NO_MINIMUM,
        settings=settings,
    )


def _near(values: Array, losses: Array, lowest: int) -> Array:
    """The values around the lowest loss that enter the quadratic: up to NEAREST in a row, three or more.

    Losses far above the optimum are not parabolic (they blow up, or level off where training fails): past the two
    neighbours of the lowest, a value enters only if its log loss is within WITHIN of it, and so on outwards.
    """
    start = max(0, min(lowest - NEAREST // 2, len(values) - NEAREST))
    first, last = start, min(start + NEAREST, len(values)) - 1
    core_first = max(0, min(lowest - 1, len(values) - LEAST_VALUES))
    core_last = core_first + LEAST_VALUES - 1
    low_enough = losses - losses[lowest] <= WITHIN
    while first < core_first and not low_enough[first:core_first].all():
        first += 1
    while last > core_last and not low_enough[core_last + 1 : last + 1].all():
        last -= 1
    return values[first : last + 1]


def _is_edge(lowest: int, values: Array, beyond: Array) -> bool:
    """Whether the lowest loss is first or last, with nothing (not even a diverged run) tried beyond it."""
    if lowest == 0:
        return not bool((beyond < values[0]).any())
    return lowest == len(values) - 1 and not bool((beyond > values[-1]).any())


def _vertex(x: Array, y: Array, near: Array, centre: float, level: float) -> tuple[float, float, float, float]:
    """Vertex, its half-width in log, height and curvature of the parabola through the runs at the `near` values."""
    keep = (x >= near[0] - 1e-12) & (x <= near[-1] + 1e-12)
    design = np.stack([np.ones(keep.sum()), x[keep] - centre, (x[keep] - centre) ** 2], axis=1)
    gram = np.linalg.pinv(design.T @ design)
    c0, c1, c2 = gram @ design.T @ y[keep]
    if not c2 > 0:
        return float("nan"), float("nan"), float("nan"), float(c2)
    df = int(keep.sum()) - 3
    residual = y[keep] - design @ np.array([c0, c1, c2])
    variance = float(residual @ residual) / df if df > 0 else float("nan")
    gradient = np.array([0.0, -1 / (2 * c2), c1 / (2 * c2**2)])
    half = t_quantile(level, df) * float(np.sqrt(variance * gradient @ gram @ gradient)) if df > 0 else float("inf")
    return centre - c1 / (2 * c2), half, float(c0 - c1**2 / (4 * c2)), float(c2)


def fit_hyper_law(optima: list[Optimum], setting: str, label: str, level: float = 0.95) -> HyperLaw:
    """Fit ln setting* = ln c + p ln N + q ln D by least squares over usable optima.

    An exponent whose axis has one level only is held at 0. Raises FittingError for fewer than two usable optima.
    """
    if len(optima) < 2:
        found = "1 usable optimum" if optima else "no usable optimum"
        raise FittingError(f"{label}: {found} of {setting}, and a law needs two or more")
    n, d = (level_of(np.array([getattr(o, axis) for o in optima])) for axis in ("n_params", "n_tokens"))
    y = np.log([o.best for o in optima])
    used = [("c", np.ones(len(y)), 0.0)]
    used += [
        (s, np.log(v) - np.log(v).mean(), float(np.log(v).mean())) for s, v in (("p", n), ("q", d)) if np.ptp(v) > 0
    ]
    design = np.stack([column for _, column, _ in used], axis=1)
    if np.linalg.matrix_rank(design) < len(used) or len(y) < len(used):
        raise FittingError(f"{label}: the optima of {setting} do not separate N from D")
    gram = np.linalg.inv(design.T @ design)
    solved = gram @ design.T @ y
    df = len(y) - len(used)
    variance = float(((y - design @ solved) ** 2).sum()) / df if df else float("inf")
    shift = np.array([1.0, *(-centre for _, _, centre in used[1:])])
    covariance = np.asarray(gram * variance if df else np.full_like(gram, np.inf), dtype=np.float64)
    params = _law_params(used, solved, covariance, shift, t_quantile(level, max(df, 1)))
    return HyperLaw(setting, label, params, len(y), _law_warnings(params, df, setting))


def _law_warnings(params: dict[str, Parameter], df: int, setting: str) -> tuple[str, ...]:
    if not df:
        return ("as many optima as parameters: no interval",)
    loose = [name for name in ("p", "q") if not params[name].identified]
    words = f"exponent {' and '.join(loose)} of {setting} not resolved: use it at the sizes and budgets swept alone"
    return (words,) if loose else ()


def _law_params(
    used: list[tuple[str, Array, float]], solved: Array, covariance: Array, shift: Array, t: float
) -> dict[str, Parameter]:
    covariance = np.nan_to_num(covariance, nan=np.inf, posinf=np.inf, neginf=np.inf)
    finite = bool(np.isfinite(covariance).all())
    log_c = float(shift @ solved)
    se_c = float(np.sqrt(shift @ covariance @ shift)) if finite else float("inf")
    c, low, high = (float(end) for end in open_exp([log_c, log_c - t * se_c, log_c + t * se_c]))
    known = is_identified(low, high)  # else its ends are but those of the exponents, far from 1 parameter and 1 token
    params = {
        "c": Parameter("c", c, c * se_c, low, high) if known else Parameter("c", c, c * se_c, 0.0, np.inf, "none")
    }
    for j, (name, _, _) in enumerate(used[1:], start=1):
        se = float(np.sqrt(covariance[j, j])) if finite else float("inf")
        ends = (float(solved[j] - t * se), float(solved[j] + t * se))
        params[name] = Parameter(name, float(solved[j]), se, *ends, shift=True)
    for name in ("p", "q"):
        params.setdefault(name, Parameter(name, 0.0, 0.0, 0.0, 0.0, None, "fixed"))
    return params


def best_of_sweeps(points: Points, setting: str = "lr_peak") -> Points:
    """Keep, in each cell with several values of `setting`, the value with the lowest mean loss.

    The other runs are listed as excluded. Points without the column are returned unchanged.
    """
    if setting not in points.frame or points.frame[setting].nunique() < 2:
        return points
    frame = with_cells(points.frame, setting)
    means = frame.groupby([*CELL, setting])["loss_nats"].mean().reset_index()
    best = means.loc[means.groupby(CELL)["loss_nats"].idxmin()]
    chosen = best.set_index(CELL)[setting]
    keys = pd.MultiIndex.from_frame(frame[CELL])
    wanted = pd.Series(chosen.reindex(keys).to_numpy(dtype=np.float64), index=frame.index)
    keep = frame[setting].isna() | (frame[setting] == wanted)
    dropped = tuple(
        Exclusion(str(i), f"not the best {setting} of its size and budget") for i in frame.loc[~keep, "run_id"]
    )
    kept = points.where(keep)
    return Points(kept.frame, (*points.excluded, *dropped), points.rules)


def at_edge(points: Points, setting: str = "lr_peak") -> list[str]:
    """Name the cells whose best value is the first or last of a sweep of three or more values."""
    if setting not in points.frame or points.frame[setting].nunique() < LEAST_VALUES:
        return []
    found = []
    for (label, size, budget, settings), cell in with_cells(points.frame, setting).groupby(CELL, sort=False):
        mean = cell.groupby(setting)["loss_nats"].mean()
        if len(mean) >= LEAST_VALUES and int(np.argmin(mean.to_numpy())) in (0, len(mean) - 1):
            found.append(f"{label} {size} {budget}" + (f" ({settings})" if settings else ""))
    return found
