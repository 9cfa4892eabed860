"""Which runs to buy next: those that lower the variance of an answer most for their cost.

Belief is a factor: log losses of the pool F (n_pool, n_factor), answers G (n_answers, n_factor), with unit variance
along every factor. A run with row f and noise variance s2 takes |G f|^2 / (|f|^2 + s2) from the summed variance of the
answers and removes its direction from F and G: a whole budget is looked over, and a batch of any width chosen, in one
go. Knows numbers alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCREEN = 300  # candidates that a look ahead keeps
COST_POWERS = (1.0, 0.5)
TINY = 1e-300


@dataclass(frozen=True)
class Outlook:
    """Rows in the order of choice, and the summed variance of the answers before the first and after each."""

    rows: list[int]
    variance: list[float]


def condition(factor: Array, along: Array, variance: float) -> Array:
    """Return a factor (n, n_factor) after a run with row `along` and noise of this variance has been seen."""
    own = float(along @ along)
    step = (1 - np.sqrt(variance / (own + variance))) / max(own, TINY)
    return np.asarray(factor - step * np.outer(factor @ along, along))


def look_ahead(
    pool: Array, answers: Array, noise: float, cost: Array, budget: float, *, power: float = 1.0, n_most: int = 10**9
) -> Outlook:
    """Buy by the fall of the answers' variance over cost^power until nothing fits the budget."""
    s2 = noise**2
    first = ((pool @ answers.T) ** 2).sum(axis=1) / ((pool**2).sum(axis=1) + s2) / cost**power
    likely = np.argsort(np.where(cost <= budget, -first, np.inf), kind="stable")[:SCREEN]
    f, g, cost = pool[likely], answers.copy(), cost[likely]
    open_, out = cost <= budget, Outlook([], [float((g**2).sum())])
    while open_.any() and len(out.rows) < n_most:
        gain = ((f @ g.T) ** 2).sum(axis=1) / ((f**2).sum(axis=1) + s2)
        score = np.where(open_, gain / cost**power, -1.0)
        row = int(np.argmax(score))
        along = f[row].copy()
        f, g = condition(f, along, s2), condition(g, along, s2)
        budget -= float(cost[row])
        open_[row] = False
        open_ &= cost <= budget
        out.rows.append(int(likely[row]))
        out.variance.append(float((g**2).sum()))
    return out


def choose(pool: Array, answers: Array, noise: float, cost: Array, budget: float, n_batch: int) -> Outlook:
    """Return the next batch: the start of the best of several ways to spend the whole budget, judged at its end.

    Greedy by gain over cost alone fills a budget with cheap runs and leaves no room for the dear one that tells most;
    so the ways differ in how much the cost of a run counts.
    """
    ways = [look_ahead(pool, answers, noise, cost, budget, power=power) for power in COST_POWERS]
    best = min(ways, key=lambda way: way.variance[-1])
    return Outlook(best.rows[:n_batch], best.variance[: n_batch + 1])
