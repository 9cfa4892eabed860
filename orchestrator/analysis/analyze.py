"""Frames to fits to database: what the runs of an experiment say, and what they do not. Draws and prints nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.analysis.advice import advised_words
from scalewright.orchestrator.analysis.comparisons import PairReading, read_pair
from scalewright.orchestrator.analysis.forecasts import expected
from scalewright.orchestrator.analysis.inputs import Inputs, entering, read_inputs
from scalewright.orchestrator.analysis.tuning import Tuned, sweep_behind
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.forecast import Forecast
    from scalewright.fitting.frame import Points
    from scalewright.fitting.result import FitResult

COMPUTE_LAW, FLOOR_LAW, FULL_LAW = "pure-power", "power", "chinchilla"


@dataclass(frozen=True)
class LawFit:
    """One law fitted to one label's runs, or why it could not be."""

    law: str
    label: str
    result: "FitResult | None" = None
    refused: str = ""
    fit_id: str | None = None


@dataclass(frozen=True)
class Analysis:
    """Everything that tables, figures and sentences are made from.

    runs: every run of the experiment (the columns of final_losses); points: those that entered, with on_frontier;
    minima: of labels whose runs are isoFLOP curves, the minimum of each (label, flops, n_params, n_tokens, loss_nats);
    layers: what each layer of each label's largest run did (label and the columns of db.frames.layer_values);
    to_come, held_out: forecasts of runs not yet ended and of runs marked holdout, where there are any; advised: how
    runs were chosen, where `advise` chose them; tuned: the sweep that gave the rates, where one did; inputs: what was
    read, None for a frame at hand.
    """

    experiment: str
    runs: "pd.DataFrame"
    points: "Points"
    fits: tuple[LawFit, ...]
    comparisons: tuple[PairReading, ...]
    refusals: tuple[str, ...] = ()
    evaluations: "pd.DataFrame | None" = field(default=None, repr=False)
    curves: "pd.DataFrame | None" = field(default=None, repr=False)
    minima: "pd.DataFrame | None" = field(default=None, repr=False)
    layers: "pd.DataFrame | None" = field(default=None, repr=False)
    to_come: "Forecast | None" = field(default=None, repr=False)
    held_out: "Forecast | None" = field(default=None, repr=False)
    advised: str = ""
    tuned: "Tuned | None" = field(default=None, repr=False)
    inputs: Inputs | None = field(default=None, repr=False)

    @property
    def labels(self) -> list[str]:
        """Methods of the runs that entered, in the order in which figures and tables show them."""
        from scalewright.fitting.figures.style import in_order

        return in_order(self.points.frame["label"])

    def fit(self, law: str, label: str) -> LawFit:
        """Return the fit of a law to a method's runs, refused or not; StopIteration where it was not asked for."""
        return next(fit for fit in self.fits if (fit.law, fit.label) == (law, label))


def analyze(study: Study, experiment: str, *, compare: Sequence[tuple[str, str]] = ()) -> Analysis:
    """Fit what the synced runs of an experiment allow and store each fit with its provenance.

    compare: pairs (label, baseline label); without any, each gate with its ungated method and each method with its
    usual baseline. Raises UserError where no run has ended, DbError for an unknown experiment.
    """
    from scalewright.db.engine import open_database

    database = open_database(study.database, create=False)
    inputs = read_inputs(study, experiment, compare)
    analysis = analyze_frame(inputs.runs, experiment, compare=compare)
    to_come, held_out = expected(inputs.runs, inputs.planned)
    analysis = replace(
        analysis,
        to_come=to_come,
        held_out=held_out,
        evaluations=inputs.evaluations,
        curves=inputs.curves,
        layers=inputs.layers,
        advised=advised_words(study, experiment, inputs.runs),
        tuned=sweep_behind(database, experiment, inputs.runs),
        inputs=inputs,
    )
    return store_fits(database, analysis)


def analyze_frame(runs: "pd.DataFrame", experiment: str, *, compare: Sequence[tuple[str, str]] = ()) -> Analysis:
    """Do what `analyze` does with a frame at hand and no database."""
    points = entering(runs, experiment)
    minima = isoflop_minima(points)
    fits = [
        fit_law(points, law, label, minima) for label in points.methods for law in (COMPUTE_LAW, FLOOR_LAW, FULL_LAW)
    ]
    pairs = compare or usual_pairs(runs, points.methods) or base_pairs(points)
    comparisons, refusals = compare_pairs(points, pairs)
    return Analysis(experiment, runs, points, tuple(fits), comparisons, refusals, minima=minima)


def seeds_in_words(points: "pd.DataFrame") -> str:
    """Say how many seeds stand behind a point: `1 seed a point`, `1 to 3 seeds a point`, `seeds not known`."""
    counts = points.groupby(["label", "n_params", "n_tokens"])["seed"].nunique()
    least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if most == 0:
        return "seeds not known"
    if least == most:
        return f"{most} seed{'s' if most > 1 else ''} a point"
    return f"{least} to {most} seeds a point"


def isoflop_minima(points: "Points") -> "pd.DataFrame":
    """Return the minima of isoFLOP parabolas, of labels whose every compute has one: label, flops, N, D and loss."""
    import pandas as pd

    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.optimum import fit_optimum

    rows = []
    for label in points.methods:
        try:
            valleys = fit_optimum(points.of(label), "isoflop").valleys
        except FittingError:
            continue
        if not any(one.refused for one in valleys):
            rows += [(label, one.flops_budget, one.n_star, one.n_tokens_star, one.loss_star) for one in valleys]
    return pd.DataFrame(rows, columns=["label", "flops", "n_params", "n_tokens", "loss_nats"])


def fit_law(points: "Points", law: str, label: str, minima: "pd.DataFrame") -> LawFit:
    """Fit one law to a label: laws in compute alone to its frontier (of isoFLOP curves their minima), others to all.

    The laws in compute rest on few runs, so they are fitted by least squares: Huber's objective at its narrow width
    runs through some of a few points and past the others.
    """
    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.fit import fit, provenance_of

    own = points.of(label)
    try:
        if law == FULL_LAW:
            return LawFit(law, label, fit(own, law))
        lowest = minima[minima["label"] == label]
        if not len(lowest):
            return LawFit(law, label, fit(own.where(own.frame["on_frontier"]), law, "log-l2"))
        result = fit(lowest, law, "log-l2")
        return LawFit(law, label, replace(result, provenance=provenance_of(own)))
    except FittingError as refusal:
        return LawFit(law, label, refused=str(refusal))


def is_one_cell(points: "pd.DataFrame") -> bool:
    """Tell whether all runs have one size and one budget, as an ablation's do."""
    from scalewright.fitting.curve import level_of, size_keys

    return size_keys(points).nunique() == 1 and len(set(level_of(points["n_tokens"].to_numpy(float)))) == 1


def base_pairs(points: "Points") -> list[tuple[str, str]]:
    """Pair every label with the one that calls itself base or baseline; in an ablation without it with the first."""
    from scalewright.fitting.figures.style import in_order

    labels = in_order(points.frame["label"])
    named = next((label for label in labels if label.lower() in ("base", "baseline")), None)
    base = named or (labels[0] if is_one_cell(points.frame) else None)
    return [(label, base) for label in labels if label != base] if base else []


def usual_pairs(runs: "pd.DataFrame", labels: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each label with its baseline where both are there: a gate with the method without it, else its own."""
    found = []
    named = runs.drop_duplicates("label").set_index("label")
    for label in labels:
        method, gate = str(named.loc[label, "method"]), str(named.loc[label, "gate"])
        plain = method.rpartition(":")[2]  # of a user's file, the constant
        baseline = plain if gate not in ("none", "nan", "None", "") else baseline_of(method)
        if baseline in labels and baseline != label:
            found.append((label, str(baseline)))
    return found


def baseline_of(method: str) -> str | None:
    """Return the method that this one is compared with by default; None for an imported one without a name here."""
    from scalewright.models.methods import METHODS
    from scalewright.models.methods.method import Method
    from scalewright.models.own import is_own

    own = Method.baseline if is_own(method) else None  # plan takes no other of a user's file without a named pair
    return METHODS[method].baseline if method in METHODS else own


def compare_pairs(
    points: "Points", pairs: Sequence[tuple[str, str]]
) -> tuple[tuple[PairReading, ...], tuple[str, ...]]:
    """Compare each pair whose labels both have runs; what could not be compared is said in one line each."""
    from scalewright.fitting.errors import FittingError

    done, refused = [], []
    for method, baseline in pairs:
        try:
            done.append(read_pair(points, method, baseline))
        except FittingError as refusal:
            refused.append(f"{method} over {baseline}: {refusal}")
    return tuple(done), tuple(refused)


def store_fits(database: "Database", analysis: Analysis) -> Analysis:
    """Store every fit that was made; the same fit again is the same row."""
    stored = [replace(fit, fit_id=_store_fit(database, analysis.experiment, fit)) for fit in analysis.fits]
    return replace(analysis, fits=tuple(stored))


def _store_fit(database: "Database", experiment: str, fit: LawFit) -> str | None:
    if fit.result is None:
        return None
    return record_result(database, experiment, fit.result, label=fit.label)


def record_result(database: "Database", experiment: str, result: "FitResult", *, label: str | None = None) -> str:
    """Store one fit with the runs that entered and why others did not; return its id."""
    from scalewright.db.store import record_fit

    record: Mapping[str, Any] = result.to_record()
    excluded = [(exclusion.run_id, exclusion.reason) for exclusion in result.excluded]
    return record_fit(database, record, result.provenance.run_ids, excluded, experiment=experiment, label=label)
