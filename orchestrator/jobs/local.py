"""Jobs on this machine through submitit's LocalExecutor, detached: who submits may exit, or be interrupted.

`python -m scalewright.orchestrator.jobs.local JOBS_DIR SUBMISSION UUID` launches the packs of one chunk in a session of
their own, writes each job's process into the chunk's record and exits; the jobs live on.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import is_there, read_text, usable
from scalewright.orchestrator.jobs.records import Chunk, Pack, Started, chunk_path
from scalewright.orchestrator.runs.job_environment import goes_along
from scalewright.orchestrator.runs.processes import Process

FOREVER_MIN = 60 * 24 * 365
LAUNCH_TIMEOUT_S = 120.0


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
            f"{log}: only {len(launched.jobs)} of {len(chunk.packs)} jobs could be started (the log says why)"
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


def is_alive(chunk: Chunk, jobs_dir: Path, pack: str) -> bool | None:
    """Tell whether a pack's job lives: its controller, or its own process should the controller be gone.

    None where the job belongs to another machine, of which nothing can be said from here.
    """
    started = usable(jobs_dir / chunk.submission_id / pack / "started.json", Started)
    processes = [
        chunk.jobs.get(pack),
        started.process if started else None,
    ]
    known = [process.is_alive() for process in processes if process]
    if any(known):
        return True
    return None if None in known else False


def start_trouble(chunk: Chunk, jobs_dir: Path, pack: str) -> str:
    """Return the last line of the traceback that kept a job from starting; empty when there is none."""
    submission_dir = jobs_dir / chunk.submission_id
    log = submission_dir / "logs" / f"{chunk.job_of(pack)}_0_log.err"
    if is_there(submission_dir / pack / "started.json"):
        return ""
    text = read_text(log).rstrip()
    return text.splitlines()[-1] if "Traceback (most recent call last)" in text else ""


def end_jobs(chunk: Chunk, jobs_dir: Path, pack: str, signum: signal.Signals = signal.SIGTERM) -> bool:
    """Signal a pack's job, or its controller before the job has said that it started.

    Tell whether the signal was sent.
    """
    started = usable(jobs_dir / chunk.submission_id / pack / "started.json", Started)
    if started is not None and started.process.send(signum):
        return True
    controller = chunk.jobs.get(pack)
    return controller is not None and controller.send(signum)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
