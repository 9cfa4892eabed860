"""Farseer's law: a planted truth is found, what few runs leave open is said, and fit says when it predicts better."""

import numpy as np
import pytest
from planted_laws import FARSEER, farseer, farseer_grid, grid

from scalewright.fitting.at_compute import at_compute
from scalewright.fitting.bootstrap import bootstrap
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import check_points
from scalewright.fitting.laws import LAWS
from scalewright.fitting.rivals import better_law


def test_nearly_exact_losses_give_the_planted_parameters_within_their_intervals():
    result = fit(farseer_grid(noise=1e-6), "farseer")
    assert result.certificate.converged and set(result.params) == set(FARSEER)
    for name, value in FARSEER.items():
        one = result.params[name]
        assert one.value == pytest.approx(value, rel=2e-2) and abs(one.value - value) < 4 * one.se, name
        assert one.identified


def test_intervals_of_reported_parameters_hold_the_truth_as_often_as_they_say():
    inside = []
    for seed in range(12):
        params = fit(farseer_grid(noise=1e-4, seed=seed), "farseer", "log-l2").params
        inside += [params[name].low < value < params[name].high for name, value in FARSEER.items()]
    assert np.mean(inside) > 0.87  # 108 intervals of 12 studies


def test_runs_with_noise_predict_far_outside_where_they_do_not_identify_the_parameters():
    result = fit(farseer_grid(noise=2e-3), "farseer")
    assert result.certificate.converged and not result.params["B"].identified
    told = result.predict(2e10, 1e12)
    assert float(told.low) < farseer(2e10, 1e12) < float(told.high)


def test_the_optimum_at_a_compute_is_the_lowest_loss_of_the_planted_surface():
    result = fit(farseer_grid(noise=1e-5), "farseer", "log-l2")
    one = at_compute(result, [1e21])[0]
    n = np.geomspace(5e8, 3e10, 20001)  # past these the surface falls again
    losses = farseer(n, 1e21 / 6 / n)
    assert one.n_params.value == pytest.approx(n[np.argmin(losses)], rel=0.02)
    assert one.loss_nats.value == pytest.approx(losses.min(), rel=1e-4)


def test_a_power_is_held_and_a_coefficient_that_moves_with_it_is_refused_by_name():
    result = fit(farseer_grid(noise=1e-3), "farseer", fixed={"q": 0.169})
    assert result.params["q"].interval == "fixed" and result.value("q") == 0.169
    with pytest.raises(FittingError, match="unknown parameter 's'"):
        fit(farseer_grid(noise=1e-3), "farseer", fixed={"s": -0.02})


def test_bootstrap_draws_are_of_the_reported_parameters():
    points = check_points(farseer_grid(6, 5, noise=1e-5))
    result = fit(points, "farseer", "log-l2")
    drawn = bootstrap(points, result, 60)
    assert drawn.names == tuple(result.params)
    for name in ("s", "Q", "a"):
        assert drawn.parameter(name).value == pytest.approx(result.value(name))
        assert drawn.parameter(name).se == pytest.approx(result.params[name].se, rel=0.7)


def test_the_reported_jacobian_agrees_with_differences():
    theta = np.array([0.5, -0.08, 0.17, 8.0, -1.0, -0.1, -0.8, -0.1, 0.12])
    told = LAWS["farseer"].reported(theta)
    for j in range(9):
        step = 1e-6 * np.eye(9)[j]
        up, down = (LAWS["farseer"].reported(theta + sign * step).values for sign in (1, -1))
        np.testing.assert_allclose(told.jacobian[:, j], (up - down) / 2e-6, rtol=1e-6, atol=1e-6)


def test_a_law_that_tells_the_dearest_runs_better_is_named_with_both_errors():
    points = check_points(farseer_grid(7, 6, noise=1e-3))
    found = better_law(points, "chinchilla")
    assert (
        found is not None
        and (found.law, found.own_law) == ("farseer", "chinchilla")
        and found.own_error > 2 * found.error
    )
    cheaper = points.frame[points.frame["flops"] < np.sort(points.frame["flops"])[-found.n_dearest]]
    dearest = points.frame.drop(cheaper.index)
    assert (found.n_cheaper, found.n_dearest) == (len(cheaper), len(dearest))
    told = fit(cheaper, delta=1e-2, profile="never").predict(dearest["n_params"], dearest["n_tokens"]).value
    assert found.own_error == pytest.approx(np.sqrt((np.log(told / dearest["loss_nats"]) ** 2).mean()), rel=1e-9)
    assert f"predicts the dearest {len(dearest)} runs better" in found.sentence
    assert better_law(points, "farseer") is None


@pytest.mark.parametrize("seed", range(4))
def test_no_rival_is_named_where_the_law_is_true(seed):
    assert better_law(check_points(grid(7, 6, noise=0.003, seed=seed)), "chinchilla") is None
