"""How verbs print: one table for people, or JSON for programs. No heavy import at the top."""

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

from scalewright.orchestrator.files import printable
from scalewright.orchestrator.report.format import short_count

Row = Mapping[str, Any]
GAP = 2  # spaces between columns
WIDEST = 60  # of a text before it is wrapped


def print_rows(rows: Sequence[Row], *, as_json: bool = False, title: str = "", empty: str = "nothing to show") -> None:
    """Print `rows` (one mapping a row, the same keys in each) on stdout; `empty` goes to stderr when there are none."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        print(empty, file=sys.stderr)
    else:
        print_table(rows, title)


def print_json(value: Any) -> None:
    """Print one JSON value; numbers that JSON cannot hold (NaN, infinities) become null."""
    print(json.dumps(finite(value), indent=2, default=str))


def finite(value: Any) -> Any:
    """Replace what JSON cannot hold, at any depth; numpy scalars become Python numbers."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(rows: Sequence[Row], title: str = "") -> None:
    """Print a table that never breaks a word: long texts are wrapped between words, too many columns go below."""
    columns = [Column.of(name, [row.get(name) for row in rows]) for name in rows[0]]
    lines = [title] if title else []
    for block in blocks(columns, room()):
        lines += ["", *block_lines(block, len(rows))]
    sys.stdout.write("\n".join([*lines, ""]) + "\n")


def room() -> int | None:
    """Return the width that lines may have: COLUMNS, or the terminal's; None where neither is known."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@dataclass(frozen=True)
class Column:
    """One column as text: each cell a list of lines; numbers stand to the right."""

    name: str
    cells: list[list[str]]
    width: int
    is_numeric: bool

    @classmethod
    def of(cls, name: str, values: Sequence[Any]) -> "Column":
        texts = [printable(cell(value)) for value in values]
        cells = [
            [text] if len(text) <= WIDEST else textwrap.wrap(text, WIDEST, break_long_words=False) for text in texts
        ]
        width = max(map(cell_width, [printable(str(name)), *(line for lines in cells for line in lines)]))
        return cls(printable(str(name)), cells, width, all(value is None or is_number(value) for value in values))

    def line(self, text: str) -> str:
        gap = " " * (self.width - cell_width(text))
        return gap + text if self.is_numeric else text + gap


def blocks(columns: Sequence[Column], width: int | None) -> list[list[Column]]:
    """Cut columns into blocks that fit beside each other; each further block begins with the first column again."""
    found: list[list[Column]] = [[columns[0]]]
    for column in columns[1:]:
        used = sum(one.width + GAP for one in found[-1])
        if width is not None and used + column.width > width and len(found[-1]) > 1:
            found.append([columns[0]])
        found[-1].append(column)
    return found


def block_lines(columns: Sequence[Column], n_rows: int) -> Iterator[str]:
    yield joined([column.line(column.name) for column in columns])
    yield "─" * (sum(column.width for column in columns) + GAP * (len(columns) - 1))
    for row in range(n_rows):
        for n in range(max(len(column.cells[row]) for column in columns)):
            parts = [column.cells[row][n] if n < len(column.cells[row]) else "" for column in columns]
            yield joined([column.line(part) for column, part in zip(columns, parts, strict=True)])


def joined(parts: Sequence[str]) -> str:
    return (" " * GAP).join(parts).rstrip()


def cell_width(text: str) -> int:
    """Return how many places a text takes on a terminal; letters of East Asia take two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def large(value: float) -> str:
    return f"-{short_count(-value)}" if value < 0 else short_count(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """Write one value for a person: a dash for missing, 4 significant digits, large numbers as 162k, 1.3B."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10_000_000 else large(value)
    if isinstance(value, float):
        return large(value) if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)
