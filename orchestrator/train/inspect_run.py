"""Questions to a finished run, and its weights as a stock checkpoint. Reads run directories; torch inside."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from scalewright.models.diagnostics import collect
from scalewright.models.export import to_llama
from scalewright.models.inspection import can_fold, factor_errors, layer_importance, strange_norms
from scalewright.models.transformer import Transformer
from scalewright.orchestrator.data.tokenizers import TOKENIZER_FILE
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import write_bytes
from scalewright.orchestrator.runs.spec import match
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.train import checkpoint, process
from scalewright.orchestrator.train.assemble import build_model, open_data, open_validation
from scalewright.orchestrator.train.assignment import Assignment, read_assignment

SHOWN = (
    "activation_norm",
    "activation_variance",
    "angular_distance",
    "gate_factor_attention",
    "gate_factor_mlp",
    "step_attention",
    "step_mlp",
)


@dataclass(frozen=True)
class Loaded:
    """A run with the model of its newest checkpoint."""

    job: Assignment
    model: Transformer
    step: int
    n_tokens: int


def load_run(study: Study, prefix: str) -> Loaded:
    """Load the newest whole checkpoint of the run whose id begins with `prefix`.

    Raises UserError where no run, several runs or no checkpoint is found.
    """
    known = sorted(path.parent.name for path in study.runs_dir.glob("*/spec.json"))
    job = read_assignment(study.run_dir(match(prefix, known)))
    saved = checkpoint.load_latest(job.run_dir, job.run_id)
    if saved is None:
        raise UserError(f"{job.run_dir / 'ckpt'}: no checkpoint of run {job.run_id} yet")
    process.set_up(job.settings.threads)
    return Loaded(job, build_model(job, saved), saved["step"], saved["tokens"])


def inspect_run(study: Study, prefix: str, *, gates: str | None = None, n_windows: int = 32) -> dict[str, Any]:
    """Return what the layers of a run do, on its first validation windows, as plain JSON values.

    gates: folded or kept while a layer is removed; folded where possible by default. Raises UserError and ModelError.
    """
    loaded = load_run(study, prefix)
    tokens, targets = validation_batch(loaded.job, n_windows)
    model, spec = loaded.model.float(), loaded.model.spec
    importance = layer_importance(model, tokens, targets, gates=gates or ("folded" if can_fold(spec) else "kept"))
    norms, values = strange_norms(model, tokens), collect(model, tokens, targets)
    columns = {"loss_change_nats": importance.change_nats, "norm_on_repeated_token": norms.repeated}
    columns |= {name: values[name] for name in SHOWN if name in values}
    return {
        "run_id": loaded.job.run_id,
        "method": spec.method,
        "gate": spec.gate,
        "gates_in_removal": importance.gates,
        "step": loaded.step,
        "n_tokens": loaded.n_tokens,
        "loss_nats": importance.loss_nats,
        "n_tokens_inspected": targets.numel(),
        "n_windows": len(targets),
        "n_windows_of_run": loaded.job.training.evaluation.n_windows,
        "norm_ratio_repeated_to_text": norms.ratio,
        "factor_errors": factor_errors(spec) if spec.interior().factors is not None else None,
        "layers": [
            {"layer": layer} | {name: column[layer] for name, column in columns.items()} for layer in range(spec.depth)
        ],
    }


def validation_batch(job: Assignment, n_windows: int) -> tuple[Tensor, Tensor]:
    """Return tokens and targets of the run's first validation windows."""
    windows = open_validation(job, open_data(job)).windows[:n_windows]
    return windows[:, :-1], windows[:, 1:]


def export_checkpoint(study: Study, prefix: str, into: Path | None = None) -> Path:
    """Write a run's weights as a stock Llama (model.safetensors, config.json), gates folded; return the folder.

    A tokenizer.json beside the run's data is copied along; a byte tokenizer has none.

    The folder is `into`, or export/RUN_ID in the study. Raises ModelError where the method has no such form.
    """
    from safetensors.torch import save

    loaded = load_run(study, prefix)
    stock = to_llama(loaded.model.float())
    folder = into or study.root / "export" / loaded.job.run_id
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "model.safetensors", save(stock.tensors, metadata={"format": "pt"}))
    write_bytes(folder / "config.json", (json.dumps(stock.config, indent=2) + "\n").encode())
    tokenizer = Path(loaded.job.settings.data_dir) / TOKENIZER_FILE
    if tokenizer.is_file():
        write_bytes(folder / TOKENIZER_FILE, tokenizer.read_bytes())
    return folder
