"""A process that can be named for good: host, pid and start time. Knows the operating system only."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command's closing parenthesis; see proc(5)


@dataclass(frozen=True)
class Process:
    """One process: a recycled pid has another start time, so it is never mistaken for this one."""

    host: str
    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Name the live process `pid` of this machine, or return None when there is none."""
        started = start_time(pid)
        return cls(socket.gethostname(), pid, started) if started is not None else None

    @classmethod
    def this(cls) -> "Process":
        """Describe the process that calls."""
        process = cls.of(os.getpid())
        assert process is not None, "this very process lives"
        return process

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Process":
        """Read what `to_dict` wrote; KeyError or ValueError for anything else."""
        return cls(str(record["host"]), int(record["pid"]), str(record["started"]))

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @property
    def _is_local(self) -> bool:
        return self.host == socket.gethostname()

    def is_alive(self) -> bool | None:
        """Tell whether the process lives; None when it belongs to another machine and nothing can be said."""
        if not self._is_local:
            return None
        return start_time(self.pid) == self.started

    def send(self, signum: signal.Signals) -> bool:
        """Send a signal if the very process still lives; tell whether it was sent."""
        if not self.is_alive():
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, signum)
            return True
        return False


def booted_at() -> float:
    """Return when this machine was started, in seconds since 1970."""
    return time.time() - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def start_time(pid: int) -> str | None:
    """Read when a live, non-zombie process started, in a unit that only has to be the same each time."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return start_time_from_ps(pid)
    try:
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[START_TIME_FIELD]


def start_time_from_ps(pid: int) -> str | None:
    """The same where there is no /proc (macOS)."""
    reply = subprocess.run(["ps", "-p", str(pid), "-o", "stat=,lstart="], capture_output=True, text=True, check=False)
    state, _, started = reply.stdout.strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None
