"""Small runs: a made-up text of two thousand words, models of a few thousand parameters, a dozen steps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.data.prepare import prepare
from scalewright.orchestrator.runs.spec import RunSpec

BATCH, CONTEXT, N_STEPS = 4, 16, 40


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    words = ["whale", "sea", "ship", "the", "a", "of", "and", "white"]
    drawn = np.random.default_rng(0).choice(words, size=(300, 12))
    documents = [json.dumps({"text": " ".join(line) + "."}) for line in drawn]
    (folder / "words.jsonl").write_text("\n".join(documents))
    prepare([folder / "words.jsonl"], "bytes", folder / "data", validation_fraction=0.2)
    return folder / "data"


@pytest.fixture
def make_run(tmp_path: Path, data_dir: Path) -> Callable[..., Path]:
    """Return a function that writes the run directory of a small run; keywords of `settings` or parts of `training`."""

    Part = dict[str, Any]

    def make(place: str = "runs", *, model: Part | None = None, settings: Part | None = None, **training: Any) -> Path:
        shape = {"width": 8, "depth": 1, "heads": 2, "context": CONTEXT, "vocab_size": 256} | (model or {})
        data = manifest.read(data_dir).identity()
        spec = RunSpec(ModelSpec(**shape).to_dict(), data, small_training() | training)
        run_dir = tmp_path / place / spec.run_id
        run_dir.mkdir(parents=True)
        record = {"format": 1, "run_id": spec.run_id, "identity": spec.to_dict(), "planned": {}}
        record["settings"] = {"data_dir": str(data_dir), "threads": 1} | (settings or {})
        (run_dir / "spec.json").write_text(json.dumps(record))
        return run_dir

    return make


def small_training() -> dict[str, Any]:
    return {
        "n_tokens": N_STEPS * BATCH * CONTEXT,
        "batch_sequences": BATCH,
        "context": CONTEXT,
        "seed": 0,
        "precision": "fp32",
        "optimizer": {
            "name": "adamw",
            "lr_peak": 0.02,
            "beta1": 0.9,
            "beta2": 0.95,
            "eps": 1e-8,
            "weight_decay": 0.1,
            "decay": "matrices",
            "clip_norm": 1.0,
            "gate_clip_norm": 0.0,
        },
        "schedule": {"name": "cosine", "warmup_tokens": 4 * BATCH * CONTEXT, "final_fraction": 0.0},
        "evaluation": {"n_windows": 10},
        "divergence": {"rise_nats": 1.0, "patience": 0.1},
    }


@pytest.fixture
def training() -> dict[str, Any]:
    """Return the `training` part of a small run, for tests that change a part of a part."""
    return small_training()


@pytest.fixture
def read_journal() -> Callable[..., list[dict[str, Any]]]:
    """Return a function that reads the records of an attempt, of one type when it is given."""

    def read(run_dir: Path, kind: str | None = None, attempt: int = 1) -> list[dict[str, Any]]:
        lines = (run_dir / f"journal.a{attempt}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record for record in records if kind in (None, record["type"])]

    return read
