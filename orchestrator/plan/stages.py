"""A file with `tune:` in two stages: its sweep first, then the grid at the rates that the sweep gave."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.config.axes import Group
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.rates import TunedRule
from scalewright.orchestrator.plan.bill import Plan
from scalewright.orchestrator.plan.earlier_runs import open_existing
from scalewright.orchestrator.plan.expand import expand
from scalewright.orchestrator.plan.runs import DataManifest, PlannedRun, plan_runs
from scalewright.orchestrator.study import Study, sweep_name

if TYPE_CHECKING:
    from scalewright.orchestrator.analysis.tuning import Tuned

PlanOf = Callable[[Experiment], Plan]


def plan_stage(experiment: Experiment, manifest: DataManifest, study: Study, plan: PlanOf) -> Plan:
    """Plan the sweep while it has not ended, then the grid; `plan` plans one experiment.

    Raises UserError where the sweep gives a method no rate.
    """
    sweep = plan(sweep_of(experiment))
    grid = plan_runs(_with_any_rate(experiment), manifest)
    if sweep.to_do:
        flops = sum(run.planned["flops_total"] for run in grid)
        later = (
            f"a sweep first, for the rates of {experiment.name}: when it has ended, the same command goes on with "
            f"{len(grid)} runs, {flops:.3g} FLOPs"
        )
        return replace(sweep, warnings=(), notes=(later,))
    tuned = _sweep_of(experiment, study, sweep.experiment.name)
    made = plan(_at_best_rates(experiment, grid, tuned))
    return replace(made, notes=(*made.notes, *notes_of(tuned)))


def sweep_of(experiment: Experiment) -> Experiment:
    """Return the sweep as an experiment: every method without a rate of its own, at the sizes and the budget of `tune`
    (by default the last one), and at the first batch, context and precision.

    Its seeds are new ones: the grid's results must not be those by which the rate was chosen.
    """
    tune = experiment.tune
    assert tune is not None
    axes: dict[str, tuple[Any, ...]] = {
        "method": tuple(method.name for method in experiment.methods if method.lr is None),
        "size": tune.at or tuple(experiment.sizes),
        "budget": (tune.budget or list(experiment.budgets)[-1],),
        "seed": tune.seeds or (max(experiment.all_seeds) + 1,),
        "lr": tune.lr,
    }
    axes |= {axis: getattr(experiment, axis)[:1] for axis in ("batch", "context", "precision")}
    changes = {"name": sweep_name(experiment.name), "grid": (Group(name="sweep", axes=axes),), "lr_factor": (1.0,)}
    return experiment.model_copy(update=changes | {"tune": None, "compare": (), "holdout": ()})


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


def _with_any_rate(experiment: Experiment) -> Experiment:
    assert experiment.tune is not None
    some = experiment.tune.lr[0]
    return at_rates(experiment, {label: dict.fromkeys(experiment.sizes, some) for label in experiment.labels})


def _sweep_of(experiment: Experiment, study: Study, name: str) -> "Tuned":
    from scalewright.db.frames import final_losses
    from scalewright.fitting.errors import FittingError
    from scalewright.orchestrator.analysis.tuning import read_sweep

    with open_existing(study) as database:
        assert database is not None  # it knows that the sweep has ended
        try:
            return read_sweep(final_losses(database, name), name)
        except FittingError as error:
            raise experiment.source.error(("tune",), f"{name}: {error}") from None


def _at_best_rates(experiment: Experiment, grid: list[PlannedRun], tuned: "Tuned") -> Experiment:
    from scalewright.fitting.errors import FittingError

    n_params = {run.size: float(run.planned["n_params_non_embedding"]) for run in grid}
    swept = {method.name for method in experiment.methods if method.lr is None}
    rates: dict[str, dict[str, float]] = {}
    try:
        for label, size in dict.fromkeys((point.method, point.size) for point in expand(experiment)):
            if label in swept:
                rates.setdefault(label, {})[size] = tuned.rate(label, size, n_params[size])
    except FittingError as error:
        raise experiment.source.error(("tune",), str(error)) from None
    return at_rates(experiment, rates)
