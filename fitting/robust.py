"""Covariance of a fit that allows for unequal, heavy-tailed and shared scatter: a sandwich, shrunk where runs are few.

The estimator solves sum_i g_i psi(r_i) J_i = 0, with r the log residuals and g = 1 (L_hat^2 for least squares on the
loss itself). Its covariance is H^-1 M H^-1, H = sum g_i w_i J_i J_i' with w_i = E psi'(r_i), M = cov of the sum.
Knows numpy and scipy only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from scalewright.fitting.losses import tilt
from scalewright.fitting.objectives import Objective
from scalewright.fitting.uncertainty import Noise, noise_of, t_quantile

Array = NDArray[np.float64]
Groups = NDArray[np.intp]

# Fixed numbers; docs/fitting.md shows what coverage they give.
SHRINK_RUNS = 40.0  # runs at which single residuals count as much as the smooth model of their scale
PRIOR_PRECISION = 11.0  # of the slope of log scale in log leverage: a standard deviation of .3
CLIP_SCALE = 4.0  # residuals beyond this many scales do not steer the model of scale
KERNEL_WIDTH = 1.0  # of Powell's kernel, in scales times n^(-1/5): Powell 1991, in Barnett et al. (eds)
MOST_LEVERAGE = 0.95
GAMMA_DISPERSION = 0.57  # of |z| under the normal: variance over squared mean
SHARED_Z = 1.645  # one-sided 5% test of an effect that the runs of one size share
FEWEST_GROUPS = 4
MOST_SHARED = 0.95


@dataclass(frozen=True)
class Shared:
    """An effect shared by the runs of a group: its share of the variance, the number of groups, what is left of them.

    `df` is the number of groups less what the law itself fits between groups; `found` whether a test sees the effect.
    """

    share: float
    n_groups: int
    df: int
    found: bool


@dataclass(frozen=True)
class Robust:
    """A covariance of the coordinates, what it would be under equal scatter, and what was found in the residuals.

    slope: of log scale in log leverage, per standard deviation of it; shared: None where runs have no groups to test;
    leverage: of each run.
    """

    covariance: Array
    equal: Array
    slope: float
    shared: Shared | None
    leverage: Array


@dataclass(frozen=True)
class Scores:
    """What the sandwich is made of: Jacobian, g, residuals, and the objective that psi belongs to."""

    jacobian: Array
    factor: Array
    residuals: Array
    objective: Objective


@dataclass(frozen=True)
class _Moments:
    square: Array  # E psi^2 of each run
    inside: Array  # E psi'
    slope: float


def robust_covariance(scores: Scores, noise: Noise, level: float, groups: Groups | None = None) -> Robust:
    """Return the covariance of the free coordinates (the columns of the Jacobian); zeros where nothing scatters.

    `groups` numbers the group of each run (its size). The part of a shared effect is stretched so that the t quantile
    of `noise.df` stands for that of the few groups.
    """
    n_theta = scores.jacobian.shape[1]
    if noise.sigma <= 0 or not n_theta:
        nothing = np.zeros((n_theta, n_theta))
        return Robust(nothing, nothing, 0.0, None, np.zeros(len(scores.residuals)))
    moments = _moments(scores, noise)
    weighted = scores.factor * moments.inside
    bread = inverse(scores.jacobian.T @ (weighted[:, None] * scores.jacobian))
    own = np.sqrt(moments.square)[:, None] * scores.factor[:, None] * scores.jacobian
    middle = own.T @ own
    shared = None if groups is None else _shared_effect(scores, moments, groups)
    if shared is not None and groups is not None and shared.found:
        sums = np.stack([np.bincount(groups, column) for column in own.T], axis=1)
        stretch = (t_quantile(level, shared.df) / t_quantile(level, noise.df)) ** 2
        middle = (1 - shared.share) * middle + stretch * shared.share * sums.T @ sums
    return Robust(bread @ middle @ bread, _equal(scores, noise), moments.slope, shared, _leverage(scores))


def influence_steps(scores: Scores, noise: Noise) -> Array:
    """Return how far each run's absence moves the free coordinates, to first order: (n_runs, n_theta)."""
    if noise.sigma <= 0:
        return np.zeros_like(scores.jacobian)
    moments, leverage = _moments(scores, noise), _leverage(scores)
    weighted = scores.factor * moments.inside
    bread = inverse(scores.jacobian.T @ (weighted[:, None] * scores.jacobian))
    objective, residuals = scores.objective, scores.residuals
    psi = tilt(objective, residuals) * np.clip(residuals, -objective.delta, objective.delta)
    return np.asarray((scores.factor * psi / (1 - leverage))[:, None] * (scores.jacobian @ bread))


def inverse(matrix: Array) -> Array:
    """Invert a symmetric positive matrix after scaling it to a unit diagonal."""
    scale = np.sqrt(np.diag(matrix).clip(min=0)) + 1e-300
    unit = np.linalg.pinv(matrix / scale[:, None] / scale, rcond=1e-15, hermitian=True)
    return np.asarray(unit / scale[:, None] / scale)


def _equal(scores: Scores, noise: Noise) -> Array:
    """Return the covariance under equal scatter of all runs."""
    jacobian, factor = scores.jacobian, scores.factor
    bread = inverse(jacobian.T @ (factor[:, None] * jacobian))
    return noise.tau**2 * bread @ (jacobian.T @ ((factor**2)[:, None] * jacobian)) @ bread


def _moments(scores: Scores, noise: Noise) -> _Moments:
    """Give each run its E psi^2 and E psi': from a smooth model of scale, and from its own residual as runs are many.

    The model: log scale is linear in log leverage, its slope shrunk to 0. The own residual is that of the law fitted
    without the run, as the leverage tells it.
    """
    n, objective = len(scores.residuals), scores.objective
    leverage = _leverage(scores)
    relative, slope = _relative_scale(scores.residuals, leverage, noise.sigma)
    sigma = noise_of(scores.residuals / relative, n - noise.df, objective).sigma
    square, inside = psi_moments_of(objective, sigma * relative)
    left_out = _left_out(scores.residuals, leverage, objective, float(inside.mean()))
    trust = n / (n + SHRINK_RUNS)
    weight = tilt(objective, left_out)
    own_square = (weight * np.clip(left_out, -objective.delta, objective.delta)) ** 2
    own_inside = weight * _smoothed(left_out, objective, KERNEL_WIDTH * sigma * n**-0.2)
    return _Moments((1 - trust) * square + trust * own_square, (1 - trust) * inside + trust * own_inside, slope)


def _leverage(scores: Scores) -> Array:
    root = np.sqrt(scores.factor)[:, None] * scores.jacobian
    q, _ = np.linalg.qr(root / (np.linalg.norm(root, axis=0) + 1e-300))
    return np.asarray(np.minimum((q**2).sum(axis=1), MOST_LEVERAGE))


def _relative_scale(residuals: Array, leverage: Array, sigma: float) -> tuple[Array, float]:
    """Return each run's scale relative to the typical one, from a shrunk gamma regression of |r| on log leverage."""
    feature = np.log(leverage + 1e-12)
    width = float(feature.std())
    if width < 1e-6:
        return np.ones(len(residuals)), 0.0
    design = np.stack([np.ones(len(feature)), (feature - feature.mean()) / width], axis=1)
    size = np.minimum(np.abs(residuals) / np.sqrt(1 - leverage), CLIP_SCALE * sigma) / sigma + 1e-9
    prior = GAMMA_DISPERSION * PRIOR_PRECISION * np.diag([0.0, 1.0])
    gram = np.linalg.inv(design.T @ design + prior)
    beta = np.array([np.log(size.mean()), 0.0])
    for _ in range(25):
        step = np.clip(gram @ (design.T @ (size * np.exp(-design @ beta) - 1) - prior @ beta), -0.5, 0.5)
        beta += step
        if np.abs(step).max() < 1e-6:
            break
    return np.exp(np.clip(design[:, 1] * beta[1], -2, 2)), float(beta[1])


def psi_moments_of(objective: Objective, scale: Array) -> tuple[Array, Array]:
    """Return E psi^2 and E psi' of each run under normal residuals of its scale."""
    weight = 0.5 * float(tilt(objective, np.array([-1.0, 1.0])).sum())
    if not np.isfinite(objective.delta):
        return weight**2 * scale**2, weight * np.ones_like(scale)
    ratio = objective.delta / scale
    inside, density = 2 * ndtr(ratio) - 1, np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    small = ratio < 1e-3  # the differences below cancel
    within = np.where(small, 0.0, scale**2 * (inside - 2 * ratio * density))
    return (
        weight**2 * (within + objective.delta**2 * 2 * ndtr(-ratio)),
        weight * np.where(small, 2 * ratio * density, inside),
    )


def _left_out(residuals: Array, leverage: Array, objective: Objective, inside: float) -> Array:
    """Return residuals of each run from the law fitted without it, to first order."""
    if not np.isfinite(objective.delta):
        return np.asarray(residuals / (1 - leverage))
    psi = np.clip(residuals, -objective.delta, objective.delta)
    return np.asarray(residuals + psi * leverage / inside / (1 - leverage))


def _smoothed(residuals: Array, objective: Objective, width: float) -> Array:
    """Return psi' smoothed by a normal kernel: a run's share of the density of residuals where psi' is not 0."""
    if not np.isfinite(objective.delta):
        return np.ones_like(residuals)
    return np.asarray(ndtr((objective.delta - residuals) / width) - ndtr((-objective.delta - residuals) / width))


def _shared_effect(scores: Scores, moments: _Moments, groups: Groups) -> Shared | None:
    """Estimate the share of variance of an effect shared within groups, by moments that allow for what the fit took.

    With u = psi / sd, B the pairs of one group and R the residual maker: E u'Bu = tr(RB) + share tr(RBRB), and
    E u'u = tr(R) + share tr(RB). None where no group has two runs, or groups are too few.
    """
    counts = np.bincount(groups).astype(np.float64)
    n, n_theta = scores.jacobian.shape
    if len(counts) < FEWEST_GROUPS or counts.max() < 2 or n <= n_theta + 1:
        return None
    objective = scores.objective
    psi = tilt(objective, scores.residuals) * np.clip(scores.residuals, -objective.delta, objective.delta)
    u = psi / np.sqrt(moments.square + 1e-300)
    root = np.sqrt(scores.factor * moments.inside + 1e-300)[:, None] * scores.jacobian
    q, _ = np.linalg.qr(root / (np.linalg.norm(root, axis=0) + 1e-300))
    sums = np.stack([np.bincount(groups, column) for column in q.T], axis=1)
    within = sums.T @ sums - np.eye(n_theta)  # Q'BQ
    squared = sums.T @ (counts[:, None] * sums) - 2 * sums.T @ sums + np.eye(n_theta)  # Q'BBQ
    first = -float(np.trace(within))  # tr(RB)
    second = float((counts * (counts - 1)).sum() - 2 * np.trace(squared) + (within**2).sum())  # tr(RBRB)
    left = n - n_theta
    pairs = float((np.bincount(groups, u) ** 2).sum() - u @ u)
    ratio, expected = pairs / float(u @ u), first / left
    spread = float(np.sqrt(max(2 * (second - 2 * expected * first + expected**2 * left), 1e-300)))
    slope = second - ratio * first
    share = (ratio * left - first) / slope if slope > 0 else MOST_SHARED
    between = float(((sums**2) / counts[:, None]).sum())
    df = max(int(len(counts) - np.ceil(between - 1e-6)), 1)
    found = (ratio - expected) * left > SHARED_Z * spread and share > 0
    return Shared(float(np.clip(share, 0, MOST_SHARED)), len(counts), df, bool(found))
