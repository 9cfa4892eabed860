"""The parameters that a baseline needs for a method's loss, and what its interval is worth."""

import math

import numpy as np
import pandas as pd
import pytest
from planted_laws import small_study

from scalewright.fitting.compare import compare
from scalewright.fitting.frame import check_points
from scalewright.fitting.parameter_multiplier import fieller, parameter_multipliers

NEEDED = 2.0


def power_study(rng, seeds, noise=0.004):
    """Four sizes at three budgets; the baseline needs NEEDED times the parameters."""
    cells = [
        (m, n, d, s) for m in ("fast", "base") for n in (1e6, 3e6, 1e7, 3e7) for d in (1e8, 2e8, 4e8) for s in seeds
    ]
    frame = pd.DataFrame(cells, columns=["label", "n_params", "n_tokens", "seed"])
    effective = frame["n_params"] * np.where(frame["label"] == "fast", NEEDED, 1.0)
    loss = 10 * effective**-0.07 * frame["n_tokens"] ** -0.05
    return frame.assign(loss_nats=loss * np.exp(noise * rng.normal(size=len(frame))))


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_its_interval_holds_the_planted_ratio_as_often_as_it_says(seeds):
    rng = np.random.default_rng(3)
    found = [
        one for _ in range(150) for one in parameter_multipliers(check_points(power_study(rng, seeds)), "fast", "base")
    ]
    held = np.mean([one.low <= NEEDED <= one.high for one in found])
    assert len(found) == 450
    assert 0.91 <= held <= 0.99  # 95% and three standard errors of 450 draws, some of which share their scatter


def test_fiellers_ends_are_where_the_contrast_is_t_errors_from_zero():
    low, high = fieller(-0.05, -0.07, (1e-5, 4e-5), 2.1)
    for end in (low, high):
        assert abs(-0.05 + 0.07 * end) == pytest.approx(2.1 * math.sqrt(1e-5 + end**2 * 4e-5), rel=1e-9)
    assert low < 5 / 7 < high


def test_a_slope_lost_in_noise_leaves_the_ratio_open():
    assert fieller(-0.05, -0.01, (1e-5, 4e-5), 2.1) == (-math.inf, math.inf)


def test_every_multiplier_of_a_comparison_has_an_interval():
    found = compare(small_study(), "fast", "base").multipliers
    assert {one.kind for one in found} == {"compute", "data", "parameters"}
    for one in found:
        assert one.low <= one.value <= one.high, one


def test_a_single_run_a_cell_has_its_interval_from_the_line_of_the_baseline():
    """By hand: three sizes, one run each, so that only the line's own residual tells the scatter, on one degree."""
    from scipy import stats

    n, base, new = np.array([1e6, 4e6, 2e7]), np.array([3.0, 2.7, 2.5]), np.array([2.9, 2.65, 2.42])
    frame = pd.DataFrame({"label": ["base"] * 3 + ["fast"] * 3, "n_params": [*n, *n], "n_tokens": 1e8,
                          "loss_nats": [*base, *new]})  # fmt: skip
    (found,) = parameter_multipliers(check_points(frame), "fast", "base", level=0.8)
    x, y = np.log(n), np.log(base)
    slope, height = np.polyfit(x, y, 1)
    residual = y - height - slope * x
    gap = np.log(new).mean() - y.mean()
    squares = ((x - x.mean()) ** 2).sum()
    assert found.value == pytest.approx(math.exp(gap / slope))
    ends = fieller(gap, slope, ((residual**2).sum() * 2 / 3, (residual**2).sum() / squares), stats.t.ppf(0.9, 1))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(ends)))
