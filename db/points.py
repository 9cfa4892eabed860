"""Points that somebody else measured, stored as runs with source = import. Writes within one transaction."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from scalewright.db import schema
from scalewright.db.engine import Database
from scalewright.db.rows import insert_runs, run_numbers, to_json, upsert
from scalewright.db.store import PlannedRun, PlanReceipt, link_runs, record_revision


@dataclass(frozen=True)
class Point:
    """A run that was measured elsewhere; `columns` are those of table runs, `result` those of table results.

    evaluations: losses on the way, as rows of table evaluations without the run, the final one last.
    """

    run_id: str
    identity: Mapping[str, Any]
    label: str
    columns: Mapping[str, Any]
    result: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    size: str | None = None
    budget: str | None = None
    holdout: bool = False


def record_points(db: Database, name: str, description: str, points: Sequence[Point]) -> PlanReceipt:
    """Make the experiment `name` of these points; a point that is there already is not doubled."""
    with db.write() as connection:
        revision = record_revision(connection, name, description)
        new = insert_runs(connection, [run_row(point) for point in points])
        links = [
            PlannedRun(p.run_id, p.identity, p.label, size=p.size, budget=p.budget, holdout=p.holdout) for p in points
        ]
        link_runs(connection, revision, links)
        _store_measured(connection, points)
    return PlanReceipt(len(new), len({point.run_id for point in points}) - len(new))


def run_row(point: Point) -> dict[str, Any]:
    """Return the row of `runs` of an imported point, completed now."""
    now = time.time()
    empty = dict.fromkeys(column.name for column in schema.runs.columns if column.name != "run")
    state = {"source": "import", "state": "completed", "state_at": now, "created_at": now, "gate": "none"}
    texts = {"spec": to_json(point.identity), "settings": "{}", "planned": "{}"}
    return {**empty, **state, **texts, **point.columns, "run_id": point.run_id}


def _store_measured(connection: Connection, points: Sequence[Point]) -> None:
    numbers = run_numbers(connection)
    empty = dict.fromkeys(column.name for column in schema.results.columns)
    empty |= {"annealed": True, "diverged": False, "n_attempts": 0, "is_whole": True}
    results = [{**empty, **point.result, "run": numbers[point.run_id]} for point in points]
    changed = [column.name for column in schema.results.columns if column.name != "run"]
    upsert(connection, schema.results, results, ["run"], change=changed)
    rows = [{**row, "run": numbers[point.run_id]} for point in points for row in point.evaluations]
    kept = [column.name for column in schema.evaluations.columns if column.name not in ("run", "split", "step")]
    upsert(connection, schema.evaluations, rows, ["run", "split", "step"], change=kept)
