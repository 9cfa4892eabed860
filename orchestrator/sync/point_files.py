"""Rows of a CSV, Parquet or JSONL file, each with its line. Knows formats only."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scalewright.orchestrator.errors import UserError

Row = tuple[int, Mapping[str, Any]]


def read_rows(path: Path) -> Iterator[Row]:
    """Yield (line, row) of a file by the ending of its name; raises UserError where it cannot be read."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: the ending says no format that is known (endings: {', '.join(READERS)})")
    try:
        yield from reader(path)
    except (UnicodeDecodeError, csv.Error, OSError) as trouble:
        raise UserError(f"{path}: not readable ({trouble})") from None


def read_csv(path: Path, delimiter: str = ",") -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        for row in reader:
            yield reader.line_num, {str(name).strip(): value for name, value in row.items() if name is not None}


def read_tsv(path: Path) -> Iterator[Row]:
    return read_csv(path, "\t")


def read_jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield line, json_object(path, line, text)


def json_object(path: Path, line: int, text: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f"{path}:{line}: not a JSON object on one line")
    return row


def read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as trouble:
        raise UserError(f"{path}: not a Parquet file ({str(trouble).splitlines()[0]})") from None
    yield from enumerate(table.to_pylist(), 1)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
