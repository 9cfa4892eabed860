"""Small JSON files: written under a temporary name and renamed, so that a reader sees a whole file or none."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson


def write_json(path: Path, record: Any, *, durable: bool = False) -> None:
    """Write a record under a temporary name, then rename it; `durable` also flushes it to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with temporary.open("wb") as file:
        file.write(orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> Any:
    """Read a record; None when it does not exist (yet)."""
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
