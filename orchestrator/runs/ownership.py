"""A run lies in one place: the fencing token of the attempt that owns a run directory. Knows its files only.

An attempt takes the run by renaming its own owner.json into place and asks again before each checkpoint and before
DONE.json; the zombie of a lost node that wakes up finds another token and stops without writing.
"""

import errno
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.files import Broken, read, write_json, write_once
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Done, Owner
from scalewright.orchestrator.talk import say

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_DISK_S = 900.0
LOOK_S = 2.0
N_LOOKS, LOOK_AGAIN_S = 3, 0.2  # a network file system may refuse a file that is being replaced


@dataclass(frozen=True)
class Ownership:
    """One attempt's claim on a run directory."""

    run_dir: Path
    attempt: int
    token: str

    def holds(self) -> bool:
        """Tell whether this attempt still owns its run; read from disk each time."""
        for _ in range(N_LOOKS):
            owner = read(self.run_dir / "owner.json", Owner, run_id=self.run_dir.name)
            if not isinstance(owner, Broken):
                return owner is not None and owner.token == self.token
            time.sleep(LOOK_AGAIN_S)
        return False

    def finish(self, record: Done) -> bool:
        """Write DONE.json, whole and only once; tell whether this attempt was the one that did.

        On a full disk a finished run waits a while for room, unless it is asked to end. Raises OSError.
        """
        deadline, complained = time.monotonic() + FULL_DISK_S, False
        while True:
            try:
                return self.holds() and write_once(self.run_dir / "DONE.json", record)
            except OSError as trouble:
                if trouble.errno not in FULL or signals.requested() or time.monotonic() > deadline:
                    raise
                if not complained:
                    say(f"scalewright: {self.run_dir}: {trouble.strerror}; its result waits for room")
                complained = True
            time.sleep(LOOK_S)


def new_token() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex


def take_ownership(run_dir: Path, attempt: int, token: str) -> Ownership:
    """Make this process the owner of a run; from now on every earlier attempt is fenced off."""
    process = Process.this()
    made = (time.time(), socket.gethostname(), job_place(), process.pid, process.started)
    write_json(run_dir / "owner.json", Owner(attempt, token, *made, run_id=run_dir.name))
    return Ownership(run_dir, attempt, token)
