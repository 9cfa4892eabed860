"""Several runs at once in one job: a job of n tasks in which each task goes through its own share of the pack.

Knows pack.json and which task of a SLURM job this is. The first task waits for the others and speaks for the job.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.jobs.records import Pack, Started
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.processes import Process

TICK_S = 0.2
START_PATIENCE_S = 300.0
END_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Over:
    """over-<restart>.json: a lane went through its share."""

    outcomes: dict[str, str]


def lane_dir(job_dir: Path, lane: int) -> Path:
    """Where the pack of one of a job's side-by-side processes lies."""
    return job_dir / f"lane-{lane}"


def write_lanes(job_dir: Path, pack: Pack) -> None:
    """Write each lane's own pack: every n-th run, so that each lane starts with cheap ones."""
    for lane in range(pack.lanes if pack.lanes > 1 else 0):
        replace(pack, runs=pack.runs[lane :: pack.lanes], lanes=1).write(lane_dir(job_dir, lane))


def run_lanes(job_dir: Path, pack: Pack, run_lane: Callable[[Path, Pack], dict[str, str]]) -> dict[str, str] | None:
    """Run this task's lane; return every lane's outcomes in the first task, None in the others."""
    lane, restart = int(os.environ.get("SLURM_PROCID") or 0), job_place()["restart"]
    mine = lane_dir(job_dir, lane)
    write_json(mine / "started.json", Started(Process.this(), restart=restart))
    outcomes = run_lane(mine, Pack.read(mine))
    write_json(mine / f"over-{restart}.json", Over(outcomes))
    if lane > 0:
        return None
    for other in range(1, pack.lanes):
        outcomes |= wait_for(lane_dir(job_dir, other), restart)
    return outcomes


def wait_for(folder: Path, restart: int) -> dict[str, str]:
    """Wait until a lane is over; one whose process died, or that does not stop when asked, has no outcomes."""
    began, asked_at = time.monotonic(), 0.0
    while (over := usable(folder / f"over-{restart}.json", Over)) is None:
        now = time.monotonic()
        asked_at = asked_at or (now if signals.requested() else 0.0)
        late = now - began > START_PATIENCE_S and not _is_alive(folder, restart)
        if late or is_dead(folder, restart) or (asked_at and now - asked_at > END_PATIENCE_S):
            over = usable(folder / f"over-{restart}.json", Over) or Over({})
            break
        time.sleep(TICK_S)
    return over.outcomes


def _is_alive(folder: Path, restart: int) -> bool:
    started = usable(folder / "started.json", Started)
    if started is None or started.restart != restart:
        return False
    return started.process.is_alive() is not False  # a task on another node: nothing can be said


def is_dead(folder: Path, restart: int) -> bool:
    """Tell whether a lane that had started is gone."""
    started = usable(folder / "started.json", Started)
    return started is not None and started.restart == restart and not _is_alive(folder, restart)
