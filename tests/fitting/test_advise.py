"""Choosing runs: the arithmetic of a look ahead, what a formula may be, and the benchmark program as a user runs it."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalewright.fitting.advise import choose, look_ahead
from scalewright.fitting.belief import ADVISABLE, Pool, believe, factor, model_of
from scalewright.fitting.errors import FittingError
from scalewright.fitting.joint.planned import comparison_prospect
from scalewright.fitting.laws.rate_batch import RATE_BATCH

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import advise as program  # noqa: E402

STEP = 1e-30


def test_a_look_ahead_tells_the_variance_that_conditioning_on_its_runs_gives() -> None:
    rng = np.random.default_rng(0)
    pool, answers, noise = rng.standard_normal((30, 4)), rng.standard_normal((3, 4)), 0.3
    way = look_ahead(pool, answers, noise, np.ones(30), 5.0)
    assert len(set(way.rows)) == 5
    for n in range(6):
        seen = pool[way.rows[:n]]
        covariance = np.linalg.inv(np.eye(4) + seen.T @ seen / noise**2)
        assert way.variance[n] == pytest.approx(np.trace(answers @ covariance @ answers.T))


def test_the_first_run_is_the_one_with_the_largest_fall_per_cost_and_the_budget_holds() -> None:
    rng = np.random.default_rng(1)
    pool, answers, noise = rng.standard_normal((20, 3)), rng.standard_normal((2, 3)), 0.5
    cost = rng.uniform(1, 10, 20)
    fall = []
    for row in pool:
        after = np.linalg.inv(np.eye(3) + np.outer(row, row) / noise**2)
        fall.append(np.trace(answers @ answers.T) - np.trace(answers @ after @ answers.T))
    way = look_ahead(pool, answers, noise, cost, 12.0)
    assert way.rows[0] == int(np.argmax(np.array(fall) / cost))
    assert cost[way.rows].sum() <= 12.0
    assert len(choose(pool, answers, noise, cost, 12.0, 2).rows) <= 2
    assert choose(pool, answers, noise, cost, 0.5, 2).rows == []


def test_the_jacobian_of_rate_batch_is_the_derivative_of_its_value() -> None:
    rng = np.random.default_rng(2)
    columns = {axis: rng.normal(size=12) for axis in RATE_BATCH.axes}
    theta = np.array([[0.4, -0.9, 0.3, -1.1, 0.4, 0.2, -0.6, 0.25, 0.3, -0.1, 0.5, -3.0, -4.0]])
    jacobian = RATE_BATCH.jacobian(theta, columns)[0]
    for j in range(theta.shape[1]):
        moved = theta.astype(complex)
        moved[0, j] += 1j * STEP
        np.testing.assert_allclose(jacobian[:, j], RATE_BATCH.value(moved, columns)[0].imag / STEP, rtol=1e-10)


def pool_of(n: int, rng: np.random.Generator) -> tuple[Pool, np.ndarray]:
    axes = {"n_params": rng.uniform(-2, 2, n), "n_tokens": rng.uniform(-2, 2, n)}
    loss = 1.8 + 0.5 * np.exp(-0.35 * axes["n_params"]) + 0.4 * np.exp(-0.4 * axes["n_tokens"])
    cost = np.exp(axes["n_params"] + axes["n_tokens"])
    return Pool(axes, np.full(n, "all"), cost), np.log(loss * np.exp(0.003 * rng.standard_normal(n)))


def test_belief_narrows_with_runs_and_finds_the_planted_exponent() -> None:
    rng = np.random.default_rng(3)
    pool, log_loss = pool_of(200, rng)
    model = model_of(ADVISABLE["chinchilla"], pool)
    alpha = model.names.index("alpha")

    def answer(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return theta[[alpha]], np.eye(len(theta))[[alpha]]

    widths = []
    for n in (0, 20, 200):
        rows = np.arange(n)
        belief = believe(model, pool.at(rows), log_loss[rows], np.random.default_rng(0))
        widths.append(float(np.linalg.norm(factor(belief, answer))))
    assert widths[0] == pytest.approx(model.sd[alpha])
    assert widths[0] > widths[1] > widths[2]
    assert belief.theta[alpha] == pytest.approx(0.35, abs=3 * widths[2])


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "N.real", "N[0]", "abs(N)", "N if D else 1", "'a'*N", "6*", "9**9**9*N"],
)
def test_a_cost_is_arithmetic_on_columns_and_nothing_else(text: str) -> None:
    with pytest.raises(FittingError, match="expected columns, numbers"):
        program.costs(text, pd.DataFrame({"N": [1.0], "D": [2.0]}))


def test_a_cost_follows_the_rules_of_arithmetic() -> None:
    table = pd.DataFrame({"N": [2.0, 3.0], "D": [5.0, 7.0]})
    assert program.costs("6*N*D + (N-1)**2/2", table).tolist() == [60.5, 128.0]
    assert program.costs("-(-2)", table).tolist() == [2.0, 2.0]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the program on a folder; return (exit code, stdout, stderr)."""

    def program_on(folder, *options):
        monkeypatch.setattr(sys, "argv", ["advise.py", str(folder), "made", *options])
        code = program.main()
        return code, *capsys.readouterr()

    return program_on


@pytest.fixture
def made(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    for part, low, n in (("train", 7, 120), ("test", 9.2, 20)):
        size, tokens = 10 ** rng.uniform(low, low + 1.5, n), 10 ** rng.uniform(low + 1.5, low + 3, n)
        loss = (1.7 + 400 * size**-0.34 + 410 * tokens**-0.28) * np.exp(0.002 * rng.standard_normal(n))
        pd.DataFrame({"N": size, "D": tokens, "loss": loss}).to_parquet(tmp_path / f"made.{part}.parquet")
    return tmp_path


COLUMNS = ("--columns", "n_params=N,n_tokens=D,loss_nats=loss", "--cost", "6*N*D")


def test_the_program_scores_a_pool_and_advice_beats_chance(run, made: Path) -> None:
    code, out, err = run(made, "--law", "chinchilla", *COLUMNS, "--seeds", "2", "--budgets", "0.02", "--json")
    assert code == 0, err
    rows = {row["policy"]: row for row in json.loads(out)["rows"]}
    assert list(rows) == ["random", "cheapest first", "inverse cost", "D-optimal", "V-optimal", "ours", "whole pool"]
    assert rows["whole pool"]["r2"] > 0.9
    assert rows["ours"]["r2"] > max(rows["random"]["r2"], rows["cheapest first"]["r2"])


def test_losses_of_the_target_are_not_looked_at(run, made: Path) -> None:
    options = ("--law", "chinchilla", *COLUMNS, "--seeds", "1", "--budgets", "0.02", "--policies", "ours", "--json")
    before = json.loads(run(made, *options)[1])["rows"][0]
    target = pd.read_parquet(made / "made.test.parquet")
    target.assign(loss=target["loss"] * np.linspace(1, 3, len(target))).to_parquet(made / "made.test.parquet")
    after = json.loads(run(made, *options)[1])["rows"][0]
    assert after["n_runs"] == before["n_runs"]
    assert after["r2"] < before["r2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--law", "chinchila", *COLUMNS), "expected one of"),
        (("--law", "repeated-data", *COLUMNS), "needs unique_tokens"),
        (("--law", "chinchilla", *COLUMNS[:3], "6*Q"), "no column 'Q'"),
        (("--law", "chinchilla", *COLUMNS[:3], "N-N"), "120 rows are not positive"),
    ],
)
def test_a_mistake_is_one_line(run, made: Path, options: tuple[str, ...], words: str) -> None:
    code, _, err = run(made, *options)
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_what_runs_tell_of_a_comparison_is_the_information_of_the_model_with_all_that_runs_share() -> None:
    """Against one dense covariance of all runs' losses: V = s2 + shared, then the posterior of the shift."""
    table = pd.DataFrame(
        [
            (who, n, n * ratio, seed)
            for who in "ab"
            for n in (1e7, 4e7, 2e8)
            for ratio in (5, 20, 80)
            for seed in (0, 1)
        ],
        columns=["label", "n_params", "n_tokens", "seed"],
    )
    loss = 1.8 + 480 * table["n_params"] ** -0.35 + 2080 * table["n_tokens"] ** -0.37
    noisy = loss * np.exp(0.004 * np.random.default_rng(7).standard_normal(len(table)))
    known = (table["seed"] == 0) | (table["n_params"] < 2e7)
    before = comparison_prospect(table.assign(loss_nats=np.nan), "a", "b")
    after = comparison_prospect(table.assign(loss_nats=noisy.where(known)), "a", "b")
    assert before.half == np.inf and 0 < after.half < 1
    for rows in ([0], [0, 18], list(range(0, 36, 2)), list(range(36))):
        f, g = before.rows[rows], before.answer[0]
        dense = f @ f.T + before.noise**2 * np.eye(len(rows))  # losses alone, without their factors
        left = g @ g - (f @ g) @ np.linalg.solve(dense, f @ g)
        assert float((before.given(rows).answer ** 2).sum()) == pytest.approx(left, rel=1e-6)
    alone, pair = (float((before.given(rows).answer ** 2).sum()) for rows in ([0], [0, 18]))
    assert alone > 0.9 * float((before.answer**2).sum()) and pair < 0.5 * alone


def test_a_goal_is_reached_at_the_least_cost_and_what_is_not_needed_is_left() -> None:
    """Two cheap runs tell the first answer a little each, a dear one tells all: the cheap ones are not bought."""
    pool = np.array([[0.5, 0.0], [0.5, 0.0], [5.0, 0.0], [0.0, 9.0]])
    way = choose(pool, np.array([[1.0, 0.0]]), 1.0, np.array([1.0, 1.0, 3.0, 0.1]), np.inf, 9, goal=0.1)
    assert way.rows == [2]
    assert way.variance == pytest.approx([1.0, 1 / 26])
