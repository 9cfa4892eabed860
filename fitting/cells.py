"""Cells of a sweep: runs of one method, size and budget that differ in the swept setting and in their seed alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from scalewright.fitting.curve import budget_keys, size_keys

TRAINED_WITH = ("batch_tokens", "lr_peak", "precision", "unique_tokens")  # columns that say how a run was trained
SETTING = "setting: "  # begins the name of every further column that does
CELL = ["label", "_size", "_budget", "_settings"]
TUNED = "lr_peak"  # each method has its own: not a difference between methods
MOST_NAMED = 4  # values of a setting that are told one by one


@dataclass(frozen=True)
class DifferingSetting:
    """A setting in which runs of one size and budget differ: between two labels, or `within` one of them.

    values: by label, in words, over the sizes and budgets where it differs.
    """

    setting: str
    within: str | None
    values: Mapping[str, tuple[str, ...]]

    @property
    def words(self) -> str:
        """The setting with its values."""
        told = (", ".join(v[:MOST_NAMED]) + ", ..." * (len(v) > MOST_NAMED) for v in self.values.values())
        return f"{self.setting} ({' against '.join(told)})"


def differing_settings(frame: pd.DataFrame, method: str, baseline: str) -> tuple[DifferingSetting, ...]:
    """Return the settings in which runs of two labels differ at one size and budget, beyond the labels themselves."""
    known = [str(c) for c in frame if c in TRAINED_WITH or str(c).startswith(SETTING)]
    cells = [cell for _, cell in frame.groupby([size_keys(frame), budget_keys(frame)], sort=False)]
    found = []
    for column in (c for c in known if frame[c].nunique(dropna=False) > 1):
        name = column.removeprefix(SETTING)
        seen = [{one: _values(cell, column, one) for one in (method, baseline)} for cell in cells]
        apart = [s for s in seen if s[method] and s[baseline] and s[method] != s[baseline]]
        if apart and column != TUNED:
            found.append(DifferingSetting(name, None, _union(apart, (method, baseline))))
        for label in (method, baseline):
            mixed = [s for s in seen if len(s[label]) > 1]
            found += [DifferingSetting(name, label, _union(mixed, (label,)))] if mixed else []
    return tuple(found)


def _values(cell: pd.DataFrame, column: str, label: str) -> tuple[str, ...]:
    """The values of one label in words, each once, in order."""
    return tuple(dict.fromkeys(_word(value) for value in cell.loc[cell["label"] == label, column].sort_values()))


def _union(seen: list[dict[str, tuple[str, ...]]], labels: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {one: tuple(dict.fromkeys(v for s in seen for v in s[one])) for one in labels}


def with_cells(frame: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return the runs with the columns of CELL. `_settings` names what else differs within a method, size and budget.

    A setting that moves with the swept one (one value of it for each) is part of the sweep and parts nothing.
    """
    table = frame.assign(_size=size_keys(frame), _budget=budget_keys(frame))
    words = pd.Series("", index=table.index, dtype=object)
    known = [str(c) for c in table if (c in TRAINED_WITH or str(c).startswith(SETTING)) and c != setting]
    for _, cell in table.groupby(CELL[:-1], sort=False):
        parting = [c for c in known if cell[c].nunique(dropna=False) > 1 and not _moves_with(cell, c, setting)]
        if parting:
            words.loc[cell.index] = _named(cell, parting)
    return table.assign(_settings=words)


def _moves_with(cell: pd.DataFrame, column: str, setting: str) -> bool:
    """Whether each value of the setting has one of its own in `column`."""
    values = cell[setting].nunique(dropna=False)
    pairs = len(cell[[setting, column]].drop_duplicates())
    return bool(pairs == values == cell[column].nunique(dropna=False))


def _named(cell: pd.DataFrame, columns: list[str]) -> "pd.Series[str]":
    """Name the settings of each run in words: `batch_tokens 8192, warmup 0.1`."""
    parts = [[f"{c.removeprefix(SETTING)} {_word(value)}" for value in cell[c]] for c in columns]
    return pd.Series([", ".join(words) for words in zip(*parts, strict=True)], index=cell.index)


def _word(value: object) -> str:
    if value is None or value != value:
        return "not known"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
