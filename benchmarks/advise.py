"""Which runs are worth their compute? Policies that buy runs from a pool, scored on a region none of them looks at.

A pool is TASK.train.parquet and its target TASK.test.parquet, as in Li et al. 2026, arXiv:2604.22753. A budget is a
share of the pool's summed cost; a law is fitted to what a policy bought, and the score is R2 on the target rows clipped
to [-1, 1]. Only the axes of the target are known to a policy, never its losses.
Run: python benchmarks/advise.py FOLDER TASK --law LAW --columns n_params=N,n_tokens=D,loss_nats=loss --cost '6*N*D'
"""

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from scalewright.fitting.advise import choose, condition, look_ahead  # noqa: E402
from scalewright.fitting.belief import (  # noqa: E402
    ADVISABLE,
    Answer,
    Belief,
    Model,
    Pool,
    believe,
    centres,
    factor,
    model_of,
)
from scalewright.fitting.errors import FittingError  # noqa: E402

Array = NDArray[np.float64]
REFIT_GROWTH = 1.2  # runs bought between two fits, as a share of those there are
LEAST_BATCH = 4
DEFAULT_BUDGETS = (0.01, 0.05, 0.10)
ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.Load)


@dataclass(frozen=True)
class Task:
    """A pool with its losses, and a target with its own; both laid out on the same centred axes."""

    model: Model
    pool: Pool
    log_loss: Array
    target: Pool
    target_loss: Array

    def answer(self, theta: Array) -> tuple[Array, Array]:
        return self.model.predict(theta, self.target)


def load(folder: Path, name: str, law: str, columns: dict[str, str], cost: str) -> Task:
    """Read a task; raises FittingError for a file, law or column that is not there, or a value that is not positive."""
    if law not in ADVISABLE:
        raise FittingError(f"--law {law}: expected one of {', '.join(sorted(ADVISABLE))}")
    frames = [_read(folder / f"{name}.{part}.parquet") for part in ("train", "test")]
    needed = (*ADVISABLE[law].axes, "loss_nats")
    columns = {axis: columns.get(axis, axis) for axis in needed}
    for axis, column in columns.items():
        if column not in frames[0] and axis == "flops":
            frames = [frame.assign(flops=costs(cost, frame)) for frame in frames]
            continue
        if column not in frames[0]:
            raise FittingError(
                f"law {law} needs {axis}: no column {column!r} in {name}.train.parquet; it has {', '.join(frames[0])}"
            )
    logs = [{axis: _log(frame, column) for axis, column in columns.items()} for frame in frames]
    middle = centres({axis: values for axis, values in logs[0].items() if axis != "loss_nats"})
    axes = [{axis: one[axis] - middle[axis] for axis in middle} for one in logs]
    pools = [
        Pool(a, np.full(len(f), "all"), c)
        for a, f, c in zip(axes, frames, (costs(cost, frames[0]), np.ones(len(frames[1]))), strict=True)
    ]
    return Task(
        model_of(ADVISABLE[law], pools[0]), pools[0], logs[0]["loss_nats"], pools[1], np.exp(logs[1]["loss_nats"])
    )


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FittingError(f"{path}: no such file; expected TASK.train.parquet and TASK.test.parquet")
    return pd.read_parquet(path)


def costs(text: str, frame: pd.DataFrame) -> Array:
    """Return the cost of each row by arithmetic on its columns, as `6*N*D`; raises FittingError for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            check_arithmetic(node, frame)
        columns = {name: frame[name].to_numpy(dtype=np.float64) for name in named(tree)}
        with np.errstate(all="ignore"):
            found = eval(compile(tree, "--cost", "eval"), {"__builtins__": {}}, columns)  # noqa: S307 - checked above
    except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
        raise FittingError(f"--cost {text!r}: {error} (expected columns, numbers and + - * / **)") from None
    values = np.broadcast_to(np.asarray(found, dtype=np.float64), len(frame))
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise FittingError(f"--cost {text!r}: {int(wrong.sum())} rows are not positive")
    return values


def check_arithmetic(node: ast.AST, frame: pd.DataFrame) -> None:
    """Raise ValueError for what is no arithmetic; numbers become floating point, in which no power takes for ever."""
    if isinstance(node, ast.Constant):
        node.value = float(node.value)
    elif not isinstance(node, ARITHMETIC):
        raise ValueError(f"{ast.unparse(node)!r} is not allowed")
    elif isinstance(node, ast.Name) and node.id not in frame:
        raise ValueError(f"no column {node.id!r}; there are {', '.join(map(str, frame))}")


def named(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _log(frame: pd.DataFrame, column: str) -> Array:
    values = frame[column].to_numpy(dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise FittingError(f"column {column}: {int((~(values > 0)).sum())} values are not positive numbers")
    return np.asarray(np.log(values))


def seeded(task: Task, seed: int) -> Task:
    """Draw the law's error anew: the seeds differ in it for every policy, and for the whole pool."""
    return replace(task, model=model_of(task.model.law, task.pool, seed))


Policy = Callable[[Task, float, np.random.Generator], list[int]]


def in_order(scores: Callable[[Array, np.random.Generator], Array]) -> Policy:
    """Buy in the order of scores, lowest first, until the next would pass the budget."""

    def buy(task: Task, budget: float, rng: np.random.Generator) -> list[int]:
        order = np.argsort(scores(task.pool.cost, rng), kind="stable")
        return [int(i) for i in order[np.cumsum(task.pool.cost[order]) <= budget]]

    return buy


def by_belief(pick: Callable[[Task, Belief, list[int], float, int], list[int]]) -> Policy:
    """Fit, buy a batch, fit again."""

    def buy(task: Task, budget: float, rng: np.random.Generator) -> list[int]:
        bought: list[int] = []
        belief = None
        while True:
            rows = np.array(bought, dtype=np.intp)
            belief = believe(task.model, task.pool.at(rows), task.log_loss[rows], rng, belief)
            n_batch = max(LEAST_BATCH, int((REFIT_GROWTH - 1) * len(bought)))
            left = budget - float(task.pool.cost[rows].sum())
            new = pick(task, belief, bought, left, n_batch)
            if not new:
                return bought
            bought += new

    return buy


def _factors(task: Task, belief: Belief, answer: Answer) -> tuple[Array, Array]:
    return factor(belief, lambda theta: task.model.predict(theta, task.pool)), factor(belief, answer)


def _open_cost(task: Task, bought: list[int]) -> Array:
    cost = task.pool.cost.copy()
    cost[bought] = np.inf
    return cost


def pick_d(task: Task, belief: Belief, bought: list[int], left: float, n_batch: int) -> list[int]:
    """The most information on all parameters per cost, about the best optimum."""
    best = Belief((belief.basins[0],), belief.noise)
    f, _ = _factors(task, best, task.answer)
    cost, rows, s2 = _open_cost(task, bought), [], belief.noise**2
    while len(rows) < n_batch and (cost <= left).any():
        own = (f**2).sum(axis=1)
        row = int(np.argmax(np.where(cost <= left, np.log1p(own / s2) / cost, -1)))
        f = condition(f, f[row].copy(), s2)
        left -= float(cost[row])
        cost[row] = np.inf
        rows.append(row)
    return rows


def pick_v(task: Task, belief: Belief, bought: list[int], left: float, n_batch: int) -> list[int]:
    """The largest fall of the variance of the target's predictions per cost, about the best optimum."""
    best = Belief((belief.basins[0],), belief.noise)
    f, g = _factors(task, best, task.answer)
    return look_ahead(f, g, belief.noise, _open_cost(task, bought), left, n_most=n_batch).rows


def pick_ours(task: Task, belief: Belief, bought: list[int], left: float, n_batch: int) -> list[int]:
    f, g = _factors(task, belief, task.answer)
    return choose(f, g, belief.noise, _open_cost(task, bought), left, n_batch).rows


POLICIES: dict[str, Policy] = {
    "random": in_order(lambda cost, rng: rng.random(len(cost))),
    "cheapest first": in_order(lambda cost, rng: cost * (1 + 1e-9 * rng.random(len(cost)))),
    "inverse cost": in_order(lambda cost, rng: rng.exponential(size=len(cost)) * cost),
    "D-optimal": by_belief(pick_d),
    "V-optimal": by_belief(pick_v),
    "ours": by_belief(pick_ours),
}


def r2(task: Task, rows: list[int], rng: np.random.Generator) -> float:
    """Fit the runs bought and score the prediction of the target."""
    bought = np.array(rows, dtype=np.intp)
    belief = believe(task.model, task.pool.at(bought), task.log_loss[bought], rng)
    told = np.exp(task.answer(belief.theta)[0])
    loss = task.target_loss
    score = 1 - float(((loss - told) ** 2).sum() / ((loss - loss.mean()) ** 2).sum())
    return min(1.0, max(-1.0, score))


def score(task: Task, policies: list[str], budgets: list[float], n_seeds: int) -> list[dict[str, object]]:
    """Return a row for each policy and budget: mean and standard deviation of R2, runs bought, seconds a choice."""
    total, rows = float(task.pool.cost.sum()), []
    for name in policies:
        for share in budgets:
            scores, counts, start = [], [], time.process_time()
            for seed in range(n_seeds):
                task = seeded(task, seed)
                bought = POLICIES[name](task, share * total, np.random.default_rng(seed))
                assert task.pool.cost[bought].sum() <= share * total * (1 + 1e-9) and len(set(bought)) == len(bought)
                scores.append(r2(task, bought, np.random.default_rng(1000 + seed)))
                counts.append(len(bought))
            spent = (time.process_time() - start) / n_seeds
            rows.append(
                {
                    "policy": name,
                    "budget": share,
                    "r2": float(np.mean(scores)),
                    "sd": float(np.std(scores)),
                    "n_runs": float(np.mean(counts)),
                    "cpu_s": spent,
                }
            )
            print(line(rows[-1]), file=sys.stderr, flush=True)
    n = len(task.pool.cost)
    whole = [r2(seeded(task, seed), list(range(n)), np.random.default_rng(1000 + seed)) for seed in range(n_seeds)]
    last = {"policy": "whole pool", "budget": 1.0, "r2": float(np.mean(whole)), "sd": float(np.std(whole))}
    return [*rows, {**last, "n_runs": float(n)}]


def line(row: dict[str, object]) -> str:
    return f"{row['policy']:16}{row['budget']:7.1%}{row['r2']:9.3f} +- {row['sd']:.3f}{row['n_runs']:7.0f} runs"


def time_choice(task: Task) -> float:
    """Seconds of one choice: fit to a tenth of the pool's runs, look ahead over a tenth of its cost."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(task.pool.cost), max(8, len(task.pool.cost) // 10), replace=False))
    start = time.perf_counter()
    belief = believe(task.model, task.pool.at(rows), task.log_loss[rows], rng)
    pick_ours(task, belief, rows.tolist(), 0.1 * float(task.pool.cost.sum()), LEAST_BATCH)
    return time.perf_counter() - start


def main() -> int:
    """Print R2 by policy and budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("task")
    parser.add_argument("--law", required=True, help=f"one of {', '.join(sorted(ADVISABLE))}")
    parser.add_argument("--columns", required=True, help="axis=column,... with loss_nats=column")
    parser.add_argument("--cost", required=True, help="cost of a run from the file's columns, e.g. '6*N*D'")
    parser.add_argument("--budgets", default=",".join(map(str, DEFAULT_BUDGETS)), help="shares of the pool's cost")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        columns = dict(pair.split("=", 1) for pair in options.columns.split(",") if "=" in pair)
        policies = options.policies.split(",")
        for name in policies:
            if name not in POLICIES:
                raise FittingError(f"--policies {name}: expected some of {', '.join(POLICIES)}")
        task = load(options.folder, options.task, options.law, columns, options.cost)
        rows = score(task, policies, [float(b) for b in options.budgets.split(",")], options.seeds)
    except FittingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time_choice(task)
    if options.json:
        print(json.dumps({"task": options.task, "law": options.law, "seconds_of_a_choice": seconds, "rows": rows}))
        return 0
    for row in rows:
        print(line(row))
    print(f"a choice takes {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
