"""Approaches 1, 2 and 3 side by side: the exponent of N* in compute, and whether the three agree. Knows fits."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import PointRules, Points, check_points
from scalewright.fitting.frontier import exponents
from scalewright.fitting.optimum import fit_optimum
from scalewright.fitting.result import Parameter

APPROACH_NAMES = {"envelope": "approach 1", "isoflop": "approach 2", "chinchilla": "approach 3"}


@dataclass(frozen=True)
class Agreement:
    """The exponent a of each approach that could be made, why others could not (`refused`), and a chi-square test.

    The test takes the approaches as independent, which they are not (the runs are the same): it errs towards
    agreement.
    """

    a: dict[str, Parameter]
    refused: dict[str, str]
    p_value: float

    @property
    def agree(self) -> bool | None:
        """Whether the approaches agree at the 5% level; None with fewer than two."""
        return None if len(self.a) < 2 else bool(self.p_value >= 0.05)

    def frame(self) -> pd.DataFrame:
        """Return one row an approach: a with its interval."""
        rows = [(APPROACH_NAMES[n], n, p.value, p.se, p.low, p.high) for n, p in self.a.items()]
        return pd.DataFrame(rows, columns=["approach", "law", "a", "se", "low", "high"])


def approaches(points: Points | pd.DataFrame, *, rules: PointRules | None = None, level: float = 0.95) -> Agreement:
    """Estimate a by the envelope, by isoFLOP parabolas and by the fitted law (one method's runs).

    Raises FittingError when none of the three can be made.
    """
    checked = check_points(points, rules)
    found: dict[str, Parameter] = {}
    refused: dict[str, str] = {}
    for name in APPROACH_NAMES:
        try:
            if name == "chinchilla":
                result = fit(checked, name, level=level)
                if not result.identified:
                    raise FittingError(result.warnings[0])
                found[name] = exponents(result)["a"]
            else:
                found[name] = fit_optimum(checked, name, level=level).params["a"]
        except FittingError as error:
            refused[name] = str(error)
    if not found:
        raise FittingError("; ".join(f"{n}: {why}" for n, why in refused.items()))
    return Agreement(found, refused, _homogeneity(list(found.values())))


def _homogeneity(values: list[Parameter]) -> float:
    """Return the p value of Cochran's Q over the estimates."""
    a, se = np.array([p.value for p in values]), np.array([max(p.se, 1e-12) for p in values])
    weight = se**-2
    q = float((weight * (a - np.average(a, weights=weight)) ** 2).sum())
    return float(stats.chi2.sf(q, len(a) - 1)) if len(a) > 1 else 1.0
