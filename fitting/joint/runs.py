"""The runs of two methods as arrays that one likelihood reads: sizes, budgets and shared seeds as groups."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.curve import budget_keys, level_of, size_keys
from scalewright.fitting.errors import CurveError

Array = NDArray[np.float64]
Groups = NDArray[np.intp]
MOST_RUNS, MOST_CELLS = 200, 600  # the likelihood inverts matrices of this order


@dataclass(frozen=True)
class Runs:
    """Every run of a method (side +1/2) and of its baseline (side -1/2).

    `cell` is a size at a budget, whichever method; `pair` the runs of one cell and seed, which saw the same data in
    the same order; `arm` the runs of one method at one size. `sizes` are in the order of parameters, `budgets` of
    tokens.
    """

    log_loss: Array
    log_tokens: Array
    log_params: Array
    side: Array
    size: Groups
    budget: Groups
    cell: Groups
    pair: Groups
    arm: Groups
    sizes: tuple[str, ...]
    budgets: tuple[str, ...]
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.log_loss)

    @property
    def has_pairs(self) -> bool:
        """Whether seeds are shared by both methods, and tell more than the cells do."""
        both = np.bincount(self.pair, self.side > 0) * np.bincount(self.pair, self.side < 0)
        return bool((both > 0).any()) and int(self.pair.max()) > int(self.cell.max())

    @property
    def shared_cells(self) -> Groups:
        """The cells that have runs of both."""
        both = np.bincount(self.cell, self.side > 0) * np.bincount(self.cell, self.side < 0)
        return np.flatnonzero(both)


def read_runs(frame: pd.DataFrame, method: str, baseline: str) -> Runs:
    """Return the runs of two labels, each size and budget a group.

    Of more than MOST_RUNS the seeds of a cell enter as their mean, which changes no speed-up. Raises CurveError where
    even these are more than MOST_CELLS.
    """
    table = frame[frame["label"].isin([method, baseline])]
    table = table.assign(_size=size_keys(table), _budget=budget_keys(table)).reset_index(drop=True)
    if len(table) > MOST_RUNS:
        table = _seeds_as_one(table)
    if len(table) > MOST_CELLS:
        raise CurveError(f"{len(table)} sizes and budgets are more than one model of all runs takes ({MOST_CELLS})")
    return grouped(table, method)


def grouped(table: pd.DataFrame, method: str) -> Runs:
    """Return the runs of a table of two labels, with names of sizes and budgets in `_size` and `_budget`."""
    table = table.copy()
    sizes = tuple(table.groupby("_size")["n_params"].min().sort_values(kind="stable").index)
    budgets = tuple(table.groupby("_budget")["n_tokens"].min().sort_values(kind="stable").index)
    side = np.where(table["label"] == method, 0.5, -0.5)
    table["_side"] = side
    size, budget = (_places(table[c], names) for c, names in (("_size", sizes), ("_budget", budgets)))
    level = level_of(table["n_tokens"].to_numpy(dtype=np.float64))
    cell = pd.factorize(pd.Series(list(zip(size, level, strict=True))))[0].astype(np.intp)
    return Runs(
        np.log(table["loss_nats"].to_numpy(dtype=np.float64)),
        np.log(table["n_tokens"].to_numpy(dtype=np.float64)),
        np.log(table["n_params"].to_numpy(dtype=np.float64)),
        side, size, budget, cell, _pairs(table, cell), np.asarray(size * 2 + (side > 0), dtype=np.intp),
        sizes, budgets, table,
    )  # fmt: skip


def _seeds_as_one(table: pd.DataFrame) -> pd.DataFrame:
    """Average log loss, and log of what a run cost, over the runs of one method, size and budget."""
    keys, logs = ["label", "_size", "_budget"], ["loss_nats", "n_params", "n_tokens", "flops", "tokens_per_s"]
    known = [name for name in logs if name in table]
    values = np.log(table[known].apply(pd.to_numeric, errors="coerce"))
    means = values.groupby([table[key] for key in keys], sort=False).mean()
    return pd.DataFrame(np.exp(means)).reset_index()


def _places(values: "pd.Series[str]", names: tuple[str, ...]) -> Groups:
    index = {name: place for place, name in enumerate(names)}
    return np.array([index[value] for value in values], dtype=np.intp)


def _pairs(table: pd.DataFrame, cell: Groups) -> Groups:
    """Number the groups of equal cell and seed; a run without a seed is a group of its own."""
    if "seed" not in table:
        return np.arange(len(table), dtype=np.intp)
    seeds = [str(seed) if pd.notna(seed) else f"run {row}" for row, seed in enumerate(table["seed"])]
    return np.asarray(pd.factorize(pd.Series(list(zip(cell, seeds, strict=True))))[0], dtype=np.intp)
