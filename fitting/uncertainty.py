"""How far the numbers could be off: scale of the residuals, quantiles, bootstrap weights. Knows numpy and scipy.

The default interval is that of `robust.py` with a t quantile on n - p degrees of freedom.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.objectives import Objective

Array = NDArray[np.float64]

PROPOSAL_2 = 2.0  # residuals beyond this many scales count as this many: one bad run cannot set the scale


@dataclass(frozen=True)
class Noise:
    """Scale of the log residuals (`sigma`), of the estimator (`tau`; equal for least squares), degrees of freedom.

    `deviance_unit` is what 2 (f - f_min) is worth per unit of squared z: profiles compare it with t^2.
    """

    sigma: float
    tau: float
    df: int
    deviance_unit: float


def psi_moments(delta: float, sigma: float) -> tuple[float, float]:
    """Return E psi^2 and E psi' of Huber's psi at width delta under normal residuals of scale sigma."""
    if not np.isfinite(delta) or sigma <= 0:
        return sigma * sigma, 1.0
    c = delta / sigma
    inside, density = math.erf(c / math.sqrt(2)), math.exp(-0.5 * c * c) / math.sqrt(2 * math.pi)
    if c < 1e-3:  # the difference below cancels
        return delta**2, 2 * c * density
    return sigma**2 * (inside - 2 * c * density) + delta**2 * math.erfc(c / math.sqrt(2)), inside


def robust_scale(residuals: Array, divisor: float) -> float:
    """Return Huber's proposal-2 scale: sum min(r/s, k)^2 = divisor * E min(|z|, k)^2 under the normal."""
    k = PROPOSAL_2
    target = psi_moments(k, 1.0)[0]
    scale = float(np.sqrt(np.mean(residuals**2)))
    for _ in range(100):
        if scale <= 0:
            return 0.0
        clipped = np.minimum(np.abs(residuals), k * scale)
        new = float(np.sqrt((clipped**2).sum() / (divisor * target)))
        if abs(new - scale) <= 1e-12 * scale:
            break
        scale = new
    return scale


def noise_of(residuals: Array, n_free: int, objective: Objective) -> Noise:
    """Estimate the noise from log residuals after fitting `n_free` parameters.

    The divisor n - p (2 - tau^2/sigma^2) makes the scale unbiased whatever the efficiency of the objective.
    """
    df = max(len(residuals) - n_free, 1)
    if objective.raw or not np.isfinite(objective.delta):
        sigma = float(np.sqrt((residuals**2).sum() / df))
        return Noise(sigma, sigma, df, sigma * sigma)
    delta = objective.delta
    sigma, ratio = robust_scale(residuals, df), 1.0
    for _ in range(20):
        square, inside = psi_moments(delta, sigma)
        ratio = min(square / (inside * inside * sigma * sigma), np.pi / 2) if sigma > 0 else 1.0
        sigma = robust_scale(residuals, max(len(residuals) - n_free * (2 - ratio), df))
    square, inside = psi_moments(delta, sigma)
    return Noise(sigma, sigma * float(np.sqrt(ratio)), df, square / inside)


def t_quantile(level: float, df: int) -> float:
    """Return the two-sided t quantile of a confidence level."""
    return float(stats.t.ppf(0.5 + level / 2, df))


def pair_weights(clusters: NDArray[np.intp], n_draws: int, seed: int) -> Array:
    """Draw bootstrap weights (n_draws, n_points): whole clusters (runs) are drawn with replacement."""
    n_clusters = int(clusters.max()) + 1
    rng = np.random.default_rng([seed, 0xB007])
    counts = rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=n_draws)
    return np.asarray(counts[:, clusters], dtype=np.float64)


def profile_threshold(t: float, noise: Noise, stretch: float) -> float:
    """Return how far an objective may rise along a profile: t^2 of it, stretched as the robust variance is."""
    return 0.5 * t * t * noise.deviance_unit * float(np.clip(stretch, 0.25, 1e4))
