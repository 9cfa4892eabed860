"""Studies with a known speed-up, decided by `advise`, by the whole grid, and by the grid in the order of its cost.

`advise` buys from the grid in batches, by the rule of the verb itself, until the interval is as narrow as asked.
Run: python benchmarks/advise_sequential.py --studies 200
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from coverage import NOISES, Design, Row, simulate

from scalewright.fitting.errors import CurveError
from scalewright.fitting.frame import check_points
from scalewright.fitting.joint.answer import joint_comparison
from scalewright.fitting.joint.noise import FEWEST_SIZES
from scalewright.orchestrator.analysis.advice import COLUMNS, Advice, Question, decide

GRIDS = {
    "narrow": Design("sizes 4x apart, budgets 4x", (2e7, 4e7, 8e7), (5, 10, 20), 4),
    "wide": Design("sizes 10x apart, budgets 16x", (2e7, 6e7, 2e8), (5, 20, 80), 4),
}
METHOD, BASELINE = "method", "baseline"
MOST_ROUNDS = 100


@dataclass(frozen=True)
class Verdict:
    """Log speed-up with its interval, the runs bought and their share of the grid's compute."""

    value: float
    low: float
    high: float
    n_runs: int
    n_sizes: int
    spent: float

    def is_within(self, half: float) -> bool:
        return (self.high - self.low) / 2 <= half and self.n_sizes >= FEWEST_SIZES


def planned(design: Design, noise: str, ratio: float, seed: int) -> pd.DataFrame:
    """Return the runs of a study with the loss that each would give."""
    table = simulate(Row(design, noise, "additive", ratio), seed)
    return table.assign(
        run_id=[f"run-{i}" for i in range(len(table))],
        size=[f"{n:.3g}" for n in table["n_params"]],
        budget=[f"{ratio:g}x" for ratio in table["ratio"]],
        cost=6 * table["n_params"] * table["n_tokens"],
    )


def told(table: pd.DataFrame, bought: pd.Series) -> Verdict:
    """Compare on the runs bought, as `compare` does; an open interval where they carry none."""
    own = table[bought]
    counts = (len(own), own["size"].nunique(), float(own["cost"].sum() / table["cost"].sum()))
    try:
        one = joint_comparison(check_points(own), METHOD, BASELINE, scales=False).speedups[0]
    except CurveError:
        return Verdict(0.0, -math.inf, math.inf, *counts)
    low, high = (
        math.log(end) if 0 < end < math.inf else math.copysign(math.inf, end - 1) for end in (one.low, one.high)
    )
    return Verdict(math.log(one.ratio), low, high, *counts)


def advised(table: pd.DataFrame, to_within: float, n_batch: int) -> Verdict:
    """Buy what the verb chooses, see the losses, and ask again until it says that there is nothing to buy."""
    bought = pd.Series(False, index=table.index)
    for _ in range(MOST_ROUNDS):
        states = np.where(bought, "completed", "planned")
        seen = table.assign(loss_nats=table["loss_nats"].where(bought), state=states)
        rows = seen[list(COLUMNS)].to_dict("records")
        question = Question("compare", (METHOD, BASELINE))
        found = decide(Advice("simulated", question, "", rows, "FLOP", None, n_batch, to_within, 0.95, 0))
        if not found.chosen:
            break
        bought |= table["run_id"].isin(found.run_ids)
    return told(table, bought)


def whole(table: pd.DataFrame, to_within: float, n_batch: int) -> Verdict:
    return told(table, pd.Series(True, index=table.index))


def cheapest_first(table: pd.DataFrame, to_within: float, n_batch: int) -> Verdict:
    """Run the grid in the order of cost, as it is submitted, a batch at a time, until as narrow as asked."""
    order = table.sort_values(["cost", "seed"], kind="stable").index
    for n in range(n_batch, len(order) + n_batch, n_batch):
        found = told(table, pd.Series(table.index.isin(order[:n]), index=table.index))
        if found.is_within(to_within):
            break
    return found


RULES: dict[str, Callable[[pd.DataFrame, float, int], Verdict]] = {
    "advise": advised,
    "whole grid": whole,
    "cheapest first": cheapest_first,
}


def summary(name: str, found: list[Verdict], ratio: float, to_within: float) -> str:
    """Write a row: of a wrong verdict the interval lies on the other side of 1 (off 1, where nothing is planted)."""
    truth = math.log(ratio)
    covered = np.mean([one.low <= truth <= one.high for one in found])
    excludes = [not one.low <= 0 <= one.high for one in found]
    wrong = np.mean([off and one.value * truth <= 0 for off, one in zip(excludes, found, strict=True)])
    narrow = np.mean([one.is_within(to_within) for one in found])
    spent, runs = np.array([one.spent for one in found]), np.mean([one.n_runs for one in found])
    shares = " | ".join(f"{100 * share:.1f}%" for share in (spent.mean(), np.median(spent), np.quantile(spent, 0.9)))
    return (
        f"| {name} | {ratio:g} | {len(found)} | {covered:.3f} | {np.mean(excludes):.3f} | {wrong:.3f} | {narrow:.3f} "
        f"| {runs:.0f} | {shares} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--grid", choices=list(GRIDS), default="narrow")
    parser.add_argument("--noise", choices=list(NOISES), default="normal")
    parser.add_argument("--ratio", type=float, default=1.1, help="the speed-up that is planted")
    parser.add_argument("--to-within", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    found: dict[str, list[Verdict]] = {name: [] for name in RULES}
    for seed in range(options.studies):
        table = planned(GRIDS[options.grid], options.noise, options.ratio, seed)
        for name, rule in RULES.items():
            found[name].append(rule(table, options.to_within, options.batch))
    print("| rule | speed-up | studies | coverage | off 1 | wrong | narrow | runs | compute | median | nine in ten |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, verdicts in found.items():
        print(summary(name, verdicts, options.ratio, options.to_within))


if __name__ == "__main__":
    main()
