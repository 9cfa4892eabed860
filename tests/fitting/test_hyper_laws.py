"""Learning-rate sweeps: planted optima and their law come back; edges are flagged and kept out."""

import json

import numpy as np
import pandas as pd
import pytest

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import check_points
from scalewright.fitting.hyper import at_edge, best_of_sweeps, fit_hyper

RATES = np.geomspace(1e-3, 1e-1, 9)


def best_rate(n, d):
    return 1.0 * n**-0.4 * d**0.05


def sweep(noise=0.0, rates=RATES, curvature=0.05):
    rng = np.random.default_rng(6)
    rows = []
    for size, n in (("s", 27e3), ("m", 55e3), ("l", 141e3)):
        for budget, d in (("1", 2.6e5), ("2", 5.2e5), ("4", 1.04e6)):
            for lr in rates:
                loss = (
                    2.5
                    * (d / 2e5) ** -0.1
                    * np.exp(curvature * np.log(lr / best_rate(n, d)) ** 2 + noise * rng.normal())
                )
                rows.append(("angpt", size, budget, n, d, lr, loss))
    frame = pd.DataFrame(rows, columns=["label", "size", "budget", "n_params", "n_tokens", "lr_peak", "loss_nats"])
    return frame.assign(run_id=[f"r{i}" for i in range(len(frame))])


def test_a_planted_optimum_is_found_between_the_rates_that_were_tried():
    result = fit_hyper(sweep())
    assert len(result.optima) == 9
    for optimum in result.optima:
        assert optimum.best == pytest.approx(best_rate(optimum.n_params, optimum.n_tokens), rel=1e-6)
        assert optimum.curvature == pytest.approx(0.05, rel=1e-6)
        assert not optimum.edge


def test_the_law_of_the_optimum_comes_back_inside_its_intervals():
    law = fit_hyper(sweep(noise=0.002)).laws["angpt"]
    assert law.params["p"].low < -0.4 < law.params["p"].high
    assert law.params["q"].low < 0.05 < law.params["q"].high
    assert law.at(5.5e4, 5.2e5) == pytest.approx(best_rate(5.5e4, 5.2e5), rel=0.15)


def test_an_optimum_at_the_edge_is_flagged_and_kept_out_of_the_law():
    frame = sweep()
    low = frame[(frame["size"] == "l") & (frame["lr_peak"] < 1.5 * best_rate(141e3, 1.04e6))].index
    result = fit_hyper(frame.drop(low))
    flagged = [o for o in result.optima if o.edge]
    assert {o.size for o in flagged} == {"l"}
    assert any("edge of its sweep" in w for w in result.warnings)
    assert result.laws["angpt"].n == len(result.optima) - len(flagged)
    assert at_edge(check_points(frame.drop(low))) == [f"angpt l {o.budget}" for o in flagged]


def test_a_best_rate_inside_its_sweep_is_not_said_to_be_at_the_edge():
    """A dip between two flat shoulders has no parabola through all its values, but its three lowest have one."""
    rates = (0.001, 0.0025, 0.005, 0.01, 0.02)
    frame = pd.DataFrame({"lr_peak": rates, "loss_nats": (2.80, 2.74, 3.27, 3.27, 3.27), "run_id": list("abcde")})
    frame = frame.assign(label="post-ln", size="s", budget="1", n_params=27e3, n_tokens=2.6e5)
    (dip,) = fit_hyper(frame).optima
    assert not dip.edge and dip.usable and dip.n_near == 3 and 0.001 < dip.best < 0.0035
    (hump,) = fit_hyper(frame.assign(loss_nats=(2.74, 2.72, 2.80, 2.715, 2.74))).optima
    assert hump.best == hump.best_run == pytest.approx(0.01)
    assert not (hump.edge or hump.inside or hump.usable)
    assert "no minimum" in hump.note and "edge" not in hump.note


def test_without_a_rate_or_with_two_of_them_no_cell_is_at_an_edge():
    frame = sweep()
    assert at_edge(check_points(frame.drop(columns="lr_peak"))) == []
    two = frame[frame["lr_peak"].isin(sorted(frame["lr_peak"].unique())[:2])]
    assert at_edge(check_points(two)) == []


def test_a_loss_that_levels_off_far_above_the_lowest_does_not_move_the_optimum():
    """Training that fails at high rates ends on a plateau, which is no part of the parabola around the best rate."""
    clean = sweep(rates=RATES[:7], curvature=0.2)
    lowest = clean.groupby(["size", "budget"])["loss_nats"].transform("min")
    ceiling = clean.assign(loss_nats=clean["loss_nats"].clip(upper=1.4 * lowest))
    for optimum in fit_hyper(ceiling).optima:
        if not optimum.edge:
            assert optimum.best == pytest.approx(best_rate(optimum.n_params, optimum.n_tokens), rel=1e-6)


def test_labels_without_a_law_share_one_line_and_a_loose_law_says_so():
    one = sweep()[lambda frame: (frame["size"] == "s") & (frame["budget"] == "1")]
    both = pd.concat([one, one.assign(label="gpt+", run_id="g" + one["run_id"])])
    (line,) = fit_hyper(both).warnings
    assert line == "no law for any method: 1 usable optimum of lr_peak, and a law needs two or more"
    near = sweep(noise=0.01).query("size != 'l' and budget != '4'")
    wild = fit_hyper(near)
    assert wild.laws["angpt"].params["p"].high - wild.laws["angpt"].params["p"].low > 2
    assert any(w.startswith("law of angpt: exponent p") and "not resolved" in w for w in wild.warnings)
    (c,) = [line for line in wild.summary().splitlines() if line.startswith("c ")]
    assert "not identified" in c and "e+" not in c.split("   ")[-1] and "e-" not in c.split("   ")[-1]
    stored = wild.to_record()["laws"]["angpt"]["params"]
    assert not stored["c"]["identified"] and stored["c"]["one_sided"] == "none" and stored["c"]["high"] is None
    known = fit_hyper(sweep(noise=0.002)).to_record()["laws"]["angpt"]["params"]
    assert known["c"]["identified"] and known["p"]["identified"] and known["p"]["high"] < 0


def test_a_diverged_rate_beyond_the_best_one_makes_it_no_edge():
    frame = sweep(rates=RATES[:6]).query("size == 's' and budget == '1'").assign(diverged=False)
    upper = frame["lr_peak"].max()
    cut = frame[frame["lr_peak"] <= upper].copy()
    cut["loss_nats"] = 3 - np.log(cut["lr_peak"] / 1e-3) * 0.05 + 0.02 * np.log(cut["lr_peak"] / 1e-3) ** 2 * 0
    other = sweep().query("size == 'm'").assign(diverged=False)
    blown = cut.iloc[[-1]].assign(lr_peak=2 * upper, diverged=True, loss_nats=np.nan, run_id="blown")
    alone = fit_hyper(pd.concat([cut, other]))
    guarded = fit_hyper(pd.concat([cut, other, blown]))
    assert "edge of its sweep" in next(o for o in alone.optima if o.size == "s").note
    assert "edge of its sweep" not in next(o for o in guarded.optima if o.size == "s").note


def test_one_size_or_one_budget_holds_the_exponent_it_cannot_see_at_zero():
    law = fit_hyper(sweep().query("size == 'm'")).laws["angpt"]
    assert law.params["p"].interval == "fixed" and law.params["p"].value == 0
    assert law.params["q"].value == pytest.approx(0.05, abs=1e-6)


def test_batch_sizes_are_optimised_the_same_way():
    frame = sweep().rename(columns={"lr_peak": "batch_tokens"})
    assert len(fit_hyper(frame, "batch_tokens").optima) == 9


def test_only_the_best_rate_of_each_cell_stays_and_the_others_are_listed():
    kept = best_of_sweeps(check_points(sweep()))
    assert len(kept) == 9
    assert len(kept.excluded) == 72
    assert {e.reason for e in kept.excluded} == {"not the best lr_peak of its size and budget"}


def test_without_a_sweep_there_is_nothing_to_fit():
    with pytest.raises(FittingError, match="has 3 values of lr_peak"):
        fit_hyper(sweep(rates=RATES[:2]))
    with pytest.raises(FittingError, match="no column batch_tokens"):
        fit_hyper(sweep(), "batch_tokens")


def test_a_result_prints_and_records():
    result = fit_hyper(sweep(noise=0.002))
    assert "lr_peak* = c N^p D^q" in result.summary()
    assert json.loads(json.dumps(result.to_record(), allow_nan=False))["setting"] == "lr_peak"
    assert {"best", "low", "high", "curvature", "edge", "loss_best"} <= set(result.frame())


def two_batches(rates_b=None):
    """Two batches at one size and budget: best rate 0.001 in one, 0.008 in the other, which is worse everywhere."""
    rates = np.geomspace(2.5e-4, 1.6e-2, 7)
    rows = [(0.5e6, lr, 3 * np.exp(0.02 * np.log(lr / 0.001) ** 2)) for lr in rates]
    rows += [
        (2e6, lr, 3 * np.exp(0.2 * np.log(lr / 0.008) ** 2) + 0.5) for lr in (rates if rates_b is None else rates_b)
    ]
    frame = pd.DataFrame(rows, columns=["batch_tokens", "lr_peak", "loss_nats"])
    return frame.assign(label="a", n_params=1e8, n_tokens=2e9, run_id=[f"r{i}" for i in range(len(frame))])


@pytest.mark.parametrize("rates_b", [None, np.geomspace(2e-3, 3e-2, 5)])
def test_runs_of_two_batches_are_two_sweeps(rates_b):
    """Pooled, they gave a best rate of 0.0064 and the lowest run at 0.008, where it is at 0.001."""
    result = fit_hyper(two_batches(rates_b))
    found = {o.settings: o for o in result.optima}
    assert list(found) == ["batch_tokens 2000000", "batch_tokens 500000"]
    small, large = found["batch_tokens 500000"], found["batch_tokens 2000000"]
    assert small.best == pytest.approx(0.001, rel=1e-6) and small.best_run == pytest.approx(0.001)
    assert large.best == pytest.approx(0.008, rel=0.05)
    assert small.where == "a 1e+08 2e+09 (batch_tokens 500000)" and small.where in result.summary()


def test_a_setting_that_moves_with_the_rate_parts_nothing_and_any_other_does():
    frame = two_batches().query("batch_tokens == 500000")
    (tied,) = fit_hyper(frame.assign(**{"setting: decay": 0.1 / frame["lr_peak"]})).optima
    assert tied.settings == "" and tied.n_values == 7
    twice = pd.concat([frame.assign(**{"setting: warmup": w}, run_id=lambda f, w=w: f["run_id"] + w) for w in "ab"])
    assert [o.settings for o in fit_hyper(twice).optima] == ["warmup a", "warmup b"]


def test_a_setting_that_moves_with_the_size_or_the_budget_parts_nothing():
    frame = sweep()
    moving = frame.assign(batch_tokens=frame["n_params"] * 10, **{"setting: warmup": frame["n_tokens"] / 100})
    assert {o.settings for o in fit_hyper(moving).optima} == {""}


def test_the_best_of_a_sweep_is_chosen_within_each_batch():
    kept = best_of_sweeps(check_points(two_batches()))
    assert sorted(kept.frame["batch_tokens"]) == [0.5e6, 2e6]
    assert dict(zip(kept.frame["batch_tokens"], kept.frame["lr_peak"], strict=True)) == pytest.approx(
        {0.5e6: 0.001, 2e6: 0.008}
    )


def test_the_lowest_run_is_a_run_and_not_a_mean():
    frame = two_batches().query("batch_tokens == 500000")
    lucky = frame.assign(seed=1, run_id=frame["run_id"] + "s")
    lucky.loc[lucky["lr_peak"] > 0.005, "loss_nats"] = [4.0, 2.9]
    (optimum,) = fit_hyper(pd.concat([frame.assign(seed=0), lucky], ignore_index=True)).optima
    assert optimum.best_run == pytest.approx(1.6e-2)


def test_a_law_from_too_few_optima_gives_no_overflow(recwarn):
    result = fit_hyper(sweep(noise=0.05).query("size != 'm' and budget != '2'"))
    law = result.laws["angpt"].params["c"]
    assert not recwarn.list and law.low >= 0 and (law.high == np.inf or law.high > law.value)


def seeded(losses):
    """One cell, three rates, the losses of two seeds each."""
    rows = [(lr, seed, loss) for lr, own in losses.items() for seed, loss in enumerate(own)]
    frame = pd.DataFrame(rows, columns=["lr_peak", "seed", "loss_nats"])
    return frame.assign(label="a", n_params=1e8, n_tokens=2e9, run_id=[f"r{i}" for i in range(len(frame))])


LUCKY = {0.01: (2.5, 3.5), 0.02: (2.8, 2.9), 0.04: (2.9, 3.0)}  # the lowest run is at the rate with the highest mean


def test_the_best_rate_of_a_cell_is_that_of_the_lowest_mean_and_not_of_the_luckiest_seed():
    points = check_points(seeded(LUCKY))
    kept = best_of_sweeps(points)
    assert kept.frame["lr_peak"].tolist() == [0.02, 0.02]
    assert at_edge(points) == []
    (found,) = fit_hyper(points).optima
    assert not found.edge and found.best_run == pytest.approx(0.01)


def test_the_interval_of_an_optimum_is_the_delta_method_by_finite_differences():
    """Vertex -c1 / (2 c2): its gradient by differences, the covariance by the normal equations."""
    from scipy import stats

    x = np.log([0.005, 0.01, 0.02, 0.04])
    rng = np.random.default_rng(3)
    losses = {
        lr: tuple(np.exp(0.9 + 0.03 * (np.log(lr / 0.013)) ** 2 + 0.001 * rng.normal(size=2))) for lr in np.exp(x)
    }
    frame = seeded(losses)
    (found,) = fit_hyper(frame).optima
    at, y = np.log(frame["lr_peak"].to_numpy()), np.log(frame["loss_nats"].to_numpy())
    design = np.stack([np.ones_like(at), at, at**2], axis=1)
    c, squares, *_ = np.linalg.lstsq(design, y, rcond=None)
    covariance = np.linalg.inv(design.T @ design) * squares[0] / (len(y) - 3)
    vertex = lambda c: -c[1] / (2 * c[2])  # noqa: E731
    steps = 1e-6 * np.eye(3)
    gradient = np.array([(vertex(c + step) - vertex(c - step)) / 2e-6 for step in steps])
    half = stats.t.ppf(0.975, len(y) - 3) * np.sqrt(gradient @ covariance @ gradient)
    assert np.log([found.best, found.low, found.high]) == pytest.approx(
        [vertex(c), vertex(c) - half, vertex(c) + half], rel=1e-4
    )
    assert found.loss_best == pytest.approx(float(np.exp(np.polyval(c[::-1], vertex(c)))), rel=1e-6)


@pytest.mark.parametrize(
    ("losses", "lowest", "kept"),
    [
        ((3.0, 2.05, 2.0, 2.05, 2.06), 2, (2, 5)),  # the first alone is far above
        ((2.06, 2.05, 2.0, 2.05, 3.0), 2, (1, 4)),  # the last alone
        ((2.09, 3.0, 2.0, 3.0, 2.09), 2, (1, 5)),  # neighbours of the lowest stay, and judge nobody
        ((3.0, 2.05, 2.0, 2.05, 3.0, 3.0), 2, (2, 4)),
        ((9.0, 2.09, 2.08, 2.05, 2.0, 2.05, 2.09, 9.0), 4, (3, 7)),  # five at most
        ((2.0, 3.0, 3.0, 2.05, 2.05), 0, (1, 5)),  # three at the least
    ],
)
def test_a_quadratic_takes_the_neighbours_of_the_lowest_and_outwards_what_is_near_it(losses, lowest, kept):
    from scalewright.fitting.hyper import _near

    values = np.arange(1.0, len(losses) + 1)
    near = _near(values, np.array(losses), lowest)
    assert (near[0], near[-1]) == kept and len(near) == kept[1] - kept[0] + 1
