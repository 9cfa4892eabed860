"""Where documents come from: JSON lines and plain text, compressed or not, read as a stream. No torch."""

import gzip
import importlib
import lzma
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import IO, Any, cast

from scalewright.orchestrator.errors import UserError

DEFAULT_CORPUS = "public_domain_en"
TEXT_DOCUMENT_CHARACTERS = 8192  # plain text has no documents: it is cut at the first paragraph end after this many


def open_zstandard(path: Path) -> IO[bytes]:
    for module in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            opened: IO[bytes] = importlib.import_module(module).open(path, "rb")
            return opened
        except ModuleNotFoundError:
            continue
    raise UserError(f"{path}: reading .zst needs the package zstandard (pip install zstandard), or use .xz or .gz")


def open_xz(path: Path) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(path, "rb"))


def open_gzip(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(path, "rb"))


def open_plain(path: Path) -> IO[bytes]:
    return path.open("rb")


OPENERS: dict[str, Callable[[Path], IO[bytes]]] = {".xz": open_xz, ".gz": open_gzip, ".zst": open_zstandard}


def find_sources(sources: list[str | Path]) -> list[Path]:
    """Return the files that `sources` name, in order; a folder stands for its .jsonl and .txt files, sorted.

    The word `public_domain_en` is the corpus that comes with the project. Raises UserError for a missing file,
    a folder without text, or no source at all.
    """
    if not sources:
        raise UserError(f"no source given: name .jsonl or .txt files, or {DEFAULT_CORPUS}")
    return [file for source in sources for file in expand(Path(source))]


def expand(path: Path) -> list[Path]:
    if str(path) == DEFAULT_CORPUS and not path.exists():
        return [default_corpus()]
    if path.is_file():
        kind(path)
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder (the corpus that comes with the project: {DEFAULT_CORPUS})")
    files = sorted(file for file in path.iterdir() if file.is_file() and suffix_of_text(file) in READERS)
    if not files:
        raise UserError(f"{path}: no {' or '.join(READERS)} file in this folder (nor one with {', '.join(OPENERS)})")
    return files


def default_corpus() -> Path:
    """Return the path of the corpus that is installed with the project."""
    return Path(str(resources.files("scalewright.orchestrator.data") / "corpus" / f"{DEFAULT_CORPUS}.jsonl.xz"))


def suffix_of_text(path: Path) -> str:
    """Return the suffix under the compression: `.jsonl` for `a.jsonl.xz`."""
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


def kind(path: Path) -> str:
    suffix = suffix_of_text(path)
    if suffix not in READERS:
        raise UserError(f"{path}: unknown kind of file {suffix!r}; expected {', '.join(READERS)}, plain or compressed")
    return suffix


def read_documents(path: Path, *, field: str = "text") -> Iterator[str]:
    """Yield the documents of one file, streaming.

    A `.jsonl` line is an object whose `field` is the text. Raises UserError with file and line for anything else.
    """
    reader = READERS[kind(path)]
    with OPENERS.get(path.suffix, open_plain)(path) as stream:
        try:
            yield from reader(stream, path, field)
        except (lzma.LZMAError, gzip.BadGzipFile, EOFError) as damage:
            raise UserError(f"{path}: damaged or cut short ({damage})") from damage


def read_json_lines(stream: IO[bytes], path: Path, field: str) -> Iterator[str]:
    from orjson import JSONDecodeError, loads

    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            record = loads(line)
        except JSONDecodeError as mistake:
            raise UserError(f"{path}:{number}: not a JSON object ({mistake})") from mistake
        yield text_of(record, field, f"{path}:{number}")


def text_of(record: Any, field: str, where: str) -> str:
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(record).__name__}")
    text = record.get(field)
    if isinstance(text, str):
        return text
    raise UserError(f"{where}: no text under {field!r}; this line has {', '.join(map(repr, record)) or 'no keys'}")


def read_plain_text(stream: IO[bytes], path: Path, field: str) -> Iterator[str]:
    """Yield pieces of whole paragraphs; `field` has no meaning here."""
    lines: list[str] = []
    n_characters = 0
    for number, line in enumerate(stream, start=1):
        text = decode(line, f"{path}:{number}")
        lines.append(text)
        n_characters += len(text)
        if n_characters >= TEXT_DOCUMENT_CHARACTERS and not text.strip():
            yield "".join(lines)
            lines, n_characters = [], 0
    if n_characters:
        yield "".join(lines)


def decode(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as mistake:
        raise UserError(f"{where}: not UTF-8 text ({mistake.reason} at byte {mistake.start})") from mistake


READERS: dict[str, Callable[[IO[bytes], Path, str], Iterator[str]]] = {
    ".jsonl": read_json_lines,
    ".txt": read_plain_text,
}
