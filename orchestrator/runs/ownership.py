"""A run lies in one place: the fencing token of the attempt that owns a run directory. Knows its files only.

An attempt takes the run by renaming its own owner.json into place and asks again before each checkpoint and before
DONE.json; the zombie of a lost node that wakes up finds another token and stops without writing.
"""

import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.orchestrator.files import read_json, write_json
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.processes import Process


@dataclass(frozen=True)
class Ownership:
    """One attempt's claim on a run directory."""

    run_dir: Path
    attempt: int
    token: str

    def holds(self) -> bool:
        """Tell whether this attempt still owns its run; read from disk each time."""
        owner = read_json(self.run_dir / "owner.json")
        return owner is not None and bool(owner["token"] == self.token)

    def finish(self, record: dict[str, Any]) -> bool:
        """Write DONE.json, whole and only once; tell whether this attempt was the one that did."""
        if not self.holds():
            return False
        whole = self.run_dir / f".DONE.{uuid.uuid4().hex}.tmp"
        write_json(whole, record, durable=True)
        try:
            return put_once(whole, self.run_dir / "DONE.json")
        finally:
            whole.unlink(missing_ok=True)


def put_once(whole: Path, path: Path) -> bool:
    """Give a whole file its name unless that is taken; a file system without hard links has to do with a rename."""
    try:
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError:
        if path.exists():
            return False
        whole.replace(path)
    return True


def new_token() -> str:
    return uuid.uuid4().hex


def take_ownership(run_dir: Path, attempt: int, token: str) -> Ownership:
    """Make this process the owner of a run; from now on every earlier attempt is fenced off."""
    process = Process.this()
    record = {"attempt": attempt, "token": token, "time": time.time(), "host": socket.gethostname(), "job": job_place()}
    write_json(run_dir / "owner.json", record | {"pid": process.pid, "started": process.started}, durable=True)
    return Ownership(run_dir, attempt, token)
