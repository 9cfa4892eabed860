"""The `tune:` section: which peak learning rates are tried for each method before the grid, and where."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from scalewright.orchestrator.config.section import Section, Text, Texts, Whole, describe_kind, read_many
from scalewright.orchestrator.config.values import read_positive, read_positive_count

LEAST_RATES = 3  # a parabola
MOST_RATES = 100
LOG_RANGE = re.compile(r"log\(([^,]+),([^,]+),([^,]+)\)")


def read_sweep(value: Any) -> tuple[float, ...]:
    """Read the rates to try: a list, or `log(LOWEST, HIGHEST, HOW MANY)` with equal ratios, to three digits."""
    spread = LOG_RANGE.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if spread:
        low, high, n = read_positive(spread[1]), read_positive(spread[2]), read_positive_count(spread[3])
        if not (low < high and LEAST_RATES <= n <= MOST_RATES):
            raise ValueError(f"log(LOWEST, HIGHEST, HOW MANY) with {LEAST_RATES} to {MOST_RATES} rates, got {value}")
        rates = tuple(float(f"{low * (high / low) ** (step / (n - 1)):.3g}") for step in range(n))
    elif isinstance(value, list | tuple):
        rates = tuple(map(read_positive, value))
    else:
        raise ValueError(f"expected a list of rates or log(3e-4, 3e-2, 6), got {describe_kind(value)}")
    if len(set(rates)) < LEAST_RATES:
        raise ValueError(f"a sweep needs {LEAST_RATES} different rates or more")
    return rates


class Tune(Section):
    """A sweep of `lr` for each method before the grid; `at` names sizes, by default all; seeds that the grid has not.

    A method with an `lr` of its own is not swept.
    """

    lr: Annotated[tuple[float, ...], BeforeValidator(read_sweep)]
    at: Texts = ()
    budget: Text | None = None
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(read_many)] | None = None
