"""What spec.json asks of a training: the run's identity and the settings that do not change its result. No torch."""

from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import Broken, UnusableFile
from scalewright.orchestrator.runs.records import read_spec
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.runs.training_spec import Settings, TrainingSpec, read_settings, read_training


@dataclass(frozen=True)
class Assignment:
    """What spec.json says."""

    run_dir: Path
    run_id: str
    spec: RunSpec
    training: TrainingSpec
    settings: Settings
    flops_per_token: float

    def steps_at(self, token_counts: tuple[int, ...]) -> frozenset[int]:
        """Return the first step at or after each token count."""
        return frozenset(min(-(-int(tokens) // self.spec.batch_tokens), self.spec.n_steps) for tokens in token_counts)

    @property
    def marks(self) -> frozenset[int]:
        """Steps between which the training loop must come back to its callbacks."""
        settings = self.settings
        return self.steps_at((*settings.evaluate_at, *settings.diagnostics_at, *settings.keep_at))


def read_assignment(run_dir: Path) -> Assignment:
    """Read spec.json; raises UserError when it is missing or does not hold what its run id stands for."""
    path, found = run_dir / "spec.json", read_spec(run_dir)
    if found is None or isinstance(found, Broken):
        raise UnusableFile(str(found or f"{path}: no such file"))
    spec = found.spec
    if spec.parent is not None:
        raise UserError(f"{path}: a run that branches from another cannot be trained by this version")
    training = read_training(spec.training, f"{path}: training")
    settings = read_settings(found.settings, f"{path}: settings")
    planned = found.planned.get("flops_per_token")
    if planned is not None and not isinstance(planned, int | float):
        raise UnusableFile(f"{path}: planned.flops_per_token is not a number")
    return Assignment(run_dir, spec.run_id, spec, training, settings, float(planned or 0))
