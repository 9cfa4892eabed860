"""The manifest of a data folder: what is in its shards, what made them, and the fingerprint of both. No torch."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewright.orchestrator.data.shards import Shard, open_shard
from scalewright.orchestrator.errors import UserError

MANIFEST_FILE = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Split:
    """One side of the split by document. n_bytes: UTF-8 bytes of the text, and one for the end of each document."""

    shards: tuple[Shard, ...]
    n_tokens: int
    n_bytes: int
    n_documents: int

    @property
    def bytes_per_token(self) -> float:
        return self.n_bytes / self.n_tokens

    def n_windows(self, context: int) -> int:
        """Count the windows of `context` tokens that each have a next token; none reaches over a shard's end."""
        return sum(max(shard.n_tokens - 1, 0) // context for shard in self.shards)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Split":
        shards = tuple(Shard(**shard) for shard in record["shards"])
        return cls(shards, record["n_tokens"], record["n_bytes"], record["n_documents"])


@dataclass(frozen=True)
class Manifest:
    """What a data folder holds. fingerprint: hash of the split documents, the tokenizer and the cut into
    shards; it names the folder of the shards and enters a run's identity.

    tokenizer: name, hash, vocab_size, end_id. request: what was asked for, so that asking again costs nothing.
    """

    fingerprint: str
    tokenizer: dict[str, Any]
    train: Split
    validation: Split
    request: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])

    @property
    def tokenizer_hash(self) -> str:
        return str(self.tokenizer["hash"])

    @property
    def bytes_per_token(self) -> float:
        """Bytes a token in the validation split: what turns nats per token into bits per byte."""
        return self.validation.bytes_per_token

    def identity(self) -> dict[str, Any]:
        """Return what a run's identity says about its data."""
        return {"fingerprint": self.fingerprint, "tokenizer": self.tokenizer_hash, "vocab_size": self.vocab_size}

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    def folder(self, data_dir: str | Path) -> Path:
        """Return where the shards and the tokenizer's file are."""
        return Path(data_dir) / self.fingerprint


def read(data_dir: str | Path) -> Manifest:
    """Read the manifest of a data folder; raises UserError when there is none or it is of another format."""
    path = Path(data_dir) / MANIFEST_FILE
    if not path.is_file():
        raise UserError(f"{path}: no such file (make token shards with: scalewright data prepare)")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as mistake:
        raise UserError(f"{path}:{mistake.lineno}: not JSON ({mistake.msg}); prepare the data again") from mistake
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UserError(f"{path}: not a manifest of format {FORMAT}; prepare the data again")
    train, validation = Split.from_dict(record["train"]), Split.from_dict(record["validation"])
    return Manifest(record["fingerprint"], record["tokenizer"], train, validation, record["request"])


def write(manifest: Manifest, data_dir: Path) -> None:
    """Write the manifest under a temporary name, then rename it: a folder has the old one or the new one."""
    temporary = data_dir / f".{MANIFEST_FILE}.{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(manifest.to_dict(), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(data_dir / MANIFEST_FILE)


def open_split(manifest: Manifest, data_dir: str | Path, name: str) -> list[np.ndarray]:
    """Map the shards of the split `name` (train or validation) into memory; raises UserError as open_shard does."""
    split: Split = {"train": manifest.train, "validation": manifest.validation}[name]
    folder, made_by = Path(data_dir), manifest.tokenizer_hash
    return [open_shard(folder / shard.file, tokenizer_hash=made_by, n_tokens=shard.n_tokens) for shard in split.shards]
