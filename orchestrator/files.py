"""Small files: written under a temporary name and renamed, read as typed records. Knows no file by name.

A reader trusts nothing: what is empty, torn, of wrong types or of something else comes back as a `Broken` that names
the path, so that one broken file never stops what is about the others.
"""

import dataclasses
import errno
import os
import stat
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import uuid4

import orjson

from scalewright.orchestrator.errors import UserError

LARGEST = 64 << 20  # bytes
LARGEST_CODE = 1_000_000  # bytes: a method's text is part of every run's record
LARGEST_WHOLE = 2**53  # exact as a float too
SHOWN_CHARACTERS = 40
Record = TypeVar("Record")


class UnusableFile(UserError):
    """A file that has to be read and cannot be used: its path, and what is wrong with it."""


@dataclass(frozen=True)
class Broken:
    """A file that cannot be used: where it lies, and what is wrong with it."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"

    def within(self, root: Path) -> str:
        """Say the same with the path as it is seen from `root`."""
        return f"{self.path.relative_to(root) if self.path.is_relative_to(root) else self.path}: {self.why}"


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path, kind: type[Record], **identity: str) -> Record | Broken | None:
    """Read a JSON file as a record of the dataclass `kind`; None where there is no such file (yet).

    identity: what fields of the record must be; an empty one in the file stands for anything.
    """
    content = read_bytes(path)
    if content is None or isinstance(content, Broken):
        return content
    try:
        record = parse(content, kind)
    except ValueError as trouble:
        return Broken(path, str(trouble))
    for name, expected in identity.items():
        if (found := getattr(record, name)) not in ("", expected):
            return Broken(path, f"it is that of {name} {shown(found)}, not of {shown(expected)}")
    return record


def usable(path: Path, kind: type[Record], **identity: str) -> Record | None:
    """Read as `read` does, where a broken file means no more than a missing one."""
    found = read(path, kind, **identity)
    return None if isinstance(found, Broken) else found


def require(path: Path, kind: type[Record], **identity: str) -> Record:
    """Read as `read` does; raises UnusableFile where the file is missing or broken."""
    found = read(path, kind, **identity)
    if isinstance(found, Broken):
        raise UnusableFile(str(found))
    if found is None:
        raise UnusableFile(f"{path}: no such file")
    return found


def read_bytes(path: Path, most: int = LARGEST) -> bytes | Broken | None:
    """Read a small file whole; None where there is none."""
    try:
        with open_file(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                return Broken(path, f"{size} bytes, which is no small file")
            return bytes(file.read())
    except FileNotFoundError:
        return Broken(path, "a link to nothing") if path.is_symlink() else None
    except OSError as trouble:
        return Broken(path, (trouble.strerror or str(trouble)).lower())


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; raises OSError where it is a folder, a device, or a pipe, which would be waited for."""
    file = open(path, "rb", opener=_open_at_once)  # noqa: PTH123, SIM115 - a Path takes no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a file", str(path))
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def is_there(path: Path) -> bool:
    """Tell whether something lies at `path`; in a folder that may not be entered, nothing does."""
    with suppress(OSError):
        return path.exists()
    return False


def read_text(path: Path) -> str:
    """Read what a person or a job printed, as far as it can be read; nothing where it cannot."""
    content = read_bytes(path)
    return content.decode(errors="replace") if isinstance(content, bytes) else ""


def read_code(path: Path) -> str:
    """Read the text of a Python file that a person names; raises UnusableFile where it is missing or no text."""
    content = read_bytes(path, LARGEST_CODE)
    if content is None:
        raise UnusableFile(f"{path}: no such file")
    if isinstance(content, Broken):
        raise UnusableFile(str(content))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableFile(f"{path}: not UTF-8 text") from None


def parse(content: bytes, kind: type[Record]) -> Record:
    """Make a record of JSON text; raises ValueError that says in one line what is wrong with it."""
    if not content.strip(b"\0 \n\r\t"):
        raise ValueError("it is empty" if not content else "nothing but zero bytes")
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as trouble:
        raise ValueError(f"not JSON (line {trouble.lineno}, column {trouble.colno})") from None
    return record_of(kind, value)


def record_of(kind: type[Record], value: Any, place: str = "") -> Record:
    """Make a record of a JSON value: every key known, none missing, each of its type. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{place or 'it'} is not a JSON object")
    fields: Mapping[str, tuple[Any, bool]] = fields_of(kind)  # type: ignore[arg-type]
    unknown = [name for name in value if name not in fields]
    missing = [name for name, (_, optional) in fields.items() if not optional and name not in value]
    before = f"{place}." if place else ""
    if missing:
        raise ValueError(f"no {before}{missing[0]} in it")
    if unknown:
        raise ValueError(f"a key that is not known: {before}{shown(unknown[0])}")
    return kind(**{name: checked(fields[name][0], item, f"{before}{name}") for name, item in value.items()})


@cache
def fields_of(kind: type[Any]) -> Mapping[str, tuple[Any, bool]]:
    """Return type, and whether it may be left out, of each field of a dataclass."""
    assert is_dataclass(kind), kind
    hints = get_type_hints(kind)
    nothing = dataclasses.MISSING
    return {
        one.name: (hints[one.name], one.default is not nothing or one.default_factory is not nothing)
        for one in dataclasses.fields(kind)
        if one.init
    }


def checked(kind: Any, value: Any, place: str) -> Any:
    """Return a JSON value as the type `kind` has it; raises ValueError."""
    if kind is Any:
        return value
    if is_dataclass(kind):
        return record_of(kind, value, place)  # type: ignore[arg-type]
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        if value in inner and isinstance(value, str):
            return value
        raise ValueError(f"{place}: {shown(value)} is not one of {', '.join(inner)}")
    return CHECKS[origin](inner, value, place)


def _check_whole(_: Any, value: Any, place: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE:
        return value
    raise ValueError(f"{place}: {shown(value)} is not a whole number")


def _check_number(_: Any, value: Any, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{place}: {shown(value)} is not a number")


def _check_kind(kind: type[Any], words: str) -> Callable[[Any, Any, str], Any]:
    def check(_: Any, value: Any, place: str) -> Any:
        if isinstance(value, kind):
            return value
        raise ValueError(f"{place}: {shown(value)} is not {words}")

    return check


def check_choice(kinds: Any, value: Any, place: str) -> Any:
    """Take the first type that fits; the trouble with the first is told where none does."""
    if value is None and type(None) in kinds:
        return None
    wanted = [kind for kind in kinds if kind is not type(None)]
    for kind in wanted[1:]:
        with suppress(ValueError):
            return checked(kind, value, place)
    return checked(wanted[0], value, place)


def _check_sequence(inner: Any, value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{place}: {shown(value)} is not a list")
    return [checked(inner[0], item, f"{place}[{i}]") for i, item in enumerate(value)] if inner else value


def _check_tuple(inner: Any, value: Any, place: str) -> tuple[Any, ...]:
    found = _check_sequence(inner[:1], value, place)
    if Ellipsis not in inner and len(found) != len(inner):
        raise ValueError(f"{place}: {len(found)} values where {len(inner)} belong")
    return tuple(found)


def _check_mapping(inner: Any, value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {shown(value)} is not a JSON object")
    return {key: checked(inner[1], item, f"{place}.{shown(key)}") for key, item in value.items()} if inner else value


CHECKS: Mapping[Any, Callable[[Any, Any, str], Any]] = {
    int: _check_whole,
    float: _check_number,
    str: _check_kind(str, "text"),
    bool: _check_kind(bool, "true or false"),
    type(None): _check_kind(type(None), "null"),
    list: _check_sequence,
    tuple: _check_tuple,
    dict: _check_mapping,
    Mapping: _check_mapping,
    Sequence: _check_sequence,
    types.UnionType: check_choice,
    Union: check_choice,
}


def shown(value: Any) -> str:
    """Write a value of a file for an error's line: short, and without control characters."""
    text = value if isinstance(value, str) else str(value)
    return printable(" ".join(text.split()))[:SHOWN_CHARACTERS] or "''"


def printable(text: str) -> str:
    """Replace what a terminal would obey rather than show: control characters besides line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_json(path: Path, record: Any, *, durable: bool = True) -> None:
    """Write a record (a dataclass or plain JSON values) whole; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS), durable=durable)


def write_bytes(path: Path, content: "bytes | memoryview", *, durable: bool = True) -> None:
    """Write a file whole: a reader sees the old one or the new one."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a temporary name beside `path`; what was written there becomes `path` when the block ends without an error.

    durable: flushed to the disk before and after the rename, so that it outlives the machine.
    """
    temporary = _temporary_name(path)
    try:
        yield temporary
        if durable:
            flush(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        flush(path.parent)


def write_once(path: Path, record: Any) -> bool:
    """Write a record unless the file is there already; tell whether it was written."""
    temporary = _temporary_name(path)
    try:
        write_json(temporary, record)
        return link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def link(temporary: Path, path: Path) -> bool:
    """Give a whole file its name unless that is taken; a file system without hard links has to do with a rename."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:
        if path.exists():
            return False
        temporary.replace(path)
    flush(path.parent)
    return True


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:SHOWN_CHARACTERS]}.{uuid4().hex}.tmp")


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, durable; of a folder where the file system knows how."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)
