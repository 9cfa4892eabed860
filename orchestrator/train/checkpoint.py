"""Checkpoints of a run: written whole, renamed, made durable; read without running code from them.

ckpt/step-{step}.pt holds {format, run_id, step, tokens, model, optimizer, progress}; the newest KEPT are kept.
"""

import io
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from scalewright.orchestrator.files import write_bytes

FORMAT = 1
KEPT = 2
# What torch.load raises for files that are torn, zeroed, overwritten or of something else.
DAMAGE = (
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    pickle.UnpicklingError,
)
NAME = re.compile(r"step-(\d{9,})\.pt")


def save(run_dir: Path, record: dict[str, Any]) -> tuple[Path, int]:
    """Write the checkpoint of `record["step"]` durably; return its path and size in bytes. Raises OSError."""
    path = path_of(run_dir, record["step"])
    n_bytes = write(path, record)
    for old in list(checkpoints(run_dir))[KEPT:]:
        old.unlink(missing_ok=True)
    return path, n_bytes


def write(path: Path, record: dict[str, Any]) -> int:
    """Write one file durably, making its folder; return its bytes. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **record}, buffer)
    write_bytes(path, buffer.getbuffer())
    return buffer.tell()


def path_of(run_dir: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run_dir / "ckpt" / name_of(step)


def name_of(step: int) -> str:
    """Name the file of a step."""
    return f"step-{step:09d}.pt"


def checkpoints(run_dir: Path) -> Iterator[Path]:
    """Yield the checkpoints of a run, the newest first."""
    return in_folder(run_dir / "ckpt")


def in_folder(folder: Path) -> Iterator[Path]:
    """Yield the checkpoints in a folder, the newest first."""
    found = [path for path in folder.glob("step-*.pt") if NAME.fullmatch(path.name)]
    yield from sorted(found, key=lambda path: int(path.stem.removeprefix("step-")), reverse=True)


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; raises what torch.load raises for a damaged one."""
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def load_latest(run_dir: Path, run_id: str) -> dict[str, Any] | None:
    """Read the newest whole checkpoint of this run; a damaged one is passed over for the one before it."""
    found = (read(path, run_id) for path in checkpoints(run_dir))
    return next((record for record in found if record is not None), None)


def read(path: Path, whose: str) -> dict[str, Any] | None:
    """Read a checkpoint of the run or trunk `whose`; None where it is damaged or of another."""
    try:
        record = load(path)
    except DAMAGE:
        return None
    return record if record.get("format") == FORMAT and record.get("run_id") == whose else None
