"""Reads values as people write them: `1e-3`, `0.5M`, `20x`, `1e15 FLOPs`, `90min`, `10%`. No heavy import.

Every reader takes the text of a YAML scalar (or a Python value) and raises ValueError with what was expected.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

MULTIPLIERS = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30,
}  # fmt: skip
SECONDS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)", re.ASCII)
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(sec|min|hour|day|s|m|h|d)(?:s(?![a-z]))?\s*", re.ASCII)
CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?", re.ASCII)
TRUTHS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
COUNT_UNITS = ("", "k", "M", "B", "T")
MAX_COUNT = 10**18
MAX_NAMES_SHOWN = 40


def read_decimal(value: Any) -> Decimal:
    """Read a finite number with an optional multiplier (k, M, B, T, Ki, Mi, Gi), exactly."""
    match = None if isinstance(value, bool) else NUMBER.fullmatch(str(value).strip())
    if match is None or match[2] not in MULTIPLIERS:
        raise ValueError(f"{show(value)} is not a number; write for example 131072, 1e-3 or 0.5M")
    try:
        number = Decimal(match[1].replace("_", "")) * MULTIPLIERS[match[2]]
    except InvalidOperation:
        raise ValueError(f"{show(value)} is too long for a number") from None
    if not math.isfinite(float(number)):
        raise ValueError(f"{show(value)} is too large for a number")
    return number


def _is_number(text: str) -> bool:
    match = NUMBER.fullmatch(text)
    return match is not None and match[2] in MULTIPLIERS


def read_number(value: Any) -> float:
    """Read a number as `read_decimal` does, rounded to a double."""
    return float(read_decimal(value))


def read_positive(value: Any) -> float:
    """Read a number above 0; ValueError otherwise."""
    number = read_number(value)
    if number <= 0:
        raise ValueError(f"{show(value)} must be greater than 0")
    return number


def read_not_negative(value: Any) -> float:
    """Read a number of 0 or more; ValueError otherwise."""
    number = read_number(value)
    if number < 0:
        raise ValueError(f"{show(value)} must be 0 or more")
    return number


def read_count(value: Any) -> int:
    """Read a whole number >= 0."""
    number = read_decimal(value)
    if number < 0 or number > MAX_COUNT or number != number.to_integral_value():
        raise ValueError(f"{show(value)} is not a whole number of 0 or more")
    return int(number)


def read_positive_count(value: Any) -> int:
    """Read a whole number of 1 or more; ValueError otherwise."""
    count = read_count(value)
    if count == 0:
        raise ValueError("must be at least 1, not 0")
    return count


def short_count(n: float) -> str:
    """Write a count in three digits as a person says it: 950, 812k, 3.2M, 1.5B; 999,600 is 1M, not 1,000k."""
    if not math.isfinite(n):
        return "?"
    digits, exponent = f"{n:.2e}".split("e")
    thousands = min(int(exponent) // 3, len(COUNT_UNITS) - 1)
    if thousands <= 0:
        return f"{n:.0f}"
    return f"{float(digits) * 10.0 ** (int(exponent) - 3 * thousands):.10g}{COUNT_UNITS[thousands]}"


def read_fraction(value: Any) -> float:
    """Read a share of a whole, `10%` or `0.1`, between 0 and 1."""
    text = str(value).strip()
    share = float(read_decimal(text[:-1]) / 100) if text.endswith("%") else read_number(text)
    if not 0 <= share <= 1:
        raise ValueError(f"{show(value)} is not between 0 and 100%")
    return share


def read_below_one(value: Any) -> float:
    """Read a number of at least 0 and below 1: what an average may forget a step."""
    number = read_number(value)
    if not 0 <= number < 1:
        raise ValueError(f"{show(value)} must be at least 0 and below 1")
    return number


def read_truth(value: Any) -> bool:
    """Read true, false, yes, no, on or off, in any case; ValueError otherwise."""
    truth = value if isinstance(value, bool) else TRUTHS.get(str(value).lower())
    if truth is None:
        raise ValueError(f"{show(value)} is not true or false")
    return truth


def read_duration_s(value: Any) -> float:
    """Read a length of time in seconds: `90min`, `1h30m`, `2 days`, `12:30:00`, `1-12:00:00`."""
    text = str(value).strip()
    clock = CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    parts = DURATION_PART.findall(text)
    if not parts or DURATION_PART.sub("", text):
        raise ValueError(f"{show(value)} is not a length of time; write for example 90min, 1h30m or 12:30:00")
    return sum(float(amount) * SECONDS[unit] for amount, unit in parts)


@dataclass(frozen=True)
class Budget:
    """Training tokens as written: a number of tokens, tokens per non-embedding parameter, or training FLOPs."""

    amount: float
    unit: Literal["tokens", "tokens per parameter", "FLOPs"]
    text: str


BUDGET_UNITS: list[tuple[str, Literal["tokens", "tokens per parameter", "FLOPs"]]] = [
    (r"\s*(?:x|tokens? per parameter)", "tokens per parameter"),
    (r"\s*(?:flops?|FLOPs?|FLOPS)", "FLOPs"),
    (r"\s*(?:tokens?)?", "tokens"),
]


def read_budget(value: Any) -> Budget:
    """Read `0.5M`, `0.5M tokens`, `20x` (tokens per non-embedding parameter) or `1e15 FLOPs`."""
    text = str(value).strip()
    for ending, unit in BUDGET_UNITS:
        match = re.fullmatch(rf"(.*?){ending}", text)
        if match and _is_number(match[1]):
            return Budget(read_positive(match[1]), unit, text)
    raise ValueError(f"{show(value)} is not a budget; write tokens (0.5M), tokens per parameter (20x) or 1e15 FLOPs")


@dataclass(frozen=True)
class Extent:
    """A part of a run: a share of its tokens, a number of steps, or a number of tokens."""

    amount: float
    unit: Literal["share", "steps", "tokens"]

    def to_tokens(self, n_tokens: int, batch_tokens: int) -> int:
        """Return the extent in tokens of a run, rounded to whole steps (a positive one to at least one step)."""
        exact = {"share": self.amount * n_tokens, "steps": self.amount * batch_tokens, "tokens": self.amount}[self.unit]
        return batch_tokens * max(round(exact / batch_tokens), 1 if exact > 0 else 0)


EXTENT_UNITS: list[tuple[str, Literal["share", "steps", "tokens"]]] = [
    (r"\s*steps?", "steps"),
    (r"\s*tokens?", "tokens"),
]


def read_extent(value: Any) -> Extent:
    """Read `10%`, `100 steps` or `20k tokens`; a bare number is refused unless it is 0, for it could mean any."""
    text = str(value).strip()
    if text.endswith("%"):
        return Extent(read_fraction(text), "share")
    for ending, unit in EXTENT_UNITS:
        match = re.fullmatch(rf"(.*?){ending}", text)
        if match and _is_number(match[1]):
            return Extent(float(read_count(match[1])), unit)
    if _is_number(text) and read_number(text) == 0:
        return Extent(0.0, "tokens")
    raise ValueError(f"{show(value)} is ambiguous here; write 10%, 100 steps or 20k tokens")


def guess(value: Any) -> Any:
    """Read a scalar whose type is not declared (a method's option): true, null, whole number, number, else text."""
    if isinstance(value, list):
        return [guess(item) for item in value]
    if isinstance(value, dict):
        return {key: guess(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if not _is_number(value):
        return value
    number = read_decimal(value)
    is_whole = number == number.to_integral_value() and not re.search(r"[.eE]", value)
    return int(number) if is_whole else float(number)


def show(value: Any) -> str:
    """Quote a value for an error, on one line of at most 60 characters."""
    if value is None:
        return "an empty value"
    text = " ".join(str(value).split()) or str(value)
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'


def choose(value: Any, valid: Sequence[str], what: str) -> str:
    """Return `value` if it is one of `valid`, else raise with the nearest name and all valid ones."""
    if isinstance(value, str) and value in valid:
        return value
    raise ValueError(f"unknown {what} {show(value)}{suggest(value, valid)}")


def suggest(value: Any, valid: Sequence[str]) -> str:
    """Write `; did you mean "b"? (valid: a, b)`, as much of it as applies."""
    near = difflib.get_close_matches(str(value), valid, n=1, cutoff=0.6)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    shown = ", ".join(valid[:MAX_NAMES_SHOWN]) + (", ..." if len(valid) > MAX_NAMES_SHOWN else "")
    return f"{hint} (valid: {shown})" if valid else f"{hint} (there are none)"
