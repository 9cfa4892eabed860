"""Rows of a query as a frame of typed columns, and a frame as rows of Python values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import Boolean, Integer, Text
from sqlalchemy.engine import Result

from scalewright.db import schema

KINDS = {c.name: c.type for t in schema.METADATA.tables.values() for c in t.columns}
COUNTS = frozenset({"n_attempts", "tokens_lost", "layer", "step", "attempt", "seed", "width", "depth", "heads"})


def to_frame(result: Result[Any]) -> pd.DataFrame:
    """Put rows into typed columns: text, booleans, whole numbers where none is missing, else floats."""
    names = list(result.keys())
    columns = list(zip(*result.all(), strict=True)) or [()] * len(names)
    return pd.DataFrame({name: typed(name, values) for name, values in zip(names, columns, strict=True)})


def typed(name: str, values: Sequence[Any]) -> Any:
    """Return a column's values in the kind that its name has in the schema."""
    kind = KINDS.get(name)
    if isinstance(kind, Boolean):
        return np.array(values, dtype=bool) if None not in values else np.array(values, dtype=object)
    if isinstance(kind, Text):
        return np.array(values, dtype=object)
    counted = name in COUNTS or isinstance(kind, Integer) or name.startswith("n_")
    if counted and None not in values:
        counts = np.array(values)
        if not (counts % 1).any():  # imported points may count in billions
            return counts.astype(np.int64)
    return np.array(values, dtype=np.float64)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as mappings of Python values; missing text is None, a missing number stays NaN."""
    columns = [_without_nan(frame[name]) for name in frame.columns]
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _without_nan(column: "pd.Series[Any]") -> list[Any]:
    values = column.tolist()
    return values if column.dtype.kind in "biuf" else [None if value != value else value for value in values]
