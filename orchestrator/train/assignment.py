"""What spec.json asks of a training: the run's identity and the settings that do not change its result. No torch."""

from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import read_json
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


def read_assignment(run_dir: Path) -> Assignment:
    """Read spec.json; raises UserError when it is missing or does not hold what its run id stands for."""
    path = run_dir / "spec.json"
    record = read_json(path)
    if record is None:
        raise UserError(f"{path}: no such file")
    spec = RunSpec.from_dict(record["identity"])
    if spec.run_id != record["run_id"]:
        raise UserError(f"{path}: holds the identity of run {spec.run_id}, not of {record['run_id']}")
    if spec.parent is not None:
        raise UserError(f"{path}: a run that branches from another cannot be trained by this version")
    flops_per_token = float(record.get("planned", {}).get("flops_per_token") or 0)
    training = read_training(spec.training, f"{path}: training")
    return Assignment(
        run_dir, spec.run_id, spec, training, read_settings(record["settings"], f"{path}: settings"), flops_per_token
    )
