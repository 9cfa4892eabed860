"""Remembers a written page beside it, with what it was made from, so that the same page is not made twice."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewright import fitting
from scalewright.orchestrator.report.html import Table, write_whole
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
    """Hash what a page is made from: the experiment's runs, its comparisons, and the code that makes pages."""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import final_losses

    database = open_database(study.database, create=False)
    try:
        runs = final_losses(database, experiment)
    finally:
        database.close()
    digest = hashlib.sha256(runs.to_csv(index=False).encode())
    digest.update(json.dumps([list(pair) for pair in compare]).encode())
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


def write_page(page: Page, key: str) -> None:
    """Write what a terminal shows of the page, with its key, beside the page; programs may read it too."""
    from scalewright.orchestrator.report.tables import finite

    record = {
        "key": key,
        "tables": [asdict(table) for table in page.tables],
        "lines": page.lines,
        "files": [path.name for path in page.files],
    }
    write_whole(page.path.with_name(NAME), json.dumps(finite(record), indent=1, ensure_ascii=False).encode())


def read_page(folder: Path, key: str) -> Page | None:
    """Return the page in a folder if it was made from `key` and all its files are there, else None."""
    try:
        record: dict[str, Any] = json.loads((folder / NAME).read_bytes())
        files = tuple(folder / name for name in record["files"])
        if record["key"] != key or not all(path.is_file() for path in files):
            return None
        tables = tuple(Table(one["title"], tuple(one["rows"]), tuple(one["notes"])) for one in record["tables"])
        return Page(tables, tuple(record["lines"]), files, files[-1])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
