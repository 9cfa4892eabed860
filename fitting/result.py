"""What a fit returns: named parameters with intervals, predictions with bands, certificate, provenance. Frozen.

Knows numpy and pandas; reads no file and no database.
"""

import html
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN, Exclusion, PointRules, unknown
from scalewright.fitting.laws.interface import Law
from scalewright.fitting.problem import Certificate
from scalewright.fitting.robust import Shared
from scalewright.fitting.settings import FitSettings
from scalewright.fitting.uncertainty import Noise, t_quantile
from scalewright.fitting.words import counted

Array = NDArray[np.float64]
RECORD_FORMAT = 1
WIDEST = 10.0
LARGEST_LOG = 700.0


def is_identified(low: float, high: float) -> bool:
    """Whether an interval excludes 0 and spans less than a factor of ten: then its value is worth printing."""
    least, most = (low, high) if high > 0 else (-high, -low)
    return bool(most <= WIDEST * least)


@dataclass(frozen=True)
class Parameter:
    """One parameter: value, standard error, and an interval at the fit's level.

    `one_sided` is None, "lower" (only `low` is a bound: the data allow any larger value), "upper" (only `high` is), or
    "none" (neither end is bounded). `interval` says where the ends come from: "robust", "profile" or "bootstrap".
    `shift`: it stands in an exponent and may well be 0, so what counts is the width of its interval. `at_limit`: the
    optimum lies at an end of its range, of the law or given, so that end is no result.
    """

    name: str
    value: float
    se: float
    low: float
    high: float
    one_sided: str | None = None
    interval: str = "robust"
    shift: bool = False
    at_limit: bool = False

    @property
    def limit_words(self) -> str:
        """What stands behind its interval where the optimum lies at an end of its range, else nothing."""
        return ", at its limit" if self.at_limit else ""

    @property
    def identified(self) -> bool:
        """Whether the data bound the parameter on both sides, to a factor of ten (a shift: of its exponential)."""
        narrow = self.high - self.low <= math.log(WIDEST) if self.shift else is_identified(self.low, self.high)
        return self.one_sided is None and narrow


def parameter_of(record: Mapping[str, Any]) -> Parameter:
    """Read a parameter back from a fit's record, where a number that is not finite is None."""
    numbers = {name: math.nan for name in ("value", "se", "low", "high") if record[name] is None}
    return Parameter(**{one.name: record[one.name] for one in fields(Parameter)} | numbers)


@dataclass(frozen=True)
class Prediction:
    """Predicted loss in nats with an interval; arrays of one shape."""

    value: Array
    low: Array
    high: Array
    level: float

    def frame(self) -> pd.DataFrame:
        """Return the columns loss_nats, low, high."""
        return pd.DataFrame({"loss_nats": self.value.ravel(), "low": self.low.ravel(), "high": self.high.ravel()})


@dataclass(frozen=True)
class Estimate:
    """The fitted law in its own coordinates: logs of coefficients and plain exponents, with their covariance.

    `alternatives` (n, n_theta) are fits at the ends of profiled intervals: every band must hold them too. `stretch`
    is the variance of each coordinate over what equal scatter would give.
    """

    names: tuple[str, ...]
    is_log: NDArray[np.bool_]
    theta: Array
    covariance: Array
    noise: Noise
    alternatives: Array
    stretch: Array


@dataclass(frozen=True)
class Provenance:
    """What entered: run ids, their data hash, exclusions, rules, and the version of the fitting code."""

    run_ids: tuple[str, ...]
    data_hash: str
    excluded: tuple[Exclusion, ...]
    rules: PointRules
    version: str


@dataclass(frozen=True)
class FitResult:
    """A fitted law. `params["alpha"].value`, `.predict(...)`, `.summary()`, `.to_record()`.

    `warnings` are what must be admitted, `notes` what the intervals allow for; `range` holds the ends of each axis.
    """

    law: Law
    objective: str
    delta: float
    objective_value: float
    n: int
    level: float
    params: Mapping[str, Parameter]
    methods: tuple[str, ...]
    certificate: Certificate
    provenance: Provenance
    estimate: Estimate
    residuals: Array
    settings: FitSettings
    range: Mapping[str, tuple[float, float]]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared: Shared | None = None

    @property
    def excluded(self) -> tuple[Exclusion, ...]:
        """Runs that did not enter, each with its reason."""
        return self.provenance.excluded

    @property
    def identified(self) -> bool:
        """Whether every parameter is bounded on both sides."""
        return all(p.identified for p in self.params.values())

    def value(self, name: str) -> float:
        """Return one parameter's value. Raises FittingError for an unknown name."""
        if name not in self.params:
            raise FittingError(unknown("parameter", name, list(self.params)))
        return self.params[name].value

    def predict(
        self,
        n_params: ArrayLike | None = None,
        n_tokens: ArrayLike | None = None,
        *,
        flops: ArrayLike | None = None,
        method: str | None = None,
        level: float | None = None,
        new_run: bool = False,
        **axes: ArrayLike,
    ) -> Prediction:
        """Predict the loss in nats at N, D (or at C for laws in compute), with a band on the log scale.

        `new_run` widens the band by the scatter of single runs; without it the band is that of the mean. `flops`
        defaults to 6 N D where a law in compute gets N and D. Raises FittingError when an axis or the method is
        missing.
        """
        columns, shape = self._columns({"n_params": n_params, "n_tokens": n_tokens, "flops": flops, **axes})
        size = int(np.prod(shape))
        names = np.full(size, self._method(method))
        log_loss, jacobian = self.law.log_loss_at(self.estimate.names, self.estimate.theta, columns, names)
        variance = np.einsum("ip,pq,iq->i", jacobian, self.estimate.covariance, jacobian).clip(min=0.0)
        noise = self.estimate.noise
        spread = np.sqrt(variance + (noise.sigma**2 if new_run else 0.0))
        half = t_quantile(level or self.level, noise.df) * spread
        others = [self.law.log_loss_at(self.estimate.names, a, columns, names)[0] for a in self.estimate.alternatives]
        margin = half - np.sqrt(variance) * half / np.maximum(spread, 1e-300) if new_run else np.zeros_like(half)
        low, high = widen(log_loss, half, others, margin)
        value, low, high = (open_exp(v).reshape(shape) for v in (log_loss, low, high))
        return Prediction(value, low, high, level or self.level)

    def _method(self, method: str | None) -> str:
        if not self.law.per_method:
            return method or "all"
        if method is None or method not in self.methods:
            raise FittingError(unknown("method", method, self.methods))
        return method

    def _columns(self, given: dict[str, ArrayLike | None]) -> tuple[dict[str, Array], tuple[int, ...]]:
        arrays = {name: np.asarray(v, dtype=np.float64) for name, v in given.items() if v is not None}
        if "flops" not in arrays and {"n_params", "n_tokens"} <= set(arrays):
            arrays["flops"] = FLOPS_PER_PARAMETER_TOKEN * arrays["n_params"] * arrays["n_tokens"]
        missing = [axis for axis in self.law.axes if axis not in arrays]
        if missing:
            needed = ", ".join(self.law.axes)
            raise FittingError(f"the law {self.law.name} predicts from {needed}; missing {missing[0]}")
        used = np.broadcast_arrays(*(arrays[axis] for axis in self.law.axes))
        return {a: np.log(v.ravel()) for a, v in zip(self.law.axes, used, strict=True)}, used[0].shape

    def table(self) -> pd.DataFrame:
        """Return the parameters as a table: value, se, low, high, one_sided, interval."""
        rows = [asdict(p) for p in self.params.values()]
        return pd.DataFrame(rows).set_index("name")

    def summary(self) -> str:
        """Return the fit as text: law, parameters with intervals, certificate, exclusions, warnings."""
        name, value, se, told = self._columns_shown
        lines = [
            *self._heading(),
            f"{name:14}{value:>12}{se:>12}   {told}",
            *(parameter_line(p) for p in self.params.values()),
            *self._remarks(),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...]) -> str:
            first, *others = map(html.escape, cells)
            return f"<tr><th>{first}</th>{''.join(f'<td>{one}</td>' for one in others)}</tr>"

        rows = "".join(map(row, [self._columns_shown, *map(parameter_words, self.params.values())]))
        caption = "<br>".join(map(html.escape, self._heading()))
        remarks = "".join(f"<li>{html.escape(line)}</li>" for line in self._remarks())
        return f"<table><caption>{caption}</caption>{rows}</table><ul>{remarks}</ul>"

    @property
    def _columns_shown(self) -> tuple[str, str, str, str]:
        return "", "value", "se", f"{100 * self.level:g}% interval"

    def _heading(self) -> list[str]:
        return [
            f"{self.law.name}: {self.law.equation}",
            f"{counted(self.n, 'run')}, {self.objective}"
            + (f" delta={self.delta:g}" if math.isfinite(self.delta) else "")
            + f", objective {self.objective_value:.6g}, scatter {100 * self.estimate.noise.sigma:.3g}% of the loss",
        ]

    def _remarks(self) -> list[str]:
        return [
            _certificate_line(self.certificate),
            *(f"excluded {e.run_id}: {e.reason}" for e in self.excluded),
            *(f"intervals: {n}" for n in self.notes),
            *(f"warning: {w}" for w in self.warnings),
        ]

    def to_record(self) -> dict[str, Any]:
        """Return everything a stored fit needs, as JSON-able values (non-finite numbers are None)."""
        record = {
            "format": RECORD_FORMAT,
            "law": self.law.name,
            "equation": self.law.equation,
            "objective": self.objective,
            "delta": self.delta,
            "objective_value": self.objective_value,
            "n": self.n,
            "level": self.level,
            "params": {name: asdict(p) for name, p in self.params.items()},
            "theta": dict(zip(self.estimate.names, self.estimate.theta.tolist(), strict=True)),
            "covariance": self.estimate.covariance.tolist(),
            "alternatives": self.estimate.alternatives.tolist(),
            "stretch": self.estimate.stretch.tolist(),
            "noise": asdict(self.estimate.noise),
            "methods": list(self.methods),
            "certificate": asdict(self.certificate),
            "data_hash": self.provenance.data_hash,
            "run_ids": list(self.provenance.run_ids),
            "excluded": [asdict(e) for e in self.excluded],
            "rules": asdict(self.provenance.rules),
            "version": self.provenance.version,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "fixed": dict(self.settings.fixed),
            "bounds": {name: list(ends) for name, ends in self.settings.bounds.items()},
            "above": self.settings.above,
            "range": {axis: list(ends) for axis, ends in self.range.items()},
        }
        cleaned: dict[str, Any] = jsonable(record)
        return cleaned

    def to_json(self) -> str:
        """Return the record as one line of JSON with sorted keys: identical inputs give identical bytes."""
        return json.dumps(self.to_record(), sort_keys=True, allow_nan=False)


def open_exp(values: ArrayLike) -> Array:
    """Return exp, with inf instead of an overflow: an end that far away is no bound."""
    logs = np.asarray(values, dtype=np.float64)
    return np.where(logs > LARGEST_LOG, np.inf, np.exp(np.minimum(logs, LARGEST_LOG)))


def widen(centre: Array, half: Array, others: list[Array], margin: Array) -> tuple[Array, Array]:
    """Return centre -+ half, stretched to hold `others` with `margin` around them; a NaN there leaves no bound."""
    low, high = centre - half, centre + half
    for other in others:
        low = np.minimum(low, np.where(np.isnan(other), -np.inf, other - margin))
        high = np.maximum(high, np.where(np.isnan(other), np.inf, other + margin))
    return low, high


def jsonable(value: Any) -> Any:
    """Replace non-finite floats by None and numpy scalars by Python's, all the way down."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def interval_text(parameter: Parameter) -> str:
    """Write the interval as a person would: two ends or a one-sided bound, and whether the estimate is at its limit."""
    ends = {
        "upper": f"at most {parameter.high:.4g}",
        "lower": f"at least {parameter.low:.4g}",
        "none": "not identified",
    }
    both = f"{parameter.low:.4g} to {parameter.high:.4g}" + ("" if parameter.identified else ", not identified")
    told = both if parameter.one_sided is None else ends[parameter.one_sided]
    return told + parameter.limit_words


def parameter_words(parameter: Parameter) -> tuple[str, str, str, str]:
    """Name, value, standard error ("-" where it is not identified), and interval with where it is from."""
    se = f"{parameter.se:.3g}" if parameter.identified else "-"
    return parameter.name, f"{parameter.value:.5g}", se, f"{interval_text(parameter)} ({parameter.interval})"


def parameter_line(parameter: Parameter) -> str:
    """Return one line of `summary`."""
    name, value, se, told = parameter_words(parameter)
    return f"{name:14}{value:>12}{se:>12}   {told}"


def _certificate_line(certificate: Certificate) -> str:
    state = "converged" if certificate.converged else "NOT converged"
    return (
        f"{state}: {certificate.share_of_seeds:.0%} of {counted(certificate.n_seeds, 'seed')} at the best optimum;"
        f" predicted decrease {certificate.predicted_decrease:.1e}; condition {certificate.condition:.3g}"
    )
