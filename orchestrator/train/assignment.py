"""What spec.json asks of a training: the run's identity and the settings that do not change its result. No torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import Broken, UnusableFile, record_of
from scalewright.orchestrator.runs.records import read_spec
from scalewright.orchestrator.runs.spec import RunSpec


@dataclass(frozen=True)
class Settings:
    """How a run is executed; nothing here changes its result. Token counts are positions of the run."""

    data_dir: str
    evaluate_at: tuple[int, ...] = ()
    diagnostics_at: tuple[int, ...] = ()
    log_every_steps: int = 1
    checkpoint_every_s: float = 600.0
    compile: bool = False
    threads: int = 1
    micro_batch_sequences: int | None = None
    mirrors: tuple[Any, ...] = ()

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Settings":
        known = {name: value for name, value in record.items() if name in cls.__dataclass_fields__}
        return record_of(cls, known, "settings")


@dataclass(frozen=True)
class Planned:
    """What a training needs of the numbers planned for it."""

    flops_per_token: float | None


@dataclass(frozen=True)
class Assignment:
    """What spec.json says."""

    run_dir: Path
    run_id: str
    spec: RunSpec
    settings: Settings
    flops_per_token: float

    @property
    def training(self) -> dict[str, Any]:
        return self.spec.training

    def steps_at(self, token_counts: tuple[int, ...]) -> frozenset[int]:
        """Return the first step at or after each token count."""
        return frozenset(min(-(-int(tokens) // self.spec.batch_tokens), self.spec.n_steps) for tokens in token_counts)


def read_assignment(run_dir: Path) -> Assignment:
    """Read spec.json; raises UserError when it is missing or does not hold what its run id stands for."""
    path, found = run_dir / "spec.json", read_spec(run_dir)
    if found is None or isinstance(found, Broken):
        raise UnusableFile(str(found or f"{path}: no such file"))
    spec = found.spec
    if spec.parent is not None:
        raise UserError(f"{path}: a run that branches from another cannot be trained by this version")
    try:
        settings = Settings.of(found.settings)
        flops_per_token = record_of(Planned, {"flops_per_token": found.planned.get("flops_per_token")}).flops_per_token
    except ValueError as trouble:
        raise UnusableFile(f"{path}: {trouble}") from None
    return Assignment(run_dir, spec.run_id, spec, settings, flops_per_token or 0.0)
