"""What several laws together say of runs to come, and how wrong that may be.

A fitted law knows the noise and the doubt of its parameters, not whether it goes on holding: the error of a far
forecast is mostly the law's. It is measured on the same runs (fit the cheaper, predict the dearer, at every cut) as a
share of the loss that grows with the distance, and a stated prior counts for a few such measurements.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.forecast_laws import AXES, FORECAST_LAWS, Teller, Told
from scalewright.fitting.frame import Points
from scalewright.fitting.optimum import flop_levels
from scalewright.fitting.threads import single_threaded
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

PRIOR_ERROR = 0.02  # of the loss for each e-fold of distance ...
PRIOR_WEIGHT = 4.0  # ... and for how many cuts it counts
CUT_WEIGHT = 0.5  # cuts share most of their runs: two count as one
MOST_CUTS = 8
LEAST_RUNS = 3
LEAST_COMPUTES = 2
SCORE_DF = 4.0  # a law is scored by a heavy tail: one far miss does not end it


@dataclass(frozen=True)
class ModelError:
    """Standard deviation of log loss for each e-fold of distance, beyond noise and parameters; from `n_cuts` cuts."""

    per_efold: float
    df: float
    n_cuts: int


@dataclass(frozen=True)
class LawAverage:
    """Laws fitted to the same runs, their weights, and the model error of their average."""

    tellers: Mapping[str, Teller]
    weights: Mapping[str, float]
    error: ModelError
    runs: pd.DataFrame

    @property
    def name(self) -> str:
        """The laws and their weights in words."""
        return ", ".join(f"{name} {100 * weight:.0f}%" for name, weight in self.weights.items())

    @property
    def reason(self) -> str:
        """What widens the intervals with distance, in words."""
        share = f"{100 * self.error.per_efold:.2g}% of the loss for each e-fold past the finished runs"
        cuts = f"{self.error.n_cuts} cut{'s' if self.error.n_cuts != 1 else ''}"
        return f"model error {share} (by {cuts} between cheaper and dearer runs, and a prior of {100 * PRIOR_ERROR:g}%)"

    def predict(self, rows: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
        """Return predicted, low, high and distance (e-folds) of new runs at n_params, n_tokens and flops."""
        told = together({name: teller(rows) for name, teller in self.tellers.items()}, self.weights)
        far = distance(self.runs, rows)
        spread = np.sqrt(told.se**2 + (self.error.per_efold * far) ** 2)
        half = float(stats.t.ppf(0.5 + level / 2, self.error.df)) * spread
        ends = {"predicted": told.log_loss, "low": told.log_loss - half, "high": told.log_loss + half}
        return pd.DataFrame({name: np.exp(value) for name, value in ends.items()} | {"distance": far}, index=rows.index)


@dataclass(frozen=True)
class Cut:
    """Forecasts of dearer runs from cheaper ones: errors of log loss by law, their standard errors, and distances."""

    told: Mapping[str, Told]
    distance: Array


@single_threaded
def average_laws(points: Points) -> LawAverage:
    """Fit every law of FORECAST_LAWS to the runs (one method's), and weigh them by their forecasts of these runs.

    Raises FittingError for fewer than three runs or two computes.
    """
    runs = points.frame
    levels = flop_levels(runs["flops"].to_numpy(dtype=np.float64))
    if len(runs) < LEAST_RUNS or len(np.unique(levels)) < LEAST_COMPUTES:
        there = f"{counted(len(runs), 'run')} of {counted(len(np.unique(levels)), 'compute')}"
        raise FittingError(f"{there}; a forecast needs {LEAST_RUNS} of {LEAST_COMPUTES}")
    cuts = rolling_cuts(runs, levels)
    weights = weigh(cuts)
    return LawAverage(fit_all(runs), weights, model_error(cuts, weights), runs)


def fit_all(runs: pd.DataFrame) -> dict[str, Teller]:
    """Fit each law of FORECAST_LAWS to the runs; by its name."""
    return {name: make(runs) for name, make in FORECAST_LAWS.items()}


def rolling_cuts(runs: pd.DataFrame, levels: Array) -> list[Cut]:
    """Predict, from the runs up to each of at most MOST_CUTS computes, all dearer ones."""
    ceilings = np.unique(levels)[1:-1]
    ceilings = np.array([one for one in ceilings if (levels <= one).sum() >= LEAST_RUNS])
    if len(ceilings) > MOST_CUTS:
        ceilings = ceilings[np.unique(np.linspace(len(ceilings) // 3, len(ceilings) - 1, MOST_CUTS).astype(int))]
    return [_cut_at(runs[levels <= one], runs[levels > one]) for one in ceilings]


def _cut_at(cheap: pd.DataFrame, dear: pd.DataFrame) -> Cut:
    measured = np.log(dear["loss_nats"].to_numpy(dtype=np.float64))
    told = {name: teller(dear) for name, teller in fit_all(cheap).items()}
    return Cut({name: Told(one.log_loss - measured, one.se) for name, one in told.items()}, distance(cheap, dear))


def weigh(cuts: list[Cut]) -> dict[str, float]:
    """Weights in proportion to exp of the mean log score of a run, times the weight of the cuts over the prior's."""
    if not cuts:
        return dict.fromkeys(FORECAST_LAWS, 1 / len(FORECAST_LAWS))
    scores = np.array([np.mean([_score(cut.told[name], cut.distance) for cut in cuts]) for name in FORECAST_LAWS])
    raw = np.exp((scores - scores.max()) * len(cuts) * CUT_WEIGHT / PRIOR_WEIGHT)
    return dict(zip(FORECAST_LAWS, (raw / raw.sum()).tolist(), strict=True))


def _score(told: Told, far: Array) -> float:
    scale = np.sqrt(told.se**2 + (PRIOR_ERROR * far) ** 2)
    return float(np.mean(stats.t.logpdf(told.log_loss / scale, SCORE_DF) - np.log(scale)))


def model_error(cuts: list[Cut], weights: Mapping[str, float]) -> ModelError:
    """Mean square of what the average missed by beyond its standard error, over the mean squared distance."""
    excess = []
    for cut in cuts:
        told, square = together(cut.told, weights), float((cut.distance**2).mean())
        if square > 0:
            excess.append(max(float((told.log_loss**2 - told.se**2).mean()), 0.0) / square)
    df = PRIOR_WEIGHT + CUT_WEIGHT * len(excess)
    variance = (PRIOR_WEIGHT * PRIOR_ERROR**2 + CUT_WEIGHT * sum(excess)) / df
    return ModelError(math.sqrt(variance), df, len(excess))


def together(told: Mapping[str, Told], weights: Mapping[str, float]) -> Told:
    """Return the weighted mean, and a standard error that holds the laws' own and what they differ by."""
    share = np.array(list(weights.values()))[:, None]
    values, errors = (np.array([getattr(told[name], what) for name in weights]) for what in ("log_loss", "se"))
    middle = (share * values).sum(axis=0)
    return Told(middle, np.sqrt((share * (errors**2 + (values - middle) ** 2)).sum(axis=0)))


def distance(finished: pd.DataFrame, rows: pd.DataFrame) -> Array:
    """E-folds by which rows lie outside the sizes, tokens and computes of the finished runs; 0 inside.

    The root of the sum of squares over log N and log D, or log compute over the root of 2 where that is more.
    """
    square = np.zeros(len(rows))
    for axis in AXES:
        at, known = (np.log(frame[axis].to_numpy(dtype=np.float64)) for frame in (rows, finished))
        square += np.maximum(np.maximum(at - known.max(), known.min() - at), 0.0) ** 2
    compute = np.log(rows["flops"].to_numpy(dtype=np.float64) / finished["flops"].max())
    return np.asarray(np.maximum(np.sqrt(square), compute / math.sqrt(2)))
