"""Would another law have told the dearest runs better? Each is fitted to the cheaper ones and scored on the rest.

Knows fits. One cut and a smooth objective, so that a plain fit can afford it.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import Points
from scalewright.fitting.laws import LAWS
from scalewright.fitting.optimum import flop_levels
from scalewright.fitting.words import counted

DEAREST = 0.2  # share of the runs that is held out, in whole levels of compute
FEWEST = 3
WIDTH = 1e-2  # of Huber's loss, in log loss: bad runs do not steer, and few kinks slow the search
CLEARLY = 1.5  # times the error from which another law is worth a word
CHANCE = 0.05  # that two laws that are off alike differ by more than is asked of so many runs


@dataclass(frozen=True)
class Rival:
    """A law that told the dearest runs better than the one fitted; errors are root mean squares of log loss."""

    law: str
    error: float
    own_law: str
    own_error: float
    n_dearest: int
    n_cheaper: int

    @property
    def sentence(self) -> str:
        """The comparison in a sentence."""
        return (
            f"{self.law} predicts the dearest {counted(self.n_dearest, 'run')} better: root mean square error of"
            f" {100 * self.error:.2g}% against {100 * self.own_error:.2g}% by {self.own_law},"
            f" each fitted to the {self.n_cheaper} cheaper ones"
        )


def better_law(points: Points, law: str) -> Rival | None:
    """Return the law in the same axes that tells the dearest runs of one method clearly better; None where none does.

    None too for several methods at once, and where fewer than FEWEST runs are dearest or the cheaper ones cannot carry
    the law.
    """
    own, computes = LAWS[law], points.column("flops")
    rivals = [name for name, one in LAWS.items() if set(one.axes) == set(own.axes) and not one.per_method]
    if own.per_method or len(points.methods) > 1 or len(rivals) < 2 or not np.isfinite(computes).all():
        return None
    levels = flop_levels(computes)
    dear = levels >= np.quantile(levels, 1 - DEAREST)
    if not FEWEST <= dear.sum() < len(points):
        return None
    cheaper, dearest = points.where(pd.Series(~dear)), points.frame[dear]
    errors = {name: _error(name, cheaper, dearest) for name in rivals}
    best = min(errors, key=lambda name: errors[name])
    if not np.isfinite(errors[law]) or errors[law] < _clearly(len(dearest)) * errors[best]:
        return None
    return Rival(best, errors[best], law, errors[law], len(dearest), len(cheaper))


def _clearly(n_dearest: int) -> float:
    """How many times the error of another law counts: more where few runs tell, by the F ratio of their squares."""
    return max(CLEARLY, float(np.sqrt(stats.f.isf(CHANCE, n_dearest, n_dearest))))


def _error(law: str, cheaper: Points, dearest: pd.DataFrame) -> float:
    """Return the error of a law that has converged, else infinity."""
    try:
        result = fit(cheaper, law, delta=WIDTH, profile="never")
    except FittingError:
        return float("inf")
    axes = {axis: np.log(dearest[axis].to_numpy(dtype=np.float64)) for axis in result.law.axes}
    names, methods = result.estimate.names, np.full(len(dearest), cheaper.methods[0])
    told = result.law.log_loss_at(names, result.estimate.theta, axes, methods)[0] - np.log(dearest["loss_nats"])
    return float(np.sqrt((told**2).mean())) if result.certificate.converged else float("inf")
