"""Where documents come from: JSON lines and plain text, compressed or not, read as a stream. No torch."""

import codecs
import gzip
import importlib
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError

DEFAULT_CORPUS = "public_domain_en"
TEXT_DOCUMENT_CHARACTERS = 8192  # plain text has no documents: it is cut at a paragraph's or a line's end after these
LONGEST_LINE = 2**20  # bytes of plain text that are read at once, and characters after which any line's end cuts


def _open_zstandard(path: Path) -> IO[bytes]:
    for module in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            opened: IO[bytes] = importlib.import_module(module).open(path, "rb")
            return opened
        except ModuleNotFoundError:
            continue
    raise UserError(f"{path}: reading .zst needs the package zstandard (pip install zstandard), or use .xz or .gz")


def _open_xz(path: Path) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(path, "rb"))


def _open_gzip(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(path, "rb"))


def _open_plain(path: Path) -> IO[bytes]:
    return path.open("rb")


OPENERS: dict[str, Callable[[Path], IO[bytes]]] = {".xz": _open_xz, ".gz": _open_gzip, ".zst": _open_zstandard}


def find_sources(sources: Sequence[str | Path]) -> list[Path]:
    """Return the files that `sources` name, in order; a folder stands for the text files in it and its sub-folders,
    sorted by path, without those whose name begins with a dot.

    The word `public_domain_en` is the corpus that comes with the project. Raises UserError for a missing file,
    a folder without text, or no source at all.
    """
    if not sources:
        raise UserError(f"no source given: name files ({', '.join(READERS)}), folders or {DEFAULT_CORPUS}")
    return [file for source in sources for file in _expand(Path(source))]


def _expand(path: Path) -> list[Path]:
    if str(path) == DEFAULT_CORPUS and not path.exists():
        return [default_corpus()]
    if path.is_file():
        _kind(path)
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder (the corpus that comes with the project: {DEFAULT_CORPUS})")
    files = [file for file in files_in(path) if suffix_of_text(file) in READERS]
    if not files:
        raise UserError(f"{path}: no {' or '.join(READERS)} file in this folder (nor one with {', '.join(OPENERS)})")
    return files


def files_in(folder: Path) -> list[Path]:
    """List the files below a folder, sorted by path; names that begin with a dot, of files or folders, are left out."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent) / name for name in names if not name.startswith(".")]
    return sorted(found)


def what_was_skipped(sources: Sequence[str | Path]) -> list[str]:
    """Say of each folder how many of its files are read and which kinds are not; nothing where all are read."""
    lines = []
    for folder in (Path(source) for source in sources if Path(source).is_dir()):
        files = files_in(folder)
        skipped = Counter(suffix_of_text(file) or "no suffix" for file in files if suffix_of_text(file) not in READERS)
        linked = sum(file.is_symlink() for file in folder.rglob("*") if file.is_dir())
        if skipped or linked:
            kinds = [f"{n} {kind}" for kind, n in sorted(skipped.items())] + [counted(linked, "linked folder")] * bool(
                linked
            )
            lines.append(f"{folder}: {counted(len(files) - skipped.total(), 'file')} read; skipped: {', '.join(kinds)}")
    return lines


def default_corpus() -> Path:
    """Return the path of the corpus that is installed with the project."""
    return Path(str(resources.files("scalewright.orchestrator.data") / "corpus" / f"{DEFAULT_CORPUS}.jsonl.xz"))


def suffix_of_text(path: Path) -> str:
    """Return the suffix under the compression, in lower case: `.jsonl` for `a.JSONL.xz`."""
    return (Path(path.stem).suffix if path.suffix.lower() in OPENERS else path.suffix).lower()


def _kind(path: Path) -> str:
    suffix = suffix_of_text(path)
    if suffix not in READERS:
        raise UserError(f"{path}: unknown kind of file {suffix!r}; expected {', '.join(READERS)}, plain or compressed")
    return suffix


def read_documents(path: Path, *, field: str = "text") -> Iterator[str]:
    """Yield the documents of one file, streaming.

    A `.jsonl` line is an object whose `field` is the text; a `.json` file holds such lines, or one list of objects.
    Raises UserError with file and line for anything else.
    """
    reader = READERS[_kind(path)]
    with OPENERS.get(path.suffix.lower(), _open_plain)(path) as stream:
        try:
            yield from reader(stream, path, field)
        except (lzma.LZMAError, gzip.BadGzipFile, EOFError) as damage:
            raise UserError(f"{path}: damaged or cut short ({damage})") from damage


def _read_json_lines(stream: Iterable[bytes], path: Path, field: str) -> Iterator[str]:
    from orjson import JSONDecodeError, loads

    for number, line in enumerate(stream, start=1):
        content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not content.strip():
            continue
        try:
            record = loads(content)
        except JSONDecodeError as mistake:
            raise UserError(f"{path}:{number}: not a JSON object ({mistake})") from mistake
        yield _text_of(record, field, f"{path}:{number}")


def read_json(stream: IO[bytes], path: Path, field: str) -> Iterator[str]:
    """Yield the texts of a list of objects, read whole, or of JSON lines, one by one."""
    from orjson import JSONDecodeError, loads

    first = stream.readline().removeprefix(codecs.BOM_UTF8)
    if not first.lstrip().startswith(b"["):
        yield from _read_json_lines(chain([first], stream), path, field)
        return
    try:
        records = loads(first + stream.read())
    except JSONDecodeError as mistake:
        raise UserError(f"{path}:{mistake.lineno}: not a list of JSON objects ({mistake.msg})") from mistake
    for number, record in enumerate(records, start=1):
        yield _text_of(record, field, f"{path}: object {number}")


def _text_of(record: Any, field: str, where: str) -> str:
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(record).__name__}")
    text = record.get(field)
    if isinstance(text, str):
        return text
    if field in record:
        found = "null" if text is None else TYPES.get(type(text), "something else")
        raise UserError(f"{where}: {field!r} is {found}, not text")
    has = ", ".join(map(repr, record)) or "no keys"
    raise UserError(f"{where}: no text under {field!r}; it has {has} (name the key of the text with `field:`)")


TYPES: dict[type, str] = {int: "a number", float: "a number", bool: "a truth value", list: "a list", dict: "an object"}


def read_plain_text(stream: IO[bytes], path: Path, field: str) -> Iterator[str]:
    """Yield pieces of whole paragraphs, or of lines where there are no paragraphs; `field` has no meaning here."""
    lines: list[str] = []
    n_characters, has_paragraph = 0, False
    for text in decoded_lines(stream, path):
        lines.append(text)
        n_characters += len(text)
        ends_paragraph = not text.strip()
        has_paragraph |= ends_paragraph
        waits = has_paragraph and not ends_paragraph and n_characters < LONGEST_LINE
        if n_characters >= TEXT_DOCUMENT_CHARACTERS and not waits:
            yield "".join(lines)
            lines, n_characters, has_paragraph = [], 0, False
    if n_characters:
        yield "".join(lines)


def decoded_lines(stream: IO[bytes], path: Path) -> Iterator[str]:
    """Yield lines; one of more than LONGEST_LINE bytes comes in parts."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    number = 1
    while line := stream.readline(LONGEST_LINE):
        ends = line.endswith(b"\n")
        try:
            yield decoder.decode(line, final=ends)
        except UnicodeDecodeError as mistake:
            why = f"not UTF-8 text ({mistake.reason} at byte {mistake.start})"
            raise UserError(f"{path}:{number}: {why}") from mistake
        number += ends
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as mistake:
        raise UserError(f"{path}:{number}: not UTF-8 text ({mistake.reason} at its end)") from mistake


READERS: dict[str, Callable[[IO[bytes], Path, str], Iterator[str]]] = {
    ".jsonl": _read_json_lines,
    ".json": read_json,
    ".txt": read_plain_text,
    ".md": read_plain_text,
}
