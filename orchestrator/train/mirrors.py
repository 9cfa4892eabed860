"""Copies of a run's metrics for TensorBoard, MLflow or W&B, through Lightning's loggers; never the source of truth.

The loggers work in a process of their own, for in a thread they would take the interpreter from the training loop
(MLflow made small steps three times as long). Here is its other end: lines are written to a pipe and never waited for.
"""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from scalewright.fitting.words import counted
from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.talk import say

PROGRAM = (sys.executable, "-m", "scalewright.orchestrator.train.mirror_process")
FIRST_WAIT_S = 20.0  # at most, until the loggers are imported: else that would count as training time
LAST_WAIT_S = 12.0  # for the last records of a run; the other process gives up a little before
SHORT_WAIT_S = 2.0  # for those of a run that was told to stop
MOST_BYTES = 16 << 20  # waiting to be written
PIPE_BYTES = 1 << 20


class Mirrors:
    """The process of all mirrors of a run; nothing that happens to it reaches the caller."""

    def __init__(self, run_dir: Path, mirrors: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]) -> None:
        self.names = ", ".join(str(one["name"]) for one in mirrors)
        self.status, self.last_wait_s = "failed", LAST_WAIT_S
        self.n_dropped = 0
        self._unwritten = bytearray()
        self._process = self._start()
        self._send({"run_dir": str(run_dir.absolute()), "mirrors": list(mirrors), "parameters": parameters})
        if self._process is not None:
            select.select([self._process.stdout], [], [], FIRST_WAIT_S)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over the values of a step; where too much waits they are dropped."""
        self._send({"step": step, "values": {name: float(value) for name, value in values.items()}})

    def ended(self, outcome: str) -> None:
        """Remember how the run ended; one that was told to stop has little time left."""
        self.status = "failed" if outcome == "failed" else "success"
        self.last_wait_s = SHORT_WAIT_S if outcome in ("stopped", "preempted", "fenced") else LAST_WAIT_S

    def close(self) -> None:
        """Let the process finish, for some seconds at most."""
        if self._process is None:
            return
        deadline = time.monotonic() + self.last_wait_s
        self._send({"status": self.status})
        while self._unwritten and (left_s := deadline - time.monotonic()) > 0:
            select.select([], [self._process.stdin], [], left_s)
            self._write()
        self._release(deadline)
        if self.n_dropped:
            self._say(f"{counted(self.n_dropped, 'record')} dropped")

    def _release(self, deadline: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
            if code != 0:
                self._say(f"their process ended with exit code {code}")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._say("did not finish in time")
        process.stdout.close()

    def _start(self) -> Any:
        paths = [str(code_root()), os.environ.get("PYTHONPATH", "")]
        quiet = {"WANDB_SILENT": "true"}
        own = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        try:
            process = subprocess.Popen(
                PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=quiet | os.environ | own
            )
        except OSError as trouble:
            self._say(f"their process could not be started: {trouble}")
            return None
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        with contextlib.suppress(OSError):  # more than the limit of this user
            fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return process

    def _send(self, record: Mapping[str, Any]) -> None:
        if self._process is None:
            return
        if len(self._unwritten) > MOST_BYTES:
            self.n_dropped += 1
        else:
            self._unwritten += json.dumps(record).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        """Write as much as the pipe takes now."""
        if self._process is None:
            return
        try:
            while self._unwritten:
                n_written = os.write(self._process.stdin.fileno(), self._unwritten[:PIPE_BYTES])
                del self._unwritten[:n_written]
        except BlockingIOError:
            pass
        except OSError:  # it is gone
            self._unwritten.clear()
            self._release(time.monotonic() + 1.0)

    def _say(self, what: str) -> None:
        words = f"mirrors ({self.names}): {what}"
        say(f"scalewright: {words}; the run goes on without them")


class MirroredJournal:
    """A journal whose metrics and evaluations also go to mirrors; everything else is the journal's own."""

    def __init__(self, journal: Journal, mirrors: Mirrors) -> None:
        self._journal, self._mirrors = journal, mirrors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def metrics(self, step: int, tokens: int, values: Mapping[str, float]) -> None:
        """Write to the journal, then to the mirrors, with the tokens as a metric."""
        self._journal.metrics(step, tokens, values)
        self._mirrors.log(step, {**values, "tokens": tokens})

    def evaluation(self, step: int, tokens: int, values: Mapping[str, float], **details: Any) -> None:
        """Write to the journal, then to the mirrors, each metric as `split/name`."""
        self._journal.evaluation(step, tokens, values, **details)
        split = details.get("split", "validation")
        self._mirrors.log(step, {f"{split}/{name}": value for name, value in values.items()})

    def end(self, outcome: str, step: int, tokens: int, **details: Any) -> None:
        """Write the end to the journal, then let the mirrors finish."""
        self._journal.end(outcome, step, tokens, **details)
        self._mirrors.ended(outcome)


@contextlib.contextmanager
def mirrored(
    journal: Journal, mirrors: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> Iterator[Journal]:
    """Yield the journal, with mirrors where some are asked for: {"name": ..., "options": {...}} as in settings.

    parameters: what identifies the run, shown by the mirrors as hyperparameters.
    """
    if not mirrors:
        yield journal
        return
    started = Mirrors(Path(journal.path).parent, mirrors, parameters)
    try:
        yield cast(Journal, MirroredJournal(journal, started))
    finally:
        started.close()
