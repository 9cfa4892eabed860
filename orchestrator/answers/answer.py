"""The answer of an analysing verb: tables, lines, pictures and its JSON; and how it is shown. Computes nothing."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewright.orchestrator.report.html import Picture, Table, write_picture


@dataclass(frozen=True)
class Answer:
    """What a verb found. `lead`: sentences above the tables; `lines`: below them; `value`: the one JSON value."""

    tables: tuple[Table, ...] = ()
    lead: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    value: Any = field(default=None, repr=False)


def show(answer: Answer, folder: Path, *, as_json: bool) -> None:
    """Print an answer on stdout (its JSON alone where asked) and write its pictures; where they are goes to stderr."""
    from scalewright.orchestrator.report.tables import print_json

    if as_json:
        print_json(answer.value)
    else:
        for sentence in answer.lead:
            print(sentence)
        for table in answer.tables:
            show_table(table)
        for line in answer.lines:
            print(f"- {line}")
    for picture in answer.pictures:
        print(write_picture(picture, folder)[0], file=sys.stderr)


def show_table(table: Table) -> None:
    """Print one table and its notes."""
    from scalewright.orchestrator.report.tables import print_rows

    print_rows(table.rows, title=table.title, empty=f"{table.title}: nothing to show")
    for note in table.notes:
        print(f"  {note}")
    if table.rows or table.notes:
        print()


def merge(answers: Mapping[str, Answer]) -> Answer:
    """Put several answers into one; its JSON holds each under its name."""
    found = list(answers.values())
    return Answer(
        tuple(table for answer in found for table in answer.tables),
        tuple(sentence for answer in found for sentence in answer.lead),
        tuple(line for answer in found for line in answer.lines),
        tuple(picture for answer in found for picture in answer.pictures),
        {name: answer.value for name, answer in answers.items()},
    )
