"""The journal of one attempt: append-only lines that a job writes and sync reads. Knows files only; no heavy import.

One JSON object a line, one writer a file, one write(2) a line. A full disk never stops training: what could not be
written is kept in memory, tried again with the next line, and said once on stderr.
"""

import contextlib
import math
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from scalewright.orchestrator.files import flush
from scalewright.orchestrator.talk import say

NAME = re.compile(r"journal\.a([1-9][0-9]{0,8})\.jsonl")
HEARTBEAT_S = 10.0
LASTING = frozenset({"completed", "diverged"})  # outcomes after which a run is never started again
OUTCOMES = LASTING | {"stopped", "preempted", "failed", "fenced"}
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def attempts_in(run_dir: Path) -> list[int]:
    """List the attempts that have a journal in `run_dir`, ascending."""
    found = (NAME.fullmatch(entry.name) for entry in os.scandir(run_dir))
    return sorted(int(match[1]) for match in found if match)


def journal_path(run_dir: Path, attempt: int) -> Path:
    """Where an attempt writes: each has a file of its own."""
    return run_dir / f"journal.a{attempt}.jsonl"


class Journal:
    """The one writer of one attempt's journal; make it with `Journal.open`."""

    def __init__(self, path: Path, attempt: int, descriptor: int):
        self.path = path
        self.attempt = attempt
        self._descriptor = descriptor
        self._unwritten = bytearray()
        self._complained = False
        self._last_write = time.monotonic()

    @classmethod
    def open(cls, run_dir: str | Path, start: Mapping[str, Any]) -> "Journal":
        """Allocate the next attempt of the run on disk and write its start record.

        start: run_id, token, job, resume_step, resume_tokens, code, environment; the attempt, the time, the host and
        the process id are added here. Raises OSError where the folder cannot be written.
        """
        attempt, descriptor = allocate(Path(run_dir))
        journal = cls(journal_path(Path(run_dir), attempt), attempt, descriptor)
        written_by = {"attempt": attempt, "time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
        journal.append({"type": "start", **start, **written_by})
        flush(Path(run_dir))
        return journal

    def metrics(self, step: int, tokens: int, values: Mapping[str, float]) -> None:
        """Append the scalars of a step; values are Python floats, of any size and also NaN and infinite."""
        self.append({"type": "metrics", "step": step, "tokens": tokens, "time": time.time(), "values": values})

    def layers(self, step: int, tokens: int, values: Mapping[str, Sequence[float]]) -> None:
        """Append quantities that each layer has: name -> one float a layer."""
        self.append({"type": "layers", "step": step, "tokens": tokens, "time": time.time(), "values": values})

    def evaluation(
        self,
        step: int,
        tokens: int,
        values: Mapping[str, float],
        *,
        n_tokens: int,
        final: bool = False,
        annealed: bool = False,
        split: str = "validation",
    ) -> None:
        """Append an evaluation over `n_tokens` tokens; values are loss_nats and bits_per_byte.

        annealed: the learning rate had come down to its end when this was measured.
        """
        record = {"type": "evaluation", "step": step, "tokens": tokens, "time": time.time(), "split": split}
        self.append({**record, "values": values, "n_tokens": n_tokens, "final": final, "annealed": annealed})

    def checkpoint(self, step: int, tokens: int, path: str | Path, n_bytes: int) -> None:
        """Append that a checkpoint is durable at `path`, relative to the run directory."""
        place = {"path": str(path), "bytes": n_bytes}
        self.append({"type": "checkpoint", "step": step, "tokens": tokens, "time": time.time(), **place})

    def heartbeat(self, step: int, tokens: int) -> None:
        """Say that the attempt lives, where nothing else was written for 10 s; cheap enough to call at every step."""
        if time.monotonic() - self._last_write >= HEARTBEAT_S:
            self.append({"type": "heartbeat", "step": step, "tokens": tokens, "time": time.time()})

    def end(
        self,
        outcome: str,
        step: int,
        tokens: int,
        *,
        reason: str = "",
        error: str | None = None,
        wall_s: float | None = None,
        train_wall_s: float | None = None,
    ) -> None:
        """Append how the attempt ended (completed, diverged, stopped, preempted, failed, fenced), durably."""
        record = {"type": "end", "outcome": outcome, "step": step, "tokens": tokens, "time": time.time()}
        self.append({**record, "reason": reason, "error": error, "wall_s": wall_s, "train_wall_s": train_wall_s})
        self.sync_to_disk()

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one record in one write; numbers that JSON cannot hold are written as strings."""
        line = orjson.dumps(record, option=LINE)
        if b"null" in line:  # orjson writes NaN and the infinities as null
            line = orjson.dumps(spelled_out(record), option=LINE)
        if not self._unwritten:
            with contextlib.suppress(OSError):
                line = line[os.write(self._descriptor, line) :]
                self._last_write = time.monotonic()
        if line:
            self._unwritten += line
            self.write_again()

    def write_again(self) -> bool:
        """Write what had to wait; return whether nothing waits any more. The first refusal is said on stderr."""
        try:
            while self._unwritten:
                n_written = os.write(self._descriptor, self._unwritten)
                del self._unwritten[:n_written]
                self._last_write = time.monotonic()
        except OSError as trouble:
            if not self._complained:
                say(f"scalewright: {self.path}: {trouble.strerror}; training goes on, metrics wait in memory")
            self._complained = True
        return not self._unwritten

    def sync_to_disk(self) -> bool:
        """Make every line durable (fsync); return False where something is still only in memory or the disk refused."""
        all_written = self.write_again()
        try:
            os.fsync(self._descriptor)
        except OSError:
            return False
        return all_written

    def close(self) -> None:
        """Write what waits, make it durable and close; what is lost for good is said on stderr. Safe to repeat."""
        if self._descriptor < 0:
            return
        self.sync_to_disk()
        if self._unwritten:
            say(f"scalewright: {self.path}: {len(self._unwritten)} bytes could not be written")
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def allocate(run_dir: Path) -> tuple[int, int]:
    """Create the journal of the next attempt, which nobody else can have, and return (attempt, descriptor)."""
    attempt = max(attempts_in(run_dir), default=0) + 1
    while True:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return attempt, os.open(journal_path(run_dir, attempt), flags, 0o644)
        except FileExistsError:
            attempt += 1


def is_foreign(first_line: bytes, run_id: str) -> bool:
    """Tell whether a journal's first line is the start record of another run."""
    with contextlib.suppress(orjson.JSONDecodeError):
        start = orjson.loads(first_line)
        return isinstance(start, dict) and start.get("type") == "start" and start.get("run_id") != run_id
    return False


def is_sound(record: Any) -> bool:
    """Tell whether what a journal's line holds has the types that `Journal` writes; what is not there is no fault."""
    if not isinstance(record, dict):
        return False
    counts = [record.get(name) for name in ("step", "tokens", "resume_step", "resume_tokens")]
    if not all(count is None or (type(count) is int and count >= 0) for count in counts):
        return False
    if not isinstance(record.get("job", {}), dict):
        return False
    is_end, error = record.get("type") == "end", record.get("error")
    return not is_end or (is_outcome(record.get("outcome")) and (error is None or isinstance(error, str)))


def is_outcome(value: Any) -> bool:
    """Tell whether a value read from a file is one of OUTCOMES."""
    return isinstance(value, str) and value in OUTCOMES


def spelled_out(value: Any) -> Any:
    """Replace NaN and infinities, at any depth, by the strings "nan", "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {key: spelled_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(item) for item in value]
    if hasattr(value, "tolist"):
        return spelled_out(value.tolist())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
