"""Tokens-to-loss: planted ratios come back, directions and units are kept apart, censored runs are bounds."""

import math

import numpy as np
import pandas as pd
import pytest
from planted_laws import TRUE_SPEEDUP, small_study

from scalewright.fitting.along import UNANNEALED, speedups_along
from scalewright.fitting.curve import level_of, loss_curve, scatter
from scalewright.fitting.errors import FittingError
from scalewright.fitting.speedup import DIRECTIONS, UNITS, speedups, table


def clean_study(**kwargs):
    return small_study(noise=0.0, **kwargs)


def power_study(speed=TRUE_SPEEDUP, seeds=(0,)):
    """Losses exactly linear in log-log, so that both curves and both directions must give the planted ratio."""
    frame = clean_study(seeds=seeds)
    tokens = frame["n_tokens"] * np.where(frame["label"] == "fast", speed, 1.0)
    return frame.assign(loss_nats=20 * tokens**-0.15 * frame["n_params"] ** -0.02)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_planted_ratio_comes_back_exactly_in_both_directions(direction):
    found = speedups(power_study(), "fast", "base", direction=direction, curve="interpolated")
    exact = [s.ratio for s in found if s.censored is None]
    assert len(found) == 9 and len(exact) == 6
    assert exact == pytest.approx([TRUE_SPEEDUP] * 6, rel=1e-9)


def test_a_fitted_curve_extrapolates_where_an_interpolated_one_only_bounds():
    last = [s for s in speedups(power_study(), "fast", "base", curve="interpolated") if s.budget == "4"]
    assert all(s.censored == "lower" and math.isinf(s.high) and s.ratio == pytest.approx(1.0) for s in last)
    fitted = [s for s in speedups(power_study(), "fast", "base", curve="fitted") if s.budget == "4"]
    assert [s.ratio for s in fitted] == pytest.approx([TRUE_SPEEDUP] * 3, rel=1e-9)


def test_seconds_count_the_throughput_and_flops_their_own_count():
    frame = power_study()
    frame["flops"] = frame["n_tokens"] * np.where(frame["label"] == "fast", 1.1, 1.0)
    by_unit = {unit: speedups(frame, "fast", "base", unit=unit)[0].ratio for unit in UNITS}
    assert by_unit["flops"] == pytest.approx(TRUE_SPEEDUP / 1.1, rel=1e-9)
    assert by_unit["seconds"] == pytest.approx(1.0, rel=1e-9)  # planted: the fast method is slower by its speed-up


def test_directions_differ_where_the_slope_does():
    """A bent curve: the flat end makes a small gain in loss worth more tokens to the baseline."""
    frame = clean_study(seeds=(0,))
    first, second = (speedups(frame, "fast", "base", direction=d, curve="interpolated") for d in DIRECTIONS)
    assert {s.direction for s in first} != {s.direction for s in second}
    assert first[1].slope != pytest.approx(second[1].slope, rel=1e-3)


def test_the_paired_interval_is_a_t_interval_over_seeds():
    from scipy import stats

    frame = small_study((0, 1, 2), noise=0.004)
    cell = speedups(frame, "fast", "base", curve="fitted")[0]
    singles = [
        math.log(speedups(frame[frame["seed"] == seed], "fast", "base", curve="fitted")[0].ratio) for seed in range(3)
    ]
    half = stats.t.ppf(0.975, 2) * np.std(singles, ddof=1) / math.sqrt(3)
    assert math.log(cell.ratio) == pytest.approx(np.mean(singles), rel=1e-9)
    assert math.log(cell.high) - math.log(cell.low) == pytest.approx(2 * half, rel=1e-9)
    assert cell.n_pairs == 3


def test_paired_intervals_cover_the_planted_ratio_about_95_percent_of_the_time():
    inside = []
    rng = np.random.default_rng(0)
    base = power_study(seeds=(0, 1, 2))
    for _ in range(25):
        noisy = base.assign(loss_nats=base["loss_nats"] * np.exp(0.003 * rng.normal(size=len(base))))
        found = [s for s in speedups(noisy, "fast", "base", curve="fitted") if s.size == "m"]
        inside += [s.low < TRUE_SPEEDUP < s.high for s in found]
    assert 0.88 < np.mean(inside) < 0.99  # 75 cells, correlated within a study


def test_one_seed_gets_its_interval_from_the_scatter_of_runs():
    cell = speedups(small_study((0,)), "fast", "base")[0]
    assert cell.n_pairs == 1 and "one seed" in cell.warnings[0]
    assert cell.low < cell.ratio < cell.high < math.inf


def test_the_scatter_of_runs_comes_from_seeds_where_there_are_any():
    sigma, df = scatter(small_study(tuple(range(6)), noise=0.01))
    assert df == 27 * 5
    assert sigma == pytest.approx(0.01, rel=0.15)
    assert math.isnan(scatter(small_study((0,)).query("budget == '1'"))[0])


def test_a_seed_that_never_reaches_the_target_bounds_the_answer():
    frame = power_study(seeds=(0, 1))
    bad = (frame["label"] == "base") & (frame["seed"] == 1) & (frame["size"] == "s")
    frame.loc[bad, "loss_nats"] *= 1.2  # this seed's baseline never gets to the method's loss
    cell = next(s for s in speedups(frame, "fast", "base", curve="interpolated") if (s.size, s.budget) == ("s", "2"))
    assert cell.censored == "lower" and math.isinf(cell.high) and cell.n_pairs == 2


def test_unannealed_runs_never_enter():
    frame = power_study().assign(annealed=True)
    frame.loc[frame["label"] == "fast", "annealed"] = False
    with pytest.raises(FittingError, match="unknown method 'fast'"):
        speedups(frame, "fast", "base")


@pytest.mark.parametrize(
    "kwargs", [{"direction": "both"}, {"unit": "hours"}, {"curve": "spline"}, {"method": "nothing"}]
)
def test_unknown_words_are_refused(kwargs):
    names = {"method": "fast", "baseline": "base", **kwargs}
    with pytest.raises(FittingError, match="unknown"):
        speedups(power_study(), **names)


def test_seconds_without_throughput_are_refused():
    with pytest.raises(FittingError, match="tokens_per_s"):
        speedups(power_study().drop(columns="tokens_per_s"), "fast", "base", unit="seconds")


def test_speed_along_a_curve_is_flagged_as_unannealed():
    frame = power_study()
    rows = []
    for run in frame[frame["label"] == "fast"].itertuples():
        for share in (0.25, 0.5, 0.75, 1.0):
            tokens = run.n_tokens * share
            rows.append((run.run_id, tokens, 20 * (tokens * TRUE_SPEEDUP) ** -0.15 * run.n_params**-0.02))
    curves = pd.DataFrame(rows, columns=["run_id", "n_tokens", "loss_nats"])
    found = speedups_along(frame, curves, "fast", "base")
    assert [s.ratio for s in found] == pytest.approx([TRUE_SPEEDUP] * 9, rel=1e-9)
    assert all(s.kind == "along-curve" and UNANNEALED in s.warnings for s in found)
    never = curves.assign(loss_nats=99.0)
    assert all(s.censored == "upper" for s in speedups_along(frame, never, "fast", "base"))


def test_where_a_curve_passes_is_read_between_its_points_and_the_interval_is_a_t_over_seeds():
    """The target is 2.4 at 500 tokens: seed 0 passes between points, seed 1 has from its first one, seed 2 never."""
    from scipy import stats

    ends = pd.DataFrame(
        [(label, f"{label}{seed}", seed, 500.0, 2.4 if label == "base" else 2.2)
         for label in ("base", "fast") for seed in range(3)],
        columns=["label", "run_id", "seed", "n_tokens", "loss_nats"],
    ).assign(n_params=1e6)  # fmt: skip
    curves = pd.DataFrame(
        [
            ("fast0", 400.0, 2.2),
            ("fast0", 100.0, 3.0),
            ("fast0", 200.0, 2.5),
            ("fast1", 160.0, 2.4),
            ("fast2", 320.0, 2.6),
        ],
        columns=["run_id", "n_tokens", "loss_nats"],
    )
    part = math.log(2.4 / 2.5) / math.log(2.2 / 2.5)
    logs = [math.log(500 / (200 * 2**part)), math.log(500 / 160), math.log(500 / 320)]
    (two,) = speedups_along(ends[ends["seed"] < 2], curves, "fast", "base", level=0.8)
    half = stats.t.ppf(0.9, 1) * np.std(logs[:2], ddof=1) / math.sqrt(2)
    middle = np.mean(logs[:2])
    assert np.log([two.ratio, two.low, two.high]) == pytest.approx([middle, middle - half, middle + half])
    assert (two.n_pairs, two.n_tokens, two.level) == (2, 500.0, 0.8)
    (three,) = speedups_along(ends, curves, "fast", "base")
    assert math.log(three.ratio) == pytest.approx(np.mean(logs)) and (three.low, three.censored) == (0.0, "upper")
    unpaired = ends.assign(seed=ends["seed"] + 10 * (ends["label"] == "base")).query("run_id != 'fast2'")
    (mean,) = speedups_along(unpaired, curves, "fast", "base")
    assert math.log(mean.ratio) == pytest.approx(middle)


def test_a_last_segment_that_rises_goes_on_by_the_line_through_all_points():
    runs = pd.DataFrame({"n_tokens": np.exp([0.0, 2, 4]), "loss_nats": np.exp([1.2, 0.9, 0.95])})
    found = loss_curve(runs).reach(0.85)
    assert found.slope == pytest.approx(-0.0625) and found.beyond == pytest.approx(0.1 / 0.0625)


def test_levels_join_values_within_two_percent():
    assert level_of(np.array([100.0, 203.0, 101.0, 200.0])).tolist() == [100, 200, 100, 200]


def test_a_curve_needs_two_levels_and_must_fall():
    frame = power_study().query("label == 'base' and size == 's'")
    with pytest.raises(FittingError, match="two levels"):
        loss_curve(frame.query("budget == '1'")).reach(0.5)
    rising = frame.assign(loss_nats=frame["n_tokens"] ** 0.1)
    with pytest.raises(FittingError, match="does not fall"):
        loss_curve(rising, "fitted").reach(0.5)


def test_the_table_has_one_row_a_cell():
    assert len(table(speedups(power_study(), "fast", "base"))) == 9


def test_a_size_whose_curve_does_not_fall_is_left_out_and_named():
    frame = power_study()
    flat = (frame["label"] == "base") & (frame["size"] == "s")
    frame.loc[flat, "loss_nats"] = frame.loc[flat, "n_tokens"] ** 0.1
    found = speedups(frame, "fast", "base", curve="fitted")
    assert {s.size for s in found} == {"m", "l"}
    assert all("size s left out: the fitted loss curve does not fall" in s.warnings for s in found)
    frame.loc[frame["label"] == "base", "loss_nats"] = frame["n_tokens"] ** 0.1
    with pytest.raises(FittingError, match="does not fall"):
        speedups(frame, "fast", "base", curve="fitted")
