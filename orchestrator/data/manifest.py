"""The manifest of a data folder: what is in its shards, what made them, and the fingerprint of both. No torch."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewright.orchestrator import files
from scalewright.orchestrator.data.shards import Shard, open_shard
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import Broken

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
        """UTF-8 bytes of text a token, by which nats become bits a byte."""
        return self.n_bytes / self.n_tokens

    def n_windows(self, context: int) -> int:
        """Count the windows of `context` tokens that each have a next token; none reaches over a shard's end."""
        return sum(max(shard.n_tokens - 1, 0) // context for shard in self.shards)


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
        """Number of token ids, so of rows of the embedding."""
        return int(self.tokenizer["vocab_size"])

    @property
    def tokenizer_hash(self) -> str:
        """What changes with every change of a token id."""
        return str(self.tokenizer["hash"])

    @property
    def bytes_per_token(self) -> float:
        """Bytes a token in the validation split: what turns nats per token into bits per byte."""
        return self.validation.bytes_per_token

    def identity(self) -> dict[str, Any]:
        """Return what a run's identity says about its data."""
        return {"fingerprint": self.fingerprint, "tokenizer": self.tokenizer_hash, "vocab_size": self.vocab_size}

    def to_dict(self) -> dict[str, Any]:
        """Return what manifest.json holds."""
        return {"format": FORMAT, **asdict(self)}

    def folder(self, data_dir: str | Path) -> Path:
        """Return where the shards and the tokenizer's file are."""
        return Path(data_dir) / self.fingerprint


@dataclass(frozen=True)
class ManifestFile:
    """manifest.json."""

    format: int
    fingerprint: str
    tokenizer: dict[str, Any]
    train: Split
    validation: Split
    request: dict[str, Any]


def read(data_dir: str | Path) -> Manifest:
    """Read the manifest of a data folder; raises UserError when there is none or it is of another format."""
    path = Path(data_dir) / MANIFEST_FILE
    found = files.read(path, ManifestFile)
    if found is None:
        raise UserError(f"{path}: no such file (make token shards with: scalewright data prepare)")
    if isinstance(found, Broken):
        raise UserError(f"{found}; prepare the data again")
    if found.format != FORMAT:
        raise UserError(f"{path}: not a manifest of format {FORMAT}; prepare the data again")
    return Manifest(found.fingerprint, found.tokenizer, found.train, found.validation, found.request)


def write(manifest: Manifest, data_dir: Path) -> None:
    """Write manifest.json into a folder of shards."""
    files.write_json(data_dir / MANIFEST_FILE, manifest.to_dict())


def open_split(manifest: Manifest, data_dir: str | Path, name: str) -> list[np.ndarray]:
    """Map the shards of the split `name` (train or validation) into memory; raises UserError as open_shard does."""
    split: Split = {"train": manifest.train, "validation": manifest.validation}[name]
    folder, made_by = Path(data_dir), manifest.tokenizer_hash
    return [open_shard(folder / shard.file, tokenizer_hash=made_by, n_tokens=shard.n_tokens) for shard in split.shards]
