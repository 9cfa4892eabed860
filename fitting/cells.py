"""Cells of a sweep: runs of one method, size and budget that differ in the swept setting and in their seed alone."""

import pandas as pd

from scalewright.fitting.curve import budget_keys, size_keys

TRAINED_WITH = ("batch_tokens", "lr_peak", "precision", "unique_tokens")  # columns that say how a run was trained
SETTING = "setting: "  # begins the name of every further column that does
CELL = ["label", "_size", "_budget", "_settings"]


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
