"""What a person may do to runs that were planned or submitted: cancel, hold, and take it back.

A wish is a stop file in the run directory, so that it outlives this process and reaches every machine; a run that
trains stops at its next checkpoint. Knows the database, the run directories and the executors.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewright.db import frames
from scalewright.db.engine import Database
from scalewright.db.run_states import IN_A_JOB
from scalewright.db.store import set_run_states
from scalewright.orchestrator.files import is_there, write_json
from scalewright.orchestrator.jobs.executors.executor import find_executor
from scalewright.orchestrator.jobs.records import Job, read_chunks, runs_in
from scalewright.orchestrator.runs.journal import attempts_in
from scalewright.orchestrator.runs.records import Again, Stop, Why
from scalewright.orchestrator.study import Study

IDLE = frozenset({"planned", "interrupted", "failed", "unknown", "held", "cancelled"})
WISHES = {"cancel": "cancelled", "hold": "held"}


@dataclass(frozen=True)
class Target:
    """A study with its open database, and the runs meant (None: all of the study)."""

    study: Study
    database: Database
    experiment: str | None
    run_ids: list[str]


@dataclass(frozen=True)
class Stopped:
    """What a stop request reached: runs that are stopped already, and runs that stop at their next checkpoint.

    trouble: why jobs that were to be cancelled are still there, or empty.
    """

    n_now: int
    n_asked: int
    n_over: int
    trouble: str = ""


def stop(target: Target, why: Why, *, now: bool = False) -> Stopped:
    """Ask runs to stop (`why`: cancel or hold); with `now` their jobs are killed without a checkpoint.

    A run that is over stays as it is. Nothing stopped here is started again before `resume`, `retry` or `release`.
    """
    states = _states_of(target.database, target.run_ids)
    idle = [run_id for run_id, state in states.items() if state in IDLE]
    busy = [run_id for run_id, state in states.items() if state in IN_A_JOB]
    for run_id in idle + busy:
        write_json(target.study.run_dir(run_id) / "stop", Stop(why, time.time(), run_id))
    waiting, trouble = stop_jobs(target.study, set(idle + busy), now=now)
    done = idle + [run_id for run_id in busy if run_id in waiting]
    reason = "cancelled by its user" if why == "cancel" else "held by its user"
    set_run_states(target.database, [(run_id, WISHES[why], reason, {"by": "user"}) for run_id in done])
    return Stopped(len(done), len(busy) + len(idle) - len(done), len(states) - len(idle) - len(busy), trouble)


def _states_of(database: Database, run_ids: Sequence[str]) -> dict[str, str]:
    frame = frames.runs(database)
    states = dict(zip(frame["run_id"], frame["state"], strict=True))
    return {run_id: states[run_id] for run_id in run_ids}


def stop_jobs(study: Study, run_ids: set[str], *, now: bool) -> tuple[set[str], str]:
    """Reach the jobs of runs; return the runs whose job will not start any more, and what went wrong.

    A job that has other runs too goes on with those; the stop file reaches the ones meant.
    """
    jobs: dict[str, list[Job]] = {}
    for job in _jobs_with(study, run_ids):
        if all(run.name in run_ids or _is_over(run) for run in job.runs):
            jobs.setdefault(job.chunk.executor, []).append(job)
    ended = [find_executor(name).end(study.jobs_dir, mine, now=now) for name, mine in jobs.items()]
    waiting = {run.name for one in ended for job in one.jobs for run in job.runs}
    return waiting & run_ids, "; ".join(one.trouble for one in ended if one.trouble)


def _jobs_with(study: Study, run_ids: set[str]) -> Iterator[Job]:
    for chunk in read_chunks(study.jobs_dir):
        for pack in chunk.packs:
            runs = runs_in(study.jobs_dir, chunk.submission_id, pack)
            if any(run.name in run_ids for run in runs):
                yield Job(chunk, pack, runs)


def _is_over(run_dir: Path) -> bool:
    return is_there(run_dir / "DONE.json")


def take_back(target: Target, states: Iterable[str]) -> int:
    """Make runs in one of `states` ready for the next submit, their past errors forgiven; return how many."""
    wanted = set(states)
    changes = []
    for run_id, state in _states_of(target.database, target.run_ids).items():
        run_dir = target.study.run_dir(run_id)
        if state not in wanted:
            continue
        n_attempts = len(attempts_in(run_dir)) if run_dir.is_dir() else 0
        write_json(run_dir / "again.json", Again(time.time(), n_attempts, run_id))
        (run_dir / "stop").unlink(missing_ok=True)
        changes.append(
            (run_id, "interrupted" if n_attempts else "planned", "asked for again by its user", {"by": "user"})
        )
    return set_run_states(target.database, changes)
