"""What a run directory says about its run: outcome, attempts, last sign of life, and whether it may be tried again.

Reads files only; no database, no cluster. A file that cannot be used is one of `broken`; whatever else the directory
says still counts. The budget of retries has its one rule here: attempts that brought a run further are free,
`errors_allowed` says how many may fail without.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from scalewright.orchestrator.files import Broken, open_file, read, usable
from scalewright.orchestrator.runs.journal import attempts_in, is_foreign, is_sound, journal_path
from scalewright.orchestrator.runs.records import Again, Done, SpecFile, Stop

TAIL_BYTES = 65536
STUCK_ATTEMPTS = 5
# Where nobody says: errors of a run, runs with the same error, seconds without a sign of life.
ERRORS_ALLOWED, SAME_ERROR_RUNS, HANG_S = 1, 5, 1800.0
NO_PROGRESS = "stopped several times in a row without training any further: is the time limit too short?"


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

    again: a person asked for it again; errors_allowed: the budget it was last submitted with; broken: its files that
    cannot be used.
    """

    run_id: str
    done: Done | None
    stop: Stop | None
    attempts: tuple[AttemptFacts, ...]
    again: Again | None = None
    errors_allowed: int = ERRORS_ALLOWED
    broken: tuple[Broken, ...] = ()

    @property
    def lost_outcome(self) -> Broken | None:
        """DONE.json where it is there and cannot be used: the run has an outcome that nobody can read."""
        return next((one for one in self.broken if one.path.name == "DONE.json"), None)

    @property
    def lost_words(self) -> str:
        """What to say of an outcome that cannot be read, empty where it can."""
        return lost_words(self.lost_outcome) if self.lost_outcome else ""

    @property
    def newest(self) -> AttemptFacts | None:
        """The latest attempt, None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def last_sign(self) -> float:
        """When any attempt last wrote (seconds since 1970), 0 before the first."""
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
        if self.again is None or self.again.time < since:
            return False
        return self.newest is None or self.newest.attempt <= self.again.attempts

    def count_vain(self, outcomes: set[str | None]) -> int:
        """Count the attempts that ended so, since one brought the run further or a person forgave them."""
        count, best, forgiven = 0, 0, self.again.attempts if self.again else 0
        for attempt in self.attempts:
            if attempt.tokens > best:
                best, count = attempt.tokens, 0
            if attempt.outcome in outcomes and attempt.attempt > forgiven:
                count += 1
        return count


def read_run(run_dir: Path) -> RunFacts:
    """Read a run directory; one that does not exist is a run without any sign."""
    try:
        found = [read_attempt(run_dir, number) for number in attempts_in(run_dir)]
    except FileNotFoundError:
        return RunFacts(run_dir.name, None, None, ())
    except OSError as trouble:
        return RunFacts(run_dir.name, None, None, (), broken=(Broken(run_dir, str(trouble.strerror).lower()),))
    attempts = tuple(one for one in found if isinstance(one, AttemptFacts))
    done = read(run_dir / "DONE.json", Done, run_id=run_dir.name)
    again = read(run_dir / "again.json", Again, run_id=run_dir.name)
    broken = tuple(one for one in (done, again, *found) if isinstance(one, Broken))
    return RunFacts(
        run_id=run_dir.name,
        done=done if isinstance(done, Done) else None,
        stop=read_stop(run_dir),
        attempts=attempts,
        again=again if isinstance(again, Again) else None,
        errors_allowed=read_budget(run_dir, attempts),
        broken=broken,
    )


def lost_words(done: Broken) -> str:
    """Say what a broken DONE.json means: the run had ended, and what is to be done is a person's choice."""
    return f"{done.within(done.path.parent.parent.parent)}; put it right, or remove it and `retry`"


def job_name(job: Mapping[str, Any]) -> str:
    """Name the job of a journal's start record as the executors do: `array_task`, or the plain id."""
    task = job.get("array_task")
    return str(job.get("job_id")) + ("" if task is None else f"_{task}")


def read_budget(run_dir: Path, attempts: Sequence[AttemptFacts]) -> int:
    """Read how many errors the run may have; only where it had one."""
    if all(attempt.outcome in ("completed", "stopped") for attempt in attempts):
        return ERRORS_ALLOWED
    spec = usable(run_dir / "spec.json", SpecFile)
    allowed = spec.settings.get("errors_allowed") if spec else None
    return allowed if isinstance(allowed, int) else ERRORS_ALLOWED


def last_line(error: str | None) -> str:
    """Return the line of a traceback that names the error."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "failed without a message"


def read_attempt(run_dir: Path, number: int) -> AttemptFacts | Broken:
    """Read the first line and the last whole lines of a journal; a torn last line is not there yet."""
    path = journal_path(run_dir, number)
    try:
        with open_file(path) as file:
            first = file.readline(TAIL_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
            last_sign = os.fstat(file.fileno()).st_mtime
    except OSError as trouble:
        return Broken(path, str(trouble.strerror).lower())
    if is_foreign(first, run_dir.name):
        return Broken(path, "it is the journal of another run")
    start = parse(first) or {}
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
    """Return a journal's line as a record whose values are of the types that a journal has, else None."""
    with suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)
        return record if is_sound(record) else None
    return None


def read_stop(run_dir: Path) -> Stop | None:
    """Read who asked the run to stop; a stop file without a record was made by hand and means `cancel`."""
    found = read(run_dir / "stop", Stop, run_id=run_dir.name)
    return Stop() if isinstance(found, Broken) else found
