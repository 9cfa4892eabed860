"""The job that `doctor --probe` sends: signals itself, requeues itself, and reports from its second life.

No heavy import.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from scalewright.orchestrator.files import require, write_json
from scalewright.orchestrator.runs import signals

WAIT_S = 30.0
COMMANDS = ("squeue", "scontrol")


@dataclass(frozen=True)
class Probe:
    """What the job found: its host, whether the signal came, which commands answer, how far the clock is off."""

    host: str
    signal: bool
    commands: dict[str, bool]
    clock_skew_s: float


def main(folder: Path) -> None:
    """Act as the first or the second life of the job, by what SLURM says of restarts."""
    if int(os.environ.get("SLURM_RESTART_COUNT") or 0) == 0:
        first_life(folder)
    else:
        write_json(folder / "report.json", require(folder / "first.json", Probe))


def first_life(folder: Path) -> None:
    """Ask SLURM for the signal that warns a job, note what came, and ask for a requeue."""
    signals.install()
    job = os.environ["SLURM_JOB_ID"]
    subprocess.run(["scancel", "--signal=USR2", job], check=False, timeout=60)
    deadline = time.monotonic() + WAIT_S
    while signals.requested() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    (folder / "touched").write_text("")
    there = {name: shutil.which(name) is not None and _answers(name) for name in COMMANDS}
    record = Probe(
        host=socket.gethostname(),
        signal=signals.received() == signal.SIGUSR2,
        commands=there,
        clock_skew_s=time.time() - (folder / "touched").stat().st_mtime,
    )
    write_json(folder / "first.json", record)
    subprocess.run(["scontrol", "requeue", job], check=False, timeout=60)
    time.sleep(WAIT_S)
    write_json(folder / "report.json", replace(record, commands=there | {"requeue": False}))


def _answers(name: str) -> bool:
    command = {"squeue": ["squeue", "--me"], "scontrol": ["scontrol", "ping"]}[name]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
