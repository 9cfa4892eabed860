"""The table where it enters: what is refused, what is left out and why, what is filled in."""

import numpy as np
import pandas as pd
import pytest
from planted_laws import grid

from scalewright.fitting.choices import FLOP_CONVENTIONS, N_CONVENTIONS
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import PointRules, check_points


def reasons(points):
    return {e.run_id: e.reason for e in points.excluded}


def test_every_kind_of_bad_run_is_left_out_with_its_reason():
    frame = grid(4, 3).assign(diverged=False, state="completed", holdout=False, annealed=True)
    frame.loc[0, "diverged"] = True
    frame.loc[1, "state"] = "running"
    frame.loc[2, "loss_nats"] = np.nan
    frame.loc[3, "n_tokens"] = -1
    frame.loc[4, "holdout"] = True
    frame.loc[5, "annealed"] = False
    frame.loc[6, "run_id"] = "run-007"
    points = check_points(frame)
    assert len(points) == 5
    assert reasons(points) == {
        "run-000": "diverged",
        "run-001": "not finished",
        "run-002": "loss is not finite",
        "run-003": "n_tokens is missing or not positive",
        "run-004": "holdout",
        "run-005": "not annealed",
        "run-007": "same run twice",
    }


def test_holdout_and_unannealed_runs_enter_only_when_asked():
    frame = grid(4, 3).assign(holdout=[True] + [False] * 11, annealed=[True] * 11 + [False])
    assert len(check_points(frame)) == 10
    assert len(check_points(frame, PointRules(holdout=True, unannealed=True))) == 12


def test_missing_flags_are_not_flags():
    frame = grid(4, 3).assign(diverged=None, holdout=None, annealed=None, state=None)
    assert len(check_points(frame)) == 12


def test_a_loss_below_one_enters_and_one_of_zero_does_not():
    frame = grid(4, 3)
    frame.loc[[0, 1], "loss_nats"] = 0.5, 0.0
    points = check_points(frame)
    assert reasons(points) == {"run-001": "loss is not positive"} and points.column("loss_nats").min() == 0.5


def test_the_worst_runs_can_be_dropped_and_are_named():
    frame = grid(4, 3)
    worst = frame.nlargest(2, "loss_nats")["run_id"]
    points = check_points(frame, PointRules(exclude_worst=2))
    assert set(reasons(points)) == set(worst)
    assert set(reasons(points).values()) == {"among the 2 largest losses"}


def test_missing_flops_are_six_n_d_and_stored_ones_are_kept():
    frame = grid(3, 3)
    points = check_points(frame)
    assert points.column("flops") == pytest.approx(6 * points.column("n_params") * points.column("n_tokens"))
    stored = check_points(frame.assign(flops=1e18))
    assert set(stored.column("flops")) == {1e18}
    assert set(check_points(frame.assign(flops=1e18), PointRules(flop_convention="6nd")).column("flops")) != {1e18}


@pytest.mark.parametrize("convention", N_CONVENTIONS)
def test_each_convention_of_n_reads_its_column(convention):
    frame = grid(3, 3).assign(n_params_head=1000.0, n_params_total=5e9)
    n = check_points(frame, PointRules(n_convention=convention)).column("n_params")
    expected = {"non-embedding": np.sort(frame["n_params"]), "non-embedding+head": np.sort(frame["n_params"]) + 1000}
    np.testing.assert_allclose(np.sort(n), expected.get(convention, np.full(9, 5e9)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="loss_nats"), "no column loss_nats"),
        (
            lambda f: f.drop(columns=["n_params", "n_tokens"]),
            "need an axis to be fitted along: n_params, n_tokens, flops",
        ),
        (lambda f: f.assign(loss_nats=np.nan), "no point is left of 9: 9 loss is not finite"),
        (lambda f: f.iloc[:0], "the table is empty"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(change, message):
    with pytest.raises(FittingError, match=message) as caught:
        check_points(change(grid(3, 3)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rules", [PointRules(n_convention="totl"), PointRules(flop_convention="6n"), PointRules(by="methd")]
)
def test_an_unknown_word_is_answered_with_the_valid_ones(rules):
    with pytest.raises(FittingError, match=r"unknown .*; valid: "):
        check_points(grid(3, 3).assign(method="a"), rules)


def test_every_flop_convention_is_accepted():
    for name in FLOP_CONVENTIONS:
        assert len(check_points(grid(3, 3), PointRules(flop_convention=name))) == 9


def test_the_hash_knows_the_data_and_not_the_order_of_rows():
    frame = grid(3, 3)
    shuffled = frame.sample(frac=1, random_state=1)
    assert check_points(frame).data_hash() == check_points(shuffled).data_hash()
    moved = frame.assign(loss_nats=frame["loss_nats"] + 1e-12)
    assert check_points(frame).data_hash() != check_points(moved).data_hash()


def test_a_single_method_is_picked_by_name():
    frame = pd.concat([grid(3, 3, label="a"), grid(3, 3, label="b").assign(run_id=[f"b{i}" for i in range(9)])])
    points = check_points(frame)
    assert points.methods == ("a", "b")
    assert set(points.of("b").frame["label"]) == {"b"}
    with pytest.raises(FittingError, match="unknown method 'c'"):
        points.of("c")


@pytest.mark.parametrize("convention", N_CONVENTIONS)
@pytest.mark.parametrize("stored", [True, False])
def test_six_n_d_counts_parameters_by_the_convention_asked_for(convention, stored):
    frame = grid(3, 3).assign(n_params_head=lambda f: 0.5 * f["n_params"], n_params_total=lambda f: 2.5 * f["n_params"])
    frame = frame.assign(flops=7.0 * frame["n_params"]) if stored else frame
    n = frame["n_params"] * {"non-embedding": 1.0, "non-embedding+head": 1.5, "total": 2.5}[convention]
    points = check_points(frame, PointRules(n_convention=convention, flop_convention="6nd"))
    np.testing.assert_allclose(np.sort(points.column("flops")), np.sort(6 * n * frame["n_tokens"]))
    kept = check_points(frame, PointRules(n_convention=convention)).column("flops")
    np.testing.assert_allclose(np.sort(kept), np.sort(frame["flops"] if stored else 6 * n * frame["n_tokens"]))


def test_a_loss_worse_than_guessing_enters_no_fit_and_is_listed():
    frame = grid(5, 4, noise=0.003)
    broken = frame.assign(loss_nats=frame["loss_nats"].where(frame["run_id"] != "run-007", 1e30))
    points = check_points(broken)
    assert [(e.run_id, e.reason) for e in points.excluded] == [
        ("run-007", "loss is above 20 nats, worse than guessing")
    ]
    assert len(points) == len(frame) - 1


def test_an_axis_that_some_runs_lack_leaves_these_out_and_one_that_all_lack_none():
    frame = pd.DataFrame({"n_params": [1e6, np.nan, 1e7], "n_tokens": np.nan, "loss_nats": 2.0, "flops": 1e15,
                          "run_id": ["a", "b", "c"]})  # fmt: skip
    assert reasons(check_points(frame)) == {"b": "n_params is missing or not positive"}
