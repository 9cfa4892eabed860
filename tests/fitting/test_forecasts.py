"""Forecasts hold what was measured: on public ladders, on laws that bend, and no wider than the runs ask for."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forecast_coverage import averaged, cuts, one_law, score
from planted_laws import chinchilla, grid

from scalewright.fitting.averaging import PRIOR_ERROR, average_laws, distance
from scalewright.fitting.errors import FittingError
from scalewright.fitting.forecast_laws import FORECAST_LAWS
from scalewright.fitting.frame import check_points

DATA = Path(__file__).parent / "data"


def runs(n, d, loss, **columns):
    frame = pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": loss}, dtype=float)
    return frame.assign(flops=6 * frame["n_params"] * frame["n_tokens"], **columns).sort_values("flops")


def ladder():
    rows = pd.read_csv(DATA / "olmo_ladder_c4.csv")
    return runs(rows["params_nonemb"], rows["tokens"], rows["c4_en"], role=rows["role"]).reset_index(drop=True)


def porian():
    rows = pd.read_csv(DATA / "porian_refinedweb.csv")
    for setting, own in rows.groupby("setting"):
        frame = runs(own["n"], own["t"], own["loss"])
        yield setting, frame.assign(flops=own["flops"]).sort_values("flops").reset_index(drop=True)


def curve(bend=0.0, noise=0.0, n_runs=10):
    """One size, tokens doubling: a power law with a floor that may bend at once at the sixth run."""
    d = 1e8 * 2.0 ** np.arange(n_runs)
    worth = np.minimum(d, 3.2e9 * (d / 3.2e9) ** (1 - bend))
    loss = (1.0 + 300 * worth**-0.3) * np.exp(noise * np.random.default_rng(3).standard_normal(n_runs))
    return runs(np.full(n_runs, 1e8), d, loss)


def test_a_ladder_to_3b_holds_the_losses_of_7b_and_13b():
    """Two decades past the runs, where one law says 2.34 and 2.44 was measured."""
    frame = ladder()
    train, test = frame[frame["role"] == "ladder"], frame[frame["role"] == "target"]
    told = averaged(check_points(train), test)
    assert len(test) == 2 and (told["low"] < test["loss_nats"]).all() and (test["loss_nats"] < told["high"]).all()
    assert (np.log(told["high"] / told["low"]) / 2 < 0.2).all()


def test_forecasts_of_public_runs_cover_where_one_law_does_not():
    curves = [("ladder", ladder())]
    for found in (score(curves, averaged), score(list(porian()), averaged)):
        assert found["covers"] >= 0.9
    assert score(curves, one_law)["covers"] < 0.75


def test_simulated_ladders_are_covered_and_not_much_wider_than_the_error():
    curves = [(str(seed), grid(6, 5, noise=0.004, seed=seed)) for seed in range(6)]
    curves = [(n, f.assign(flops=6 * f["n_params"] * f["n_tokens"])) for n, f in curves]
    found = score(curves, averaged)
    assert found["covers"] >= 0.95 and found["half-width"] < 0.15


def test_runs_that_leave_their_law_get_a_larger_model_error_than_runs_that_keep_it():
    kept, left = (average_laws(check_points(curve(bend))).error for bend in (0.0, 1.0))
    assert kept.per_efold < PRIOR_ERROR < left.per_efold and kept.n_cuts == left.n_cuts >= 5


def test_intervals_widen_with_distance_and_hold_only_noise_and_parameters_inside():
    train = curve(noise=0.002)
    average = average_laws(check_points(train))
    d = train["n_tokens"].max() * np.array([0.5, 1.0, 4.0, 16.0, 64.0])
    told = average.predict(runs(np.full(5, 1e8), d, np.ones(5)))
    width = np.log(told["high"] / told["low"]).to_numpy()
    assert (np.diff(width[1:]) > 0).all() and width[0] < 0.05
    assert told["distance"].to_numpy() == pytest.approx(np.log([1, 1, 4, 16, 64]))


def test_distance_counts_sizes_and_tokens_and_dearer_corners():
    train = runs([1e6, 1e8], [1e10, 1e8], [3, 3])
    rows = runs([1e8, 1e9, 1e6, 1e7], [1e10, 1e10, 1e10, 1e9], np.ones(4)).sort_index()
    ten = np.log(10)
    expected = [2 * ten / np.sqrt(2), 3 * ten / np.sqrt(2), 0, 0]  # the second: log 10 past in N, but 10^3 in compute
    assert distance(train, rows) == pytest.approx(expected)


def test_a_law_that_forecast_these_runs_well_weighs_more():
    floor = average_laws(check_points(curve(n_runs=14)))
    assert floor.weights["additive"] > 0.8
    assert sum(floor.weights.values()) == pytest.approx(1)


def test_the_additive_law_gives_back_a_planted_law():
    frame = grid(7, 6)
    new = runs([2e9], [4e10], [1.0])
    told = FORECAST_LAWS["additive"](frame.assign(flops=6 * frame["n_params"] * frame["n_tokens"]))(new)
    assert told.log_loss[0] == pytest.approx(np.log(chinchilla(2e9, 4e10)), abs=0.003)


def test_too_few_runs_are_refused_in_words():
    with pytest.raises(FittingError, match="2 runs of 2 computes; a forecast needs 3 of 2"):
        average_laws(check_points(curve(n_runs=2)))


def test_cuts_predict_only_dearer_runs():
    for train, test in cuts(ladder()):
        assert train["flops"].max() < test["flops"].min()


def test_the_slopes_of_the_additive_law_are_its_differences():
    from scalewright.fitting.forecast_laws import _sum_of_terms

    theta, step = np.array([0.4, 0.3, -0.2, -1.0, -1.3]), 1e-6
    x = np.array([[-1.0, 0.5], [0.2, -0.7], [1.3, 2.0]])
    value, slopes = _sum_of_terms(theta, x, 0.6)
    floor = 0.6 + np.log(1 / (1 + np.exp(-0.4)))  # E is this share of the lowest loss
    terms = np.exp(theta[1:3] - np.exp(theta[3:]) * x)
    assert value == pytest.approx(np.log(np.exp(floor) + terms.sum(axis=1)))
    for j, one in enumerate(np.eye(5)):
        ends = [_sum_of_terms(theta + sign * step * one, x, 0.6)[0] for sign in (1, -1)]
        assert slopes[:, j] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)
