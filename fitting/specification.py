"""The specification curve: one law under every defensible objective, N convention and exclusion rule, all printed.

Knows fits. Each fit costs milliseconds, so nothing is chosen silently.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import PointRules, check_points
from scalewright.fitting.frontier import exponents
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.fitting.result import FitResult, Parameter

CHOICES = ("objective", "n_convention", "exclusion")
EXCLUSIONS: dict[str, int] = {"by rule": 0, "worst run out": 1}  # how many of the largest losses are dropped
CONVENTION_COLUMNS = {"non-embedding": "n_params", "non-embedding+head": "n_params_head", "total": "n_params_total"}


@dataclass(frozen=True)
class SpecificationCurve:
    """Every specification's parameters: objective, n_convention, exclusion, parameter, value, low, high, identified.

    `rows` holds them; a value that is not identified, or at the edge of its range, is no estimate to read.
    `failed` lists specifications that could not be fitted, with the reason.
    """

    law: str
    rows: pd.DataFrame
    headline: FitResult
    failed: tuple[str, ...]

    def of(self, parameter: str) -> pd.DataFrame:
        """Return one row a specification for a parameter, sorted by its value."""
        some = self.rows[self.rows["parameter"] == parameter]
        return some.sort_values("value", kind="stable").reset_index(drop=True)

    def envelope(self, parameter: str) -> tuple[float, float]:
        """Return the smallest and largest value over the specifications that identify it; NaN where none does."""
        rows = self.of(parameter)
        some = rows.loc[rows["identified"], "value"]
        return float(some.min()), float(some.max())

    def parameter(self, name: str) -> Parameter:
        """Return the headline's parameter, or its exponent of the frontier; unbounded where the headline has none."""
        none = Parameter(name, float("nan"), float("nan"), float("-inf"), float("inf"), "none")
        return _parameters(self.headline).get(name, none)

    def interval(self, parameter: str) -> tuple[float, float]:
        """Return the headline's sampling interval, widened to the envelope where that reaches further."""
        own = self.parameter(parameter)
        low, high = self.envelope(parameter)
        return min(own.low, low), max(own.high, high)  # a NaN envelope widens nothing


def specification_curve(
    frame: pd.DataFrame, law: str = "chinchilla", *, rules: PointRules | None = None
) -> SpecificationCurve:
    """Fit `law` under {objectives} x {N conventions whose columns are present} x {exclusion rules}.

    `frame` is the raw table (the rules are applied here). Raises FittingError when the headline cannot be fitted.
    """
    base = rules or PointRules()
    headline = fit(frame, law, rules=base)
    rows, failed = [], []
    choices = product(_conventions(frame), EXCLUSIONS)
    tables = {
        (n, out): check_points(frame, replace(base, n_convention=n, exclude_worst=base.exclude_worst + EXCLUSIONS[out]))
        for n, out in choices
    }
    for objective, ((convention, exclusion), points) in product(OBJECTIVES, tables.items()):
        chosen = {"objective": objective, "n_convention": convention, "exclusion": exclusion}
        try:
            result = fit(points, law, objective, profile="never")
        except FittingError as error:
            failed.append(f"{objective}, {convention}, {exclusion}: {error}")
            continue
        rows += [
            {
                **chosen,
                "parameter": name,
                "value": p.value,
                "low": p.low,
                "high": p.high,
                "identified": p.identified and name not in result.certificate.at_bound,
            }
            for name, p in _parameters(result).items()
        ]
    return SpecificationCurve(law, pd.DataFrame(rows), headline, tuple(failed))


def _conventions(frame: pd.DataFrame) -> list[str]:
    """N conventions that the table has columns for; without parameters at all, one."""
    found = [n for n, column in CONVENTION_COLUMNS.items() if column in frame and bool(np.any(frame[column].notna()))]
    return found or ["non-embedding"]


def _parameters(result: FitResult) -> dict[str, Parameter]:
    """The law's own parameters and, for a Chinchilla law, the exponents of the frontier."""
    found = dict(result.params)
    if not {"E", "A", "alpha", "B", "beta"} <= set(found) or not min(result.value("alpha"), result.value("beta")) > 0:
        return found
    return found | {name: p for name, p in exponents(result).items() if name in ("a", "b", "gamma")}
