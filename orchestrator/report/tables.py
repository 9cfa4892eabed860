"""How verbs print: one table for people, or JSON for programs. No heavy import at the top."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


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
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    numeric = {key for key in rows[0] if all(is_number(row.get(key)) or row.get(key) is None for row in rows)}
    for key in rows[0]:
        table.add_column(str(key), justify="right" if key in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[cell(row.get(key)) for key in rows[0]])
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(200, console.width))
    console.print(table)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """Write one value for a person: nothing for missing, 4 significant digits, thousands separated."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10_000_000 else f"{value:.3g}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("[", r"\[")
