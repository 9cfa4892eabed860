"""The optimum at a compute: the formula and the search, each against something else."""

import numpy as np
import pytest
from planted_laws import TRUTH, grid

from scalewright.fitting.at_compute import _searched, at_compute
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frontier import frontier

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
    assert max(inside.past.values()) < 1
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
