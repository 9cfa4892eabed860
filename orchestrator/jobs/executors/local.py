"""Jobs on this machine through submitit's LocalExecutor, detached: who submits may exit, or be interrupted.

`python -m scalewright.orchestrator.jobs.executors.local JOBS_DIR SUBMISSION UUID` launches the packs of one chunk in a
session of their own, writes each job's process into the chunk's record and exits; the jobs live on.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from scalewright.fitting.words import counted
from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.executors.executor import Handover, new_chunk, record_jobs
from scalewright.orchestrator.jobs.executors.here import OnThisMachine, is_alive
from scalewright.orchestrator.jobs.packing import Work, balance
from scalewright.orchestrator.jobs.records import Chunk, Job, Pack, chunk_path
from scalewright.orchestrator.runs.job_environment import goes_along
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.study import Study

FOREVER_MIN = 60 * 24 * 365
LAUNCH_TIMEOUT_S = 120.0
PAUSE_S = 60.0


class Local(OnThisMachine):
    """Every pack starts now, each as a process of its own that outlives this one."""

    name = "local"

    def cut(
        self, study: Study, work: Sequence[Work], profile: Profile, max_parallel: int | None
    ) -> Sequence[Sequence[Work]]:
        """Balance work over the places that other local jobs of the study leave free, at least one."""
        n_free = n_free_places(study)
        n_packs = min(max_parallel or n_free, n_free)
        return balance(work, max(1, n_packs // max(profile.threads, profile.devices)))

    def submit(self, handover: Handover) -> int:
        """Start one process a pack; they outlive this one."""
        chunk = launch(handover.study.jobs_dir, new_chunk(handover, self, handover.packs))
        record_jobs(handover, chunk, handover.packs)
        return len(handover.packs)


EXECUTOR = Local()


def launch(jobs_dir: Path, chunk: Chunk) -> Chunk:
    """Start a chunk's packs on this machine and return the chunk with its jobs; raises UserError when that fails."""
    chunk.write(jobs_dir)
    submission_dir = jobs_dir / chunk.submission_id
    log = submission_dir / "launch.log"
    root = Pack.read(submission_dir / chunk.packs[0]).root
    command = [sys.executable, "-m", __name__, str(jobs_dir), chunk.submission_id, chunk.uuid]
    with log.open("ab") as output:
        launcher = subprocess.Popen(
            command,
            cwd=root,
            env=job_environment(root),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    with suppress(subprocess.TimeoutExpired):
        launcher.wait(LAUNCH_TIMEOUT_S)
    launched = Chunk.read(chunk_path(jobs_dir, chunk.submission_id, chunk.uuid))
    if len(launched.jobs) < len(chunk.packs):
        raise UserError(
            f"{log}: only {len(launched.jobs)} of {counted(len(chunk.packs), 'job')} started (the log says why)"
        )
    return launched


def job_environment(root: str, threads: int = 1) -> dict[str, str]:
    """Return the environment of a job: the snapshot's packages before all others, whatever the working directory."""
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    clean = {key: value for key, value in os.environ.items() if goes_along(key)}
    return clean | counts | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def main(jobs_dir: Path, submission_id: str, uuid: str) -> None:
    """Launch one chunk's packs; the record is written after each, so nothing that runs stays unrecorded."""
    from submitit import LocalExecutor

    from scalewright.orchestrator.jobs.carrier import Carrier

    chunk = Chunk.read(chunk_path(jobs_dir, submission_id, uuid))
    submission_dir = jobs_dir / submission_id
    executor = LocalExecutor(submission_dir / "logs")
    for index, name in enumerate(chunk.packs):
        pack = Pack.read(submission_dir / name)
        executor.update_parameters(
            timeout_min=FOREVER_MIN, tasks_per_node=pack.devices, **visible_gpus(index, pack.devices)
        )
        os.environ.update(job_environment(pack.root, pack.threads) | {"PYTHONPATH": os.environ["PYTHONPATH"]})
        job = executor.submit(Carrier(str(submission_dir / name)))
        process = Process.of(int(job.job_id))
        chunk = replace(
            chunk,
            jobs=chunk.jobs | {name: process or Process("", int(job.job_id), "")},
        )
        chunk.write(jobs_dir)


def n_gpus() -> int:
    """Count this machine's GPUs without importing torch."""
    try:
        reply = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in reply.stdout.splitlines())


def visible_gpus(index: int, n_devices: int) -> dict[str, object]:
    """Give the job GPUs of its own, in turn; submitit hides all GPUs from a job that asks for none."""
    count = n_gpus()
    if count == 0:
        return {}
    return {
        "gpus_per_node": n_devices,
        "visible_gpus": tuple((index * n_devices + i) % count for i in range(n_devices)),
    }


def n_places() -> int:
    """Count the jobs that fit on this machine: its GPUs, or the cores that this process may use."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_gpus() or n_cores


def n_free_places(study: Study) -> int:
    """Count the cores (or GPUs) of this machine that no job of this study uses."""
    busy = sum(bool(is_alive(job.chunk, study.jobs_dir, job.pack)) for job in _jobs_of(study))
    return max(1, n_places() - busy)


def _jobs_of(study: Study) -> list[Job]:
    return [Job(chunk, pack) for chunk in EXECUTOR.chunks(study.jobs_dir) for pack in chunk.packs]


def pause_jobs(study: Study, wait_s: float = PAUSE_S) -> int:
    """Ask this machine's jobs of a study to end at a checkpoint and wait until they have; return how many."""
    alive = [job for job in _jobs_of(study) if is_alive(job.chunk, study.jobs_dir, job.pack)]
    EXECUTOR.end(study.jobs_dir, alive, now=False)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and any(is_alive(job.chunk, study.jobs_dir, job.pack) for job in alive):
        time.sleep(0.1)
    return len(alive)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
