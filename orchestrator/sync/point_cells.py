"""What a cell of a table of points says: a number with or without a unit, a word, yes or no, or nothing.

Every function raises ValueError with the column, what stands there, and what was expected.
"""

import math
import re
from decimal import Decimal
from typing import Any

NOTHING = frozenset({"", "-", "na", "n/a", "#n/a", "nan", "null", "none"})
UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
SUFFIXED = re.compile(r"([-+0-9.eE]+)\s*([kKmMbBgGtT])")
YES, NO = frozenset({"1", "true", "yes", "y"}), frozenset({"0", "false", "no", "n"})


def is_nothing(raw: Any) -> bool:
    """Whether a cell says that the value is not known."""
    return raw is None or str(raw).strip().lower() in NOTHING


def read_number(column: str, raw: Any) -> float:
    """Read a cell; ValueError names the column where it is no finite number."""
    try:
        value = float(raw)
    except (TypeError, ValueError):
        hint = " without separators" if re.fullmatch(r"\s*\d[\d\s]*([,']\d+)+(\.\d+)?\s*", str(raw)) else ""
        raise ValueError(f"{column} is {str(raw)[:40]!r}, expected a number{hint}") from None
    if not math.isfinite(value):
        raise ValueError(f"{column} is {value}, expected a finite number")
    return value


def read_amount(column: str, raw: Any, unit: str | None) -> float:
    """Read parameters, tokens or a batch: `1.3B` brings its unit, other numbers count in `unit`, or one by one."""
    suffixed = SUFFIXED.fullmatch(str(raw).strip())
    if suffixed and unit:
        raise ValueError(f"{column} is {str(raw)[:40]!r}, a unit beside the --units {unit} that was said")
    if suffixed:
        raw, unit = suffixed[1], suffixed[2]
    value = read_number(column, raw)
    return float(Decimal(repr(value)) * UNITS[unit.lower()]) if unit else value  # 2.3B is 2,300,000,000 and not nearly


def read_whole(column: str, raw: Any) -> float:
    """Read a cell that counts something; ValueError where it has a fraction."""
    value = read_number(column, raw)
    if value % 1:
        raise ValueError(f"{column} is {value:g}, expected a whole number")
    return value


def read_truth(column: str, raw: Any) -> bool:
    """Read true or false in the spellings of YES and NO; ValueError otherwise."""
    word = str(raw).strip().lower().removesuffix(".0")
    if word not in YES | NO:
        raise ValueError(f"{column} is {str(raw)[:40]!r}, expected true or false")
    return word in YES
