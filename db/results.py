"""The one row a run that people read: what its attempts, evaluations and DONE.json say together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, select

from scalewright.db import schema
from scalewright.db.attempts import real, whole
from scalewright.db.rows import to_json, upsert

BATCH = 500


def refresh_results(connection: Connection, runs: Iterable[int], done: Mapping[int, Mapping[str, Any]]) -> None:
    """Make the results rows of `runs` anew from the tables; done: newly read DONE.json by run number."""
    numbers = sorted(runs)
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        attempts, evaluations = (
            rows_by_run(connection, "attempts", batch),
            rows_by_run(connection, "evaluations", batch),
        )
        stored = {
            row["run"]: row["done"] for rows in rows_by_run(connection, "results", batch).values() for row in rows
        }
        machines = environments_of(connection, batch)
        rows = []
        for run in batch:
            ended = done[run] if run in done else orjson.loads(stored.get(run) or "null") or {}
            measured = result_row(run, attempts.get(run, []), evaluations.get(run, []), ended)
            rows.append(measured | machines.get(run, {"device": None, "threads": None}))
        names = [column.name for column in schema.results.c if column.name != "run"]
        upsert(connection, schema.results, rows, ["run"], change=names)


def rows_by_run(connection: Connection, name: str, runs: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Read the rows of some runs, in the order of the table's key."""
    table = schema.METADATA.tables[name]
    found: dict[int, list[dict[str, Any]]] = {}
    query = select(table).where(table.c.run.in_(runs)).order_by(*table.primary_key.columns)
    for row in connection.execute(query).mappings():
        found.setdefault(row["run"], []).append(dict(row))
    return found


def environments_of(connection: Connection, runs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return device and threads of the newest attempt of each run."""
    a, e = schema.attempts, schema.environments
    query = select(a.c.run, e.c.device, e.c.threads).join(e).where(a.c.run.in_(runs)).order_by(a.c.run, a.c.attempt)
    return {run: {"device": device, "threads": threads} for run, device, threads in connection.execute(query)}


def result_row(
    run: int, attempts: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]], done: Mapping[str, Any]
) -> dict[str, Any]:
    """Combine what is known of one run; DONE.json, where it exists, has the last word on the final loss."""
    validation = [row for row in evaluations if row["split"] == "validation"]
    final = next((row for row in reversed(validation) if row["final"]), None)
    newest: Mapping[str, Any] = next((row for row in reversed(attempts) if row["last_step"] is not None), {})
    outcome = done.get("outcome") or (attempts[-1]["outcome"] if attempts else None)
    ended_by = [row for row in attempts if row["attempt"] == done.get("attempt")]
    return {
        "run": run,
        **final_loss(final, done),
        "annealed": bool(final and final["annealed"]),
        "diverged": outcome == "diverged",
        "wall_s": first(real(done.get("wall_s")), total(attempts, "wall_s")),
        "train_wall_s": first(real(done.get("train_wall_s")), _newest_value(attempts, "train_wall_s")),
        "tokens_per_s": first(real(done.get("tokens_per_s")), _newest_value(attempts, "tokens_per_s")),
        "n_attempts": len(attempts),
        "last_step": newest.get("last_step"),
        "last_tokens": newest.get("last_tokens"),
        "last_seen_at": _newest_value(attempts, "last_seen_at"),
        "train_loss_nats": _newest_value(attempts, "train_loss_nats"),
        "validation_loss_nats": validation[-1]["loss_nats"] if validation else None,
        "done": to_json(done) if done else None,
        "is_whole": bool(ended_by and ended_by[0]["outcome"]),
    }


def final_loss(final: Mapping[str, Any] | None, done: Mapping[str, Any]) -> dict[str, Any]:
    """Return step, tokens and losses at the end of a run; nothing where it has not ended."""
    at = final or {}
    return {
        "step": first(whole(done.get("step")), at.get("step")),
        "n_tokens": first(whole(done.get("n_tokens")), at.get("n_tokens")),
        "loss_nats": first(real(done.get("loss_nats")), at.get("loss_nats")),
        "bits_per_byte": first(real(done.get("bits_per_byte")), at.get("bits_per_byte")),
    }


def first(*values: Any) -> Any:
    """Return the first value that is known."""
    return next((value for value in values if value is not None), None)


def _newest_value(attempts: Sequence[Mapping[str, Any]], name: str) -> Any:
    return first(*(row[name] for row in reversed(attempts)))


def total(attempts: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Sum a column over attempts that have it; None where none has."""
    known = [float(row[name]) for row in attempts if row[name] is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class Evidence:
    """What the database knows of one run that its state can be derived from."""

    run_id: str
    state: str
    done: Mapping[str, Any]
    attempts: Sequence[Mapping[str, Any]]
    submission_id: str | None = None


def evidence_of(connection: Connection, runs: Iterable[int]) -> dict[int, Evidence]:
    """Return the evidence of some runs by run number."""
    numbers, found = sorted(runs), {}
    r, s = schema.runs, schema.results
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        attempts = rows_by_run(connection, "attempts", batch)
        query = select(r.c.run, r.c.run_id, r.c.state, s.c.done, r.c.submission_id).outerjoin(s, s.c.run == r.c.run)
        for run, run_id, state, done, submission in connection.execute(query.where(r.c.run.in_(batch))):
            found[run] = Evidence(run_id, state, orjson.loads(done or "{}"), attempts.get(run, []), submission)
    return found
