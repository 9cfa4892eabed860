"""Text to token ids: bytes, a trained BPE, or a tokenizer file of the user's. No torch."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from scalewright.orchestrator.errors import UserError

TOKENIZER_FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
KNOWN_ENDS = (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[SEP]")
SMALLEST_BPE = 257  # the 256 bytes and the end of a document
LARGEST_VOCABULARY = 2**32
BPE_SAMPLE_BYTES = 256 * 2**20  # more text than this does not change merges that matter, but costs memory


class Tokenizer(Protocol):
    """What turns documents into token ids and says what it is."""

    @property
    def name(self) -> str:
        """What the YAML calls it: bytes, bpe:SIZE, or a file's name."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, those of special tokens with them."""

    @property
    def end_id(self) -> int | None:
        """The id that ends a document, None where the tokenizer has none."""

    @property
    def hash(self) -> str:
        """What changes with every change of a token id; part of a run's identity."""

    def encode(self, documents: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each document, without the end."""

    def check_decodes(self, documents: Sequence[str], encoded: Sequence[np.ndarray]) -> None:
        """Raise UserError where ids do not give the text back."""

    def save(self, folder: Path) -> None:
        """Write what is needed to decode, if anything, into a folder of shards."""


@dataclass(frozen=True)
class ByteTokenizer:
    """One token a UTF-8 byte; byte 0 ends a document."""

    name: str = "bytes"
    vocab_size: int = 256
    end_id: int | None = 0

    @property
    def hash(self) -> str:
        """A constant: bytes mean the same everywhere."""
        return hashlib.sha256(b"bytes, end of document 0").hexdigest()[:16]

    def encode(self, documents: Sequence[str]) -> list[np.ndarray]:
        """Return the UTF-8 bytes of each document."""
        return [np.frombuffer(text.encode(), dtype=np.uint8) for text in documents]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are no UTF-8 become the replacement character."""
        return bytes(ids).decode(errors="replace")

    def check_decodes(self, documents: Sequence[str], encoded: Sequence[np.ndarray]) -> None:
        """Check nothing: the ids are the bytes."""

    def save(self, folder: Path) -> None:
        """Write nothing: bytes need no file."""


class FileTokenizer:
    """A tokenizer of the `tokenizers` library, from its JSON text, without what would cut, fill or vary a document."""

    def __init__(self, name: str, text: str) -> None:
        from tokenizers import Tokenizer as Loaded

        self.name = name
        self.text = json.dumps(without_settings(json.loads(text)), sort_keys=True, ensure_ascii=False)
        self.loaded = Loaded.from_str(self.text)
        # by the largest id, since a vocabulary may have holes
        self.vocab_size = max(self.loaded.get_vocab(with_added_tokens=True).values()) + 1
        ids = (self.loaded.token_to_id(token) for token in KNOWN_ENDS)
        self.end_id: int | None = next((index for index in ids if index is not None), None)

    @property
    def hash(self) -> str:
        """Hash of the text of tokenizer.json."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def encode(self, documents: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each document, without special tokens."""
        encodings = self.loaded.encode_batch_fast(list(documents), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens."""
        return str(self.loaded.decode(list(ids)))

    def check_decodes(self, documents: Sequence[str], encoded: Sequence[np.ndarray]) -> None:
        """Raise UserError where the ids do not decode to the text whose bytes are counted."""
        decoded = self.loaded.decode_batch([ids.tolist() for ids in encoded], skip_special_tokens=False)
        for text, found in zip(documents, decoded, strict=True):
            if found != text:
                raise UserError(
                    f"tokenizer {self.name}: its ids do not decode to the text ({differ(text, found)}), whose bytes "
                    "bits per byte count; if that is meant: lossy_tokenizer: true"
                )

    def save(self, folder: Path) -> None:
        """Copy tokenizer.json, so that the folder can be decoded anywhere."""
        (folder / TOKENIZER_FILE).write_text(self.text, encoding="utf-8")


def without_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Switch off what a file may ask for besides its vocabulary: truncation, padding and random merges."""
    model = record["model"]
    still = {"dropout": None} if isinstance(model, dict) and model.get("dropout") else {}
    return record | {"truncation": None, "padding": None, "model": model | still}


def differ(text: str, found: str) -> str:
    """Say where two texts part: what bits per byte would count, and what the ids hold."""
    place = len(os.path.commonprefix([text, found]))
    start = max(place - 5, 0)
    return f"character {place + 1}: {text[start : place + 15]!r} comes back as {found[start : place + 15]!r}"


def load_tokenizer_file(path: Path, *, name: str | None = None) -> FileTokenizer:
    """Read a `tokenizer.json`; raises UserError when the file is missing or is not one."""
    if not path.is_file():
        raise UserError(f"{path}: no such tokenizer; expected bytes, bpe:SIZE or the path of a tokenizer.json")
    try:
        return FileTokenizer(name or path.name, path.read_text(encoding="utf-8"))
    except Exception as mistake:  # noqa: BLE001  the library raises a bare Exception for a bad file
        raise UserError(f"{path}: not a tokenizer file of the tokenizers library ({mistake})") from mistake


def train_bpe(documents: Iterable[str], vocab_size: int) -> FileTokenizer:
    """Train a byte-level BPE of exactly `vocab_size` tokens (fewer when the text has fewer merges)."""
    from tokenizers import Tokenizer as Untrained
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = Untrained(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample(documents, BPE_SAMPLE_BYTES), trainer)
    return FileTokenizer(f"bpe:{vocab_size}", tokenizer.to_str())


def sample(documents: Iterable[str], n_bytes: int) -> Iterator[str]:
    """Yield documents from the first on until `n_bytes` of them were given."""
    for text in documents:
        if n_bytes <= 0:
            return
        n_bytes -= len(text.encode())
        yield text


def bpe_size(tokenizer: str) -> int | None:
    """Return the vocabulary size that `bpe:SIZE` asks for, None for another tokenizer; raises UserError."""
    word, _, size = tokenizer.partition(":")
    if word != "bpe":
        return None
    if not size.isdecimal() or not SMALLEST_BPE <= int(size) < LARGEST_VOCABULARY:
        raise UserError(f"tokenizer {tokenizer!r}: expected bpe:SIZE, SIZE at least {SMALLEST_BPE}, as in bpe:4096")
    return int(size)


def load_tokenizer(record: dict[str, Any], folder: Path) -> Tokenizer:
    """Return the tokenizer that made the shards in `folder`; `record` is the manifest's `tokenizer`."""
    if record["name"] == "bytes":
        return ByteTokenizer()
    return load_tokenizer_file(folder / TOKENIZER_FILE, name=str(record["name"]))


def batches(documents: Iterable[str], n_documents: int = 64) -> Iterator[list[str]]:
    """Yield lists of `n_documents`, the last one shorter."""
    iterator = iter(documents)
    while batch := list(islice(iterator, n_documents)):
        yield batch
