"""What a submission leaves on disk: small JSON records, each written whole and renamed. Knows the files only.

jobs/<submission>/submission.json · <chunk>.json (one array or one launch) · <pack>/pack.json (what one job executes)
"""

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from scalewright.orchestrator.files import write_json

PACK_FORMAT = 1


@dataclass(frozen=True)
class Pack:
    """What one job executes: run directories one after another, the code they run with, and what to do on errors."""

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
    retry: dict[str, int] = field(default_factory=lambda: {"errors": 1, "same_error": 5})
    hang_s: float = 1800.0
    notify: str | None = None
    format: int = PACK_FORMAT

    def write(self, job_dir: Path) -> None:
        write_json(job_dir / "pack.json", asdict(self))

    @classmethod
    def read(cls, job_dir: Path) -> "Pack":
        """Read a job's pack; a missing file is a FileNotFoundError that names it."""
        return cls(**orjson.loads((job_dir / "pack.json").read_bytes()))


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
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    submitter: dict[str, Any] = field(default_factory=dict)
    throttle: int | None = None
    after: list[str] = field(default_factory=list)
    closed: bool = False

    @classmethod
    def read(cls, path: Path) -> "Chunk":
        return cls(**orjson.loads(path.read_bytes()))

    def write(self, jobs_dir: Path) -> None:
        write_json(chunk_path(jobs_dir, self.submission_id, self.uuid), asdict(self), durable=True)

    def with_job_id(self, job_id: str, cluster: str | None) -> "Chunk":
        return replace(self, job_id=job_id, cluster=cluster)

    def job_of(self, pack: str) -> str | None:
        """Name the job of a pack as the executor does: `array_task` on SLURM, a pid on this machine."""
        if self.executor != "slurm":
            job = self.jobs.get(pack)
            return str(job["pid"]) if job else None
        if self.job_id is None:
            return None
        return self.job_id if len(self.packs) == 1 else f"{self.job_id}_{self.packs.index(pack)}"

    @property
    def age_s(self) -> float:
        return time.time() - self.created


def chunk_path(jobs_dir: Path, submission_id: str, uuid: str) -> Path:
    return jobs_dir / submission_id / f"chunk-{uuid}.json"


def read_chunks(jobs_dir: Path, *, closed: bool = False) -> list[Chunk]:
    """Read the chunks of every submission that may still have something running (all with `closed`), oldest first."""
    found = (Chunk.read(path) for path in jobs_dir.glob("*/chunk-*.json"))
    return sorted((one for one in found if closed or not one.closed), key=lambda one: (one.created, one.uuid))
