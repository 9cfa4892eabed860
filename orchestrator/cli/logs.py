"""What the jobs of a run printed: finds their log files and follows them.

Knows jobs/ and the run's journal, no cluster.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import printable
from scalewright.orchestrator.jobs.records import read_chunks, runs_in
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.talk import say

POLL_S = 0.3
LOOK_S = 3.0


def print_logs(run: str, *, follow: bool, n_lines: int) -> None:
    """Print the end of a run's log, and what is added until its job is over; raises UserError where there is none."""
    from scalewright.orchestrator.cli.selection import resolve

    target = resolve([run])
    run_id = target.run_ids[0]
    files = log_files(target.study, run_id)
    if not files:
        raise UserError(f"{run_id}: no job of it has printed anything yet (see: scalewright status {run})")
    for path in files:
        say(f"==> {path} <==")
        print(printable("\n".join(_tail(path, n_lines))))
    if follow:
        for line in added_lines(target.study, run_id, files):
            print(printable(line), flush=True)


def log_files(study: Study, run_id: str) -> list[Path]:
    """List the log files of the newest job that had the run: what it printed, and its errors."""
    newest: list[Path] = []
    for chunk in read_chunks(study.jobs_dir, closed=True):
        for pack in chunk.packs:
            if any(run.name == run_id for run in runs_in(study.jobs_dir, chunk.submission_id, pack)):
                found = sorted((study.jobs_dir / chunk.submission_id / "logs").glob(f"{chunk.job_of(pack)}_*_log.*"))
                newest = found or newest
    return newest


def _tail(path: Path, n_lines: int) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-n_lines:] if n_lines else []


def added_lines(study: Study, run_id: str, files: list[Path]) -> Iterator[str]:
    """Yield what is added to the files, until the run is over and everything was shown."""
    opened = [_open_at_end(path) for path in files]
    try:
        last_look = time.monotonic()
        over = is_over(study, run_id)
        while True:
            lines = [line.rstrip("\n") for file in opened for line in file.readlines()]
            yield from lines
            if over and not lines:
                return
            time.sleep(POLL_S)
            if time.monotonic() - last_look > LOOK_S:
                last_look, over = time.monotonic(), is_over(study, run_id)
    finally:
        for file in opened:
            file.close()


def _open_at_end(path: Path) -> TextIO:
    file = path.open(errors="replace")
    file.seek(0, 2)
    return file


def is_over(study: Study, run_id: str) -> bool:
    """Tell whether a run has its outcome, or its newest attempt has said its last word."""
    run = read_run(study.run_dir(run_id))
    return run.done is not None or (run.newest is not None and run.newest.outcome is not None)
