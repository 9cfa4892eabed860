"""What runs to come would tell of a comparison: the information of the joint model, linear about its fit.

    log L = x theta + cell + pair + arm + own scatter

What runs share (`noise`) are unknowns like the curve's, with a prior each; given all of them runs are independent, so
that what is believed of the shift is a factor, as `advise` buys from. Chooses nothing.
"""

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.advise import Prospect
from scalewright.fitting.choices import ASSUMED
from scalewright.fitting.curve import budget_keys, size_keys
from scalewright.fitting.design import ASSUMED_SCATTER
from scalewright.fitting.errors import CurveError
from scalewright.fitting.frame import PointRules, Points
from scalewright.fitting.joint.answer import JointComparison, joint_comparison
from scalewright.fitting.joint.curve import CurveFit, fit_curves, jacobian
from scalewright.fitting.joint.noise import FEWEST_SIZES, structures
from scalewright.fitting.joint.runs import Groups, Runs, grouped

Array = NDArray[np.float64]

SUPPOSED = 1e-4  # weight of a run whose loss is not known yet: it bends no curve that finished runs tell
FREE = {
    "level": 0.5,
    "slope": 0.2,
    "bend": 0.3,
    "shift": 1.0,
}  # prior deviations; levels and slopes as shares of a loss


def comparison_prospect(table: pd.DataFrame, method: str, baseline: str, level: float = 0.95) -> Prospect:
    """Return what is known of the log of a method's speed-up in tokens, and what each run of `table` would tell of it.

    table: label, n_params, n_tokens, seed (size, budget where they have names), loss_nats (NaN of runs to come). Before
    the runs carry the joint model, losses are supposed to follow `choices.ASSUMED`, what runs share to be as its prior
    says, and the speed-up to be 1. An interval of fewer than three sizes, where there are three, lacks what a method's
    runs share at a size: it is not taken for one. Raises CurveError where all runs together would not carry it.
    """
    table = table[table["label"].isin([method, baseline])]
    known = table["loss_nats"].notna().to_numpy()
    joint = _joint(table[known], method, baseline, level)
    named = table.assign(_size=size_keys(table), _budget=budget_keys(table), loss_nats=_supposed(table))
    runs = grouped(named.reset_index(drop=True), method)
    if not len(runs.shared_cells):
        raise CurveError(f"{method} and {baseline} share no size and budget")
    weight = np.where(known, 1.0, SUPPOSED)
    own = joint is not None and joint.own_slopes
    fit = fit_curves(runs, np.ones((len(runs), 1)), own_slopes=own, weight=weight)
    scatter, shared = _deviations(runs, joint)
    parts = [jacobian(runs, fit) * _free(runs, fit)]
    for groups, deviation in zip((runs.cell, runs.pair, runs.arm), shared, strict=True):
        if deviation > 0:
            parts.append(deviation * _columns(groups))
    rows = np.hstack(parts)
    at = parts[0].shape[1] - 1
    answer = np.zeros((1, rows.shape[1]))
    answer[0, at] = FREE["shift"]
    value, half = 0.0, math.inf
    if joint is not None and (one := joint.speedup()) is not None:
        told = len(joint.runs.sizes) >= min(FEWEST_SIZES, len(runs.sizes))
        value, half = math.log(one.ratio), _half(one.low, one.high) if told else math.inf
    return Prospect(rows, answer, scatter, value, half, float(stats.norm.ppf(0.5 + level / 2))).given(
        np.flatnonzero(known)
    )


def _joint(finished: pd.DataFrame, method: str, baseline: str, level: float) -> JointComparison | None:
    try:
        points = Points(finished.reset_index(drop=True), (), PointRules())
        return joint_comparison(points, method, baseline, level=level, scales=False)
    except CurveError:
        return None


def _half(low: float, high: float) -> float:
    return (math.log(high) - math.log(low)) / 2 if low > 0 and math.isfinite(high) else math.inf


def _supposed(table: pd.DataFrame) -> Array:
    """Fill losses of runs to come by the assumed law, at the level of those that are known."""
    law = ASSUMED
    told = (
        law["E"]
        + law["A"] * table["n_params"].to_numpy(dtype=np.float64) ** -law["alpha"]
        + law["B"] * table["n_tokens"].to_numpy(dtype=np.float64) ** -law["beta"]
    )
    loss = table["loss_nats"].to_numpy(dtype=np.float64)
    known = np.isfinite(loss)
    scale = math.exp(float(np.median(np.log(loss[known] / told[known])))) if known.any() else 1.0
    return np.where(known, loss, scale * told)


def _deviations(runs: Runs, joint: JointComparison | None) -> tuple[float, tuple[float, ...]]:
    """Return the standard deviation of a run's own scatter, and of what cells, pairs and arms share.

    Averaged over noise structures as deviations, which is what widths of intervals average. What the finished runs
    cannot show (an arm takes three sizes) is as its prior has it.
    """
    grid, prior = structures(runs)
    before = (prior / prior.sum()) @ np.sqrt(grid)
    if joint is None:
        return ASSUMED_SCATTER, tuple(ASSUMED_SCATTER * before)
    noise = joint.effect.noise
    scatter = np.sqrt(noise.squares)
    own = float(noise.weights @ scatter)
    told = (noise.weights * scatter) @ np.sqrt(noise.ratios[:, :3])
    carried = structures(joint.runs)[0].any(axis=0)
    return own, tuple(np.where(carried, told, own * before))


def _free(runs: Runs, fit: CurveFit) -> Array:
    """Prior deviations of levels, slopes, bend and shift."""
    loss = float(np.mean(fit.fitted))
    n_sizes = len(runs.sizes)
    return np.concatenate(
        [
            np.full(n_sizes, FREE["level"] * loss),
            np.full(len(fit.linear) - n_sizes, FREE["slope"] * loss),
            np.full(int(fit.curved), FREE["bend"]),
            np.full(len(fit.shift), FREE["shift"]),
        ]
    )


def _columns(groups: Groups) -> Array:
    return np.equal.outer(groups, np.unique(groups)).astype(np.float64)
