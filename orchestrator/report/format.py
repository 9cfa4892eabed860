"""Numbers and intervals in the words of tables and sentences. Knows no frame and no file; no heavy import."""

import math
from collections.abc import Sequence

from scalewright.orchestrator.config.values import short_count as short_count

MINUS = "−"


def number(value: float | None, digits: int = 3) -> str:
    """Write a number in so many significant digits, without an exponent where a person would not use one."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unbounded"
    if value and not 1e-4 <= abs(value) < 10 ** max(digits, 6):
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS, int(value < 0))
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0) if value else digits - 1
    return f"{value:,.{places}f}".replace("-", MINUS)


def interval(low: float | None, high: float | None, digits: int = 3, *, unit: str = "") -> str:
    """Write an interval: `[0.04, 0.09]`, `at least 0.04`, `at most 0.09`, or `not identified`."""
    bounded_below = low is not None and math.isfinite(low)
    bounded_above = high is not None and math.isfinite(high)
    if bounded_below and bounded_above:
        return f"[{number(low, digits)}{unit}, {number(high, digits)}{unit}]"
    if bounded_below:
        return f"at least {number(low, digits)}{unit}"
    if bounded_above:
        return f"at most {number(high, digits)}{unit}"
    return "not identified"


def times(ratio: float) -> str:
    """Write a ratio: `1.62×`."""
    return f"{number(ratio)}×"


def signed(value: float, digits: int = 3) -> str:
    """Write a difference with its sign, in so many decimals."""
    return f"{'+' if value > 0 else MINUS if value < 0 else ''}{abs(value):.{digits}f}"


def percent(share: float, digits: int = 1) -> str:
    """Write a share with its sign: 0.021 is `+2.1%`."""
    return f"{signed(100 * share, digits)}%"


def listed(words: Sequence[str], most: int = 6) -> str:
    """Join words with commas and a last `and`; past `most` the rest is counted."""
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))


def size_words(n_bytes: float) -> str:
    """Word a number of bytes in the largest binary unit below it."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(int(math.log2(n_bytes) // 10), len(units) - 1) if n_bytes >= 1 else 0
    return f"{n_bytes / 1024**power:.3g} {units[power]}"


def span(low: str, high: str) -> str:
    """Write a range whose ends are words; one of them where they read alike."""
    return low if low == high else f"{low} to {high}"


def duration(seconds: float | None) -> str:
    """Write a duration with its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
