"""What people do to whole experiments: list, rename, remove. Each change is one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, select, update

from scalewright.db import schema
from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.db.frames import experiment_numbers
from scalewright.db.run_states import ENDED, IN_A_JOB

ARCHIVE = "archive/"  # before the name of an experiment that lists leave out; no name of a person's has a slash
OF_A_RUN = ("metrics", "layer_metrics", "evaluations", "checkpoints", "results", "ingested_files", "attempts", "tags")


@dataclass(frozen=True)
class Contents:
    """The runs of an experiment: those that it alone contains and those that it shares; ids in order."""

    own: list[str]
    shared: list[str]
    in_a_job: list[str]
    n_fits: int


def experiments_table(db: Database, *, archived: bool = False) -> list[dict[str, Any]]:
    """List experiments: name, runs as planned now, how many ended, runs of earlier revisions, fits; sorted by name."""
    rows = []
    with db.read() as connection:
        for known in connection.execute(select(schema.experiments).order_by(schema.experiments.c.name)):
            if known.name.startswith(ARCHIVE) and not archived:
                continue
            links = linked(connection, known.experiment_id)
            now = [row for row in links if row.last_revision_id == known.revision_id]
            fits = select(schema.fits.c.fit_id).where(schema.fits.c.experiment == known.name)
            rows.append(
                {
                    "experiment": known.name,
                    "runs": len(now),
                    "ended": sum(row.state in ENDED for row in now),
                    "of earlier plans": len(links) - len(now),
                    "fits": len(connection.execute(fits).all()),
                }
            )
    return rows


def linked(connection: Connection, experiment_id: int) -> Sequence[Any]:
    """Return (run, run_id, state, last_revision_id) of every run that the experiment contains or contained."""
    links, runs = schema.experiment_runs, schema.runs
    query = select(runs.c.run, runs.c.run_id, runs.c.state, links.c.last_revision_id).join_from(links, runs)
    return connection.execute(query.where(links.c.experiment_id == experiment_id).order_by(runs.c.run_id)).all()


def rename_experiment(db: Database, old: str, new: str) -> None:
    """Give an experiment another name, with its fits; raises DbError for a name that is taken."""
    with db.write() as connection:
        number = experiment_numbers(connection, old)[0]
        if connection.execute(select(schema.experiments).where(schema.experiments.c.name == new)).first():
            raise DbError(f"experiment {new!r} exists already")
        mine = schema.experiments.c.experiment_id == number
        connection.execute(update(schema.experiments).where(mine).values(name=new))
        fits = schema.fits
        connection.execute(update(fits).where(fits.c.experiment == old).values(experiment=new))


def contents_of(db: Database, name: str) -> Contents:
    """Return what removing an experiment concerns."""
    with db.read() as connection:
        number = experiment_numbers(connection, name)[0]
        links = linked(connection, number)
        fits = connection.execute(select(schema.fits.c.fit_id).where(schema.fits.c.experiment == name)).all()
        elsewhere = _shared_runs(connection, number)
    own = [row.run_id for row in links if row.run not in elsewhere]
    shared = [row.run_id for row in links if row.run in elsewhere]
    return Contents(own, shared, [row.run_id for row in links if row.state in IN_A_JOB], len(fits))


def _shared_runs(connection: Connection, experiment_id: int) -> set[int]:
    links = schema.experiment_runs
    mine = select(links.c.run).where(links.c.experiment_id == experiment_id)
    others = select(links.c.run).where(links.c.experiment_id != experiment_id, links.c.run.in_(mine))
    return set(connection.execute(others).scalars())


def remove_experiment(db: Database, name: str, run_ids: Sequence[str]) -> None:
    """Remove an experiment with its revisions and fits, and the runs `run_ids`; events stay."""
    with db.write() as connection:
        number = experiment_numbers(connection, name)[0]
        links, revisions = schema.experiment_runs, schema.experiment_revisions
        connection.execute(delete(links).where(links.c.experiment_id == number))
        known = schema.experiments
        connection.execute(update(known).where(known.c.experiment_id == number).values(revision_id=None))
        connection.execute(delete(revisions).where(revisions.c.experiment_id == number))
        connection.execute(delete(known).where(known.c.experiment_id == number))
        fits, members = schema.fits, schema.fit_runs
        mine = select(fits.c.fit_id).where(fits.c.experiment == name)
        connection.execute(delete(members).where(members.c.fit_id.in_(mine)))
        connection.execute(delete(fits).where(fits.c.experiment == name))
        remove_runs(connection, run_ids)


def remove_runs(connection: Connection, run_ids: Sequence[str]) -> None:
    """Remove runs with everything that was measured of them."""
    runs = schema.runs
    for first in range(0, len(run_ids), 500):
        numbers = select(runs.c.run).where(runs.c.run_id.in_(run_ids[first : first + 500]))
        for name in (*OF_A_RUN, "notes", "experiment_runs"):
            table = schema.METADATA.tables[name]
            connection.execute(delete(table).where(table.c.run.in_(numbers)))
        connection.execute(delete(runs).where(runs.c.run_id.in_(run_ids[first : first + 500])))


def leftover_runs(db: Database) -> list[str]:
    """Return the runs that no experiment plans any more and that never started: what editing a YAML leaves behind."""
    runs, links, known, attempts = schema.runs, schema.experiment_runs, schema.experiments, schema.attempts
    current = (
        select(links.c.run)
        .join(
            known, (known.c.experiment_id == links.c.experiment_id) & (known.c.revision_id == links.c.last_revision_id)
        )
        .where(links.c.run == runs.c.run)
    )
    started = select(attempts.c.run).where(attempts.c.run == runs.c.run)
    idle = runs.c.state.in_(["planned", "cancelled", "held"]) & (runs.c.source == "run")
    query = select(runs.c.run_id).where(idle, ~exists(current), ~exists(started)).order_by(runs.c.run_id)
    with db.read() as connection:
        return list(connection.execute(query).scalars())


def drop_runs(db: Database, run_ids: Sequence[str]) -> None:
    """Delete runs with all that was measured of them, in one transaction."""
    with db.write() as connection:
        remove_runs(connection, run_ids)
