"""States of runs: every change is one event with its evidence. Works within the caller's transaction."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from db import schema
from db.errors import DbError
from db.rows import to_json

TERMINAL = frozenset({"completed", "diverged"})
CLAIMABLE = frozenset({"planned", "interrupted"})
STATES = (
    "planned",
    "claimed",
    "queued",
    "running",
    "completed",
    "diverged",
    "interrupted",
    "failed",
    "cancelled",
    "held",
    "unknown",
)


@dataclass(frozen=True)
class StateChange:
    """A state to enter, with why, and what was seen that says so."""

    run_id: str
    state: str
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


def change_states(connection: Connection, changes: Sequence[StateChange], *, even_terminal: bool = False) -> int:
    """Do what set_run_states says, within the caller's transaction."""
    if not changes:
        return 0
    before = current_states(connection, [change.run_id for change in changes])
    now, moved = time.time(), []
    for change in changes:
        check_change(change, before)
        state = before[change.run_id]
        if state == change.state or (state in TERMINAL and not even_terminal):
            continue
        moved.append((change, state))
        before[change.run_id] = change.state
    if moved:
        connection.execute(insert(schema.events), [event_row(change, state, now) for change, state in moved])
        entered = [change for change, _ in moved]
        row = {"state_at": now}
        set_by_id(
            connection,
            [{**row, "b_run_id": c.run_id, "state": c.state, "state_reason": c.reason or None} for c in entered],
        )
    return len(moved)


def current_states(connection: Connection, run_ids: Sequence[str]) -> dict[str, str]:
    query = select(schema.runs.c.run_id, schema.runs.c.state)
    if len(run_ids) <= 500:
        query = query.where(schema.runs.c.run_id.in_(run_ids))
    return dict(connection.execute(query).all())


def check_change(change: StateChange, known: Mapping[str, str]) -> None:
    if change.state not in STATES:
        raise DbError(f"{change.state!r} is not a state of a run (states: {', '.join(STATES)})")
    if change.run_id not in known:
        raise DbError(f"{change.run_id}: no such run")


def event_row(change: StateChange, before: str, now: float) -> dict[str, Any]:
    evidence = to_json(change.evidence)
    row = {"run_id": change.run_id, "time": now, "state_before": before, "state": change.state}
    return {**row, "reason": change.reason or None, "evidence": evidence}


def states_of(connection: Connection, state: str) -> set[str]:
    return set(connection.execute(select(schema.runs.c.run_id).where(schema.runs.c.state == state)).scalars())


def set_by_id(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Set columns of runs; each row has b_run_id and the same columns."""
    columns: dict[str, Any] = {name: bindparam(name) for name in rows[0] if name != "b_run_id"}
    connection.execute(update(schema.runs).where(schema.runs.c.run_id == bindparam("b_run_id")).values(columns), rows)
