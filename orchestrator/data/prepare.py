"""`prepare`: documents to token shards, split by document, in one streaming pass. No torch."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from scalewright.fitting.words import counted
from scalewright.orchestrator.data import manifest as manifests
from scalewright.orchestrator.data.manifest import Manifest, Split
from scalewright.orchestrator.data.shards import ShardWriter, token_dtype
from scalewright.orchestrator.data.sources import find_sources, read_documents
from scalewright.orchestrator.data.tokenizers import (
    ByteTokenizer,
    Tokenizer,
    batches,
    bpe_size,
    load_tokenizer_file,
    train_bpe,
)
from scalewright.orchestrator.errors import UserError

VALIDATION_FRACTION = 0.02
SHARD_TOKENS = 2**27
SPLIT_RULE = 1  # raised when the rule that sends a document to a side changes

FINGERPRINT = re.compile("[0-9a-f]{16}")
SIDES = ("train", "validation")

Progress = Callable[[int, int], None]  # documents and tokens written so far


@dataclass(frozen=True)
class Request:
    """What is asked for. validation_fraction: share of the documents; text_field: the key of a JSON line's text;
    lossy_tokenizer: whether ids may decode to another text.
    """

    sources: tuple[Path, ...]
    tokenizer: str = "bytes"
    validation_fraction: float = VALIDATION_FRACTION
    text_field: str = "text"
    shard_tokens: int = SHARD_TOKENS
    lossy_tokenizer: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what decides the result, each source file by its path, size and time of change."""
        return {
            "sources": [_file_stamp(path) for path in self.sources],
            "tokenizer": self.tokenizer if not Path(self.tokenizer).is_file() else _file_stamp(Path(self.tokenizer)),
            "validation_fraction": self.validation_fraction,
            "text_field": self.text_field,
            "shard_tokens": self.shard_tokens,
            "split_rule": SPLIT_RULE,
        } | ({"lossy_tokenizer": True} if self.lossy_tokenizer else {})  # data made before the key stays what it is


def prepare(
    sources: Sequence[str | Path],
    tokenizer: str,
    out_dir: str | Path,
    *,
    validation_fraction: float = VALIDATION_FRACTION,
    text_field: str = "text",
    shard_tokens: int = SHARD_TOKENS,
    lossy_tokenizer: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Make token shards of `sources` in `out_dir` and return their manifest; asked again, it reads the manifest only.

    sources: .jsonl, .json, .txt or .md files (plain, .xz, .gz, .zst), folders of them, or `public_domain_en`.
    tokenizer: `bytes`, `bpe:SIZE` (trained on the training documents) or the path of a tokenizer.json.
    lossy_tokenizer: take a tokenizer whose ids do not decode to the text (bits per byte then count what it drops).
    The folder has the old data or the new, never a mixture. Raises UserError for every mistake in the sources.
    """
    if not 0 < validation_fraction < 1:
        raise UserError(f"validation fraction {validation_fraction}: expected more than 0 and less than 1")
    files = tuple(path.resolve() for path in find_sources(list(sources)))
    request = Request(files, tokenizer, validation_fraction, text_field, shard_tokens, lossy_tokenizer)
    return find_prepared(request, Path(out_dir)) or make(request, Path(out_dir), progress or (lambda *_: None))


def find_prepared(request: Request, out_dir: Path) -> Manifest | None:
    """Return the manifest in `out_dir` when the same was asked for and its shards are whole."""
    try:
        found = manifests.read(out_dir)
    except UserError:  # none, or damaged: make it
        return None
    return found if found.request == request.describe() and _is_whole(found, out_dir) else None


def _is_whole(manifest: Manifest, out_dir: Path) -> bool:
    try:
        return all(manifests.open_split(manifest, out_dir, name) for name in SIDES)
    except UserError:
        return False


def make(request: Request, out_dir: Path, progress: Progress) -> Manifest:
    """Write shards beside `out_dir` and put them there when whole; UserError where the disk is too small."""
    working = out_dir / f".preparing-{os.getpid()}"
    try:
        working.mkdir(parents=True, exist_ok=True)
        manifest = write_splits(request, working, progress)
        return install(manifest, working, out_dir)
    except NoRoom as short:
        shutil.rmtree(working, ignore_errors=True)  # before what is free is counted
        raise UserError(_no_room(short.n_bytes, out_dir)) from short
    finally:
        shutil.rmtree(working, ignore_errors=True)


class NoRoom(Exception):
    """The disk is full. n_bytes: what the shards take in all, an estimate where a token is not a byte."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(n_bytes)
        self.n_bytes = n_bytes


def _no_room(n_bytes: int, out_dir: Path) -> str:
    free = shutil.disk_usage(out_dir).free
    more = f"free {_mebibytes(n_bytes - free)} more" if n_bytes > free else "free some"
    takes = f"the shards take {_mebibytes(n_bytes)} and {_mebibytes(free)} are free"
    return f"{out_dir}: no space left: {takes}; {more} and prepare again"


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB"


def write_splits(request: Request, working: Path, progress: Progress) -> Manifest:
    """Write both splits; when no document fell into one side, the nearest document to the boundary goes there."""
    threshold = _threshold_of(request.validation_fraction)
    tokenizer = _make_tokenizer(request, threshold)
    manifest, closest = write_once(request, tokenizer, threshold, working, progress)
    if manifest.validation.n_documents == 0 and manifest.train.n_documents > 1:
        manifest, _ = write_once(request, tokenizer, closest + 1, working, progress)
    for name, split in (("training", manifest.train), ("validation", manifest.validation)):
        if split.n_tokens == 0:
            n_documents = manifest.train.n_documents + manifest.validation.n_documents
            raise UserError(f"the {name} split is empty ({counted(n_documents, 'document')} in all): give more text")
    tokenizer.save(working)
    return manifest


@dataclass
class Tally:
    """What went to one side so far."""

    writer: ShardWriter
    n_documents: int = 0
    n_bytes: int = 0
    n_tokens: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, text: str, ids: np.ndarray, end: np.ndarray, *, with_ids: bool) -> None:
        """Append a document. with_ids: its ids enter the digest too, where the text alone does not decide them."""
        content = text.encode()
        if with_ids:
            self.digest.update(ids.astype("<u4").tobytes())
        self.digest.update(len(content).to_bytes(8, "little"))
        self.digest.update(content)
        self.n_documents += 1
        self.n_bytes += len(content) + len(end)
        self.n_tokens += len(ids) + len(end)
        self.writer.append(ids)
        self.writer.append(end)

    def split(self) -> Split:
        """Return what was written, as the manifest counts it."""
        return Split(tuple(self.writer.shards), self.n_tokens, self.n_bytes, self.n_documents)


def write_once(
    request: Request, tokenizer: Tokenizer, threshold: int, working: Path, progress: Progress
) -> tuple[Manifest, int]:
    """Write the shards; return their manifest and the smallest document hash seen."""
    dtype = token_dtype(tokenizer.vocab_size)
    end = np.array([] if tokenizer.end_id is None else [tokenizer.end_id], dtype=dtype)
    closest = 2**64
    sides = [Tally(ShardWriter(working, name, tokenizer.hash, dtype, request.shard_tokens)) for name in SIDES]
    try:
        with sides[0].writer, sides[1].writer:
            for texts in batches(_documents_of(request)):
                encoded = tokenizer.encode(texts)
                if not request.lossy_tokenizer:
                    tokenizer.check_decodes(texts, encoded)
                for text, ids in zip(texts, encoded, strict=True):
                    place = document_hash(text)
                    closest = min(closest, place)
                    sides[place < threshold].add(text, ids, end, with_ids=tokenizer.name != "bytes")
                progress(sum(s.n_documents for s in sides), sum(s.n_tokens for s in sides))
    except OSError as trouble:
        if trouble.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(n_bytes_of_shards(request, sides, dtype.itemsize)) from trouble
    return _manifest_of(request, tokenizer, sides), closest


def n_bytes_of_shards(request: Request, sides: list[Tally], token_bytes: int) -> int:
    """Count what the shards of all documents take, from how many tokens a byte of text gave so far."""
    n_tokens, n_bytes = sum(side.n_tokens for side in sides), sum(side.n_bytes for side in sides)
    n_all = sum(len(text.encode()) + 1 for text in _documents_of(request))  # one for the end of a document
    return round(n_all * n_tokens / max(n_bytes, 1)) * token_bytes


def _manifest_of(request: Request, tokenizer: Tokenizer, sides: list[Tally]) -> Manifest:
    content = "".join(side.digest.hexdigest() for side in sides)
    fingerprint = hashlib.sha256(f"{content} {tokenizer.hash} {request.shard_tokens}".encode()).hexdigest()[:16]
    return Manifest(fingerprint, _record_of(tokenizer), sides[0].split(), sides[1].split(), request.describe())


def _record_of(tokenizer: Tokenizer) -> dict[str, Any]:
    names = ("name", "hash", "vocab_size", "end_id")
    return {name: getattr(tokenizer, name) for name in names}


def install(manifest: Manifest, working: Path, out_dir: Path) -> Manifest:
    """Move the new shards into the folder of their fingerprint, then the manifest, then drop what it replaced."""
    folder = out_dir / manifest.fingerprint
    train, validation = _placed_in(folder, manifest.train), _placed_in(folder, manifest.validation)
    placed = replace(manifest, train=train, validation=validation)
    if not _is_whole(placed, out_dir):  # another process may have made the same
        shutil.rmtree(folder, ignore_errors=True)
        working.rename(folder)
    manifests.write(placed, out_dir)
    for stale in out_dir.iterdir():
        if stale.is_dir() and FINGERPRINT.fullmatch(stale.name) and stale != folder:
            shutil.rmtree(stale, ignore_errors=True)
    return placed


def _placed_in(folder: Path, split: Split) -> Split:
    return replace(split, shards=tuple(replace(shard, file=f"{folder.name}/{shard.file}") for shard in split.shards))


def _documents_of(request: Request) -> Iterator[str]:
    return chain.from_iterable(read_documents(path, field=request.text_field) for path in request.sources)


def _make_tokenizer(request: Request, threshold: int) -> Tokenizer:
    if request.tokenizer == "bytes":
        return ByteTokenizer()
    size = bpe_size(request.tokenizer)
    if size is None:
        return load_tokenizer_file(Path(request.tokenizer))
    return train_bpe((text for text in _documents_of(request) if document_hash(text) >= threshold), size)


def document_hash(text: str) -> int:
    """Return 64 bits that depend on the document alone, so neither order nor other documents move it."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _threshold_of(fraction: float) -> int:
    return int(fraction * 2**64)


def _file_stamp(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"path": str(path), "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
