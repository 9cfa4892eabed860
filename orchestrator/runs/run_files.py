"""What a run directory says about its run: outcome, attempts, last sign of life, and whether it may be tried again.

Reads files only; no database, no cluster. The budget of retries has its one rule here: attempts that brought a run
further are free, `errors_allowed` says how many may fail without.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from scalewright.orchestrator.files import read_json
from scalewright.orchestrator.runs.journal import attempts_in, journal_path

TAIL_BYTES = 65536
STUCK_ATTEMPTS = 5
ERRORS_ALLOWED = 1
NO_PROGRESS = "ended again and again before it came a token further: is the time limit too short?"


@dataclass(frozen=True)
class AttemptFacts:
    """One attempt, from the first and the last line of its journal."""

    attempt: int
    job: dict[str, Any]
    tokens: int
    outcome: str | None
    error: str | None
    last_sign: float
    step: int = 0

    def is_of(self, cluster: str | None, job_id: str | None) -> bool:
        """Tell whether this attempt was made by a job, named as the executor names it (`array_task`)."""
        return job_name(self.job) == job_id and (cluster is None or self.job.get("cluster") == cluster)


@dataclass(frozen=True)
class RunFacts:
    """What is on disk of one run.

    again: a person asked for it again ({"time", "attempts" made before}); errors_allowed: the budget it was last
    submitted with.
    """

    run_id: str
    done: dict[str, Any] | None
    stop: dict[str, Any] | None
    attempts: tuple[AttemptFacts, ...]
    again: dict[str, Any] | None = None
    errors_allowed: int = ERRORS_ALLOWED

    @property
    def newest(self) -> AttemptFacts | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def last_sign(self) -> float:
        return max((attempt.last_sign for attempt in self.attempts), default=0.0)

    @property
    def n_errors(self) -> int:
        """Count the errors in a row, the newest attempt first, without a token more than before them."""
        return self.count_vain({"failed"})

    def why_failed(self, *, blamed: str = "") -> str | None:
        """Say why the run is not to be tried again by itself, or None: the only judge of the budget of retries.

        blamed: how its job died, where that blames the run; attempts that ended without a word count as errors then.
        """
        if self.n_errors > self.errors_allowed:
            failed = [attempt for attempt in self.attempts if attempt.outcome == "failed"]
            return last_line(failed[-1].error)
        if blamed and self.count_vain({"failed", None}) > self.errors_allowed:
            return blamed
        return NO_PROGRESS if self.count_vain({"preempted"}) >= STUCK_ATTEMPTS else None

    def is_asked_again(self, since: float) -> bool:
        """Tell whether a person asked for the run after `since`, and no attempt has been made after that."""
        if self.again is None or float(self.again["time"]) < since:
            return False
        return self.newest is None or self.newest.attempt <= int(self.again["attempts"])

    def count_vain(self, outcomes: set[str | None]) -> int:
        """Count the attempts that ended so, since one brought the run further or a person forgave them."""
        count, best, forgiven = 0, 0, int((self.again or {}).get("attempts", 0))
        for attempt in self.attempts:
            if attempt.tokens > best:
                best, count = attempt.tokens, 0
            if attempt.outcome in outcomes and attempt.attempt > forgiven:
                count += 1
        return count


def read_run(run_dir: Path) -> RunFacts:
    """Read a run directory; one that does not exist is a run without any sign."""
    try:
        attempts = tuple(read_attempt(run_dir, number) for number in attempts_in(run_dir))
    except FileNotFoundError:
        return RunFacts(run_dir.name, None, None, ())
    done, again = read_json(run_dir / "DONE.json"), read_json(run_dir / "again.json")
    return RunFacts(run_dir.name, done, read_stop(run_dir), attempts, again, read_budget(run_dir, attempts))


def job_name(job: Mapping[str, Any]) -> str:
    """Name the job of a journal's start record as the executors do: `array_task`, or the plain id."""
    task = job.get("array_task")
    return str(job.get("job_id")) + ("" if task is None else f"_{task}")


def read_budget(run_dir: Path, attempts: Sequence[AttemptFacts]) -> int:
    """Read how many errors the run may have; only where it had one."""
    if all(attempt.outcome in ("completed", "stopped") for attempt in attempts):
        return ERRORS_ALLOWED
    spec = read_json(run_dir / "spec.json") or {}
    return int((spec.get("settings") or {}).get("errors_allowed", ERRORS_ALLOWED))


def last_line(error: str | None) -> str:
    """Return the line of a traceback that names the error."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "failed without a message"


def read_attempt(run_dir: Path, number: int) -> AttemptFacts:
    """Read the first line and the last whole lines of a journal; a torn last line is not there yet."""
    path = journal_path(run_dir, number)
    with path.open("rb") as file:
        start = parse(file.readline()) or {}
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().splitlines()
        last_sign = os.fstat(file.fileno()).st_mtime
    last = next((record for record in map(parse, reversed(lines)) if record), start)
    ended = last.get("type") == "end"
    tokens = int(last.get("tokens") or last.get("resume_tokens") or 0)
    return AttemptFacts(
        number,
        start.get("job") or {},
        tokens,
        last["outcome"] if ended else None,
        last.get("error") if ended else None,
        last_sign,
        int(last.get("step") or last.get("resume_step") or 0),
    )


def parse(line: bytes) -> dict[str, Any] | None:
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        return record if isinstance(record, dict) else None
    return None


def read_stop(run_dir: Path) -> dict[str, Any] | None:
    """Read who asked the run to stop; a stop file without a record was made by hand and means `cancel`."""
    path = run_dir / "stop"
    if not path.exists():
        return None
    record = parse(path.read_bytes()) if path.exists() else None
    return record or {"why": "cancel"}
