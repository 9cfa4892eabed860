"""How much lower one method's final loss is: paired by size, budget and seed. Frames in, records out."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.curve import budget_keys, size_keys
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import Points
from scalewright.fitting.joint.answer import JointComparison

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LossDifference:
    """Method minus baseline, in nats and as a ratio of losses, with intervals; negative favours the method.

    `scope` is "pooled", "size <name>", "budget <name>" or "cell <size> <budget>". `basis` is what the interval rests
    on: "model", the scatter that one model of all runs found. Without such a model: "cells" where there are several,
    within a single cell "seeds" (paired), or "runs" where the seeds do not match (Welch), and "none" (infinite
    interval) for a single pair. `n_pairs` counts these (cells for "model"), `n_runs` the runs of both sides.
    """

    scope: str
    nats: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    n_pairs: int
    n_runs: int
    basis: str

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0

    @property
    def rests_on(self) -> str:
        """What the interval counts, in words."""
        words = {
            "model": "size-budget pairs",
            "cells": "size-budget pairs",
            "seeds": "paired seeds at one size and budget",
            "runs": "unpaired runs at one size and budget",
        }
        return f"{self.n_pairs} {words[self.basis]}" if self.basis in words else "1 pair of runs"


@dataclass(frozen=True)
class _Cell:
    """One size at one budget: intervals (mean, low, high) of the difference in nats and in log loss."""

    size: str
    budget: str
    n_params: float
    n_tokens: float
    nats: tuple[float, float, float]
    log_ratio: tuple[float, float, float]
    n_pairs: int
    n_runs: int
    basis: str


def loss_differences(
    points: Points, method: str, baseline: str, *, level: float = 0.95, joint: JointComparison | None = None
) -> tuple[LossDifference, ...]:
    """Return the difference pooled, by size, by budget and by cell.

    Runs of equal size, budget and seed are paired, and the seeds of a cell are averaged. With a joint model the
    interval is of the mean over these cells, from the scatter of runs that the model found: true differences between
    cells are no noise. Without one it is a t over the cells' means, or in a single cell a paired t over its seeds
    (Welch's t where fewer than two seeds match). Raises FittingError when no cell has both methods.
    """
    cells = _cells(points, method, baseline, level)
    found = [_over(cells, "pooled", level, joint)]
    for key, by in (("size", "n_params"), ("budget", "n_tokens")):
        for name in dict.fromkeys(getattr(cell, key) for cell in sorted(cells, key=lambda cell: getattr(cell, by))):
            found.append(_over([cell for cell in cells if getattr(cell, key) == name], f"{key} {name}", level, joint))
    return (*found, *(_over([cell], f"cell {cell.size} {cell.budget}", level, joint) for cell in cells))


def _cells(points: Points, method: str, baseline: str, level: float) -> list[_Cell]:
    """Return the cells that have runs of both, sorted by N and D."""
    frame = points.frame.assign(_size=size_keys(points.frame), _budget=budget_keys(points.frame))
    ordered = frame.sort_values(["n_params", "n_tokens"], kind="stable")
    found = []
    for (size, budget), cell in ordered.groupby(["_size", "_budget"], sort=False):
        ours, theirs = cell[cell["label"] == method], cell[cell["label"] == baseline]
        if len(ours) and len(theirs):
            found.append(_cell(str(size), str(budget), ours, theirs, level))
    if not found:
        raise FittingError(f"{method} and {baseline} share no size and budget: there is nothing to pair")
    return found


def _cell(size: str, budget: str, ours: pd.DataFrame, theirs: pd.DataFrame, level: float) -> _Cell:
    """Compare the runs of one cell: seed by seed, else side by side, else as the single pair that they are."""
    first, second = _by_seed(ours), _by_seed(theirs)
    place = (size, budget, float(ours["n_params"].mean()), float(ours["n_tokens"].mean()))
    shared = sorted(set(first.index) & set(second.index))
    if len(shared) < 2 and min(len(ours), len(theirs)) >= 2:
        a, b = (side["loss_nats"].to_numpy(dtype=np.float64) for side in (ours, theirs))
        n_runs = len(a) + len(b)
        logs = welch_interval(np.log(a), np.log(b), level)
        return _Cell(*place, welch_interval(a, b, level), logs, n_runs, n_runs, "runs")
    if shared:
        a, b = first[shared].to_numpy(dtype=np.float64), second[shared].to_numpy(dtype=np.float64)
    else:
        a, b = np.array([_geometric_mean(ours)]), np.array([_geometric_mean(theirs)])
    basis = "seeds" if len(a) > 1 else "none"
    logs = t_interval(np.log(a / b), level)
    return _Cell(*place, t_interval(a - b, level), logs, len(a), 2 * len(a), basis)


def _by_seed(runs: pd.DataFrame) -> "pd.Series[float]":
    """Return the loss of each seed; empty where seeds are not known."""
    seeded = runs.dropna(subset=["seed"]) if "seed" in runs else runs.iloc[:0].assign(seed=[])
    return seeded.groupby("seed")["loss_nats"].mean()


def _geometric_mean(runs: pd.DataFrame) -> float:
    return float(np.exp(np.log(runs["loss_nats"]).mean()))


def _over(cells: list[_Cell], scope: str, level: float, joint: JointComparison | None) -> LossDifference:
    n_runs = sum(cell.n_runs for cell in cells)
    if joint is not None:
        return _by_model(cells, scope, n_runs, joint)
    if len(cells) == 1:
        (cell,) = cells
        return _record(scope, cell.nats, cell.log_ratio, (cell.n_pairs, n_runs, cell.basis))
    nats, logs = (np.array([getattr(cell, name)[0] for cell in cells]) for name in ("nats", "log_ratio"))
    return _record(scope, t_interval(nats, level), t_interval(logs, level), (len(cells), n_runs, "cells"))


def _by_model(cells: list[_Cell], scope: str, n_runs: int, joint: JointComparison) -> LossDifference:
    frame = joint.runs.frame
    keys = {(cell.size, cell.budget) for cell in cells}
    chosen = np.array([key in keys for key in zip(frame["_size"], frame["_budget"], strict=True)])
    logs = joint.log_ratio(np.intersect1d(joint.runs.shared_cells, joint.runs.cell[chosen]))
    nats = float(np.mean([cell.nats[0] for cell in cells]))
    half = (logs.high - logs.value) * float(np.exp(joint.runs.log_loss[chosen].mean()))
    ends = (logs.value, logs.low, logs.high)
    return _record(scope, (nats, nats - half, nats + half), ends, (len(cells), n_runs, "model"))


def _record(
    scope: str, nats: tuple[float, float, float], logs: tuple[float, float, float], counts: tuple[int, int, str]
) -> LossDifference:
    ratio, low, high = (math.exp(end) if end < 700 else math.inf for end in logs)
    return LossDifference(scope, *nats, ratio, low, high, *counts)


def welch_interval(first: Array, second: Array, level: float) -> tuple[float, float, float]:
    """Return the difference of two means and its interval by Welch's t; both need two values or more."""
    mean = float(first.mean() - second.mean())
    shares = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
    spread = sum(shares)
    if spread <= 0:
        return mean, mean, mean
    df = spread**2 / sum(share**2 / (len(side) - 1) for share, side in zip(shares, (first, second), strict=True))
    half = float(stats.t.ppf(0.5 + level / 2, df)) * math.sqrt(spread)
    return mean, mean - half, mean + half


def t_interval(values: Array, level: float) -> tuple[float, float, float]:
    """Return mean and t interval; infinite ends for one value."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -math.inf, math.inf
    t = float(stats.t.ppf(0.5 + level / 2, len(values) - 1))
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half
