"""What people and verbs write: plans, claims, states, fits, tags and notes. Each function is one transaction.

What jobs measured is written by scalewright.db.ingest alone.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from scalewright.db import schema
from scalewright.db.engine import Database
from scalewright.db.errors import CannotWrite, DbError
from scalewright.db.rows import as_text, insert_runs, run_numbers, run_row, to_json, upsert
from scalewright.db.run_states import CLAIMABLE
from scalewright.db.states import StateChange, change_states, set_by_id, states_of

LONGEST_WORD = 200


@dataclass(frozen=True)
class PlannedRun:
    """A run as the plan made it: what identifies it, what it should cost, and what this experiment calls it."""

    run_id: str
    identity: Mapping[str, Any]
    label: str
    planned: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    size: str | None = None
    budget: str | None = None
    group: str | None = None
    holdout: bool = False


@dataclass(frozen=True)
class PlanReceipt:
    """How many runs of a plan were new, and how many the database had already."""

    n_new: int
    n_existing: int


@dataclass(frozen=True)
class SubmittedJob:
    """A job that the scheduler took: its id, the folder of its pack, and the runs in it."""

    job_id: str
    run_ids: Sequence[str]
    job_dir: str | None = None
    cluster: str | None = None


def record_experiment(db: Database, name: str, revision_yaml: str, runs: Sequence[PlannedRun]) -> PlanReceipt:
    """Store the experiment as it is planned now; runs that exist are shared, not doubled."""
    with db.write() as connection:
        revision = record_revision(connection, name, revision_yaml)
        new = insert_runs(connection, rows_of(runs))
        link_runs(connection, revision, runs)
    return PlanReceipt(len(new), len({run.run_id for run in runs}) - len(new))


def record_revision(connection: Connection, name: str, content: str) -> tuple[int, int]:
    """Make `content` the current revision of the experiment; return the numbers of both."""
    experiments, revisions = schema.experiments, schema.experiment_revisions
    now, content_hash = time.time(), hashlib.sha256(content.encode()).hexdigest()
    upsert(connection, experiments, [{"name": name, "created_at": now}], ["name"], change=())
    experiment = connection.execute(select(experiments.c.experiment_id).where(experiments.c.name == name)).scalar_one()
    row = {"experiment_id": experiment, "content_hash": content_hash, "text": content, "created_at": now}
    upsert(connection, revisions, [row], ["experiment_id", "content_hash"], change=())
    same = (revisions.c.experiment_id == experiment) & (revisions.c.content_hash == content_hash)
    revision = connection.execute(select(revisions.c.revision_id).where(same)).scalar_one()
    mine = experiments.c.experiment_id == experiment
    connection.execute(update(experiments).where(mine).values(revision_id=revision))
    return experiment, revision


def rows_of(runs: Sequence[PlannedRun]) -> Iterator[dict[str, Any]]:
    """Make the rows of planned runs; what many of them share is written as JSON once."""
    texts: dict[int, str] = {}

    def write(value: Any) -> str:
        if id(value) not in texts:
            texts[id(value)] = to_json(value)
        return texts[id(value)]

    for run in runs:
        yield run_row(run.run_id, run.identity, run.planned, run.settings, write=write)


def link_runs(connection: Connection, revision: tuple[int, int], runs: Sequence[PlannedRun]) -> None:
    """Say that the revision contains these runs, under these names."""
    numbers = run_numbers(connection)
    rows = [
        {
            "experiment_id": revision[0],
            "run": numbers[run.run_id],
            "first_revision_id": revision[1],
            "last_revision_id": revision[1],
            "label": run.label,
            "size": run.size,
            "budget": run.budget,
            "run_group": run.group,
            "holdout": run.holdout,
        }
        for run in runs
    ]
    changed = ("last_revision_id", "label", "size", "budget", "run_group", "holdout")
    upsert(connection, schema.experiment_runs, rows, ["experiment_id", "run"], change=changed)


def claim_runs(
    db: Database,
    run_ids: Sequence[str],
    submission_id: str,
    *,
    executor: str,
    snapshot: str | None,
    states: Iterable[str] = CLAIMABLE,
) -> list[str]:
    """Claim the runs that are in one of `states` for a submission; whoever comes second gets none of them.

    Returns the claimed ids in the given order.
    """
    runs = schema.runs
    with db.write() as connection:
        free = select(runs.c.run_id).where(runs.c.state.in_(list(states)))
        wanted = set(connection.execute(free).scalars())
        claimed = [run_id for run_id in dict.fromkeys(run_ids) if run_id in wanted]
        if claimed:
            submission = {"submission_id": submission_id, "executor": executor, "snapshot": snapshot}
            row = {**submission, "created_at": time.time()}
            upsert(connection, schema.submissions, [row], ["submission_id"], change=())
            evidence = {"submission": submission_id}
            change_states(connection, [StateChange(run_id, "claimed", "submitted", evidence) for run_id in claimed])
            set_by_id(connection, [{"b_run_id": run_id, "submission_id": submission_id} for run_id in claimed])
    return claimed


def record_submission(db: Database, submission_id: str, jobs: Sequence[SubmittedJob]) -> None:
    """Store the ids that the scheduler gave; claimed runs of these jobs become queued."""
    rows = [
        {"submission_id": submission_id, "job_id": job.job_id, "cluster": job.cluster, "job_dir": job.job_dir}
        for job in jobs
    ]
    with db.write() as connection:
        upsert(connection, schema.jobs, rows, ["submission_id", "job_id"], change=("cluster", "job_dir"))
        claimed = states_of(connection, "claimed")
        changes = [
            StateChange(run_id, "queued", f"job {job.job_id}", {"submission": submission_id, "job_id": job.job_id})
            for job in jobs
            for run_id in job.run_ids
            if run_id in claimed
        ]
        change_states(connection, changes)


def set_run_states(
    db: Database,
    changes: Iterable[StateChange | tuple[str, str, str, Mapping[str, Any]]],
    *,
    even_terminal: bool = False,
) -> int:
    """Move runs to new states, each with an event; return how many moved.

    Of a run that is in the state already the reason is renewed where a new one is given (with an event, unless the
    same was said before during this stay). A completed or diverged run stays untouched unless `even_terminal`.
    Raises DbError for an unknown run or state.
    """
    records = [change if isinstance(change, StateChange) else StateChange(*change) for change in changes]
    with db.write() as connection:
        return change_states(connection, records, even_terminal=even_terminal)


def add_tag(db: Database, run_id: str, tag: str) -> None:
    """Put a word on a run; raises DbError for an empty or very long one. Safe to repeat."""
    word = tag.strip()
    if not word or len(word) > LONGEST_WORD or not word.isprintable():
        raise DbError(f"{tag[:40]!r} is not a tag (1 to {LONGEST_WORD} printable characters)")
    with db.write() as connection:
        row = {"run": number_of(connection, run_id), "tag": word}
        upsert(connection, schema.tags, [row], ["run", "tag"], change=())


def remove_tag(db: Database, run_id: str, tag: str) -> None:
    """Take a word off a run; nothing happens where it is not on it."""
    tags = schema.tags
    with db.write() as connection:
        mine = (tags.c.run == number_of(connection, run_id)) & (tags.c.tag == tag.strip())
        connection.execute(delete(tags).where(mine))


def add_note(db: Database, run_id: str, note: str, *, at: float | None = None) -> None:
    """Write a note about a run, of the time `at` (seconds since 1970), by default now."""
    if not note.strip():
        raise DbError("a note needs some text")
    with db.write() as connection:
        row = {"run": number_of(connection, run_id), "time": time.time() if at is None else at, "text": note.strip()}
        connection.execute(insert(schema.notes), row)


def number_of(connection: Connection, run_id: str) -> int:
    """Return the number by which tables name a run; raises DbError for an unknown id."""
    number = connection.execute(select(schema.runs.c.run).where(schema.runs.c.run_id == run_id)).scalar()
    if number is None:
        raise DbError(f"{run_id}: no such run")
    return int(number)


def record_fit(
    db: Database,
    record: Mapping[str, Any],
    entered: Sequence[str],
    excluded: Sequence[tuple[str, str]] = (),
    *,
    experiment: str | None = None,
    label: str | None = None,
) -> str:
    """Store a fit with the runs that entered and why others did not; the same fit again is the same row.

    record: FitResult.to_record(); its law, objective and objective_value become columns. Returns the fit's id.
    """
    content = to_json({"record": record, "entered": sorted(entered), "experiment": experiment, "label": label})
    fit_id = hashlib.sha256(content.encode()).hexdigest()[:12]
    row = {
        "fit_id": fit_id,
        "experiment": experiment,
        "label": label,
        "law": str(record.get("law")),
        "objective": as_text(record.get("objective")),
        "objective_value": record.get("objective_value"),
        "n_points": len(entered),
        "record": to_json(record),
        "created_at": time.time(),
    }
    member = {"fit_id": fit_id, "entered": True, "reason": None}
    members = {run_id: {**member, "run_id": run_id, "entered": False, "reason": why} for run_id, why in excluded}
    members |= {run_id: {**member, "run_id": run_id} for run_id in entered}
    with suppress(CannotWrite), db.write() as connection:  # a fit is the same where it cannot be kept
        upsert(connection, schema.fits, [row], ["fit_id"], change=())
        upsert(connection, schema.fit_runs, list(members.values()), ["fit_id", "run_id"], change=("entered", "reason"))
    return fit_id
