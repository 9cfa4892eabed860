"""States of runs: every change is one event with its evidence. Works within the caller's transaction."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from scalewright.db import schema
from scalewright.db.errors import DbError
from scalewright.db.rows import to_json
from scalewright.db.run_states import ENDED, STATES

NUMBER = re.compile(r"\d+")


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
    before = _current_states(connection, [change.run_id for change in changes])
    now, n_moved = time.time(), 0
    entered: list[tuple[StateChange, Stay]] = []
    for change in changes:
        _check_change(change, before)
        stay = before[change.run_id]
        moves, is_news = stay.state != change.state, change.reason not in ("", stay.reason)
        if not (moves or is_news) or (stay.state in ENDED and not even_terminal):
            continue
        entered.append((change, stay))
        before[change.run_id] = Stay(change.state, change.reason, now if moves else stay.since)
        n_moved += moves
    if entered:
        store_events(connection, entered, now)
        set_by_id(connection, [_state_row(change, stay, now) for change, stay in entered])
    return n_moved


@dataclass(frozen=True)
class Stay:
    """The state that a run is in, why, and since when (s since 1970)."""

    state: str
    reason: str
    since: float


def _current_states(connection: Connection, run_ids: Sequence[str]) -> dict[str, Stay]:
    runs = schema.runs.c
    query = select(runs.run_id, runs.state, runs.state_reason, runs.state_at)
    if len(run_ids) <= 500:
        query = query.where(runs.run_id.in_(run_ids))
    return {run_id: Stay(state, reason or "", since) for run_id, state, reason, since in connection.execute(query)}


def _state_row(change: StateChange, stay: Stay, now: float) -> dict[str, Any]:
    since = stay.since if change.state == stay.state else now
    return {
        "b_run_id": change.run_id,
        "state": change.state,
        "state_reason": change.reason or None,
        "state_at": since,
    }


def store_events(connection: Connection, entered: Sequence[tuple[StateChange, Stay]], now: float) -> None:
    """Add an event for each change of state, and for each reason that was not given before in the same stay.

    Reasons that differ in numbers alone count as one: a reason that is told anew every minute must not fill the table.
    """
    stays = [(change, stay) for change, stay in entered if change.state == stay.state]
    told = reasons_told(connection, stays)
    rows = []
    for change, stay in entered:
        key = (change.run_id, change.state, _without_numbers(change.reason))
        if change.state != stay.state or key not in told:
            rows.append(_event_row(change, stay.state, now))
        told.add(key)
    if rows:
        connection.execute(insert(schema.events), rows)


def reasons_told(connection: Connection, stays: Sequence[tuple[StateChange, Stay]]) -> set[tuple[str, str, str]]:
    """Return (run, state, reason) of the events since each run came into its state."""
    events = schema.events.c
    since = {change.run_id: stay.since for change, stay in stays}
    told, run_ids = set(), list(since)
    for start in range(0, len(run_ids), 500):
        mine = events.run_id.in_(run_ids[start : start + 500])
        rows = connection.execute(select(events.run_id, events.state, events.reason, events.time).where(mine))
        told |= {(run, state, _without_numbers(reason or "")) for run, state, reason, at in rows if at >= since[run]}
    return told


def _without_numbers(reason: str) -> str:
    return NUMBER.sub("#", reason)


def _check_change(change: StateChange, known: Mapping[str, Stay]) -> None:
    if change.state not in STATES:
        raise DbError(f"{change.state!r} is not a state of a run (states: {', '.join(STATES)})")
    if change.run_id not in known:
        raise DbError(f"{change.run_id}: no such run")


def _event_row(change: StateChange, before: str, now: float) -> dict[str, Any]:
    evidence = to_json(change.evidence)
    row = {"run_id": change.run_id, "time": now, "state_before": before, "state": change.state}
    return {**row, "reason": change.reason or None, "evidence": evidence}


def states_of(connection: Connection, state: str) -> set[str]:
    """Return the ids of the runs in a state."""
    return set(connection.execute(select(schema.runs.c.run_id).where(schema.runs.c.state == state)).scalars())


def set_by_id(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Set columns of runs; each row has b_run_id and the same columns."""
    columns: dict[str, Any] = {name: bindparam(name) for name in rows[0] if name != "b_run_id"}
    connection.execute(update(schema.runs).where(schema.runs.c.run_id == bindparam("b_run_id")).values(columns), rows)
