"""The small files of a run directory, each as one type for who writes it and who reads it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scalewright.orchestrator.files import Broken, read
from scalewright.orchestrator.runs.spec import RunSpec

Outcome = Literal["completed", "diverged"]
Why = Literal["cancel", "hold", "pause"]


@dataclass(frozen=True)
class Done:
    """DONE.json: how a run ended for good, written once by the attempt that brought it there."""

    outcome: Outcome
    attempt: int
    step: int
    n_tokens: int
    loss_nats: float | None
    bits_per_byte: float | None
    tokens_per_s: float | None
    wall_s: float | None
    train_wall_s: float | None
    time: float
    reason: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class Again:
    """again.json: a person asked for the run once more, at `time`, after `attempts` were made."""

    time: float
    attempts: int
    run_id: str = ""


@dataclass(frozen=True)
class Stop:
    """stop: who wants the run to end, and why; a file without a record was made by hand and means cancel."""

    why: Why = "cancel"
    time: float = 0.0
    run_id: str = ""


@dataclass(frozen=True)
class Owner:
    """owner.json: the attempt that may write in the run directory."""

    attempt: int
    token: str
    time: float
    host: str
    job: dict[str, Any]
    pid: int
    started: str
    run_id: str = ""


@dataclass(frozen=True)
class Identity:
    """What a run's id is the hash of."""

    model: dict[str, Any]
    data: dict[str, Any]
    training: dict[str, Any]
    parent: dict[str, Any] | None


@dataclass(frozen=True)
class SpecFile:
    """spec.json: what is to be trained, how, and what was planned."""

    format: int
    run_id: str
    identity: Identity
    settings: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> RunSpec:
        """The identity as the type that trains and hashes it."""
        return RunSpec(self.identity.model, self.identity.data, self.identity.training, self.identity.parent)


def read_spec(run_dir: Path) -> SpecFile | Broken | None:
    """Read spec.json; what identifies the run in it must give the id that the folder is named after."""
    path = run_dir / "spec.json"
    found = read(path, SpecFile, run_id=run_dir.name)
    if not isinstance(found, SpecFile):
        return found
    try:
        run_id = found.spec.run_id
    except (ValueError, TypeError, KeyError, AttributeError) as trouble:
        return Broken(path, f"the identity in it is none ({trouble})")
    if run_id != run_dir.name:
        return Broken(path, f"the identity in it is that of run {run_id}, not of {run_dir.name}")
    return found
