"""What a submission leaves on disk, each file as one type for who writes it and who reads it. Knows the files only.

jobs/<submission>/submission.json · chunk-<uuid>.json (one array or one launch) · <pack>/pack.json (what one job
executes) and, written by the job: started.json, failed.json, finished.json, hangs.json. Paths are relative to the
study, and a submission knows in which study it was made: a copy of the study has the record of its jobs, not the jobs.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalewright.orchestrator.config.resources import EXECUTORS
from scalewright.orchestrator.files import Broken, read, require, usable, write_json
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.run_files import ERRORS_ALLOWED, HANG_S, SAME_ERROR_RUNS

PACK_FORMAT = 2


@dataclass(frozen=True)
class Place:
    """A folder as it can be told from a copy of it."""

    path: str
    inode: int

    @classmethod
    def of(cls, folder: Path) -> "Place":
        """Read a folder's inode; OSError where it is not there."""
        return cls(str(folder), folder.stat().st_ino)

    def is_copied_to(self, folder: Path) -> bool:
        """Tell whether `folder` is a copy; a folder that was renamed, or has two names, is itself."""
        return self.path != str(folder) and self.inode != folder.stat().st_ino


@dataclass(frozen=True)
class Submission:
    """submission.json: who submits, written before anything else. study: where, None in files of older versions."""

    submitter: Process
    executor: str
    created: float
    payload: str
    study: Place | None = None


@dataclass(frozen=True)
class Started:
    """started.json: the process that works on a pack, or on a lane of it."""

    process: Process
    job: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0
    restart: int = 0


@dataclass(frozen=True)
class Failed:
    """failed.json: the error that ended a job outside of any run."""

    error: str
    time: float


@dataclass(frozen=True)
class Finished:
    """finished.json: a job went through its pack and is not to be started again."""

    outcomes: dict[str, str]
    time: float
    job: dict[str, Any]


@dataclass(frozen=True)
class BatchStopped:
    """batch_stopped.json: too many runs of a submission died of the same error."""

    message: str
    n_runs: int
    time: float


@dataclass(frozen=True)
class Hangs:
    """hangs.json: how often a job hung at the same place."""

    n: int
    place: list[Any]


@dataclass(frozen=True)
class Pack:
    """What one job executes: run directories one after another, the code they run with, and what to do on errors.

    runs: in pack.json relative to the folder of that file, here where they are now.
    """

    submission_id: str
    name: str
    runs: list[str]
    root: str
    snapshot: str
    commit: str | None = None
    dirty: bool = False
    payload: str = "train"
    threads: int = 1
    devices: int = 1
    lanes: int = 1
    retry: dict[str, int] = field(default_factory=lambda: {"errors": ERRORS_ALLOWED, "same_error": SAME_ERROR_RUNS})
    hang_s: float = HANG_S
    notify: str | None = None
    format: int = PACK_FORMAT

    def write(self, job_dir: Path) -> None:
        """Write pack.json, with runs relative to it: a study may be moved."""
        runs = [os.path.relpath(run, job_dir) for run in self.runs]
        write_json(job_dir / "pack.json", replace(self, runs=runs))

    @classmethod
    def read(cls, job_dir: Path) -> "Pack":
        """Read a job's pack; raises UnusableFile, which names the file, where it is missing or broken."""
        return placed(require(job_dir / "pack.json", cls), job_dir)


def placed(pack: Pack, job_dir: Path) -> Pack:
    """Return a pack with its runs where they are now; those of format 1 were written with whole paths."""
    return replace(pack, runs=[os.path.normpath(job_dir / run) for run in pack.runs])


def read_pack(jobs_dir: Path, submission_id: str, name: str) -> Pack | Broken:
    """Read a pack of a submission; one that is missing is as broken as one that cannot be read."""
    job_dir = jobs_dir / submission_id / name
    found = read(job_dir / "pack.json", Pack, submission_id=submission_id, name=name)
    if isinstance(found, Pack):
        return placed(found, job_dir)
    return found or Broken(job_dir / "pack.json", "no such file")


def runs_in(jobs_dir: Path, submission_id: str, name: str) -> list[Path]:
    """Return the run directories of a pack; none where its file cannot be used."""
    pack = read_pack(jobs_dir, submission_id, name)
    return [Path(run) for run in pack.runs] if isinstance(pack, Pack) else []


@dataclass(frozen=True)
class Chunk:
    """Jobs handed over in one call: an array of a SLURM cluster, or the packs of one local launch.

    job_id: SLURM's array id, None until its reply arrived; jobs: the local jobs by pack, each a named process;
    throttle: its jobs at once; after: ids of arrays that must be over before it begins.
    """

    uuid: str
    submission_id: str
    executor: str
    packs: list[str]
    created: float
    profile: str = ""
    cluster: str | None = None
    job_id: str | None = None
    jobs: dict[str, Process] = field(default_factory=dict)
    submitter: Process | None = None
    throttle: int | None = None
    after: list[str] = field(default_factory=list)
    closed: bool = False

    @classmethod
    def read(cls, path: Path) -> "Chunk":
        """Read a chunk; raises UnusableFile, which names the file, where it is missing or broken."""
        return require(path, cls, uuid=path.stem.removeprefix("chunk-"), submission_id=path.parent.name)

    def write(self, jobs_dir: Path) -> None:
        """Write the record, over the one of the same chunk."""
        write_json(chunk_path(jobs_dir, self.submission_id, self.uuid), self)

    def with_job_id(self, job_id: str, cluster: str | None) -> "Chunk":
        """Return the record with what the cluster called it."""
        return replace(self, job_id=job_id, cluster=cluster)

    def job_of(self, pack: str) -> str | None:
        """Name the job of a pack as the executor does: a pid on this machine, `array_task` on SLURM."""
        if pack in self.jobs:
            return str(self.jobs[pack].pid)
        if self.job_id is None:
            return None
        return self.job_id if len(self.packs) == 1 else f"{self.job_id}_{self.packs.index(pack)}"


@dataclass(frozen=True)
class Job:
    """One job: its chunk, its pack, and the directories of its runs where somebody asked for these."""

    chunk: Chunk
    pack: str
    runs: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """Its name at its executor, None before it has one."""
        return self.chunk.job_of(self.pack)


def chunk_path(jobs_dir: Path, submission_id: str, uuid: str) -> Path:
    """Where the record of a launch lies."""
    return jobs_dir / submission_id / f"chunk-{uuid}.json"


def read_chunks(jobs_dir: Path, *, closed: bool = False) -> list[Chunk]:
    """Read the chunks of every submission that may still have something running (all with `closed`), oldest first.

    Those that cannot be used are left out, and so are those of the study that this one was copied from.
    """
    found = [one for one in _all_chunks(jobs_dir) if isinstance(one, Chunk) and (closed or not one.closed)]
    copied = copied_submissions(jobs_dir, {one.submission_id for one in found})
    mine = (one for one in found if one.submission_id not in copied)
    return sorted(mine, key=lambda one: (one.created, one.uuid))


def _all_chunks(jobs_dir: Path) -> list[Chunk | Broken]:
    paths = sorted(jobs_dir.glob("*/chunk-*.json"))
    found = (read(path, Chunk, uuid=path.stem.removeprefix("chunk-"), submission_id=path.parent.name) for path in paths)
    return [known(one, path) for one, path in zip(found, paths, strict=True) if one is not None]


def known(chunk: Chunk | Broken, path: Path) -> Chunk | Broken:
    """Return a chunk whose jobs can be asked for; another version may have executors that this one does not."""
    if isinstance(chunk, Broken) or chunk.executor in EXECUTORS:
        return chunk
    return Broken(path, f"{chunk.executor} is no executor of this version ({', '.join(EXECUTORS)})")


def broken_files(jobs_dir: Path) -> dict[str, Broken]:
    """Return for each submission with a record of jobs that cannot be used the first such file."""
    found: dict[str, Broken] = {}
    for one in _all_chunks(jobs_dir):
        if isinstance(one, Broken):
            found.setdefault(one.path.parent.name, one)
        elif not one.closed:
            packs = (read_pack(jobs_dir, one.submission_id, name) for name in one.packs)
            for pack in packs:
                if isinstance(pack, Broken):
                    found.setdefault(one.submission_id, pack)
    return found


def copied_submissions(jobs_dir: Path, submission_ids: Iterable[str]) -> dict[str, str]:
    """Return which submissions were made in another study, of which this one is a copy, and where that is or was."""
    if not jobs_dir.is_dir():
        return {}
    records = {one: usable(jobs_dir / one / "submission.json", Submission) for one in submission_ids}
    places = {one: record.study for one, record in records.items() if record is not None}
    root = jobs_dir.parent
    return {one: place.path for one, place in places.items() if place is not None and place.is_copied_to(root)}
