"""What the runs of a comparison share beside the curve, as variances relative to a run's own. Arrays in, weights out.

    V = W^-1 + cell C + pair P + arm M

cell: what a smooth curve misses at one size and budget, for both methods alike; pair: seed and data order, for both
alike; arm: an effect of one method at one size; W^-1: a run's own variance, which may grow or fall with size and with
budget. None of these is estimated and then believed: every value of a grid enters with the weight of its restricted
likelihood times a prior.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewright.fitting.joint.runs import Groups, Runs

Array = NDArray[np.float64]

COMMON = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # variance of cells and of pairs over that of runs
ARM = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
COMMON_PRIOR = 0.5  # that there is none
ARM_PRIOR = 0.45  # that no effect of a method at a size exists; the rest is spread over the ratios
ARM_PRIOR_OF_TWO = 0.75  # the same with two sizes, which hardly tell it from a speed-up
FEWEST_SIZES = 3  # that tell an effect of each method at each size
RANK = 1e-9  # of the largest singular value: columns below it are combinations of others
KEPT = 2e-3  # of the largest weight: noise structures below it are left out
TRENDS = (-1.4, 0.0, 1.4)  # of a run's log variance, from the middle to an end: scatter differs by 4 between the ends
TREND_PRIOR = 0.05  # odds of a trend against none


@dataclass(frozen=True)
class Noise:
    """Covariances V of the runs, in units of a run's variance, and how much each weighs."""

    inverses: Array  # (structures, runs, runs)
    weights: Array  # (structures,)
    ratios: Array  # (structures, 5): cell, pair, arm; trends of log variance with size and budget
    squares: Array  # (structures,): residual squares over degrees of freedom
    df: int

    @property
    def typical(self) -> int:
        """The likeliest structure without an arm effect."""
        free = self.weights * (self.ratios[:, 2] == 0)
        return int(np.argmax(free if free.any() else self.weights))

    def mean(self, column: int) -> float:
        """The mean variance of cells (0), pairs (1) or arms (2), in units of squared log loss."""
        return float((self.weights * self.ratios[:, column] * self.squares).sum())


def structures(runs: Runs, *, arms: bool = True) -> tuple[Array, Array]:
    """Return the grid of (cell, pair, arm) ratios, and their prior."""
    paired = COMMON if runs.has_pairs else (0.0,)
    arm = ARM if arms and len(runs.sizes) > 1 else (0.0,)
    none = ARM_PRIOR if len(runs.sizes) >= FEWEST_SIZES else ARM_PRIOR_OF_TWO
    grid = np.array(list(itertools.product(COMMON, paired, arm)))
    prior = _spike(grid[:, 0], COMMON_PRIOR) * _spike(grid[:, 1], COMMON_PRIOR) * _spike(grid[:, 2], none)
    return grid, prior


def _spike(ratios: Array, at_zero: float) -> Array:
    """A prior on one ratio: so much at zero, the rest spread evenly over the other values of the grid."""
    values = len(np.unique(ratios))
    return np.where(ratios == 0, at_zero, (1 - at_zero) / (values - 1)) if values > 1 else np.ones(len(ratios))


def same(groups: Groups) -> Array:
    """Return (n, n): 1 where two runs are of one group, else 0."""
    return np.equal.outer(groups, groups).astype(np.float64)


def weigh(runs: Runs, x: Array, residuals: Array, *, arms: bool = True) -> Noise:
    """Weigh noise structures by the restricted likelihood of residuals about columns x.

    First what runs share, with a variance that is the same for all; then, for the structures that are left, a variance
    that grows or falls with size and with budget.
    """
    grid, prior = structures(runs, arms=arms)
    first = _weighed(runs, x, residuals, grid, prior)
    kept = first.weights > KEPT
    ratios, prior = first.ratios[kept], _prior_of(grid, prior, first.ratios[kept])
    trends = np.array(list(itertools.product(TRENDS, TRENDS)))
    odds = TREND_PRIOR ** (trends != 0).sum(axis=1)
    every = np.hstack([np.repeat(ratios[:, :3], len(trends), axis=0), np.tile(trends, (len(ratios), 1))])
    odds = np.repeat(prior, len(trends)) * np.tile(odds, len(ratios))
    return _pruned(runs, _weighed(runs, x, residuals, every, odds))


def _prior_of(grid: Array, prior: Array, kept: Array) -> Array:
    table = {tuple(row): p for row, p in zip(grid, prior, strict=True)}
    return np.array([table[tuple(row[:3])] for row in kept])


def _pruned(runs: Runs, noise: Noise) -> Noise:
    """Leave out what weighs next to nothing, and invert what is left: all structures at once would not fit memory."""
    kept = noise.weights > KEPT
    weights = noise.weights[kept] / noise.weights[kept].sum()
    inverses = np.linalg.inv(covariances(runs, noise.ratios[kept]))
    return Noise(np.asarray(inverses, dtype=np.float64), weights, noise.ratios[kept], noise.squares[kept], noise.df)


def covariances(runs: Runs, grid: Array) -> Array:
    """Return V of each row of `grid`: ratios of cell, pair and arm, then trends of a run's log variance (if given)."""
    axes = np.stack([_spread(runs.log_params), _spread(runs.log_tokens)])
    trends = grid[:, 3:] if grid.shape[1] > 3 else np.zeros((len(grid), 2))
    v = np.zeros((len(grid), len(runs), len(runs)))
    for column, groups in enumerate((runs.cell, runs.pair, runs.arm)):
        if grid[:, column].any():
            v += grid[:, column, None, None] * same(groups)
    v[:, np.arange(len(runs)), np.arange(len(runs))] += np.exp(trends @ axes)
    return v


def _spread(values: Array) -> Array:
    """Scale to [-1, 1]; zeros where all are equal."""
    half = (values.max() - values.min()) / 2
    return (values - values.min()) / half - 1 if half > 0 else np.zeros(len(values))


def _weighed(runs: Runs, x: Array, residuals: Array, grid: Array, prior: Array) -> Noise:
    """Weigh every row of `grid` (as `covariances` takes it); no inverse is kept."""
    left, values, _ = np.linalg.svd(x / (np.linalg.norm(x, axis=0) + 1e-300), full_matrices=False)
    x = left[:, values > RANK * values[0]]  # a size or budget that one method alone has adds no column of its own
    df = len(runs) - x.shape[1]
    logs, squares = [], []
    for some in np.array_split(np.arange(len(grid)), max(1, len(grid) * len(runs) ** 2 // 400_000)):
        v = covariances(runs, grid[some])
        inverse = np.linalg.inv(v)
        xv = x.T @ inverse
        gram, moment = xv @ x, xv @ residuals
        rss = ((residuals @ inverse) * residuals).sum(axis=1) - (moment * _solved(gram, moment)).sum(axis=1)
        rss = np.maximum(rss, 1e-22 * len(runs))
        logs.append(-0.5 * (np.linalg.slogdet(v)[1] + np.linalg.slogdet(gram)[1] + df * np.log(rss)))
        squares.append(rss / max(df, 1))
    log = np.concatenate(logs) + np.log(prior)
    weights = np.exp(log - log.max())
    return Noise(np.empty((0, 0, 0)), weights / weights.sum(), grid, np.concatenate(squares), df)


def _solved(gram: Array, moment: Array) -> Array:
    return np.asarray((np.linalg.pinv(gram, rcond=1e-13, hermitian=True) @ moment[..., None])[..., 0])
