"""How a job's own process has its job started again, and whether it may, by what started the job. Knows no run."""

import os
import subprocess
from typing import ClassVar, Protocol

from scalewright.orchestrator.jobs import slurm_commands
from scalewright.orchestrator.runs.job_environment import job_place

HANG_EXIT_CODE = 75
LOCAL_REQUEUE_CODE = 144  # on which submitit's local controller starts a job again


class Restarts(Protocol):
    """ends_when_asked: only its user asks a job to end, so it is not started again, and may leave at once."""

    ends_when_asked: ClassVar[bool]

    def taken_away(self) -> bool:
        """Tell whether a person took this job away: a restart would undo it."""
        ...

    def after_hang(self) -> int:
        """Have this job started again, and return the code to exit with; for a process whose main thread hangs."""
        ...


class OfLocal:
    """A process of this machine, which submitit's controller starts again by its exit code."""

    ends_when_asked: ClassVar[bool] = True

    def taken_away(self) -> bool:
        """Return True: nobody else asks a local job to end."""
        return True

    def after_hang(self) -> int:
        """Return the code on which submitit starts it again."""
        return LOCAL_REQUEUE_CODE


class OfSlurm:
    """A SLURM job, which is asked to end when its time is over, when it is preempted, and when it is cancelled."""

    ends_when_asked: ClassVar[bool] = False

    def taken_away(self) -> bool:
        """Ask sacct whether the job was cancelled."""
        return slurm_commands.is_cancelled(job_name(), int(job_place()["restart"]))

    def after_hang(self) -> int:
        """Requeue the job; waits a minute at most for scontrol."""
        subprocess.run(["scontrol", "requeue", job_name()], check=False, timeout=60)
        return HANG_EXIT_CODE


LOCAL = OfLocal()
BY_SUBMITIT: dict[str, Restarts] = {"local": LOCAL, "slurm": OfSlurm()}


def restarts_of_job() -> Restarts:
    """Return how this job is started again; a process that submitit did not start is as a local job."""
    return BY_SUBMITIT.get(os.environ.get("SUBMITIT_EXECUTOR", ""), LOCAL)


def job_name() -> str:
    """Name this job as submitit and SLURM do: `array_task`, or the plain id."""
    place = job_place()
    return str(place["job_id"]) if place["array_task"] is None else f"{place['job_id']}_{place['array_task']}"
