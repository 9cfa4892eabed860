"""RunSpec: what determines a run's result, and the identity made from it. No heavy import."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewright.orchestrator.errors import UserError

RUN_ID_CHARACTERS = 16
SHORTEST_PREFIX = 4
SPEC_FORMAT = 1
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


@dataclass(frozen=True)
class RunSpec:
    """Everything that changes a run's result, defaults included, and nothing else.

    model: ModelSpec.to_dict(); data: fingerprint, tokenizer hash, vocabulary size;
    training: tokens, batch, context, seed, precision, optimiser, schedule, evaluation set, divergence rule;
    parent: the run and the token count this one branches from, or None.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    training: dict[str, Any]
    parent: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the four parts by name. They are the spec's own and not copies: read them only."""
        return {"model": self.model, "data": self.data, "training": self.training, "parent": self.parent}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "RunSpec":
        """Read a complete identity; KeyError where a part is missing."""
        return cls(record["model"], record["data"], record["training"], record["parent"])

    def canonical(self) -> str:
        """Write the spec as JSON with sorted keys; whole floats stay floats (`1.0`), so types matter."""
        return ENCODER.encode(self.to_dict())

    @property
    def run_id(self) -> str:
        """The first characters of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:RUN_ID_CHARACTERS]

    @property
    def batch_tokens(self) -> int:
        """Tokens that one step trains on."""
        return int(self.training["batch_sequences"]) * int(self.training["context"])

    @property
    def n_steps(self) -> int:
        """Whole steps in the budget, which planning rounded up to them."""
        return int(self.training["n_tokens"]) // self.batch_tokens


def match(prefix: str, known: Sequence[str]) -> str:
    """Return the one run id that begins with `prefix`; raises UserError where none or several do."""
    found = [run_id for run_id in known if run_id.startswith(prefix)]
    if len(prefix) < SHORTEST_PREFIX or not found:
        raise UserError(
            f"{prefix}: no run, experiment or file (a run's id needs its first {SHORTEST_PREFIX} characters)"
        )
    if len(found) > 1:
        raise UserError(f"{prefix}: {len(found)} runs begin so ({', '.join(found[:3])} ...); write more characters")
    return found[0]
