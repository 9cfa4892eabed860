"""A frame as a file, by the ending of its name. No heavy import."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import replacing

if TYPE_CHECKING:
    import pandas as pd

SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db")


def _write_csv(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_csv(path, index=False)


def _write_parquet(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_parquet(path, index=False)


def _write_jsonl(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_json(path, orient="records", lines=True)


WRITERS: dict[str, Callable[["pd.DataFrame", Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}


def write_table(frame: "pd.DataFrame", target: Path) -> None:
    """Write a frame under a temporary name and rename it, by the ending of the target's name."""
    write = WRITERS.get(target.suffix)
    if write is None:
        known = ", ".join([*WRITERS, *SQLITE_ENDINGS])
        raise UserError(f"{target}: unknown file format (endings: {known})")
    with replacing(target) as unfinished:
        write(frame, unfinished)
