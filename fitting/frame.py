"""Points: the table that every fit reads, checked once where it enters. Knows pandas; knows no law and no solver.

A point is one finished run: n_params N, n_tokens D, flops C and loss_nats L, under a method (column `label`).
Bad rows are decided here and listed with a reason; nothing further in re-checks them.
"""

import difflib
import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.choices import FLOP_CONVENTIONS, N_CONVENTIONS
from scalewright.fitting.errors import FittingError

SETTLED = frozenset({"completed", "diverged"})  # states of runs whose loss is final
LARGEST_LOSS = 20.0  # nats; a uniform guess among 100 million tokens has 18.4
AXES = ("n_params", "n_tokens", "flops")
FLOPS_PER_PARAMETER_TOKEN = 6.0  # Kaplan et al. 2020, arXiv:2001.08361, section 2.1
_SORT = ("label", "flops", "n_params", "n_tokens", "seed", "run_id")


@dataclass(frozen=True)
class Exclusion:
    """A run that did not enter, and why."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class PointRules:
    """Which rows enter, under which conventions, grouped by which column; `exclude_worst` drops largest losses."""

    n_convention: str = "non-embedding"
    flop_convention: str = "stored"
    by: str = "label"
    holdout: bool = False
    unannealed: bool = False
    diverged: bool = False
    exclude_worst: int = 0


@dataclass(frozen=True)
class Points:
    """Checked, sorted points: run_id, label, n_params, n_tokens, flops, loss_nats and whatever came along."""

    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    rules: PointRules

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods present, sorted."""
        return tuple(sorted(set(self.frame["label"].tolist())))

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one numeric column as float64."""
        return np.asarray(self.frame[name].to_numpy(dtype=np.float64))

    def of(self, method: str) -> "Points":
        """Return the points of one method (exclusions of the whole set stay listed)."""
        if method not in self.methods:
            raise FittingError(unknown("method", method, self.methods))
        return self.where(self.frame["label"] == method)

    def where(self, keep: "pd.Series[bool]") -> "Points":
        """Return the points where `keep` is true."""
        return Points(self.frame[keep].reset_index(drop=True), self.excluded, self.rules)

    def data_hash(self) -> str:
        """Return the first 16 hex digits of the sha256 of the numbers and ids that a fit reads."""
        digest = hashlib.sha256()
        for name in (*AXES, "loss_nats"):
            digest.update(self.column(name).tobytes())
        for name in ("run_id", "label"):
            digest.update("\n".join(self.frame[name]).encode())
        return digest.hexdigest()[:16]


def unknown(kind: str, name: object, valid: "tuple[str, ...] | list[str]") -> str:
    """Word the one-line message for a name that is not in a table."""
    close = difflib.get_close_matches(str(name), list(valid), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown {kind} {name!r}{hint}; valid: {', '.join(valid)}"


def check_points(frame: pd.DataFrame | Points, rules: PointRules | None = None) -> Points:
    """Check a table of runs and return the points that enter a fit, with every exclusion and its reason.

    Needs `loss_nats` and one or more of n_params, n_tokens, flops; a missing `flops` is 6 N D. Optional columns
    that matter: run_id, label (or method), seed, state, diverged, annealed, holdout, n_params_total, n_params_head.
    Raises FittingError for a missing column, an unknown convention, or when no row is left.
    """
    if isinstance(frame, Points):
        return frame
    rules = rules or PointRules()
    table = _with_names(frame, rules)
    table = _with_axes(table, rules)
    reasons = _reasons(table, rules)
    excluded = tuple(Exclusion(str(i), r) for i, r in zip(table["run_id"], reasons, strict=True) if r)
    kept = table[[not reason for reason in reasons]]
    if not len(kept):
        raise FittingError(f"no point is left of {len(table)}: {_count_reasons(excluded) or 'the table is empty'}")
    kept = kept.sort_values([c for c in _SORT if c in kept], kind="stable").reset_index(drop=True)
    return Points(kept, excluded, rules)


def _count_reasons(excluded: tuple[Exclusion, ...]) -> str:
    counts = pd.Series([e.reason for e in excluded], dtype=object).value_counts()
    return ", ".join(f"{number} {reason}" for reason, number in counts.items())


def _with_names(frame: pd.DataFrame, rules: PointRules) -> pd.DataFrame:
    table = frame.reset_index(drop=True).copy()
    if "loss_nats" not in table:
        raise FittingError(f"points have no column loss_nats; columns are: {', '.join(map(str, table.columns))}")
    if rules.by in table:
        table["label"] = table[rules.by].astype(object).where(table[rules.by].notna(), "all").astype(str)
    elif rules.by != "label":
        raise FittingError(unknown("column to group by", rules.by, [str(c) for c in table.columns]))
    else:
        table["label"] = table["method"].astype(str) if "method" in table else "all"
    named = table["run_id"].astype(str) if "run_id" in table else pd.Series([f"row-{i}" for i in range(len(table))])
    table["run_id"] = named.astype(object)
    table["loss_nats"] = _numeric(table, "loss_nats")
    return table


def _numeric(table: pd.DataFrame, name: str) -> "pd.Series[float]":
    return pd.to_numeric(table[name], errors="coerce").astype(np.float64)


def _with_axes(table: pd.DataFrame, rules: PointRules) -> pd.DataFrame:
    """Fill n_params, n_tokens and flops under the conventions asked for."""
    if rules.n_convention not in N_CONVENTIONS:
        raise FittingError(unknown("N convention", rules.n_convention, list(N_CONVENTIONS)))
    if rules.flop_convention not in FLOP_CONVENTIONS:
        raise FittingError(unknown("FLOP convention", rules.flop_convention, list(FLOP_CONVENTIONS)))
    if not set(AXES) & set(table):
        raise FittingError(f"points need an axis to be fitted along: {', '.join(AXES)}")
    for name in AXES:
        table[name] = _numeric(table, name) if name in table else np.nan
    for column in {"non-embedding": [], "non-embedding+head": ["n_params_head"], "total": ["n_params_total"]}[
        rules.n_convention
    ]:
        if column not in table:
            raise FittingError(f"the N convention {rules.n_convention} needs the column {column}")
        extra = _numeric(table, column)
        table["n_params"] = extra if rules.n_convention == "total" else table["n_params"] + extra
    product = FLOPS_PER_PARAMETER_TOKEN * table["n_params"] * table["n_tokens"]
    table["flops"] = product if rules.flop_convention == "6nd" else table["flops"].fillna(product)
    return table


def _reasons(table: pd.DataFrame, rules: PointRules) -> list[str]:
    """Give each row its first reason to stay out, or the empty string."""
    reason = pd.Series([""] * len(table), dtype=object)

    def mark(where: "pd.Series[bool]", text: str) -> None:
        reason[where.to_numpy() & (reason == "").to_numpy()] = text

    if not rules.diverged:
        mark(_flag(table, "diverged"), "diverged")
    if "state" in table:
        settled = table["state"].isna() | table["state"].isin(SETTLED)
        mark(~settled, "not finished")
    mark(~np.isfinite(table["loss_nats"]), "loss is not finite")
    mark(table["loss_nats"] <= 0, "loss is not positive")
    mark(table["loss_nats"] > LARGEST_LOSS, f"loss is above {LARGEST_LOSS:g} nats, worse than guessing")
    for axis in AXES:
        if table[axis].notna().any():
            mark(~(table[axis] > 0) | ~np.isfinite(table[axis]), f"{axis} is missing or not positive")
    if not rules.holdout:
        mark(_flag(table, "holdout"), "holdout")
    if not rules.unannealed and "annealed" in table:
        mark(table["annealed"].notna() & ~table["annealed"].fillna(True).astype(bool), "not annealed")
    mark(table["run_id"].duplicated(), "same run twice")
    if rules.exclude_worst:
        worst = table["loss_nats"].where(reason == "").nlargest(rules.exclude_worst).index
        mark(pd.Series(table.index.isin(worst)), f"among the {rules.exclude_worst} largest losses")
    return [str(text) for text in reason]


def _flag(table: pd.DataFrame, name: str) -> "pd.Series[bool]":
    if name not in table:
        return pd.Series(False, index=table.index)
    return table[name].astype(object).where(table[name].notna(), False).astype(bool)


def log_axes(points: Points, axes: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Return the natural log of each axis. Raises FittingError when an axis was not measured."""
    absent = [axis for axis in axes if axis not in points.frame]
    if absent:
        raise FittingError(f"this law needs the column {absent[0]}, which these points do not have")
    logs = {axis: np.log(points.column(axis)) for axis in axes}
    for axis, values in logs.items():
        if not np.isfinite(values).all():
            raise FittingError(f"this law needs {axis}, which these points do not have")
    return logs
