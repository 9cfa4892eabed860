"""What is known of attempts, from the records of their journals, and which steps each of them speaks for."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, select

from scalewright.db import schema
from scalewright.db.rows import to_json, upsert

Row = tuple[Any, ...]
Attempts = dict[tuple[int, int], dict[str, Any]]
LONGEST_TEXT = 10_000
LARGEST_WHOLE = 2**53  # exact as a float too


@dataclass(slots=True)
class JournalPart:
    """Whole lines of one attempt's journal, read: `offset` is where they start and `n_bytes` where they end."""

    run: int
    run_id: str
    attempt: int
    offset: int = 0
    n_bytes: int = 0
    n_lines: int = 0
    start: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    metrics: list[Row] = field(default_factory=list)  # (run, key, step, value)
    layers: list[Row] = field(default_factory=list)  # (run, key, step, layer, value)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[int, str, str]] = field(default_factory=list)  # (offset, message, excerpt)
    first_step: int | None = None
    last_step: int | None = None
    last_tokens: int | None = None
    last_time: float | None = None
    train_loss_nats: float | None = None
    tokens_per_s: float | None = None
    first_logged_step: int | None = None  # of metrics or layers
    newest_logged_step: int | None = None
    is_ascending: bool = True  # no step of metrics or layers comes twice or goes back


def first_row(connection: Connection, part: JournalPart, numbers: dict[str, int]) -> dict[str, Any]:
    """Make the row of an attempt from its start record, or from its first step where that record is unreadable.

    numbers: codes and environments met before in this transaction.
    """
    start = part.start or {"resume_step": max(0, (part.first_step or 0) - 1)}
    job = mapping(start.get("job"))
    row = dict.fromkeys(column.name for column in schema.attempts.columns)
    row |= {
        "run": part.run,
        "attempt": part.attempt,
        "token": words(start.get("token")),
        "host": words(start.get("host")),
    }
    row |= {"pid": whole(start.get("pid")), "started_at": real(start.get("time"))}
    row |= {"cluster": words(job.get("cluster")), "job_id": words(job.get("job_id"))}
    row |= {"restart": whole(job.get("restart")), "array_task": whole(job.get("array_task"))}
    row |= {"resume_step": whole(start.get("resume_step")) or 0, "resume_tokens": whole(start.get("resume_tokens"))}
    code, environment = _code_row(mapping(start.get("code"))), _environment_row(mapping(start.get("environment")))
    row["code_id"] = content_number(connection, schema.codes, code, numbers)
    row["environment_id"] = content_number(connection, schema.environments, environment, numbers)
    return row


def news_of(part: JournalPart, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an attempt that a part of its journal changes."""
    logged: dict[str, Any] = {name: getattr(part, name) for name in ("train_loss_nats", "tokens_per_s")}
    news = {name: value for name, value in logged.items() if value is not None}
    if part.last_step is not None and part.last_step >= (row["last_step"] or 0):
        news |= {"last_step": part.last_step, "last_tokens": part.last_tokens}
    if part.last_time is not None:
        news |= {"last_seen_at": part.last_time}
        if row["started_at"] is not None:
            news["wall_s"] = max(0.0, part.last_time - row["started_at"])
    return news | end_of(part)


def end_of(part: JournalPart) -> dict[str, Any]:
    """Return the columns of an attempt that its end record fills."""
    if part.end is None:
        return {}
    ended: dict[str, Any] = {name: words(part.end.get(name)) for name in ("outcome", "reason", "error")}
    ended["ended_at"] = real(part.end.get("time"))
    ended["train_wall_s"] = real(part.end.get("train_wall_s"))
    return ended


def cut_attempts(attempts: Attempts, runs: set[int]) -> None:
    """Set where each attempt of `runs` stops to speak: the earliest step from which a later one resumed."""
    limits: dict[int, tuple[int, int | None]] = {}
    for (run, _), row in sorted(attempts.items(), reverse=True):
        if run not in runs:
            continue
        if run in limits:
            row["cut_step"], row["cut_tokens"] = limits[run]
        resumed = (row["resume_step"], row["resume_tokens"])
        limits[run] = resumed if run not in limits or resumed[0] < limits[run][0] else limits[run]


def first_own_step(row: Mapping[str, Any]) -> int:
    """Return the first step that an attempt speaks for; one that started from nothing also speaks for step 0."""
    return int(row["resume_step"]) + 1 if row["resume_step"] else 0


def last_own_step(row: Mapping[str, Any]) -> int | None:
    """Return the last step that an attempt speaks for: -1 where a later one started from nothing, None for no end."""
    return -1 if row["cut_step"] == 0 else row["cut_step"]


def content_number(connection: Connection, table: Table, row: dict[str, Any], numbers: dict[str, int]) -> int:
    """Return the number of a code or environment, which is stored once; `numbers` holds those met before."""
    place = f"{table.name} {row['content_hash']}"
    if place not in numbers:
        upsert(connection, table, [row], ["content_hash"], change=())
        number = next(iter(table.primary_key.columns))
        query = select(number).where(table.c.content_hash == row["content_hash"])
        numbers[place] = int(connection.execute(query).scalar_one())
    return numbers[place]


def _code_row(code: Mapping[str, Any]) -> dict[str, Any]:
    dirty = code.get("dirty")
    known = {"code_commit": words(code.get("commit")), "dirty": dirty if isinstance(dirty, bool) else None}
    return {**_hashed(code), **known, "snapshot": words(code.get("snapshot"))}


def _environment_row(environment: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: words(environment.get(name)) for name in ("device", "cpu", "python", "torch", "lightning")}
    return {**_hashed(environment), **named, "threads": whole(environment.get("threads"))}


def _hashed(content: Mapping[str, Any]) -> dict[str, Any]:
    text = to_json(content)
    return {"content": text, "content_hash": hashlib.sha256(text.encode()).hexdigest()}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value that is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def words(value: Any) -> str | None:
    """Take text of any origin: numbers become text, NUL characters (which PostgreSQL refuses) are dropped."""
    return None if value is None else str(value).replace("\0", "")[:LONGEST_TEXT]


def whole(value: Any) -> int | None:
    """Take a whole number that every database can hold, else nothing."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE
    return value if is_whole else None


def real(value: Any) -> float | None:
    """Take a number; NaN and infinities count as not measured."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < float("inf") else None
