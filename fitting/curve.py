"""The final-loss curve of one method at one size: log loss against log tokens, from finished runs.

Interpolated log-log between budgets, or a straight line fitted through all of them ("fitted").
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.choices import CURVES
from scalewright.fitting.errors import CurveError, FittingError
from scalewright.fitting.frame import unknown

Array = NDArray[np.float64]

SAME = 0.02  # relative difference under which two sizes or two token counts are the same level


@dataclass(frozen=True)
class Reach:
    """Where a curve reaches a loss: log of tokens, local slope d log L / d log D, variance factor of log L there.

    `censored` is "above" when the curve never gets that low (log_tokens is then its last point: a lower bound),
    "below" when it is below that loss from its first point on (an upper bound). `beyond` is how much further, in log
    tokens and along the last slope, the loss would be reached (0 when not censored).
    """

    log_tokens: float
    slope: float
    variance_factor: float
    censored: str | None
    beyond: float = 0.0


@dataclass(frozen=True)
class LossCurve:
    """Mean log loss at each budget of one method and size; `n_seeds` per budget."""

    log_tokens: Array
    log_loss: Array
    n_seeds: Array
    kind: str

    def reach(self, log_loss: float) -> Reach:
        """Return where the curve reaches a log loss. Raises CurveError when it has one level or does not fall."""
        if len(self.log_tokens) < 2:
            raise CurveError("a loss curve needs two levels or more")
        return self._on_line(log_loss) if self.kind == "fitted" else self._between(log_loss)

    def _on_line(self, log_loss: float) -> Reach:
        x, y = self.log_tokens, self.log_loss
        slope, centre = _line(x, y, self.n_seeds)
        if not slope < 0:
            raise CurveError("the fitted loss curve does not fall")
        at = centre[0] + (log_loss - centre[1]) / slope
        spread = (self.n_seeds * (x - centre[0]) ** 2).sum()
        return Reach(at, slope, float(1 / self.n_seeds.sum() + (at - centre[0]) ** 2 / spread), None)

    def _between(self, log_loss: float) -> Reach:
        x, y = self.log_tokens, self.log_loss
        below = np.flatnonzero(y <= log_loss)
        if not len(below):
            slope = self._segment(len(x) - 1)
            return Reach(float(x[-1]), slope, float(1 / self.n_seeds[-1]), "above", (log_loss - y[-1]) / slope)
        last = int(below[0])
        if last == 0:
            slope, exact = self._segment(1), bool(y[0] >= log_loss - 1e-12)
            beyond = 0.0 if exact else (log_loss - y[0]) / slope
            return Reach(float(x[0]), slope, float(1 / self.n_seeds[0]), None if exact else "below", beyond)
        slope = self._segment(last)
        part = (log_loss - y[last - 1]) / (y[last] - y[last - 1])
        factor = (1 - part) ** 2 / self.n_seeds[last - 1] + part**2 / self.n_seeds[last]
        return Reach(float(x[last - 1] + part * (x[last] - x[last - 1])), slope, float(factor), None)

    def _segment(self, last: int) -> float:
        """Slope of the segment that ends at point `last`; where noise makes it rise, that of the straight line."""
        slope = float(np.diff(self.log_loss)[last - 1] / np.diff(self.log_tokens)[last - 1])
        return slope if slope < 0 else min(_line(self.log_tokens, self.log_loss, self.n_seeds)[0], -1e-6)


def _line(x: Array, y: Array, weight: Array) -> tuple[float, tuple[float, float]]:
    """Weighted least-squares slope and the centre the line goes through."""
    mean_x, mean_y = float(np.average(x, weights=weight)), float(np.average(y, weights=weight))
    slope = float((weight * (x - mean_x) * (y - mean_y)).sum() / (weight * (x - mean_x) ** 2).sum())
    return slope, (mean_x, mean_y)


def loss_curve(runs: pd.DataFrame, kind: str = "interpolated", axis: str = "n_tokens") -> LossCurve:
    """Return the curve of one method at one size (or, along n_params, at one budget): mean log loss at each level.

    Raises FittingError for an unknown kind.
    """
    if kind not in CURVES:
        raise FittingError(unknown("curve", kind, list(CURVES)))
    levels = level_of(runs[axis].to_numpy(dtype=np.float64))
    log_loss = np.log(runs["loss_nats"].to_numpy(dtype=np.float64))
    grouped = pd.DataFrame({"x": np.log(levels), "y": log_loss}).groupby("x")
    mean = grouped["y"].mean()
    return LossCurve(
        mean.index.to_numpy(dtype=np.float64),
        mean.to_numpy(dtype=np.float64),
        np.asarray(grouped["y"].size(), dtype=np.float64),
        kind,
    )


def level_of(values: Array) -> Array:
    """Replace each positive value by the smallest one of its level: values that differ by under 2% are one level."""
    order = np.argsort(values, kind="stable")
    out = np.empty_like(values)
    current = -np.inf
    for index in order:
        if not values[index] <= current * (1 + SAME):
            current = values[index]
        out[index] = current
    return out


def size_keys(runs: pd.DataFrame) -> "pd.Series[str]":
    """Name the size of each run: the column `size` where present, else the level of n_params."""
    if "size" in runs and runs["size"].notna().all():
        return runs["size"].astype(str)
    return pd.Series([f"{v:.4g}" for v in level_of(runs["n_params"].to_numpy(dtype=np.float64))], index=runs.index)


def budget_keys(runs: pd.DataFrame) -> "pd.Series[str]":
    """Name the budget of each run: the column `budget` where present, else the level of n_tokens."""
    if "budget" in runs and runs["budget"].notna().all():
        return runs["budget"].astype(str)
    return pd.Series([f"{v:.4g}" for v in level_of(runs["n_tokens"].to_numpy(dtype=np.float64))], index=runs.index)


def scatter(frame: pd.DataFrame) -> tuple[float, int]:
    """Return the scatter of log loss of single runs and its degrees of freedom, pooled over methods and sizes.

    From seeds that repeat a cell where there are any; else about a log-log line of each curve (a parabola from four
    budgets on), which also counts the bend of the curve and so errs on the wide side. (nan, 0) when neither is
    possible.
    """
    table = frame.assign(_size=size_keys(frame), _tokens=level_of(frame["n_tokens"].to_numpy(dtype=np.float64)))
    table = table.assign(_y=np.log(table["loss_nats"].astype(float)))
    cells = table.groupby(["label", "_size", "_tokens"])["_y"]
    squares, df = float(((cells.size() - 1) * cells.var().fillna(0.0)).sum()), int((cells.size() - 1).sum())
    if df > 0:
        return float(np.sqrt(squares / df)), df
    for _, part in table.groupby(["label", "_size"]):
        x, y = np.log(part["_tokens"].to_numpy(dtype=np.float64)), part["_y"].to_numpy(dtype=np.float64)
        if len(x) > 2:
            degree = 1 if len(x) == 3 else 2
            fitted = np.polynomial.Polynomial.fit(x, y, degree)(x)
            squares, df = squares + float(((y - fitted) ** 2).sum()), df + len(x) - degree - 1
    return (float(np.sqrt(squares / df)), df) if df else (float("nan"), 0)
