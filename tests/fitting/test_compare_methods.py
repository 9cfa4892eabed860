"""A method against its baseline: planted gains come back with their intervals, and what is doubtful is said."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from planted_laws import TRUE_SPEEDUP, TRUTH, chinchilla, small_study

from scalewright.fitting.compare import compare
from scalewright.fitting.difference import loss_differences
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import check_points
from scalewright.fitting.multiplier import compute_multiplier, sharing_test
from scalewright.fitting.optimum import pareto


def large_study(noise=0.003, **changes):
    """Six sizes x four ratios of two methods, the second with some parameters of the law changed."""
    rng = np.random.default_rng(2)
    rows = []
    for label, truth in (("base", TRUTH), ("new", {**TRUTH, **changes})):
        for n in np.geomspace(1e7, 3e9, 6):
            for ratio in (5, 20, 80, 300):
                loss = float(chinchilla(n, n * ratio, truth) * np.exp(noise * rng.normal()))
                rows.append((f"{label}-{n:.3g}-{ratio}", label, n, n * ratio, loss))
    return pd.DataFrame(rows, columns=["run_id", "label", "n_params", "n_tokens", "loss_nats"])


def test_a_planted_gain_is_found_by_every_measure():
    found = compare(small_study(), "fast", "base")
    assert found.difference.resolved and found.difference.nats < 0
    tokens = found.speedup("tokens")
    assert tokens.low < TRUE_SPEEDUP < tokens.high and tokens.low > 1
    seconds = found.speedup("seconds")
    assert seconds.low < 1 < seconds.high
    assert "fast ends" in found.sentence and "the tokens" in found.sentence


def test_no_gain_is_called_no_gain():
    found = compare(small_study(), "same", "base")
    assert not found.difference.resolved
    assert found.sentence.startswith("No difference between same and base is resolved")
    assert any("below the noise" in w for w in found.warnings)


def test_one_seed_and_thin_designs_are_admitted():
    found = compare(small_study((0,)).query("size != 'l'"), "fast", "base")
    assert any(w.startswith("1 seed") for w in found.warnings)
    assert any("thin design: 2 shared sizes" in w for w in found.warnings)


def test_what_one_budget_cannot_measure_is_said_once_and_the_record_says_what_an_interval_counts():
    frame = small_study()
    found = compare(frame[frame["n_tokens"] == frame["n_tokens"].min()], "fast", "base")
    missing = [w for w in found.warnings if "not measured" in w]
    assert len(missing) == 1 and missing[0].startswith("tokens-to-loss, flops-to-loss")
    told = found.to_record()["differences"][0]
    assert {"basis", "n_runs", "n_pairs"} <= set(told) and told["rests_on"] == found.difference.rests_on


def test_many_budgets_come_smallest_first_wherever_they_are_listed():
    """Tokens in proportion to the size: every size has budgets of its own, and they interleave."""
    study = large_study(A=TRUTH["A"] * 0.9)
    study = study.assign(budget=study["n_tokens"].round().astype(int).astype(str))
    frame = compare(study, "new", "base", curve="fitted").frame()
    for _, rows in frame[frame["scope"].str.startswith("budget ")].groupby("quantity"):
        tokens = [float(scope.removeprefix("budget ")) for scope in rows["scope"]]
        assert tokens == sorted(tokens)


def test_different_hardware_diverged_runs_and_edge_rates_are_admitted():
    frame = small_study().assign(device="cpu", diverged=False)
    frame.loc[frame["label"] == "fast", "device"] = "gpu"
    frame.loc[0, "diverged"] = True
    sweep = frame[(frame["size"] == "m") & (frame["label"] == "fast")]
    tried = [sweep.assign(lr_peak=lr, loss_nats=sweep["loss_nats"] + up, run_id=sweep["run_id"] + f"-{lr}")
             for lr, up in ((0.01, 0.2), (0.005, 0.4))]  # fmt: skip
    found = compare(pd.concat([frame, *tried]), "fast", "base")
    assert any("different device" in w for w in found.warnings)
    assert "1 run left out: diverged" in found.warnings
    assert any("edge of its sweep: fast m 1" in w for w in found.warnings)
    assert found.difference.n_pairs == 9  # only the best rate of each cell entered


def test_throughput_that_is_missing_leaves_seconds_out_and_says_so():
    found = compare(small_study().drop(columns="tokens_per_s"), "fast", "base")
    assert found.speedup("seconds") is None and found.speedup("tokens") is not None
    assert any("seconds-to-loss" in w and "tokens_per_s" in w for w in found.warnings)


def test_the_compute_multiplier_of_shared_exponents_is_the_planted_one():
    """B_m = B / 1.5^beta makes each token worth 1.5: the baseline needs 1.5 times the compute at any C."""
    points = check_points(large_study(B=TRUTH["B"] / 1.5 ** TRUTH["beta"]))
    (multiplier,), test = compute_multiplier(points, "new", "base")
    assert test.shared and test.p_value > 0.05
    assert multiplier.at == "any compute"
    assert multiplier.low < 1.5 < multiplier.high and multiplier.high / multiplier.low < 1.2


def test_exponents_that_differ_are_not_shared_and_the_multiplier_grows_with_compute():
    points = check_points(large_study(noise=0.001, beta=0.40))
    found, test = compute_multiplier(points, "new", "base")
    assert not test.shared and test.p_value < 0.01 and test.aicc_separate < test.aicc_shared
    assert test.held_out_separate < test.held_out_shared
    values = [m.value for m in found]
    assert len(values) == 3 and values[0] < values[1] < values[2]
    assert all(m.low < m.value < m.high for m in found)


def test_a_multiplier_beyond_the_baselines_floor_is_undefined_and_says_so():
    points = check_points(large_study(noise=0.001, E=1.2, beta=0.5))
    found, _ = compute_multiplier(points, "new", "base")
    undefined = [m for m in found if math.isnan(m.value)]
    assert undefined and "below the baseline's fitted floor" in undefined[0].reason


def test_the_sharing_test_rejects_equal_laws_rarely():
    rejected = 0
    for seed in range(20):
        frame = large_study(noise=0.0)
        rng = np.random.default_rng(seed)
        noisy = frame.assign(loss_nats=frame["loss_nats"] * np.exp(0.004 * rng.normal(size=len(frame))))
        rejected += not sharing_test(check_points(noisy), "chinchilla-shared").shared
    assert rejected <= 4  # 5% of 20, and chance


@pytest.mark.parametrize("law", ["chinchilla-shared", "power-shared"])
def test_the_interval_of_a_multiplier_is_the_delta_method_by_finite_differences(law):
    """ln CM = sum of (log coefficient of the baseline - of the method) / exponent; unequal ratios of A and of B."""
    from scalewright.fitting.fit import fit
    from scalewright.fitting.multiplier import _shared
    from scalewright.fitting.uncertainty import t_quantile

    base = large_study(noise=0.01)
    tilted = base["loss_nats"] * np.where(base["label"] == "new", (base["n_tokens"] / 1e9) ** -0.01, 1.0)
    points = check_points(base.assign(loss_nats=tilted))
    result = fit(points if law == "chinchilla-shared" else pareto(points), law, profile="never")
    names = result.estimate.names

    def log_multiplier(theta):
        at = dict(zip(names, theta, strict=True))
        pairs = [(c, e) for c, e in (("A", "alpha"), ("B", "beta")) if e in at]
        return sum((at[f"{c}[base]"] - at[f"{c}[new]"]) / at[e] for c, e in pairs)

    theta = np.array(result.estimate.theta)
    steps = 1e-6 * np.eye(len(theta))
    gradient = np.array([(log_multiplier(theta + s) - log_multiplier(theta - s)) / 2e-6 for s in steps])
    half = t_quantile(0.95, result.estimate.noise.df) * math.sqrt(gradient @ result.estimate.covariance @ gradient)
    found = _shared(result, "new", "base")
    assert np.log([found.value, found.low, found.high]) == pytest.approx(
        log_multiplier(theta) + half * np.array([0, -1, 1]), rel=1e-4, abs=1e-6
    )


def test_the_pooled_difference_is_a_t_interval_over_cells():
    from scipy import stats

    frame = small_study()
    wide = frame.pivot_table(index=["size", "budget"], columns="label", values="loss_nats")
    gaps = wide["fast"] - wide["base"]
    pooled = loss_differences(check_points(frame), "fast", "base")[0]
    interval = stats.t.interval(0.95, 8, loc=gaps.mean(), scale=stats.sem(gaps))
    assert pooled.nats == pytest.approx(gaps.mean(), rel=1e-9)
    assert (pooled.low, pooled.high) == pytest.approx(interval, rel=1e-9)


def test_a_cell_is_paired_by_seed():
    cells = {d.scope: d for d in loss_differences(check_points(small_study()), "fast", "base")}
    assert cells["cell s 1"].basis == "seeds" and cells["cell s 1"].n_pairs == 3
    assert {"pooled", "size s", "budget 1"} <= set(cells)
    single = {d.scope: d for d in loss_differences(check_points(small_study((0,))), "fast", "base")}
    assert math.isinf(single["cell s 1"].high) and single["cell s 1"].basis == "none"


def one_cell(seeds=(0, 1, 2)):
    frame = small_study(seeds)
    return frame[(frame["size"] == "m") & (frame["budget"] == "2")].reset_index(drop=True)


def test_one_size_and_budget_with_several_seeds_has_a_paired_interval_over_them():
    from scipy import stats

    frame = one_cell()
    wide = frame.pivot(index="seed", columns="label", values="loss_nats")
    expected = stats.ttest_rel(wide["fast"], wide["base"]).confidence_interval(0.95)
    pooled = compare(frame, "fast", "base").difference
    assert (pooled.low, pooled.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert pooled.basis == "seeds" and pooled.rests_on == "3 paired seeds at one size and budget"


def test_seeds_that_do_not_match_are_compared_by_welch():
    from scipy import stats

    frame = one_cell((0, 1, 2, 3))
    frame = frame[(frame["label"] != "fast") | (frame["seed"] < 3)]
    frame["seed"] += 10 * (frame["label"] == "fast")
    groups = [frame.loc[frame["label"] == label, "loss_nats"] for label in ("fast", "base")]
    expected = stats.ttest_ind(*groups, equal_var=False).confidence_interval(0.95)
    pooled = compare(frame, "fast", "base").difference
    assert (pooled.low, pooled.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert (pooled.basis, pooled.n_pairs, pooled.n_runs) == ("runs", 7, 7)
    unnamed = compare(frame.drop(columns="seed"), "fast", "base").difference
    assert (unnamed.low, unnamed.high) == (pooled.low, pooled.high)


def test_more_seeds_are_not_more_cells():
    """The same nine cell means behind one seed or three give the same interval over cells."""
    frame = small_study((0,))
    copies = [frame.assign(seed=k, run_id=frame["run_id"] + str(k)) for k in range(3)]
    one, three = (loss_differences(check_points(f), "fast", "base")[0] for f in (frame, pd.concat(copies)))
    assert (three.low, three.high) == pytest.approx((one.low, one.high), rel=1e-12)
    assert (one.n_pairs, three.n_pairs, three.n_runs) == (9, 9, 54)


def test_unknown_or_unshared_methods_are_refused():
    with pytest.raises(FittingError, match="unknown method 'fst'.*did you mean fast"):
        compare(small_study(), "fst", "base")
    frame = small_study()
    moved = frame.assign(size=np.where(frame["label"] == "fast", "x", frame["size"]))
    with pytest.raises(FittingError, match="share no size and budget"):
        compare(moved, "fast", "base")


def test_a_comparison_prints_and_records():
    found = compare(small_study(), "fast", "base")
    assert json.loads(json.dumps(found.to_record(), allow_nan=False))["method"] == "fast"
    assert found.sentence in found.summary()
    assert {"quantity", "scope", "value", "low", "high"} == set(found.frame())


def test_the_sharing_test_is_that_of_nested_straight_lines():
    """By hand: log L = log A_m - alpha log C with one alpha or two, by ordinary least squares."""
    from scipy import stats

    rng, x = np.random.default_rng(6), np.log(np.geomspace(1e18, 1e22, 9))
    frame = pd.concat([
        pd.DataFrame({"label": label, "n_params": 1e9, "n_tokens": 1e10, "flops": np.exp(x),
                      "loss_nats": np.exp(height - slope * x + 0.01 * rng.normal(size=9))})
        for label, height, slope in (("base", 3.0, 0.05), ("new", 3.1, 0.054))
    ]).assign(run_id=[f"r{i}" for i in range(18)])  # fmt: skip
    found = sharing_test(check_points(frame), "power-shared")

    def lines(rows, n_slopes):
        y, is_new = np.log(rows["loss_nats"].to_numpy()), (rows["label"] == "new").to_numpy()
        at = np.log(rows["flops"].to_numpy())
        slopes = [at] if n_slopes == 1 else [at * is_new, at * ~is_new]
        return np.stack([is_new, ~is_new, *slopes], axis=1).astype(float), y

    squares, held, train = {}, {}, frame[frame["flops"] < 9e21]
    for k in (1, 2):
        design, y = lines(frame, k)
        squares[k] = float(np.linalg.lstsq(design, y, rcond=None)[1][0])
        design, y = lines(train, k)
        solved = np.linalg.lstsq(design, y, rcond=None)[0]
        design, y = lines(frame[frame["flops"] > 9e21], k)
        held[k] = float(np.sqrt(np.mean((y - design @ solved) ** 2)))
    f = (squares[1] - squares[2]) / (squares[2] / (18 - 4))
    assert (found.f_statistic, found.p_value) == pytest.approx((f, stats.f.sf(f, 1, 14)), rel=1e-4)

    def aicc(s, k):  # k: the parameters and the scale
        return 18 * np.log(s / 18) + 2 * k + 2 * k * (k + 1) / (18 - k - 1)

    assert (found.aicc_shared, found.aicc_separate) == pytest.approx((aicc(squares[1], 4), aicc(squares[2], 5)))
    assert (found.held_out_shared, found.held_out_separate) == pytest.approx((held[1], held[2]), rel=1e-4)


def test_the_ratio_of_losses_has_the_interval_of_its_log():
    from scipy import stats

    frame = small_study()
    frame["log_loss"] = np.log(frame["loss_nats"])
    wide = frame.pivot_table(index=["size", "budget"], columns="label", values="log_loss")
    gaps = wide["fast"] - wide["base"]
    pooled = loss_differences(check_points(frame), "fast", "base")[0]
    low, high = stats.t.interval(0.95, 8, loc=gaps.mean(), scale=stats.sem(gaps))
    assert (pooled.ratio, pooled.ratio_low, pooled.ratio_high) == pytest.approx(
        tuple(np.exp([gaps.mean(), low, high])), rel=1e-6
    )


def test_a_size_without_a_falling_curve_is_named_once_whatever_the_unit_and_direction():
    frame = small_study((0, 1))
    flat = (frame["label"] == "base") & (frame["size"] == "s")
    frame.loc[flat, "loss_nats"] = frame.loc[flat, "n_tokens"] ** 0.05
    told = [w for w in compare(frame, "fast", "base").warnings if "size s left out" in w]
    assert told == ["size s left out: the fitted loss curve does not fall"]
    assert not any("left out" in w for w in compare(small_study((0,)), "fast", "base").warnings)
