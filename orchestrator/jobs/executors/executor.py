"""What an executor is: how it cuts work into jobs, starts them, tells what became of them, and ends them.

Each name of `config.resources.EXECUTORS` is a module of this folder whose EXECUTOR is the object.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from scalewright.db.engine import Database
from scalewright.db.store import SubmittedJob, record_submission
from scalewright.orchestrator.config.resources import EXECUTORS, Profile
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.judge import Looked
from scalewright.orchestrator.jobs.packing import NamedPack, Work
from scalewright.orchestrator.jobs.records import Chunk, Job, read_chunks
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.study import Study


@dataclass(frozen=True)
class Handover:
    """A submission as its executor gets it: what each job is to do lies on disk already."""

    study: Study
    database: Database
    submission_id: str
    packs: Sequence[NamedPack]
    max_parallel: int | None = None


@dataclass(frozen=True)
class Ended:
    """Which jobs will not start any more; trouble: why others that were to be cancelled are still there, or empty."""

    jobs: list[Job] = field(default_factory=list)
    trouble: str = ""


class Executor(ABC):
    """A way to carry out jobs.

    in_process: jobs run in the process that submits, with its code, and are over when `submit` returns; lanes: a job
    may train several runs side by side, as its profile says.
    """

    name: ClassVar[str]
    in_process: ClassVar[bool] = False
    lanes: ClassVar[bool] = False

    def check(self) -> None:  # noqa: B027 - most can always
        """Raise UserError where jobs cannot be handed over now."""

    @abstractmethod
    def cut(
        self, study: Study, work: Sequence[Work], profile: Profile, max_parallel: int | None
    ) -> Sequence[Sequence[Work]]:
        """Cut the runs of a resource class into jobs."""

    @abstractmethod
    def submit(self, handover: Handover) -> int:
        """Start a job for each pack, its record written first; return how many. Raises UserError for a refusal."""

    @abstractmethod
    def look(self, jobs_dir: Path, chunks: Sequence[Chunk]) -> Looked:
        """Tell what the jobs of chunks do; chunks whose job was found in the meantime come back with it."""

    @abstractmethod
    def end(self, jobs_dir: Path, jobs: Sequence[Job], *, now: bool) -> Ended:
        """Take jobs out of the queue; those that run are asked to end at a checkpoint, with `now` killed."""

    def chunks(self, jobs_dir: Path) -> list[Chunk]:
        """Read its chunks that may still have something running."""
        return [chunk for chunk in read_chunks(jobs_dir) if chunk.executor == self.name]


def find_executor(name: str) -> Executor:
    """Return the executor of a name; raises UserError for one that there is not."""
    if name not in EXECUTORS:
        raise UserError(f"{name}: not an executor (expected {', '.join(EXECUTORS)})")
    executor: Executor = import_module(f"{__package__}.{name}").EXECUTOR
    return executor


def new_chunk(handover: Handover, executor: Executor, packs: Sequence[NamedPack], profile: str = "") -> Chunk:
    """Make the record of a launch, which is written before anything is started."""
    names = [pack.name for pack in packs]
    who = handover.submission_id
    return Chunk(uuid.uuid4().hex, who, executor.name, names, time.time(), profile, submitter=Process.this())


def record_jobs(handover: Handover, chunk: Chunk, packs: Sequence[NamedPack]) -> None:
    """Write in the database which job has which runs."""
    folder = handover.study.jobs_dir / chunk.submission_id
    jobs = [
        SubmittedJob(job, [one.run_id for one in pack.work], str(folder / pack.name), chunk.cluster)
        for pack in packs
        if (job := chunk.job_of(pack.name)) is not None
    ]
    record_submission(handover.database, chunk.submission_id, jobs)
