"""Tables and sentences of an analysis, in the words of a careful reader. Knows analyses; draws nothing."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import COMPUTE_LAW, FLOOR_LAW, FULL_LAW, Analysis, LawFit, seeds_in_words
from scalewright.orchestrator.report.format import interval, listed, number
from scalewright.orchestrator.report.html import Table

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.result import FitResult, Parameter

SHOWN = ("E", "alpha", "beta")  # of the full law; its coefficients are losses at N = 1 and D = 1, far from any run
METHODS_IN_REASON = re.compile(r" \(methods: .*\)$")  # a refusal's list of the methods that it was asked for
WEAK_RATIO = 10.0  # an interval whose ends differ by more than this factor is given without a value in its middle


def laws_table(analysis: Analysis) -> Table:
    """One row a label: the power law in compute first, then what the full law does and does not identify."""
    from scalewright.fitting.figures.style import name_of

    rows = []
    for label in fitted_labels(analysis):
        power, floor, full = (analysis.fit(law, label) for law in (COMPUTE_LAW, FLOOR_LAW, FULL_LAW))
        rows.append(
            {
                "method": name_of(label),
                "runs": _runs_of(analysis, label),
                "γ in L = K·C^−γ": parameter_words(power, "alpha"),
                "loss falls per doubling of compute": doubling_words(power),
                "floor E of L(C)": parameter_words(floor, "E"),
                "E of L(N, D)": parameter_words(full, "E"),
                "α (parameters)": parameter_words(full, "alpha"),
                "β (tokens)": parameter_words(full, "beta"),
            }
        )
    return Table("Laws", tuple(rows), tuple(_law_notes(analysis)))


def fitted_labels(analysis: Analysis) -> list[str]:
    """Return the methods that any law could be fitted to, in the order of the page."""
    fitted = {fit.label for fit in analysis.fits if fit.result is not None}
    return [label for label in analysis.labels if label in fitted]


def _runs_of(analysis: Analysis, label: str) -> str:
    own = analysis.points.frame[analysis.points.frame["label"] == label]
    n_all = int((analysis.runs["label"] == label).sum())
    seeds = seeds_in_words(own)
    n_minima = 0 if analysis.minima is None else int((analysis.minima["label"] == label).sum())
    lowest = f"{n_minima} isoFLOP minima" if n_minima else f"{int(own['on_frontier'].sum())} on frontier"
    return f"{len(own)} of {n_all}, {seeds}, {lowest}"


def parameter_words(fit: LawFit, name: str) -> str:
    """Write `value [low, high]`; a bound alone where only one end is known; why not where the fit was refused."""
    if fit.result is None:
        return "not fitted"
    return estimate_words(fit.result.params[name])


def estimate_words(parameter: "Parameter") -> str:
    """Write a parameter with its interval; only the interval where it is one-sided or very wide."""
    ends = {"lower": (parameter.low, None), "upper": (None, parameter.high), "none": (None, None)}
    low, high = ends.get(parameter.one_sided or "", (parameter.low, parameter.high))
    words = interval(low, high) + parameter.limit_words
    if parameter.one_sided:
        return words
    weak = parameter.low > 0 and parameter.high > WEAK_RATIO * parameter.low
    return f"weak: within {words}" if weak else f"{number(parameter.value)} {words}"


def limits_in_words(result: "FitResult") -> str:
    """Name the parameters whose optimum lies at an end of their range: `, E at its limit`; nothing where none does."""
    return "".join(f", {name} at its limit" for name, one in result.params.items() if one.at_limit)


def doubling_words(fit: LawFit) -> str:
    """Say by how many percent the loss falls when compute doubles: 1 - 2^-gamma."""
    if fit.result is None:
        return "not fitted"
    gamma = fit.result.params["alpha"]
    value, low, high = (100 * (1 - 2.0**-end) for end in (gamma.value, gamma.low, gamma.high))
    return f"{number(value)}% {interval(low, high, unit='%')}"


def _law_notes(analysis: Analysis) -> list[str]:
    return ([_law_words(), *_identified_words(analysis)] if fitted_labels(analysis) else []) + refusal_words(analysis)


def _law_words() -> str:
    from scalewright.fitting.optimum import FLOP_LEVEL

    return (
        "Brackets: 95% intervals. L: final validation loss, nats per token; C: training FLOP; N: non-embedding "
        "parameters; D: training tokens. L = K·C^−γ and L(C) = E + K·C^−γ are fitted by least squares to each method's "
        f"frontier: at each compute (runs within {100 * FLOP_LEVEL:.0f}% of one another) the lowest run, where no "
        "cheaper run is lower; of isoFLOP curves the minimum of each parabola. L(N, D) = E + A·N^−α + B·D^−β is fitted "
        "to all runs of a method."
    )


def _identified_words(analysis: Analysis) -> list[str]:
    open_ended = open_parameters(analysis)
    if not open_ended:
        return []
    return [
        f"This grid does not identify the full law ({listed(open_ended)}): read the power law in compute and the "
        "speed-ups; a one-sided or missing value is what these runs can say, not a failure of the fit."
    ]


def refusal_words(analysis: Analysis) -> list[str]:
    """Say each reason for which laws were not fitted once, with the laws and methods that it holds for."""
    from scalewright.fitting.figures.style import name_of

    cases: dict[str, dict[str, list[str]]] = {}
    for fit in analysis.fits:
        if fit.refused:
            reason = METHODS_IN_REASON.sub("", fit.refused).removeprefix(f"law {fit.law} ")
            cases.setdefault(reason, {}).setdefault(fit.law, []).append(fit.label)
    n_labels = len(analysis.labels)
    found = []
    for reason, laws in cases.items():
        for law, labels in laws.items():
            whose = "" if len(labels) == n_labels else f" for {listed([name_of(one) for one in labels])}"
            found.append(f"{law} was not fitted{whose}: {'it ' * reason.startswith('has ')}{reason}.")
    return found


def open_parameters(analysis: Analysis) -> list[str]:
    """Name the parameters of the full law that are open-ended, with the labels for which they are."""
    from scalewright.fitting.figures.style import name_of

    fits = [fit for fit in analysis.fits if fit.law == FULL_LAW and fit.result is not None]
    found: dict[str, list[str]] = {}
    for fit in fits:
        assert fit.result is not None
        for parameter in fit.result.params.values():
            if parameter.name in SHOWN and not parameter.identified:
                found.setdefault(parameter.name, []).append(name_of(fit.label))
    whose = {name: "any method" if len(labels) == len(fits) else listed(labels) for name, labels in found.items()}
    return [f"{listed([n for n in whose if whose[n] == who])} for {who}" for who in dict.fromkeys(whose.values())]


def fits_table(analysis: Analysis) -> Table:
    """Every stored fit with its certificate: what was minimised, whether the optimum is one, what scatter is left."""
    rows = [_fit_row(fit, fit.result) for fit in analysis.fits if fit.result is not None]
    note = (
        "Starts: how many seeds of the search found the best optimum. Scatter: of a run's log loss about its law. "
        "N: parameters without embedding and head; C: the FLOP count stored with each run. Each fit is in the database "
        "with the runs that entered and why others did not."
    )
    return Table("", tuple(rows), (note,) if rows else ())


def _fit_row(fit: LawFit, result: "FitResult") -> dict[str, Any]:
    from scalewright.fitting.figures.style import name_of

    certificate = result.certificate
    width = f", δ = {result.delta:g}" if result.objective == "huber" else ""
    return {
        "method": name_of(fit.label),
        "law": fit.law,
        "equation": result.law.equation,
        "runs": result.n,
        "objective": f"{result.objective}{width}: {number(result.objective_value)}",
        "converged": certificate.converged,
        "starts": f"{certificate.share_of_seeds:.0%} of {certificate.n_seeds}",
        "scatter": f"{number(100 * result.estimate.noise.sigma, 2)}%",
        "fit": fit.fit_id or "-",
    }


def exclusions_table(analysis: Analysis) -> Table:
    """Every run that did not enter, with its reason and what is known of it."""
    runs = analysis.runs.set_index("run_id")
    rows: list[dict[str, Any]] = []
    for exclusion in analysis.points.excluded:
        run = runs.loc[exclusion.run_id]
        named = {"run": exclusion.run_id[:8], "method": run["label"], "size": run["size"], "budget": run["budget"]}
        rows.append({**named, "seed": run["seed"], "reason": exclusion.reason, "state": run["state"]})
    return Table("Runs that did not enter", tuple(rows))


def runs_table(analysis: Analysis) -> Table:
    """Every run with what was planned and what was measured."""
    rows = [_run_row(run) for _, run in analysis.runs.iterrows()]
    return Table("Runs", tuple(rows))


def _run_row(run: "pd.Series[Any]") -> dict[str, Any]:
    return {
        "run": str(run["run_id"])[:8],
        "method": run["label"],
        "size": run["size"],
        "N": _whole(run["n_params"]),
        "budget": run["budget"],
        "tokens": _whole(run["n_tokens"]),
        "seed": _whole(run["seed"]),
        "peak lr": number(float(run["lr_peak"])),
        "loss (nats/token)": number(float(run["loss_nats"]), 4),
        "bits/byte": number(float(run["bits_per_byte"]), 4),
        "tokens/s": _whole(run["tokens_per_s"]),
        "state": run["state"],
    }


def _whole(value: Any) -> str:
    return "-" if value is None or value != value else f"{round(float(value)):,}"


def excluded_words(analysis: Analysis) -> Sequence[str]:
    """Say how many runs did not enter the fits, one line a reason."""
    reasons: dict[str, int] = {}
    for exclusion in analysis.points.excluded:
        reasons[exclusion.reason] = reasons.get(exclusion.reason, 0) + 1
    return [f"{counted(n, 'run')} did not enter: {reason}" for reason, n in reasons.items()]
