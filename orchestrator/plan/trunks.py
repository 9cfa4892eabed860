"""Runs that differ in budget alone and share their steps before the decay: who trains what, and what it saves."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from scalewright.fitting.words import counted
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.values import short_count
from scalewright.orchestrator.plan.bill import Plan
from scalewright.orchestrator.plan.runs import PlannedRun
from scalewright.orchestrator.runs.trunk import Trunk, trunk_of


def share_trunks(experiment: Experiment, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Say in each run's settings where it leaves its state to others, and from where it is trained by itself.

    The longest run of a trunk trains all of it; each other one begins at the last state left before its own decay.
    Raises UserError at the key where no two runs share anything.
    """
    groups: dict[str, list[tuple[PlannedRun, Trunk]]] = defaultdict(list)
    for run in runs:
        if trunk := trunk_of(run.spec):
            groups[trunk.trunk_id].append((run, trunk))
    shared = {run.run_id: made for group in groups.values() if len(group) > 1 for run, made in _grow(group)}
    if not shared:
        why = "no two runs share their first steps: that takes schedule wsd, two budgets and a warm-up in tokens"
        raise experiment.source.error(("shared_trunk",), f"{why}, which is the same at each budget")
    return [shared.get(run.run_id, run) for run in runs]


def _grow(group: Sequence[tuple[PlannedRun, Trunk]]) -> Iterator[tuple[PlannedRun, PlannedRun]]:
    longest, _ = max(group, key=lambda one: one[0].spec.training["n_tokens"])
    ends = sorted({trunk.n_tokens for _, trunk in group})
    trunk_end = trunk_of(longest.spec)
    assert trunk_end is not None
    for run, trunk in group:
        keep_at = [end for end in ends if end <= trunk.n_tokens]
        settings = run.settings | {"trunk": trunk.trunk_id, "keep_at": tuple(keep_at)}
        from_others = [end for end in keep_at if end <= trunk_end.n_tokens]
        yield run, replace(run, settings=settings, starts_at=0 if run is longest else max(from_others, default=0))


def trunk_notes(plan: Plan) -> Iterator[str]:
    """Say what the trunks save of the runs that are to do."""
    grown = [run for run in plan.to_do if run.starts_at]
    if not grown:
        return
    alone, here = sum(run.spec.training["n_tokens"] for run in plan.to_do), sum(run.n_tokens for run in plan.to_do)
    yield (
        f"shared trunks: {counted(len(grown), 'run')} begin where a longer one was, {short_count(here)} tokens instead "
        f"of {short_count(alone)}: {alone / here:.2f}x less training. Their losses are those of the runs alone"
    )
