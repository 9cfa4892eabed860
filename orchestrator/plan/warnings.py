"""What a plan's reader should know before spending: designs too thin, borrowed rates, runs too short."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from scalewright.fitting.words import counted
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.rates import is_shared
from scalewright.orchestrator.plan.expand import unused_selectors
from scalewright.orchestrator.plan.runs import GRID_RATE, PlannedRun

MIN_LEVELS = 3
MIN_RATIO_SPREAD = 1.5  # between the largest and the smallest tokens per parameter
MIN_SIZES_A_CURVE, MIN_CURVES = 4, 3  # what `fit --law isoflop` needs
MIN_STEPS = 512  # below, larger models lose to smaller ones at equal tokens


def warn(experiment: Experiment, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield one line for each thing that weakens what the runs can show."""
    yield from _thin_axes([run for run in runs if run.label in experiment.labels])
    yield from collinear(runs)
    yield from _thin_curves(experiment)
    yield from _short_runs(runs)
    yield from _borrowed_rates(experiment, runs)
    yield from _unpaired(experiment, runs)
    yield from _mixed_precision(experiment, runs)
    yield from _lonely_seeds(experiment, runs)
    yield from _merged_points(runs)
    yield from _unused(experiment)


def _thin_axes(runs: Sequence[PlannedRun]) -> Iterator[str]:
    levels: dict[str, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for run in runs:
        levels[run.label][0].add(run.planned["n_params_non_embedding"])
        levels[run.label][1].add(run.spec.training["n_tokens"])
    for axis, name in ((0, "size"), (1, "budget")):
        thin = [label for label, found in levels.items() if len(found[axis]) < MIN_LEVELS]
        if thin:
            yield (
                f"fewer than {MIN_LEVELS} {name}s for {_shorten(thin)}: no law in that direction can be fitted with "
                "an honest interval"
            )


def _thin_curves(experiment: Experiment) -> Iterator[str]:
    isoflop = experiment.isoflop
    if isoflop and (isoflop.sizes < MIN_SIZES_A_CURVE or len(isoflop.budgets) < MIN_CURVES):
        yield (
            f"isoFLOP curves: {isoflop.sizes} sizes at each of {len(isoflop.budgets)} computes; "
            f"`fit --law isoflop` needs {MIN_SIZES_A_CURVE} at {MIN_CURVES}"
        )


def _short_runs(runs: Sequence[PlannedRun]) -> Iterator[str]:
    short = sorted({run.budget for run in runs if run.spec.n_steps < MIN_STEPS})
    if short:
        least = min(run.spec.n_steps for run in runs)
        yield (
            f"budget {_shorten(short)} gives runs of fewer than {MIN_STEPS} optimiser steps (least: {least}): sizes "
            "may come out in the wrong order; use a smaller batch or a larger budget"
        )


def _borrowed_rates(experiment: Experiment, runs: Sequence[PlannedRun]) -> Iterator[str]:
    by_rule = {run.method for run in runs if run.settings["lr_rule"] != GRID_RATE}
    without_own = [method.name for method in experiment.methods if method.lr is None and method.name in by_rule]
    names = {name for method in experiment.methods for name in (method.name, method.method)}
    if experiment.lr is None and without_own:
        yield f"no learning rate given for {_shorten(without_own)}: a rule of thumb is used; tune it (axis `lr`)"
    elif len(without_own) > 1 and is_shared(experiment.lr, names):
        yield (
            f"one learning-rate rule for {_shorten(without_own)}: all but one borrow it, and a difference between them "
            "may be the rate's; give each method a tuned rate"
        )


def _unpaired(experiment: Experiment, runs: Sequence[PlannedRun]) -> Iterator[str]:
    cells = defaultdict(set)
    for run in runs:
        cells[run.label].add((run.size, run.budget, run.spec.training["seed"]))
    for pair in experiment.compare:
        lonely = len(cells[pair.method] ^ cells[pair.baseline])
        if lonely:
            who = f"{pair.method} over {pair.baseline}"
            yield f"{who}: {counted(lonely, 'run')} without a partner of the same size, budget and seed"


def _mixed_precision(experiment: Experiment, runs: Sequence[PlannedRun]) -> Iterator[str]:
    kinds = {run.spec.training["precision"] for run in runs}
    if len(kinds) > 1 and experiment.compare:
        yield f"precisions {_shorten(sorted(kinds))} in one experiment: runs of different precision are never compared"


def _lonely_seeds(experiment: Experiment, runs: Sequence[PlannedRun]) -> Iterator[str]:
    if experiment.compare and len({run.spec.training["seed"] for run in runs}) == 1:
        yield (
            "one seed: a difference between methods cannot be separated from the noise of seeds; add seeds at one size "
            "and budget at least"
        )


def _merged_points(runs: Sequence[PlannedRun]) -> Iterator[str]:
    n_merged = sum(run.n_points - 1 for run in runs)
    if n_merged:
        yield f"{counted(n_merged, 'point')} of the grid merged: equal to another one in every number once resolved"


def collinear(runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Say where tokens per parameter do not vary: size and budget cannot be separated then."""
    ratios: dict[str, set[float]] = defaultdict(set)
    for run in runs:
        ratios[run.label].add(run.spec.training["n_tokens"] / run.planned["n_params_non_embedding"])
    flat = [label for label, found in ratios.items() if len(found) > 1 and max(found) < MIN_RATIO_SPREAD * min(found)]
    if flat:
        yield (
            f"about the same tokens per parameter everywhere for {_shorten(flat)}: the effects of size and of tokens "
            "cannot be separated; spread the budgets at each size"
        )


def _shorten(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _unused(experiment: Experiment) -> Iterator[str]:
    for name in unused_selectors(experiment):
        yield f"{name} matches no point of the grid"
