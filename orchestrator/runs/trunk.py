"""What runs of one schedule share: `wsd` runs that differ in length alone are one run up to the first decay.

Rate, data order and seed are the same there, so a longer run keeps a checkpoint where a shorter one begins its decay,
and the shorter one goes on from it: bit for bit what it would have been alone, on the same kind of device.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.orchestrator.runs.spec import ENCODER, RunSpec

TRUNKS = "trunks"
OF_LENGTH = ("decay_tokens", "final_fraction")


@dataclass(frozen=True)
class Trunk:
    """trunk_id: hash of all that decides a run before its decay; n_tokens: whole steps before it."""

    trunk_id: str
    n_tokens: int


def trunk_of(spec: RunSpec) -> Trunk | None:
    """Return the trunk of a run; None where its rate depends on its length from the first step on."""
    schedule, batch_tokens = spec.training["schedule"], spec.batch_tokens
    if schedule["name"] != "wsd" or spec.parent is not None:
        return None
    steady = int(spec.training["n_tokens"]) - int(schedule["decay_tokens"])
    n_tokens = steady // batch_tokens * batch_tokens
    if n_tokens <= 0:
        return None
    shared: dict[str, Any] = {key: value for key, value in spec.training.items() if key != "n_tokens"}
    shared["schedule"] = {key: value for key, value in schedule.items() if key not in OF_LENGTH}
    whole = ENCODER.encode({"model": spec.model, "data": spec.data, "training": shared})
    return Trunk(hashlib.sha256(whole.encode()).hexdigest()[:16], n_tokens)


def trunk_dir(run_dir: Path, trunk_id: str) -> Path:
    """Where the checkpoints of a trunk lie: beside the folder of runs, so that a copied study has them too."""
    return run_dir.parent.parent / TRUNKS / trunk_id
