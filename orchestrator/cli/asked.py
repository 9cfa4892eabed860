"""The experiment that an analysing verb means, brought up to date: a YAML file, or a name in this folder's database."""

import sys
from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import Study


@dataclass(frozen=True)
class Asked:
    """A study, one experiment of it, and the comparisons that its file names."""

    study: Study
    experiment: str
    compare: tuple[tuple[str, str], ...] = ()


def ask(place: str, *, sync: bool = True) -> Asked:
    """Find the experiment and sync its study; what a person should be told goes to stderr.

    Raises UserError for a file that is not there, DbError for an unknown name or a missing database.
    """
    asked = find(place)
    require_experiment(asked)
    if sync:
        from scalewright.orchestrator.jobs.observe import refresh

        for line in refresh(asked.study):
            print(line, file=sys.stderr)
    return asked


def find(place: str) -> Asked:
    if Path(place).is_file():
        from scalewright.orchestrator.config.experiment import load_experiment
        from scalewright.orchestrator.plan.make import study_of

        experiment = load_experiment(place)
        pairs = tuple((pair.method, pair.baseline) for pair in experiment.compare)
        return Asked(study_of(experiment), experiment.name, pairs)
    if place.endswith((".yaml", ".yml")):
        raise UserError(f"{place}: no such file (make a starter with: scalewright init)")
    return Asked(Study.at(), place)


def require_experiment(asked: Asked) -> None:
    """Raise DbError with the names that exist where the database does not know the experiment."""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import experiment_numbers

    database = open_database(asked.study.database, create=False)
    try:
        with database.read() as connection:
            experiment_numbers(connection, asked.experiment)
    finally:
        database.close()
