"""What runs not yet finished will give: predicted loss with a new-run interval, and what each would teach."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.averaging import LawAverage, average_laws
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN, PointRules, Points, check_points
from scalewright.fitting.optimum import pareto
from scalewright.fitting.result import FitResult

Array = NDArray[np.float64]

LAWS_IN_ORDER = ("chinchilla", "power", "pure-power")
SKIP_BELOW = 0.05  # nats of information under which a run would hardly sharpen the law
LONGER = 4.0  # how many times the tokens an extended run gets
NAMED_BY = ("label", "size", "budget", "seed")
EXTEND_BEYOND = 1.0  # decades past the dearest finished run


@dataclass(frozen=True)
class Forecast:
    """`rows`: run_id, name, label, law, N, D, predicted, low, high, distance, decades, information, advice, measured.

    `averages` predict, `fits` say what a run would teach. `distance` is in e-folds (`fitting.averaging`).
    `information` is the expected gain about the law, in nats: half the log of 1 + variance of the mean over scatter^2;
    `measured` is NaN where the run is still to come.
    """

    rows: pd.DataFrame
    fits: dict[str, FitResult]
    averages: dict[str, LawAverage]
    warnings: tuple[str, ...]

    @property
    def coverage(self) -> float:
        """Share of measured runs inside their interval (NaN when none is measured)."""
        done = self.rows[self.rows["measured"].notna()]
        inside = (done["measured"] >= done["low"]) & (done["measured"] <= done["high"])
        return float(inside.mean()) if len(done) else math.nan


def forecast(
    finished: Points | pd.DataFrame, pending: pd.DataFrame, *, rules: PointRules | None = None, level: float = 0.95
) -> Forecast:
    """Predict each row of `pending` from the finished runs of its method.

    `pending` has run_id, label, n_params, n_tokens, and flops where known.

    Predictions are those of an average of laws, with model error (`fitting.averaging`); what a run would teach is
    told by the first of LAWS_IN_ORDER that the method's runs can carry. A pending row with a finite `loss_nats` is
    scored: the forecast must have been made without it, so its run must not be among `finished`. Raises FittingError
    when a run is in both, or when no method can be fitted.
    """
    checked = check_points(finished, rules)
    table = pending.assign(label=pending["label"] if "label" in pending else pending.get("method", "all"))
    both = set(table["run_id"].astype(str)) & set(checked.frame["run_id"])
    if both:
        raise FittingError(f"run {sorted(both)[0]} is both finished and to be forecast")
    parts, fits, averages, warnings = [], {}, {}, []
    for label, rows in table.groupby("label", sort=True):
        try:
            own = checked.of(str(label))
            result, average = best_law(own, level), average_laws(own)
        except FittingError as error:
            warnings.append(f"{label}: no forecast ({error})")
            continue
        fits[str(label)], averages[str(label)] = result, average
        parts.append(_rows(result, average, rows, level))
    if not parts:
        raise FittingError("; ".join(warnings) or "nothing to forecast")
    return Forecast(pd.concat(parts, ignore_index=True), fits, averages, tuple(warnings))


def best_law(points: Points, level: float = 0.95) -> FitResult:
    """Fit the richest law that these runs identify: Chinchilla, else E + A C^-alpha, else A C^-alpha on the envelope.

    Raises FittingError, with every reason, when even the last cannot be fitted.
    """
    reasons = []
    for law in LAWS_IN_ORDER:
        try:
            result = fit(pareto(points) if law == LAWS_IN_ORDER[-1] else points, law, level=level)
        except FittingError as error:
            reasons.append(f"{law}: {error}")
            continue
        if result.identified or law == LAWS_IN_ORDER[-1]:  # a straight line is always identified
            return result
        reasons.append(f"{law}: {', '.join(n for n, p in result.params.items() if not p.identified)} not identified")
    raise FittingError("; ".join(reasons))


def _rows(result: FitResult, average: LawAverage, rows: pd.DataFrame, level: float) -> pd.DataFrame:
    has_flops = "flops" in rows and rows["flops"].notna().all()
    compute = rows["flops"] if has_flops else FLOPS_PER_PARAMETER_TOKEN * rows["n_params"] * rows["n_tokens"]
    rows = rows.assign(flops=compute)
    told = average.predict(rows, level)
    information = _information(result, rows)
    decades = np.log10(compute.to_numpy(dtype=np.float64) / average.runs["flops"].max())
    measured = (
        pd.to_numeric(rows["loss_nats"], errors="coerce") if "loss_nats" in rows else pd.Series(np.nan, rows.index)
    )
    return pd.DataFrame(
        {
            "run_id": rows["run_id"].astype(str).to_numpy(),
            "name": _names(rows),
            "label": rows["label"].to_numpy(),
            "law": average.name,
            "n_params": rows["n_params"].to_numpy(),
            "n_tokens": rows["n_tokens"].to_numpy(),
            "predicted": told["predicted"].to_numpy(),
            "low": told["low"].to_numpy(),
            "high": told["high"].to_numpy(),
            "distance": told["distance"].to_numpy(),
            "decades": decades,
            "information": information,
            "advice": [_advice(*x) for x in zip(information, _information(result, rows, LONGER), decades, strict=True)],
            "measured": measured.to_numpy(dtype=np.float64),
        }
    )


def _names(rows: pd.DataFrame) -> list[str]:
    """Label, size, budget and seed of each row; N and D where a size or budget has no name."""
    unnamed = {"size": "n_params", "budget": "n_tokens"}
    names = []
    for row in rows.to_dict("records"):
        words = [str(row[c]) if pd.notna(row.get(c)) else f"{row[unnamed[c]]:.3g}" for c in NAMED_BY[:-1]]
        names.append(" ".join([*words, f"{row['seed']:g}"] if pd.notna(row.get("seed")) else words))
    return names


def _advice(information: float, extended: float, decades: float) -> str:
    """Advice: what a run would teach decides; far extrapolations are worth checking in a step between."""
    if decades > EXTEND_BEYOND:
        return f"far: {decades:.1f} decades past the finished runs, run a size between first"
    if information >= SKIP_BELOW:
        return "run"
    if extended >= 2 * SKIP_BELOW:
        return f"extend: its loss is well known already; with {LONGER:g}x the tokens it would teach {extended:.2g} nats"
    return "skip: its loss is already known well"


def _information(result: FitResult, rows: pd.DataFrame, longer: float = 1.0) -> Array:
    """Expected gain about the law, in nats, of each row's run with `longer` times its tokens."""
    flops = rows["flops"] * longer
    tokens = rows["n_tokens"] * longer
    told = result.predict(rows["n_params"], tokens, flops=flops, new_run=True)
    mean = result.predict(rows["n_params"], tokens, flops=flops)
    if result.estimate.noise.sigma <= 0:
        return np.zeros(len(rows))
    share = np.log(mean.high / mean.value) / np.log(told.high / told.value)  # of the band that is the mean's
    return np.asarray(-0.5 * np.log1p(-np.minimum(share**2, 1 - 1e-12)))
