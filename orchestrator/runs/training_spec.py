"""The training part of a run's spec as one type: the planner writes it, the trainer reads it. No heavy import."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs.run_files import ERRORS_ALLOWED


class Record(BaseModel):
    """A part of spec.json: every key has its type, and a key that is missing or not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class OptimizerSpec(Record):
    """Norms are L2; a clip of 0 is none. momentum: of `muon` alone."""

    name: str
    lr_peak: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decay: str
    clip_norm: float
    gate_clip_norm: float
    momentum: float | None = None


class ScheduleSpec(Record):
    """Lengths in tokens of the run; final_fraction: rate at the end over the peak; decay_tokens: of `wsd` alone."""

    name: str
    warmup_tokens: int
    final_fraction: float
    decay_tokens: int | None = None


class EvaluationSpec(Record):
    """The fixed validation set: its first `n_windows` windows."""

    n_windows: int


class DivergenceSpec(Record):
    """The rule of `train/divergence.py`: nats above the best, for this share of the run."""

    rise_nats: float
    patience: float


class TrainingSpec(Record):
    """How a run is trained, every number resolved. precision: a key of the table in `config/recipes.py`."""

    n_tokens: int
    batch_sequences: int
    context: int
    seed: int
    precision: str
    optimizer: OptimizerSpec
    schedule: ScheduleSpec
    evaluation: EvaluationSpec
    divergence: DivergenceSpec

    def to_dict(self) -> dict[str, Any]:
        """Return the record as spec.json and the run's identity hold it: a key that has no meaning is left out."""
        return self.model_dump(exclude_none=True)


class Settings(Record):
    """How a run is carried out; nothing here changes its result. Token counts are positions of the run.

    corpora: shards of other texts, by name, whose loss is measured at the end. trunk: what it shares with runs of other
    lengths (`runs/trunk.py`), and keep_at: where it leaves its state to them.
    """

    data_dir: str = ""
    evaluate_at: tuple[int, ...] = ()
    diagnostics_at: tuple[int, ...] = ()
    log_every_steps: int = 1
    checkpoint_every_s: float = 600.0
    compile: bool = False
    threads: int = 1
    devices: int = 1
    micro_batch_sequences: int | None = None
    mirrors: tuple[Any, ...] = ()
    profile: str = ""
    label: str = ""
    lr_rule: str = ""
    errors_allowed: int = ERRORS_ALLOWED
    corpora: dict[str, str] = {}
    trunk: str = ""
    keep_at: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as spec.json holds them under `settings`."""
        return self.model_dump(mode="json")


def read_training(record: Any, where: str) -> TrainingSpec:
    """Read the training part of a spec; raises UserError in one line for a key that is missing, unknown or wrong.

    A `wsd` run planned before its decay was kept in tokens trained at a constant rate: it is refused by name.
    """
    if isinstance(record, dict) and "decay_fraction" in (record.get("schedule") or {}):
        raise UserError(
            f"{where}: a wsd run of an earlier version, which trained at a constant rate; plan it again, which makes a "
            "new run"
        )
    try:
        return TrainingSpec.model_validate(record)
    except ValidationError as error:
        raise UserError(f"{where}: {first_finding(error)}") from None


def read_settings(record: Any, where: str) -> Settings:
    """Read the settings of a spec, lists as tuples; raises UserError in one line."""
    try:
        return Settings.model_validate(record, strict=False)
    except ValidationError as error:
        raise UserError(f"{where}: {first_finding(error)}") from None


def first_finding(error: ValidationError) -> str:
    """Say the first finding in words: `schedule.decay_tokens: ...`."""
    finding = error.errors(include_url=False)[0]
    words = {"missing": "this key is missing", "extra_forbidden": "unknown key"}
    path = ".".join(map(str, finding["loc"]))
    return f"{path}: {words.get(finding['type'], finding['msg'])}" if path else finding["msg"]
