"""A file with `tune:` in two stages: its sweep first, then the grid at the rates that the sweep gave."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.config.axes import Group
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.rates import TunedRule
from scalewright.orchestrator.plan.bill import Plan
from scalewright.orchestrator.plan.earlier_runs import StoredLaws, StoredOptima, open_existing
from scalewright.orchestrator.plan.expand import expand
from scalewright.orchestrator.plan.isoflop import with_isoflop
from scalewright.orchestrator.plan.runs import DataManifest, PlannedRun, Planner, plan_runs
from scalewright.orchestrator.study import Study, sweep_name

if TYPE_CHECKING:
    from scalewright.orchestrator.analysis.tuning import Tuned

PlanOf = Callable[[Experiment], Plan]


Places = dict[tuple[str, str], float]  # (method label, size) of the grid -> non-embedding parameters


def plan_stage(experiment: Experiment, manifest: DataManifest, study: Study, plan: PlanOf) -> Plan:
    """Plan the sweep while it has not ended, then the grid; `plan` plans one experiment.

    Raises UserError where the sweep gives a method no rate.
    """
    experiment = with_isoflop(experiment, manifest.vocab_size, StoredOptima(study))
    grid, places = _grid(experiment, manifest, study)
    sweep = plan(sweep_of(experiment, places))
    if sweep.to_do:
        flops = sum(run.planned["flops_total"] for run in grid)
        later = (
            f"a sweep first, for the rates of {experiment.name}: when it has ended, the same command goes on with "
            f"{len(grid)} runs, {flops:.3g} FLOPs"
        )
        return replace(sweep, warnings=(), notes=(later,))
    tuned = _sweep_that_ended(experiment, study)
    made = plan(_at_best_rates(experiment, places, tuned))
    return replace(made, notes=(*made.notes, *notes_of(tuned)))


def sweep_of(experiment: Experiment, places: Iterable[tuple[str, str]]) -> Experiment:
    """Return the sweep as an experiment: the `places` of methods without a rate of their own at the sizes and the
    budget of `tune` (by default the last one), and at the first batch, context and precision.

    Its seeds are new ones: the grid's results must not be those by which the rate was chosen.
    """
    tune = experiment.tune
    assert tune is not None
    axes: dict[str, tuple[Any, ...]] = {
        "budget": (tune.budget or list(experiment.budgets)[-1],),
        "seed": tune.seeds or (max(experiment.all_seeds) + 1,),
        "lr": tune.lr,
    }
    axes |= {axis: getattr(experiment, axis)[:1] for axis in ("batch", "context", "precision")}
    sizes: dict[str, list[str]] = {}
    for label, size in places:
        if not tune.at or size in tune.at:
            sizes.setdefault(label, []).append(size)
    swept = [method.name for method in experiment.methods if method.lr is None and method.name in sizes]
    if not swept:
        raise experiment.source.error(("tune", "at"), "the grid has no point at these sizes")
    groups = tuple(
        Group(name="sweep", axes=axes | {"method": (label,), "size": tuple(sizes[label])}) for label in swept
    )
    none = dict.fromkeys(("exclude", "holdout", "when", "compare"), ()) | dict.fromkeys(("tune", "isoflop", "places"))
    changes = {"name": sweep_name(experiment.name), "grid": groups, "lr_factor": (1.0,)}
    return experiment.model_copy(update=none | changes)


def at_rates(experiment: Experiment, rates: Mapping[str, Mapping[str, float]]) -> Experiment:
    """Return the experiment with the rates that its sweep gave: label -> size -> peak learning rate."""
    values = {label: dict(by_size) for label, by_size in rates.items()}
    return experiment.model_copy(
        update={"lr": TunedRule(rule="tuned", values=values, sweep=sweep_name(experiment.name))}
    )


def notes_of(tuned: "Tuned") -> list[str]:
    """Say what was tuned at which cost, and where the best rate is the first or last tried."""
    optima = len(tuned.result.optima)
    lines = [f"rates: best of {tuned.experiment} at {optima} places ({tuned.n_runs} runs, {tuned.flops:.3g} FLOPs)"]
    for one in tuned.edges:
        lines.append(
            f"the best rate of {one.where}, {one.best:.3g}, is the first or last of the sweep: a better one may lie "
            "beyond; add rates to `tune: lr`, and the same command trains what is new"
        )
    return lines


def _grid(experiment: Experiment, manifest: DataManifest, study: Study) -> tuple[list[PlannedRun], Places]:
    """Return the runs of the grid at any rate, for its bill, and which methods are trained at which sizes."""
    assert experiment.tune is not None
    some = {label: dict.fromkeys(experiment.sizes, experiment.tune.lr[0]) for label in experiment.labels}
    as_if, laws = at_rates(experiment, some), StoredLaws(study)
    runs = plan_runs(as_if, manifest, laws=laws)
    n_params = {run.size: float(run.planned["n_params_non_embedding"]) for run in runs}
    points = expand(as_if, Planner(as_if, manifest, laws).facts)
    return runs, {(point.method, point.size): n_params[point.size] for point in points}


def _sweep_that_ended(experiment: Experiment, study: Study) -> "Tuned":
    from scalewright.db.frames import final_losses
    from scalewright.fitting.errors import FittingError
    from scalewright.orchestrator.analysis.tuning import read_sweep

    name = sweep_name(experiment.name)
    with open_existing(study) as database:
        assert database is not None  # it knows that the sweep has ended
        try:
            return read_sweep(final_losses(database, name), name)
        except FittingError as error:
            raise experiment.source.error(("tune",), f"{name}: {error}") from None


def _at_best_rates(experiment: Experiment, places: Places, tuned: "Tuned") -> Experiment:
    from scalewright.fitting.errors import FittingError

    swept = {method.name for method in experiment.methods if method.lr is None}
    rates: dict[str, dict[str, float]] = {}
    try:
        for (label, size), n_params in places.items():
            if label in swept:
                rates.setdefault(label, {})[size] = tuned.rate(label, size, n_params)
    except FittingError as error:
        raise experiment.source.error(("tune",), str(error)) from None
    return at_rates(experiment, rates)
