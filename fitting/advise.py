"""Which runs to buy next: those that lower the variance of an answer most for their cost.

Belief is a factor: log losses of the pool F (n_pool, n_factor), answers G (n_answers, n_factor), with unit variance
along every factor. A run with row f and noise variance s2 takes |G f|^2 / (|f|^2 + s2) from the summed variance of the
answers and removes its direction from F and G: a whole budget is looked over, and a batch of any width chosen, in one
go. Knows numbers alone.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCREEN = 300  # candidates that a look ahead keeps
COST_POWERS = (1.0, 0.5)
TINY = 1e-300


@dataclass(frozen=True)
class Prospect:
    """What is believed of one answer, and what each run of a pool would tell of it.

    rows: the factor of log losses of the pool; answer (1, n_factor): that of the answer; noise: own scatter of a run's
    log loss. value, half: the answer as finished runs give it and the half-width of its interval, inf where they give
    none. normal: standard errors in a half-width.
    """

    rows: Array
    answer: Array
    noise: float
    value: float
    half: float
    normal: float

    def given(self, rows: Iterable[int]) -> "Prospect":
        """Return what is believed once these rows of the pool are known, whatever they say."""
        seen = self.rows[np.array(list(rows), dtype=np.intp)]
        n_seen, n_factor = seen.shape
        if not n_seen:
            return self
        if n_seen < n_factor:  # Woodbury: I - S'(S S' + s2)^-1 S has the root that one eigendecomposition gives
            values, vectors = np.linalg.eigh(seen @ seen.T)
            kept = values > values[-1] * 1e-14
            along = (seen.T @ vectors[:, kept]) / np.sqrt(values[kept])
            shrink = 1 - np.sqrt(self.noise**2 / (values[kept] + self.noise**2))
            root = np.eye(n_factor) - (along * shrink) @ along.T
        else:
            root = np.linalg.inv(np.linalg.cholesky(np.eye(n_factor) + seen.T @ seen / self.noise**2)).T
        return replace(self, rows=self.rows @ root, answer=self.answer @ root)

    def awaiting(self, rows: Iterable[int]) -> "Prospect":
        """Return what will be believed once these rows have ended: the interval of now narrows with its variance."""
        then = self.given(rows)
        return replace(then, half=self.half * math.sqrt(float((then.answer**2).sum() / (self.answer**2).sum())))

    def halves(self, variance: list[float]) -> list[float]:
        """Return the half-widths to expect at these variances of the answer (the first: of now).

        An interval that is there shrinks as its variance does; where there is none, it is a normal one.
        """
        if math.isfinite(self.half):
            return [self.half * math.sqrt(one / variance[0]) for one in variance]
        return [self.normal * math.sqrt(one) for one in variance]


@dataclass(frozen=True)
class Outlook:
    """Rows in the order of choice, and the summed variance of the answers before the first and after each."""

    rows: list[int]
    variance: list[float]


def condition(factor: Array, along: Array, variance: float) -> Array:
    """Return a factor (..., n_factor) after a run with row `along` and noise of this variance has been seen."""
    own = float(along @ along)
    step = (1 - np.sqrt(variance / (own + variance))) / max(own, TINY)
    return np.asarray(factor - step * (factor @ along)[..., None] * along)


def look_ahead(
    pool: Array, answers: Array, noise: float, cost: Array, budget: float, *, power: float = 1.0, n_most: int = 10**9,
    goal: float = 0.0,
) -> Outlook:  # fmt: skip
    """Buy by the fall of the answers' variance over cost^power, until it is at the goal or nothing fits the budget.

    pool (n_moves, n_factor), or (n_moves, k, n_factor) where a move buys up to k runs, absent ones zero;
    cost (n_moves,).
    """
    s2 = noise**2
    moves = pool[:, None] if pool.ndim == 2 else pool
    first = _gains(moves, answers, s2) / cost**power
    likely = np.argsort(np.where(cost <= budget, -first, np.inf), kind="stable")[:SCREEN]
    f, g, cost = moves[likely], answers.copy(), cost[likely]
    open_, out = cost <= budget, Outlook([], [float((g**2).sum())])
    while open_.any() and len(out.rows) < n_most and out.variance[-1] > goal:
        score = np.where(open_, _gains(f, g, s2) / cost**power, -1.0)
        row = int(np.argmax(score))
        for k in range(f.shape[1]):
            along = f[row, k].copy()
            f, g = condition(f, along, s2), condition(g, along, s2)
        budget -= float(cost[row])
        open_[row] = False
        open_ &= cost <= budget
        out.rows.append(int(likely[row]))
        out.variance.append(float((g**2).sum()))
    return out


def _gains(moves: Array, answers: Array, s2: float) -> Array:
    """What each move (n, k, n_factor) takes from the summed variance of the answers: tr C' (F F' + s2)^-1 C."""
    shared = moves @ answers.T  # (n, k, n_answers)
    if moves.shape[1] == 1:
        return np.asarray((shared[:, 0] ** 2).sum(axis=1) / ((moves[:, 0] ** 2).sum(axis=1) + s2))
    own = moves @ np.swapaxes(moves, 1, 2) + s2 * np.eye(moves.shape[1])
    return np.asarray((shared * np.linalg.solve(own, shared)).sum(axis=(1, 2)))


def choose(
    pool: Array, answers: Array, noise: float, cost: Array, budget: float, n_batch: int, goal: float = 0.0
) -> Outlook:
    """Return the next batch: the start of the best of several ways to spend the budget, judged at its end.

    Greedy by gain over cost alone fills a budget with cheap runs and leaves no room for the dear one that tells most;
    so the ways differ in how much the cost of a run counts. With a goal for the summed variance, the best way is the
    cheapest that reaches it, once what it could do without is taken out.
    """
    powers = (*COST_POWERS, 0.0) if goal > 0 else COST_POWERS
    ways = [look_ahead(pool, answers, noise, cost, budget, power=power, goal=goal) for power in powers]
    ways = [_spared(way, pool, answers, noise, cost, goal) for way in ways] if goal > 0 else ways
    best = min(ways, key=lambda way: (max(way.variance[-1], goal), cost[way.rows].sum()))
    return Outlook(best.rows[:n_batch], best.variance[: n_batch + 1])


def _spared(way: Outlook, pool: Array, answers: Array, noise: float, cost: Array, goal: float) -> Outlook:
    """Leave out, dearest first, the moves without which a way reaches the goal too."""
    if way.variance[-1] > goal:
        return way
    kept = list(way.rows)
    for row in sorted(way.rows, key=lambda row: -cost[row]):
        without = [one for one in kept if one != row]
        if without and _variances(without, pool, answers, noise)[-1] <= goal:
            kept = without
    return Outlook(kept, _variances(kept, pool, answers, noise))


def _variances(rows: list[int], pool: Array, answers: Array, noise: float) -> list[float]:
    """Summed variance of the answers before and after each of some moves: one Cholesky root tells all."""
    n_answers, n_factor = answers.shape
    seen = pool[rows].reshape(-1, n_factor)
    root = np.linalg.cholesky(seen @ seen.T + noise**2 * np.eye(len(seen)))
    taken = (np.linalg.solve(root, seen @ answers.T).reshape(len(rows), -1, n_answers) ** 2).sum(axis=(1, 2))
    before = float((answers**2).sum())
    return [before, *(before - np.cumsum(taken)).tolist()]
