"""Jobs that are processes of this machine: whether they live, why one did not start, how to end them."""

import signal
from collections.abc import Sequence
from pathlib import Path

from scalewright.orchestrator.files import is_there, read_text, usable
from scalewright.orchestrator.jobs.executors.executor import Ended, Executor
from scalewright.orchestrator.jobs.judge import JobFacts, Looked
from scalewright.orchestrator.jobs.records import Chunk, Job, Started
from scalewright.orchestrator.runs.processes import booted_at

WORDLESS = "exited without a word: killed (out of memory?) or crashed"


class OnThisMachine(Executor):
    """An executor whose chunks name the process of each job."""

    def look(self, jobs_dir: Path, chunks: Sequence[Chunk]) -> Looked:
        """Read from processes and files what became of each job; `unreachable` on another machine."""
        facts = {(chunk.uuid, pack): facts_of(chunk, jobs_dir, pack) for chunk in chunks for pack in chunk.packs}
        return Looked(facts, list(chunks), [])

    def end(self, jobs_dir: Path, jobs: Sequence[Job], *, now: bool) -> Ended:
        """Signal each job's process: TERM leaves time for a checkpoint, KILL with `now` does not."""
        for job in jobs:
            end_job(job.chunk, jobs_dir, job.pack, signal.SIGKILL if now else signal.SIGTERM)
        return Ended()


def facts_of(chunk: Chunk, jobs_dir: Path, pack: str) -> JobFacts:
    """Tell what a job does; one that was never started waits while its submitter lives."""
    if pack not in chunk.jobs:
        alive = chunk.submitter is not None and chunk.submitter.is_alive()
        return JobFacts("pending") if alive else JobFacts("ended", "", "it was never started")
    alive = is_alive(chunk, jobs_dir, pack)
    if alive is None:
        return JobFacts(
            "unreachable",
            reason=f"its processes are on {chunk.submitter.host if chunk.submitter else 'another machine'}",
        )
    if alive:
        return JobFacts("running")
    if trouble := start_trouble(chunk, jobs_dir, pack):
        return JobFacts("ended", "FAILED", trouble)
    started = usable(jobs_dir / chunk.submission_id / pack / "started.json", Started)
    if started is None or started.time < booted_at():  # nobody is to blame, or the machine
        return JobFacts("ended", "", "its process is gone")
    return JobFacts("ended", "EXITED", WORDLESS)


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


def end_job(chunk: Chunk, jobs_dir: Path, pack: str, signum: signal.Signals = signal.SIGTERM) -> bool:
    """Signal a pack's job, or its controller before the job has said that it started.

    Tell whether the signal was sent.
    """
    started = usable(jobs_dir / chunk.submission_id / pack / "started.json", Started)
    if started is not None and started.process.send(signum):
        return True
    controller = chunk.jobs.get(pack)
    return controller is not None and controller.send(signum)
