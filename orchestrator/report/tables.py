"""How verbs print: one table for people, or JSON for programs. No heavy import at the top."""

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

from scalewright.orchestrator.files import printable
from scalewright.orchestrator.report.format import short_count

Row = Mapping[str, Any]
GAP = 2  # spaces between columns
WIDEST = 60  # of a text before it is wrapped
NARROWEST = 12  # of a column, however little room there is
SEPARATORS = r"/_,=.:+\-"  # after which a long word may break
JOINT = "\N{WORD JOINER}"  # stands between the parts of one word


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
    """Print a table in the room there is: long texts are wrapped, too many columns go below.

    Texts break between words, a long word after a separator, and what has none loses its middle.
    """
    width = room()
    names = list(rows[0])
    first = Column.of(names[0], [row.get(names[0]) for row in rows], room_for(None, width))
    columns = [first, *(Column.of(name, [row.get(name) for row in rows], room_for(first, width)) for name in names[1:])]
    lines = [title] if title else []
    for block in blocks(columns, width):
        lines += ["", *_block_lines(block, len(rows))]
    sys.stdout.write("\n".join([*lines, ""]) + "\n")


def room() -> int | None:
    """Return the width that lines may have: COLUMNS, or the terminal's; None where neither is known."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def room_for(first: "Column | None", width: int | None) -> int:
    """Return how wide a column may be: the first, which stands in every block, leaves half; another what is left."""
    if width is None:
        return WIDEST
    return max(min(WIDEST, (width - GAP) // 2 if first is None else width - GAP - first.width), NARROWEST)


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` letters: between words, then after SEPARATORS, else by an ellipsis."""
    words = [part for word in text.split() for part in (parts_of(word, width) if len(word) > width else [word])]
    lines = [""]
    for word in words:
        joint = "" if not lines[-1] or lines[-1].endswith(JOINT) else " "
        if lines[-1] and len(lines[-1].removesuffix(JOINT)) + len(joint) + len(word.removesuffix(JOINT)) > width:
            lines.append("")
            joint = ""
        lines[-1] = lines[-1].removesuffix(JOINT) + joint + word
    return [line.removesuffix(JOINT) for line in lines]


def parts_of(word: str, width: int) -> list[str]:
    """Cut a long word after each separator; each part but the last ends in JOINT, which no line shows."""
    parts = [shortened(part, width) for part in re.findall(rf"[^{SEPARATORS}]*[{SEPARATORS}]+|[^{SEPARATORS}]+", word)]
    return [*(part + JOINT for part in parts[:-1]), parts[-1]]


def shortened(word: str, width: int) -> str:
    """Leave the middle out of a word that is too long: its start and its end tell it from others."""
    kept = width - 1
    return word if len(word) <= width else f"{word[: kept - kept // 2]}…{word[-(kept // 2) :]}"


@dataclass(frozen=True)
class Column:
    """One column as text: each cell a list of lines; numbers stand to the right."""

    name: str
    cells: list[list[str]]
    width: int
    is_numeric: bool

    @classmethod
    def of(cls, name: str, values: Sequence[Any], most: int = WIDEST) -> "Column":
        """Make a column of values, wrapped at `most` characters; all numbers stand on the right."""
        texts = [printable(cell(value)) for value in values]
        cells = [[text] if len(text) <= most else wrapped(text, most) for text in texts]
        width = max(map(cell_width, [printable(str(name)), *(line for lines in cells for line in lines)]))
        return cls(printable(str(name)), cells, width, all(value is None or _is_number(value) for value in values))

    def line(self, text: str) -> str:
        """Fill a text with spaces up to the column's width."""
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


def _block_lines(columns: Sequence[Column], n_rows: int) -> Iterator[str]:
    yield _joined([column.line(column.name) for column in columns])
    yield "─" * (sum(column.width for column in columns) + GAP * (len(columns) - 1))
    for row in range(n_rows):
        for n in range(max(len(column.cells[row]) for column in columns)):
            parts = [column.cells[row][n] if n < len(column.cells[row]) else "" for column in columns]
            yield _joined([column.line(part) for column, part in zip(columns, parts, strict=True)])


def _joined(parts: Sequence[str]) -> str:
    return (" " * GAP).join(parts).rstrip()


def cell_width(text: str) -> int:
    """Return how many places a text takes on a terminal; letters of East Asia take two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _large(value: float) -> str:
    return f"-{short_count(-value)}" if value < 0 else short_count(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """Write one value for a person: a dash for missing, 4 significant digits, large numbers as 162k, 1.3B."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10_000_000 else _large(value)
    if isinstance(value, float):
        return _large(value) if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)
