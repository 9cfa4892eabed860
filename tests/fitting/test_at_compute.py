"""The optimum at a compute: the formula, the search and the straight line each against something else."""

import numpy as np
import pytest
from planted_laws import TRUTH, grid
from scipy import stats

from scalewright.fitting.at_compute import _searched, at_compute, optimum_at
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frontier import frontier
from scalewright.fitting.optimum import fit_optimum

COMPUTE = 3e21


@pytest.fixture(scope="module")
def noisy():
    return fit(grid(8, 6, noise=0.004))


def test_the_optimum_of_a_planted_law_is_that_of_its_formula():
    (found,) = at_compute(fit(grid(8, 6)), [COMPUTE])
    alpha, beta = TRUTH["alpha"], TRUTH["beta"]
    n = (alpha * TRUTH["A"] / (beta * TRUTH["B"])) ** (1 / (alpha + beta)) * (COMPUTE / 6) ** (beta / (alpha + beta))
    d = COMPUTE / 6 / n
    loss = TRUTH["E"] + TRUTH["A"] * n**-alpha + TRUTH["B"] * d**-beta
    values = (found.n_params.value, found.n_tokens.value, found.loss_nats.value)
    assert values == (pytest.approx(n, rel=1e-4), pytest.approx(d, rel=1e-4), pytest.approx(loss, rel=1e-6))
    assert found.flops == COMPUTE and found.identified


def test_the_search_finds_the_optimum_of_the_formula_and_its_interval(noisy):
    """The intervals by finite differences of a numeric minimum, and by a complex step of the closed form."""
    found, told = _searched(noisy, COMPUTE), frontier(noisy, COMPUTE)
    for name in ("n_params", "n_tokens", "loss_nats"):
        band, value = getattr(told, name), getattr(found, name)
        expected = (float(band.value[0]), float(band.low[0]), float(band.high[0]))
        assert (value.value, value.low, value.high) == pytest.approx(expected, rel=1e-4), name


def test_a_law_without_a_formula_is_searched():
    """With one exponent for both, A N^-alpha = B D^-alpha at the optimum."""
    truth = TRUTH | {"alpha": 0.36, "beta": 0.36}
    (found,) = at_compute(fit(grid(8, 6, truth=truth), "equal-exponents"), [COMPUTE])
    n = (truth["A"] / truth["B"]) ** (1 / 0.72) * (COMPUTE / 6) ** 0.5
    assert found.n_params.value == pytest.approx(n, rel=1e-4)
    assert found.n_tokens.value == pytest.approx(COMPUTE / 6 / n, rel=1e-4)
    loss = truth["E"] + 2 * truth["A"] * n**-0.36
    assert found.loss_nats.value == pytest.approx(loss, rel=1e-6)


def test_a_row_says_how_far_it_lies_past_the_runs(noisy):
    n, d = 6e9, 1.2e12  # the largest of the grid
    inside, outside = at_compute(noisy, [1e20, 1e26])
    assert not inside.extrapolates and outside.extrapolates
    assert outside.past["flops"] == pytest.approx(1e26 / (6 * n * d))
    assert outside.past["n_params"] == pytest.approx(outside.n_params.value / n)
    assert outside.past["n_tokens"] == pytest.approx(outside.n_tokens.value / d)
    assert outside.row()["n_params"]["low"] == outside.n_params.low


def test_a_law_in_compute_tells_the_loss_alone():
    frame = grid(8, 6).assign(flops=lambda t: 6 * t["n_params"] * t["n_tokens"])
    frame["loss_nats"] = 1.7 + 90 * frame["flops"] ** -0.1
    result = fit(frame, "power")
    (found,) = at_compute(result, [COMPUTE])
    told = result.predict(flops=COMPUTE)
    assert found.n_params is None and found.n_tokens is None
    expected = tuple(float(end) for end in (told.value, told.low, told.high))
    assert (found.loss_nats.value, found.loss_nats.low, found.loss_nats.high) == expected
    assert found.loss_nats.value == pytest.approx(1.7 + 90 * COMPUTE**-0.1, rel=1e-6)


@pytest.mark.parametrize("law", ["size", "width-depth"])
def test_a_law_in_other_axes_is_refused(law):
    frame = grid(6, 5).assign(depth=np.tile([4.0, 8.0, 16.0, 6.0, 9.0], 6))
    frame["width"] = np.sqrt(frame["n_params"] / (12 * frame["depth"]))
    frame = frame.assign(n_tokens=1e9) if law == "size" else frame
    with pytest.raises(FittingError, match=f"law {law} has no optimum at a compute"):
        at_compute(fit(frame, law), [COMPUTE])


def test_the_interval_of_an_isoflop_optimum_is_that_of_a_straight_line():
    """By hand: the mean response of a line at log C has variance s^2 (1/n + (log C - m)^2 / sum (x - m)^2)."""
    rng, rows = np.random.default_rng(4), []
    for compute in (1e18, 1e19, 1e20, 1e21):
        for ratio in 20 * 10 ** np.linspace(-1, 1, 9):
            n = np.sqrt(compute / 6 / ratio)
            rows.append((n, n * ratio, compute))
    frame = grid(6, 6).assign(flops=1.0)
    frame[["n_params", "n_tokens", "flops"]] = rows
    noise = np.exp(0.002 * rng.normal(size=len(frame)))
    frame["loss_nats"] = (1.8 + 480 * frame["n_params"] ** -0.35 + 2080 * frame["n_tokens"] ** -0.37) * noise
    result = fit_optimum(frame, "isoflop-akima")  # of parabolas the interval also holds a leaning shape
    (found,) = optimum_at(result, [1e23], largest=1e21)
    valleys = [valley for valley in result.valleys if not valley.refused]
    x = np.log([valley.flops_budget for valley in valleys])
    for value, name in ((found.n_params, "n_star"), (found.n_tokens, "n_tokens_star")):
        y = [getattr(one, name) for one in valleys]
        line = stats.linregress(x, np.log(y))
        left = np.log(y) - line.intercept - line.slope * x
        variance = (left @ left) / (len(x) - 2)
        away = np.log(1e23)
        se = np.sqrt(variance * (1 / len(x) + (away - x.mean()) ** 2 / ((x - x.mean()) @ (x - x.mean()))))
        middle, half = line.intercept + line.slope * away, stats.t.ppf(0.975, len(x) - 2) * se
        expected = tuple(np.exp([middle, middle - half, middle + half]))
        assert (value.value, value.low, value.high) == pytest.approx(expected, rel=1e-6)
    assert found.past == {"flops": pytest.approx(100)} and found.extrapolates and found.loss_nats is None
