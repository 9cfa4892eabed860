"""How rows are made and put in: upserts on both dialects, JSON that is always the same text, the row of a run."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from scalewright.db import schema

AT_ONCE = 5000  # rows that are in memory while many are put in
KEYS = {column.name: column.info["planned"] for column in schema.runs.c if "planned" in column.info}


def upsert(
    connection: Connection, table: Table, rows: list[dict[str, Any]], keys: Sequence[str], *, change: Sequence[str]
) -> None:
    """Insert rows; where a row with the same keys exists, set the columns in `change` to the new values."""
    if not rows:
        return
    statement = make_insert(connection, table)
    if change:
        changed = {name: statement.excluded[name] for name in change}
        statement = statement.on_conflict_do_update(index_elements=list(keys), set_=changed)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(keys))
    connection.execute(statement, rows)


def make_insert(connection: Connection, table: Table) -> "sqlite.Insert | postgresql.Insert":
    """Make an insert that can say what happens on a conflict; both dialects spell it the same way."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def as_text(value: Any) -> str | None:
    """Return text and None as they are, anything else as JSON."""
    return value if value is None or isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    """Write JSON the same way every time: sorted keys, numpy scalars as numbers."""
    return ENCODER.encode(value)


def plain(value: Any) -> Any:
    """Return what JSON can hold in place of a mapping, an array or anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=plain)


def run_row(
    run_id: str,
    identity: Mapping[str, Any],
    planned: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    write: Callable[[Any], str] = to_json,
) -> dict[str, Any]:
    """Make the row of a run: the columns that people filter by, and the whole as JSON, which `write` makes."""
    now = time.time()
    return {
        "run_id": run_id,
        "source": "run",
        "state": "planned",
        "state_at": now,
        "created_at": now,
        **_model_columns(identity["model"]),
        **_training_columns(identity["training"]),
        **_planned_columns(planned),
        "data_fingerprint": identity["data"].get("fingerprint"),
        "parent_run_id": (identity.get("parent") or {}).get("run_id"),
        "parent_tokens": (identity.get("parent") or {}).get("n_tokens"),
        "spec": to_json(identity),
        "settings": write(settings),
        "planned": write(planned),
    }


def _model_columns(model: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: model.get(name) for name in ("init", "width", "depth", "heads", "vocab_size", "context")}
    return {**named, "method": model["method"], "gate": model.get("gate") or "none"}


def _training_columns(training: Mapping[str, Any]) -> dict[str, Any]:
    optimizer, schedule = training.get("optimizer") or {}, training.get("schedule") or {}
    batch = [training.get("batch_sequences"), training.get("context")]
    return {
        "n_tokens_planned": training.get("n_tokens"),
        "batch_tokens": batch[0] * batch[1] if batch[0] and batch[1] else None,
        "seed": training.get("seed"),
        "precision": training.get("precision"),
        "optimizer": optimizer.get("name"),
        "lr_peak": optimizer.get("lr_peak"),
        "weight_decay": optimizer.get("weight_decay"),
        "schedule": schedule.get("name"),
    }


def _planned_columns(planned: Mapping[str, Any]) -> dict[str, Any]:
    return {column: planned.get(key) for column, key in KEYS.items()}


def insert_runs(connection: Connection, rows: Iterable[dict[str, Any]]) -> set[str]:
    """Insert runs that are not there yet and return their ids; of the others, renew what was planned for them."""
    runs, inserted = schema.runs, set[str]()
    stored = connection.execute(select(runs.c.run_id, runs.c.planned, runs.c.settings))
    known = {run_id: hash((planned, settings)) for run_id, planned, settings in stored}
    left = iter(rows)
    while wanted := {row["run_id"]: row for row in islice(left, AT_ONCE)}:
        new = [row for run_id, row in wanted.items() if run_id not in known]
        if new:
            connection.execute(insert(runs), new)
        changed = [
            row for run_id, row in wanted.items() if known.get(run_id, 0) != hash((row["planned"], row["settings"]))
        ]
        changed = [row for row in changed if row["run_id"] in known]
        if changed:
            upsert(connection, runs, changed, ["run_id"], change=["planned", "settings", *KEYS])
        known |= {row["run_id"]: hash((row["planned"], row["settings"])) for row in wanted.values()}
        inserted |= {row["run_id"] for row in new}
    return inserted


def run_numbers(connection: Connection) -> dict[str, int]:
    """Map every run id to the run's number."""
    rows = connection.execute(select(schema.runs.c.run_id, schema.runs.c.run))
    return dict(rows.all())
