"""Token shards: files of fixed-width token ids behind a header that says which tokenizer made them. No torch.

Layout: HEADER_BYTES of header (magic, bytes a token, tokenizer hash), then the ids, little-endian.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from scalewright.orchestrator.errors import UserError

MAGIC = b"swshard1"
HEADER = struct.Struct("<8sI20x16s16x")  # magic, bytes a token, tokenizer hash in hex
HEADER_BYTES = HEADER.size
WIDTHS: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}


@dataclass(frozen=True)
class Shard:
    """One file of a split: its name in the folder and how many tokens it holds."""

    file: str
    n_tokens: int


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the narrowest of uint16 and uint32 that holds every id."""
    return WIDTHS[2 if vocab_size <= 2**16 else 4]


class ShardWriter:
    """Writes the tokens of one split into shards of at most `shard_tokens`, under temporary names until `finish`."""

    def __init__(self, folder: Path, stem: str, tokenizer_hash: str, dtype: np.dtype, shard_tokens: int) -> None:
        self.folder, self.stem, self.dtype, self.shard_tokens = folder, stem, dtype, shard_tokens
        self.header = HEADER.pack(MAGIC, dtype.itemsize, tokenizer_hash.encode())
        self.shards: list[Shard] = []
        self.file: BinaryIO | None = None
        self.n_in_shard = 0

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close_shard()

    def append(self, ids: np.ndarray) -> None:
        """Add the ids of one document; it may go on in the next shard."""
        ids = ids.astype(self.dtype, copy=False)
        while len(ids):
            room = self.shard_tokens - self.n_in_shard
            self._open_file().write(ids[:room].tobytes())
            self.n_in_shard += len(ids[:room])
            ids = ids[room:]
            if self.n_in_shard == self.shard_tokens:
                self._close_shard()

    def _open_file(self) -> BinaryIO:
        if self.file is None:
            self.file = (self.folder / f"{self.stem}-{len(self.shards):05d}.bin").open("wb")
            self.file.write(self.header)
        return self.file

    def _close_shard(self) -> None:
        if self.file is None:
            return
        file, self.file = self.file, None
        with file:  # closed on a full disk too
            file.flush()
            os.fsync(file.fileno())
        self.shards.append(Shard(Path(file.name).name, self.n_in_shard))
        self.n_in_shard = 0


def open_shard(path: Path, *, tokenizer_hash: str, n_tokens: int) -> np.ndarray:
    """Map one shard's ids into memory, read-only.

    Raises UserError when the file is missing, cut short, no shard, or made by another tokenizer.
    """
    if not path.is_file():
        raise UserError(f"{path}: shard is missing; prepare the data again")
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        raise UserError(f"{path}: not a token shard; prepare the data again")
    _, width, made_by = HEADER.unpack(head)
    if made_by.decode(errors="replace") != tokenizer_hash:
        raise UserError(f"{path}: made by tokenizer {made_by.decode(errors='replace')}, expected {tokenizer_hash}")
    expected = HEADER_BYTES + n_tokens * width
    if path.stat().st_size != expected:
        raise UserError(f"{path}: {path.stat().st_size} bytes, expected {expected}; prepare the data again")
    return np.memmap(path, dtype=WIDTHS[width], mode="r", offset=HEADER_BYTES, shape=(n_tokens,))
