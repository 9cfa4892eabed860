"""Published data with published answers: what this code gives must be what their authors printed, or better."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalewright.fitting.fit import fit
from scalewright.fitting.optimum import power_law, valley

DATA = Path(__file__).parent / "data"

# Porian et al. 2024, arXiv:2406.19146: exponent of N* in C on RefinedWeb, weighted by the inverse variance of N*.
REFINEDWEB = {
    "base-long-kaplan-kaplan": 0.8353,
    "base-long-kaplan-standard": 0.7065,
    "base-short-kaplan-standard": 0.6020,
    "base-short-chinchilla-standard": 0.5715,
    "tuned-short-const-standard": 0.4969,
}


def refinedweb_optima(setting):
    points = pd.read_csv(DATA / "porian_refinedweb.csv").query("setting == @setting")
    rows = []
    for flops, curve in points.groupby("flops"):
        named = curve.rename(columns={"n": "n_params", "t": "n_tokens", "loss": "loss_nats"})
        found = valley(float(flops), named, spline=True)
        if not found.refused and np.isfinite(curve["n_star"].iloc[0]):
            rows.append((flops, found.n_star, curve["n_star"].iloc[0], curve["n_star_std"].iloc[0]))
    return pd.DataFrame(rows, columns=["flops", "ours", "published", "std"])


@pytest.mark.parametrize("setting", REFINEDWEB)
def test_isoflop_minima_of_refinedweb_are_the_published_ones_within_five_percent(setting):
    optima = refinedweb_optima(setting)
    assert len(optima) >= 11
    assert np.abs(optima["ours"] / optima["published"] - 1).max() < 0.05


@pytest.mark.parametrize("setting", REFINEDWEB)
def test_the_size_exponent_of_refinedweb_is_the_published_one_within_five_thousandths(setting):
    optima = refinedweb_optima(setting)
    slope, _, _ = power_law(np.log(optima["flops"]), np.log(optima["ours"]), 1 / optima["std"].to_numpy() ** 2)
    assert slope == pytest.approx(REFINEDWEB[setting], abs=0.005)


def gadre_fit(dataset):
    """Their five runs: four sizes at 20 tokens per parameter and the smallest at 320; least squares on the loss."""
    runs = pd.read_csv(DATA / "gadre_c4_val.csv").query("dataset == @dataset")
    small = runs["params"] < 5e8
    five = runs[small & ((runs["multiplier"] == 1) | ((runs["multiplier"] == 16) & (runs["params"] < 2e7)))]
    assert len(five) == 5
    points = five.rename(columns={"params": "n_params", "tokens": "n_tokens", "loss__c4_val": "loss_nats"})
    return runs, fit(points, "equal-exponents", "raw-l2")


def test_the_five_point_law_of_gadre_et_al_has_their_exponent_and_floor_to_four_digits():
    runs, result = gadre_fit("rpj")
    assert result.params["alpha"].value == pytest.approx(0.2729, abs=5e-5)
    assert result.params["E"].value == pytest.approx(1.8366, abs=5e-5)
    seven = runs[runs["params"] > 6e9].iloc[0]
    assert float(result.predict(seven["params"], seven["tokens"]).value) == pytest.approx(2.4427, abs=5e-5)
    assert seven["loss__c4_val"] == pytest.approx(2.4250, abs=5e-5)


def test_the_five_point_law_predicts_the_overtrained_1b4_model_to_a_hundredth_of_a_percent():
    runs, result = gadre_fit("rw_original")
    target = runs[(runs["params"] > 1e9) & (runs["params"] < 2e9) & (runs["multiplier"] == 16)].iloc[0]
    predicted = float(result.predict(target["params"], target["tokens"]).value)
    assert abs(predicted / target["loss__c4_val"] - 1) < 1.5e-4


def olmo_ladder():
    runs = pd.read_csv(DATA / "olmo_ladder_c4.csv")
    return runs.rename(columns={"params_nonemb": "n_params", "tokens": "n_tokens", "c4_en": "loss_nats"})


def test_the_olmo_ladder_predicts_its_13b_model_as_published_and_misses_the_measurement_as_published():
    runs = olmo_ladder()
    ladder = runs[runs["size"].isin(["190M", "370M", "760M", "1B"]) & runs["xC"].isin([1, 2, 5, 10]) & ~runs["rerun"]]
    assert len(ladder) == 16
    result = fit(ladder)
    target = runs[runs["size"] == "13B"].iloc[0]
    told = result.predict(target["n_params"], target["n_tokens"], new_run=True)
    # 2.34439 was found from one start with losses smoothed otherwise: the same to 0.2%, and inside the interval.
    assert float(told.value) == pytest.approx(2.34439, rel=2e-3)
    assert float(told.low) < 2.34439 < float(told.high)
    assert float(told.value) / 2.43788 - 1 == pytest.approx(-0.038, abs=0.003)  # the ladder is too optimistic


def test_reruns_of_the_olmo_ladder_differ_by_hundredths_of_a_percent():
    runs = olmo_ladder()
    pairs = runs[runs["xC"] == 1].pivot_table(index="size", columns="rerun", values="loss_nats")
    relative = 100 * (pairs[True] / pairs[False] - 1).abs()
    assert relative.min() > 0.0145 and relative.max() < 0.0305


PUBLISHED_BASE = {"E": np.exp(0.6254804), "A": np.exp(6.255414), "B": np.exp(7.3049974), "alpha": 0.3526596}


def test_the_repeated_data_law_finds_the_minimum_below_the_published_one():
    """R_D* = 15.39 with an objective of .0158259 is a local minimum; the global one is at R_D* = 95.4, R_N* = 1.71."""
    runs = pd.read_csv(DATA / "datablations_182.csv")
    points = runs.rename(columns={"params": "n_params", "tokens": "n_tokens", "val_loss": "loss_nats"})
    result = fit(points, "repeated-data", fixed={**PUBLISHED_BASE, "beta": 0.3526596})
    assert result.objective_value == pytest.approx(0.0158047, abs=5e-8)
    assert result.params["R_D"].value == pytest.approx(95.4, abs=0.05)
    assert result.params["R_N"].value == pytest.approx(1.71, abs=0.005)
    at_published = fit(points, "repeated-data", profile="never",
                       fixed={**PUBLISHED_BASE, "beta": 0.3526596, "R_D": 15.387756, "R_N": 5.309743})  # fmt: skip
    assert at_published.objective_value == pytest.approx(0.0158259, abs=5e-8)


def test_the_profile_of_repeated_data_is_flat_from_12_to_200():
    runs = pd.read_csv(DATA / "datablations_182.csv")
    points = runs.rename(columns={"params": "n_params", "tokens": "n_tokens", "val_loss": "loss_nats"})
    fixed = {**PUBLISHED_BASE, "beta": 0.3526596}
    heights = [
        fit(points, "repeated-data", fixed={**fixed, "R_D": rate}, profile="never").objective_value
        for rate in (12, 50, 200)
    ]
    assert max(heights) / 0.0158047 - 1 < 0.005
    assert fit(points, "repeated-data", fixed=fixed).params["R_D"].one_sided == "lower"
