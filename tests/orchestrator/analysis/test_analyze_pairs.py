"""Comparisons read from frames with a planted gain, and the cautions that a reader must be given."""

import functools
import math

import numpy as np
import pandas as pd
import pytest

from scalewright.fitting.frame import check_points
from scalewright.fitting.hyper import best_of_sweeps
from scalewright.orchestrator.analysis.analyze import (
    Analysis,
    analyze_frame,
    seeds_in_words,
    usual_pairs,
)
from scalewright.orchestrator.analysis.comparisons import read_pair
from scalewright.orchestrator.analysis.inputs import mark_frontier
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.comparison_tables import (
    UNCLEAR,
    losses_table,
    scale_tables,
    sentence,
    speed_ups_table,
    verdict,
)
from scalewright.orchestrator.report.warnings import cautions

LAST_COLUMNS = ["same at every size: p", "same at every budget: p", "at a new size in this range"]
SIZES = {"small": 20_000, "middle": 60_000, "large": 180_000}
BUDGETS = (200_000, 400_000, 800_000)


def frame(gain: float = 1.6, *, noise: float = 0.0, n_seeds: int = 1, rng_seed: int = 0) -> pd.DataFrame:
    """Runs of gpt+ and of angpt, which needs `gain` times fewer tokens: L = N^-0.1 (s D)^-0.15 * 20 at every size."""
    rng = np.random.default_rng(rng_seed)
    rows = []
    for label, faster in (("gpt+", 1.0), ("angpt", gain)):
        for size, n_params in SIZES.items():
            for n_tokens in BUDGETS:
                for seed in range(n_seeds):
                    loss = 20 * n_params**-0.1 * (faster * n_tokens) ** -0.15 * math.exp(noise * rng.normal())
                    rows.append((label, size, n_params, n_tokens, seed, loss))
    table = pd.DataFrame(rows, columns=["label", "size", "n_params", "n_tokens", "seed", "loss_nats"])
    return table.assign(
        run_id=[f"{i:016x}" for i in range(len(table))], method=table["label"], gate="none", lr_peak=0.02,
        budget=table["n_tokens"].astype(str), flops=6.0 * table["n_params"] * table["n_tokens"], batch_tokens=256.0,
        tokens_per_s=np.where(table["label"] == "angpt", 800.0, 1000.0), state="completed", diverged=False,
        annealed=True, holdout=False, device="cpu", threads=1, bits_per_byte=table["loss_nats"] / math.log(2),
    )  # fmt: skip


def pair(runs: pd.DataFrame):
    return read_pair(check_points(runs), "angpt", "gpt+")


@functools.cache
def planted(gain: float, noise: float = 0.0):
    return pair(frame(gain, noise=noise))


@pytest.mark.parametrize(("unit", "factor"), [("tokens", 1.0), ("flops", 1.0), ("seconds", 0.8)])
def test_a_planted_gain_is_read_back_exactly_in_every_unit(unit, factor):
    assert planted(1.6).ratio(unit).ratio == pytest.approx(1.6 * factor, rel=1e-5)


def test_cells_past_the_budgets_are_counted_as_extrapolated():
    found = planted(1.6)
    assert found.n_extrapolated("baseline-needs") == 3
    assert {budget for direction, _, budget in found.extrapolated if direction == "baseline-needs"} == {"800000"}
    assert {budget for direction, _, budget in found.extrapolated if direction == "method-needs"} == {"200000"}


def test_the_loss_gap_is_the_planted_power():
    gap = planted(1.6).comparison.difference
    assert gap.ratio == pytest.approx(1.6**-0.15, rel=1e-9)
    assert gap.n_pairs == 9


def test_two_equal_methods_are_not_called_different():
    read = [pair(frame(1.0, noise=0.01, rng_seed=seed)) for seed in range(10)]
    unclear = [one for one in read if verdict(one, "tokens") == UNCLEAR]
    assert len(unclear) >= 8  # one in twenty is the price of a 95% interval
    assert all("no speed-up shown" in sentence(one) for one in unclear)


def test_a_gain_that_is_equal_at_every_size_is_equal_in_the_table_by_size():
    by_size = planted(1.6).by("size")
    assert list(by_size) == ["small", "middle", "large"]
    assert all(one.ratio == pytest.approx(1.6) for one in by_size.values())


def test_missing_throughput_leaves_out_the_row_in_seconds_only():
    found = pair(frame(1.6).assign(tokens_per_s=np.nan))
    assert found.ratio("seconds") is None and found.ratio("flops") is not None
    assert [row["measured in"] for row in speed_ups_table([found]).rows] == ["tokens", "FLOPs"]


def test_sentences_and_tables_name_n_and_intervals():
    clear = planted(1.6, 0.003)
    assert "anGPT over GPT+: GPT+ needs 1.6" in sentence(clear)
    assert "9 size-budget pairs at 3 sizes, 3 extrapolated, 95% interval" in sentence(clear)
    assert losses_table([clear]).rows[0]["reading"] == "lower"
    by_size, by_budget, holds = scale_tables([clear])
    assert holds.columns[2:] == ["times, for 10x the parameters", "times, for 10x the tokens", *LAST_COLUMNS]
    assert by_size.columns == ["method", "baseline", "small", "middle", "large"]
    assert by_budget.columns == ["method", "baseline", "200000", "400000", "800000"]


def test_the_frontier_holds_no_run_that_another_beats_with_less_compute():
    marked = mark_frontier(check_points(frame(1.6, noise=0.05))).frame
    for _, run in marked.iterrows():
        same = marked[(marked["label"] == run["label"]) & (marked["flops"] <= run["flops"])]
        assert run["on_frontier"] == (run["loss_nats"] == same["loss_nats"].min())


def test_a_gate_is_paired_with_its_method_and_a_method_with_its_baseline():
    runs = pd.DataFrame(
        [("gpt+", "gpt+", "none"), ("angpt", "angpt", "none"), ("pre-ln", "pre-ln", "none"),
         ("pre-ln+gpas", "pre-ln", "gpas"), ("deepnorm", "deepnorm", "none"), ("peri-ln", "peri-ln", "none")],
        columns=["label", "method", "gate"])  # fmt: skip
    pairs = usual_pairs(runs, runs["label"].tolist())
    assert pairs == [("angpt", "gpt+"), ("pre-ln+gpas", "pre-ln"), ("deepnorm", "pre-ln"), ("peri-ln", "pre-ln")]


def test_an_experiment_without_a_result_says_which_states_its_runs_are_in():
    waiting = frame().assign(loss_nats=np.nan, state="queued")
    with pytest.raises(UserError, match=r"no run has ended yet \(18 queued\)"):
        analyze_frame(waiting, "mine")


def told(runs: pd.DataFrame, chosen=lambda points: points) -> str:
    points = mark_frontier(chosen(check_points(runs)))
    return "\n".join(cautions(Analysis("mine", runs, points, (), ())))


def test_a_single_seed_is_said_and_several_are_not():
    assert "Every point is a single seed" in told(frame())
    assert "single seed" not in told(frame(n_seeds=2))


def test_a_diverged_run_is_never_silent():
    runs = frame()
    runs.loc[3, ["diverged", "state"]] = [True, "diverged"]
    assert "1 run diverged and is not in any fit" in told(runs)


def test_unfinished_runs_are_counted_by_state():
    runs = frame()
    runs.loc[[1, 2], ["state", "loss_nats"]] = ["running", np.nan]
    assert "Not every run has ended (2 running)" in told(runs)


def test_a_learning_rate_that_was_not_swept_is_said():
    assert "none swept here" in told(frame())
    swept = pd.concat([frame(), frame().assign(lr_peak=0.01, run_id=lambda f: "b" + f["run_id"])], ignore_index=True)
    assert "none swept here" not in told(swept)
    assert "none swept here" not in told(swept, best_of_sweeps), "asked of all runs, not of the best that are left"
    some = swept[(swept["label"] == "angpt") | (swept["lr_peak"] != 0.01)].reset_index(drop=True)
    assert "GPT+ was trained at one learning rate per size, none swept here" in told(some)


def test_runs_that_differ_in_more_than_their_seed_are_said_to_be_pooled():
    assert "take them for seeds" not in told(frame(n_seeds=2))
    two = [frame().assign(batch_tokens=b, run_id=lambda f, b=b: f"{b}" + f["run_id"]) for b in (64, 256)]
    mixed = told(pd.concat(two, ignore_index=True))
    assert "Runs of one method, size and budget differ in batch_tokens, and laws and comparisons take them" in mixed
    assert "take them for seeds" not in told(frame().assign(batch_tokens=lambda f: f["n_params"] / 100))


def test_throughput_of_different_machines_is_not_compared_in_silence():
    runs = frame()
    runs.loc[runs["label"] == "angpt", "threads"] = 2
    assert "different machines (cpu with 1 thread and cpu with 2 threads)" in told(runs)


def test_too_few_optimiser_steps_are_said():
    assert "took 391 optimiser steps" in told(frame().assign(batch_tokens=512.0))
    assert "optimiser steps" not in told(frame())


def test_runs_that_were_not_annealed_are_said():
    runs = frame()
    runs.loc[0, "annealed"] = False
    assert "1 run ended before the learning rate had decayed" in told(runs)


def test_sizes_that_swap_places_are_said_with_the_method():
    runs = frame()
    runs.loc[(runs["label"] == "angpt") & (runs["size"] == "large") & (runs["n_tokens"] == 400_000), "loss_nats"] *= 1.2
    assert "Larger models end above smaller ones at equal tokens (anGPT at 400k tokens by 8%)" in told(runs)
    assert "Larger models" not in told(frame())


def test_uneven_throughput_is_said():
    runs = frame()
    runs.loc[0, "tokens_per_s"] = 400.0
    assert "differs by up to 2.5×" in told(runs)
    assert "Throughput" not in told(frame())


def test_seeds_of_some_points_alone_are_counted():
    runs = pd.concat([frame(), frame(n_seeds=3).query("size == 'small' and seed > 0 and n_tokens == 200_000")])
    runs = runs.assign(run_id=[f"{i:016x}" for i in range(len(runs))])
    assert "16 of 18 points are a single seed" in told(runs)
    assert seeds_in_words(runs) == "1 to 3 seeds a point"
    assert seeds_in_words(frame()) == "1 seed a point"
    assert seeds_in_words(frame().assign(seed=np.nan)) == "seeds not known"


def test_without_any_ratio_the_speed_up_figure_is_empty_and_whole():
    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.orchestrator.report.figures import speed_up_frames

    pooled, cells = speed_up_frames([])
    assert FIGURES["speed-ups"](pooled, cells).axes


def test_many_budgets_are_rows_and_a_single_one_leaves_no_empty_table():
    runs = frame(1.6)
    per_size = runs.assign(n_tokens=runs["n_tokens"] * runs["n_params"] / 20_000).drop(columns="budget")
    by_size, by_budget, _ = scale_tables([pair(per_size)])
    assert len(by_size.rows) == 1 and len(by_budget.rows) == 9
    tokens = [float(row["budget"]) for row in by_budget.rows]
    assert tokens == sorted(tokens)
    assert set(by_budget.rows[0]) == {"method", "baseline", "budget", "speed-up"}
    single = runs[(runs["size"] == "small") & (runs["budget"] == "200000")]
    assert [table.rows for table in scale_tables([pair(single)])] == [(), (), ()]
