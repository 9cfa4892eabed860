"""Rows of a CSV, Parquet or JSONL file, each with its line. Knows formats only."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError


@dataclass(frozen=True)
class Row:
    """One row: its line and its cells by the file's names; `trouble` says why the cells cannot be told apart."""

    line: int
    cells: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file by the ending of its name; raises UserError where it cannot be read."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: unknown file format (endings: {', '.join(READERS)})")
    try:
        yield from reader(path)
    except (UnicodeDecodeError, csv.Error, OSError) as trouble:
        raise UserError(f"{path}: not readable ({trouble})") from None


def _read_csv(path: Path, delimiter: str = ",") -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        names: list[str] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue  # blank, or only separators, as spreadsheets leave below a table
            if not names:
                names = read_header(path, cells, delimiter)
            else:
                yield read_cells(names, cells, reader.line_num)


def read_header(path: Path, cells: Sequence[str], delimiter: str) -> list[str]:
    """Return the names of the columns; raises UserError for a name that stands twice, or for other separators."""
    names = [cell.strip() for cell in cells]
    twice = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if twice:
        raise UserError(f"{path}: two columns are named {twice[0]!r}; give each another name")
    other = next((sign for sign in SEPARATORS if sign != delimiter and sign in names[0]), None)
    if len(names) == 1 and other:
        raise UserError(
            f"{path}: its names are parted by {SEPARATORS[other]}, expected {SEPARATORS[delimiter]}; save it with "
            "commas between columns (and points in decimals), or with tabs as .tsv"
        )
    return names


def read_cells(names: Sequence[str], cells: Sequence[str], line: int) -> Row:
    """Put the cells of a row under their names. More cells than names, and nothing can be said of any of them."""
    if any(cell.strip() for cell in cells[len(names) :]):
        why = "is there a comma inside a number or a text? Put it in quotes"
        return Row(line, trouble=f"{counted(len(cells), 'value')} under {counted(len(names), 'name')}; {why}")
    return Row(line, {name: cell for name, cell in zip(names, cells, strict=False) if name})


def _read_tsv(path: Path) -> Iterator[Row]:
    return _read_csv(path, "\t")


def _read_jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield Row(line, _json_object(path, line, text))


def _json_object(path: Path, line: int, text: str) -> Mapping[str, Any]:
    twice: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return dict(pairs)

    try:
        row = json.loads(text, object_pairs_hook=keep)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f"{path}:{line}: not a JSON object on one line")
    if twice:
        raise UserError(f"{path}:{line}: {twice[0]!r} stands there twice")
    return row


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(path).names
        (most, count), *_ = Counter(names).most_common(1) or [("", 0)]
        if count > 1:  # first, because a table with such columns cannot be read
            raise UserError(f"{path}: two columns are named {most!r}; give each another name")
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as trouble:
        raise UserError(f"{path}: not a Parquet file ({str(trouble).splitlines()[0]})") from None
    yield from (Row(line, cells) for line, cells in enumerate(table.to_pylist(), 1))


SEPARATORS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
