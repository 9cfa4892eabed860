"""Where a study keeps its files: every path is derived from the folder of its YAML file. No heavy import."""

import os
from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.errors import UserError


@dataclass(frozen=True)
class Study:
    """A folder with its runs database, run directories, jobs, token shards and figures."""

    root: Path
    database: str

    @classmethod
    def at(cls, place: str | Path | None = None, *, database: str | None = None) -> "Study":
        """Find the study of a YAML file, of a folder, or of the current folder when `place` is neither.

        The database is the first of: `database`, the variable SCALEWRIGHT_DB, `runs.sqlite` in the study's folder.
        """
        path = Path(place) if place is not None else Path.cwd()
        root = path if path.is_dir() else path.parent if path.is_file() else Path.cwd()
        root = root.resolve()
        return cls(root, database or os.environ.get("SCALEWRIGHT_DB") or str(root / "runs.sqlite"))

    @property
    def runs_dir(self) -> Path:
        """One folder a run, named by its id."""
        return self.root / "runs"

    @property
    def jobs_dir(self) -> Path:
        """One folder a job, and records of what was started."""
        return self.root / "jobs"

    @property
    def data_dir(self) -> Path:
        """Token shards, one folder a data set."""
        return self.root / "data"

    @property
    def figures_dir(self) -> Path:
        """Pictures and pages, one folder an experiment."""
        return self.root / "figures"

    @property
    def snapshots_dir(self) -> Path:
        """Copies of the code that jobs run, named by their content."""
        return self.root / "snapshots"

    def run_dir(self, run_id: str) -> Path:
        """Where a run has its spec, journals, checkpoints and outcome."""
        return self.runs_dir / run_id


def sweep_name(experiment: str) -> str:
    """Name the experiment that holds the sweep of an experiment's `tune:`."""
    return f"{experiment}-tune"


@dataclass(frozen=True)
class Asked:
    """A study, one experiment of it, and the comparisons that its file names."""

    study: Study
    experiment: str
    compare: tuple[tuple[str, str], ...] = ()


def find_yaml(path: Path) -> Path:
    """Return `path` if it is a file, else raise the error a person can act on."""
    if path.is_file():
        return path
    raise UserError(f"{path}: no such file (make a starter with: scalewright init)")
