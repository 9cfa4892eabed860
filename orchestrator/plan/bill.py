"""The bill of a plan: what its runs cost by method and size, what exists already, and what to know before spending."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from scalewright.db.run_states import ENDED
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.plan.runs import PlannedRun, bytes_per_number
from scalewright.orchestrator.plan.warnings import warn

# One core of a 2020s server CPU in fp32, within 20% of plain loops from 27k to 1M parameters, 0.4k to 1k tokens a step:
# small matrices reach a part of the peak, width / (width + HALF_WIDTH) of it.
CORE_FLOPS_PER_S = 50e9
HALF_WIDTH = 45
STEP_OVERHEAD_S = 0.003

CHECKPOINTS = 2  # kept of each run, by train/checkpoint.py

ThroughputKey = tuple[Any, ...]
Throughputs = Mapping[ThroughputKey, float]  # tokens per second, measured


def throughput_key(run: PlannedRun, profile: Profile) -> ThroughputKey:
    """Return what makes two runs about equally fast: method, gate, width, depth, context, batch, precision, device."""
    model, training = run.spec.model, run.spec.training
    shape = (model["method"], model["gate"], model["width"], model["depth"], training["context"])
    return (*shape, run.spec.batch_tokens, training["precision"], "gpu" if profile.gpus else "cpu")


def estimate_wall_s(run: PlannedRun, profile: Profile, measured: Throughputs) -> float:
    """Return the seconds that a run should train: from measured throughput of its shape, else from an assumption."""
    n_tokens = run.spec.training["n_tokens"]
    tokens_per_s = measured.get(throughput_key(run, profile))
    if tokens_per_s:
        return float(n_tokens / tokens_per_s)
    width = run.spec.model["width"]
    speed = profile.flops_per_s or CORE_FLOPS_PER_S * width / (width + HALF_WIDTH)
    return float(run.planned["flops_total"] / (speed * profile.devices) + run.planned["n_steps"] * STEP_OVERHEAD_S)


def _checkpoints(run: PlannedRun) -> int:
    return CHECKPOINTS + (0 if run.starts_at else len(run.settings["keep_at"]))


@dataclass(frozen=True)
class BillRow:
    """Runs of one method at one size. wall_s: seconds of training on one job each, without the start of a job."""

    method: str
    size: str
    runs: int
    to_do: int
    n_params: int
    n_params_total: int
    n_tokens: int
    flops: float
    wall_s: float
    memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """What an experiment asks for: its runs, cheapest first, and what a reader should know before spending.

    states: state of the runs that the database has. n_measured: runs whose time comes from measured throughput. notes:
    what else is to be known, and no warning.
    """

    experiment: Experiment
    runs: tuple[PlannedRun, ...]
    states: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    n_measured: int = 0
    notes: tuple[str, ...] = ()

    @property
    def run_ids(self) -> list[str]:
        """Ids of all runs, cheapest first."""
        return [run.run_id for run in self.runs]

    @property
    def to_do(self) -> tuple[PlannedRun, ...]:
        """The runs without an outcome, running ones with them."""
        return tuple(run for run in self.runs if self.states.get(run.run_id) not in ENDED)

    @property
    def wall_s(self) -> float:
        """Seconds of training still to do, all jobs added up."""
        return float(sum(run.planned["wall_s"] for run in self.to_do))

    @property
    def gpu_hours(self) -> float:
        """GPU hours of training still to do; runs that share a job's GPUs (`at_once`) share its hours."""
        return sum(hours for hours, _ in self._hours())

    @property
    def price(self) -> float | None:
        """What those GPU hours cost, or None where a profile with GPUs has no price."""
        bought = [(hours, profile) for hours, profile in self._hours() if hours]
        if not bought or any(profile.price is None for _, profile in bought):
            return None
        return sum(hours * (profile.price or 0.0) for hours, profile in bought)

    def _hours(self) -> list[tuple[float, Profile]]:
        profiles = [(run, self.experiment.resources.profile(run.profile)) for run in self.to_do]
        return [(run.planned["wall_s"] / 3600 * one.gpus / one.at_once, one) for run, one in profiles]

    @property
    def disk_bytes(self) -> int:
        """Bytes that the checkpoints of the runs to do may take: weights and two moments, CHECKPOINTS of each run.

        The longest run of a trunk leaves some to the others.
        """
        return sum(
            3 * run.planned["n_params_total"] * bytes_per_number(run.spec.training["precision"]) * _checkpoints(run)
            for run in self.to_do
        )

    def check_limit(self, max_gpu_hours: float | None) -> None:
        """Raise UserError where the runs to do take more GPU hours than somebody is ready to spend."""
        if max_gpu_hours is not None and self.gpu_hours > max_gpu_hours:
            raise UserError(
                f"{self.experiment.name}: {len(self.to_do)} runs take about {self.gpu_hours:.3g} GPU hours, over "
                f"--max-gpu-hours {max_gpu_hours:g}; nothing was recorded or submitted"
            )


def price(
    experiment: Experiment, runs: Sequence[PlannedRun], *, states: Mapping[str, str], measured: Throughputs
) -> Plan:
    """Add times to the runs and collect the warnings."""
    profile = experiment.resources.profile
    planned: dict[tuple[int, str, int], dict[str, Any]] = {}  # many runs share one record of planned numbers
    for run in runs:
        if (key := (id(run.planned), run.profile, run.starts_at)) not in planned:
            wall_s = run.share * estimate_wall_s(run, profile(run.profile), measured)
            planned[key] = run.planned | {"wall_s": wall_s}
    timed = [replace(run, planned=planned[id(run.planned), run.profile, run.starts_at]) for run in runs]
    n_measured = sum(throughput_key(run, profile(run.profile)) in measured for run in runs)
    known = {run.run_id: states[run.run_id] for run in timed if run.run_id in states}
    return Plan(experiment, tuple(timed), known, tuple(warn(experiment, timed)), n_measured)


def bill(plan: Plan) -> list[BillRow]:
    """Sum the plan by method and size, in the order of the experiment."""
    labels = list(dict.fromkeys([*plan.experiment.labels, *(run.label for run in plan.runs)]))
    sizes = list(plan.experiment.sizes)

    def place(run: PlannedRun) -> tuple[int, int]:
        return labels.index(run.label), sizes.index(run.size)

    to_do = {run.run_id for run in plan.to_do}
    return [_sum_row(list(runs), to_do) for _, runs in groupby(sorted(plan.runs, key=place), key=place)]


def _sum_row(runs: list[PlannedRun], to_do: set[str]) -> BillRow:
    first = runs[0]
    waiting = [run for run in runs if run.run_id in to_do]
    return BillRow(
        method=first.label,
        size=first.size,
        runs=len(runs),
        to_do=len(waiting),
        n_params=first.planned["n_params_non_embedding"],
        n_params_total=first.planned["n_params_total"],
        n_tokens=sum(run.n_tokens for run in waiting),
        flops=sum(run.share * run.planned["flops_total"] for run in waiting),
        wall_s=sum(run.planned["wall_s"] for run in waiting),
        memory_bytes=max(run.planned["memory_bytes"] for run in runs),
    )
