"""Remembers a written page beside it, with what it was made from, so that the same page is not made twice."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewright import fitting
from scalewright.orchestrator.analysis.inputs import read_inputs
from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.report.html import Table
from scalewright.orchestrator.study import Study

NAME = "report.json"


@dataclass(frozen=True)
class Page:
    """A report as written: what a terminal shows of it, every file (pictures, then the page), and where the page is."""

    tables: tuple[Table, ...]
    lines: tuple[str, ...]
    files: tuple[Path, ...]
    path: Path


def page_key(study: Study, experiment: str, compare: Sequence[tuple[str, str]]) -> str:
    """Hash what a page is made from: what an analysis reads of the experiment, and the code that makes pages.

    Raises UserError where no run has ended.
    """
    inputs = read_inputs(study, experiment, compare)
    digest = hashlib.sha256(inputs.runs.to_csv(index=False).encode())
    digest.update(json.dumps(inputs.hashes).encode())
    for path in code_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def code_files() -> list[Path]:
    """List the sources that a page depends on: what fits, analyses, words and lays out."""
    here = Path(__file__).parent
    folders = (here, here.parent / "analysis", Path(str(fitting.__file__)).parent)
    return [
        *sorted((here / "templates").glob("*.j2")),
        *(path for each in folders for path in sorted(each.rglob("*.py"))),
    ]


@dataclass(frozen=True)
class StoredTable:
    title: str
    rows: list[dict[str, Any]]
    notes: list[str]


@dataclass(frozen=True)
class StoredPage:
    """report.json: what a terminal shows of the page; files are its pictures, and last the page itself."""

    key: str
    tables: list[StoredTable]
    lines: list[str]
    files: list[str]


def write_page(page: Page, key: str) -> None:
    """Write what a terminal shows of the page, with its key, beside the page; programs may read it too."""
    from scalewright.orchestrator.report.tables import finite

    tables = [StoredTable(table.title, [dict(row) for row in table.rows], list(table.notes)) for table in page.tables]
    record = StoredPage(key, tables, list(page.lines), [path.name for path in page.files])
    write_json(page.path.with_name(NAME), finite(asdict(record)), durable=False)


def read_page(folder: Path, key: str) -> Page | None:
    """Return the page in a folder if it was made from `key` and all its files are there, else None."""
    stored = usable(folder / NAME, StoredPage, key=key)
    if stored is None or stored.key != key or not stored.files:
        return None
    files = tuple(folder / name for name in stored.files)
    if not all(path.is_file() for path in files):
        return None
    tables = tuple(Table(one.title, tuple(one.rows), tuple(one.notes)) for one in stored.tables)
    return Page(tables, tuple(stored.lines), files, files[-1])
