"""Objectives and scales of residuals: against integrals, large samples and ordinary least squares."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from scalewright.fitting.losses import loss_terms
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.robust import Scores, robust_covariance
from scalewright.fitting.uncertainty import (
    Noise,
    noise_of,
    pair_weights,
    profile_threshold,
    psi_moments,
    robust_scale,
)

HUBER = OBJECTIVES["huber"]


@pytest.mark.parametrize(("delta", "sigma"), [(0.7, 1.0), (0.001, 0.004), (0.02, 0.004), (2e-5, 0.05)])
def test_moments_of_psi_are_those_of_its_integrals(delta, sigma):
    clipped = lambda z: np.clip(z * sigma, -delta, delta) ** 2 * stats.norm.pdf(z)  # noqa: E731
    ends = sorted({-9.0, max(-9.0, -delta / sigma), min(9.0, delta / sigma), 9.0})
    square = sum(integrate.quad(clipped, a, b)[0] for a, b in zip(ends, ends[1:], strict=False))
    inside = 2 * stats.norm.cdf(delta / sigma) - 1
    assert psi_moments(delta, sigma) == pytest.approx((square, inside), rel=1e-3)
    assert psi_moments(np.inf, sigma) == (sigma**2, 1.0)


def test_the_robust_scale_of_normal_residuals_is_theirs_and_an_outlier_moves_it_little():
    residuals = 0.01 * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    assert robust_scale(residuals, len(residuals)) == pytest.approx(0.01, rel=1e-3)
    assert robust_scale(np.append(residuals, 50.0), len(residuals)) == pytest.approx(0.01, rel=2e-3)
    assert robust_scale(residuals, 0.25 * len(residuals)) == pytest.approx(0.02, rel=0.1)


def test_noise_of_least_squares_is_the_residual_variance():
    residuals = np.array([0.01, -0.02, 0.005, 0.015, -0.01, 0.0, 0.02])
    sigma = np.sqrt((residuals**2).sum() / 4)
    assert noise_of(residuals, 3, OBJECTIVES["log-l2"]) == Noise(sigma, sigma, 4, pytest.approx(sigma**2))
    assert noise_of(residuals, 9, OBJECTIVES["log-l2"]).df == 1


def test_noise_of_huber_is_less_efficient_by_the_ratio_of_its_moments():
    """tau^2 = E psi^2 / (E psi')^2, and 2 (f - f_min) is worth E psi^2 / E psi' per squared z."""
    residuals = 0.004 * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = noise_of(residuals, 5, HUBER)
    square, inside = psi_moments(HUBER.delta, found.sigma)
    assert found.sigma == pytest.approx(0.004, rel=5e-3) and found.df == 3995
    assert found.tau == pytest.approx(np.sqrt(square) / inside, rel=1e-3) and found.tau > found.sigma
    assert found.deviance_unit == pytest.approx(square / inside, rel=1e-9)
    scaled = noise_of(residuals[::50], 20, HUBER)  # few runs a parameter: as wide as n - p (2 - tau^2 / sigma^2) says
    ratio = (scaled.tau / scaled.sigma) ** 2
    assert scaled.sigma == pytest.approx(robust_scale(residuals[::50], 80 - 20 * (2 - ratio)), rel=1e-6)


@pytest.mark.parametrize("factor", [np.ones(12), np.linspace(1, 3, 12)])
def test_the_covariance_under_equal_scatter_is_the_sandwich_and_without_factors_that_of_normal_equations(factor):
    rng = np.random.default_rng(1)
    jacobian, noise = rng.normal(size=(12, 2)) * [1.0, 50.0], Noise(0.1, 0.2, 9, 0.01)
    bread = np.linalg.inv(jacobian.T @ (factor[:, None] * jacobian))
    sandwich = 0.04 * bread @ (jacobian.T @ ((factor**2)[:, None] * jacobian)) @ bread
    found = robust_covariance(Scores(jacobian, factor, 0.1 * rng.normal(size=12), HUBER), noise, 0.95)
    assert found.equal == pytest.approx(sandwich)


def test_the_threshold_of_a_profile_is_half_of_t_squared_in_its_unit():
    noise = Noise(0.1, 0.2, 9, 0.03)
    assert profile_threshold(2.0, noise, 1.5) == pytest.approx(0.5 * 4 * 0.03 * 1.5)
    assert profile_threshold(2.0, noise, 0.01) == pytest.approx(0.5 * 4 * 0.03 * 0.25)


def test_bootstrap_weights_draw_whole_clusters():
    weights = pair_weights(np.array([0, 0, 1, 2, 2]), 400, seed=3)
    assert weights.shape == (400, 5)
    assert (weights[:, 0] == weights[:, 1]).all() and (weights[:, 3] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert weights[:, 2].var() == pytest.approx(2 / 3, rel=0.2)  # of Binomial(3, 1/3)


@pytest.mark.parametrize(
    ("name", "above"),
    [(name, above) for name in OBJECTIVES for above in (1.0, 3.0) if (name, above) != ("raw-l2", 3.0)],
)
def test_the_terms_of_an_objective_are_its_value_and_its_derivatives(name, above):
    """By differences in the predicted log loss; the residuals stay off the corner of Huber's function."""
    objective = replace(OBJECTIVES[name], above=above)
    width = min(objective.delta, 0.1)
    residual, observed = width * np.array([-3.0, -0.5, 0.25, 0.75, 4.0]), np.log(np.linspace(2, 4, 5))
    terms, step = loss_terms(objective, observed + residual, observed), 1e-4 * width
    up, down = (loss_terms(objective, observed + residual + s, observed) for s in (step, -step))
    size = np.abs(residual)
    if objective.raw:
        value = 0.5 * (np.exp(observed + residual) - np.exp(observed)) ** 2
    else:
        value = np.where(size <= objective.delta, residual**2 / 2, width * (size - width / 2))
        value = value * np.where(residual < 0, above, 1.0)  # of runs above the law
    assert terms.value == pytest.approx(value)
    assert terms.slope == pytest.approx((up.value - down.value) / (2 * step), rel=1e-4)
    assert terms.square + terms.curvature == pytest.approx((up.slope - down.slope) / (2 * step), rel=1e-4, abs=1e-9)
