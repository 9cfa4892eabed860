"""Which runs a verb means: a YAML file, an experiment's name, or ids of runs (4 or more leading characters)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewright.db import frames
from scalewright.db.engine import Database, open_database
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import Study

SHORTEST_PREFIX = 4


@dataclass(frozen=True)
class Target:
    """A study with its open database, and the runs meant (None: all of the study)."""

    study: Study
    database: Database
    experiment: str | None
    run_ids: list[str]


def find_study(names: Sequence[str]) -> tuple[Study, str | None]:
    """Find the study of the first name that is a YAML file, else of the current folder; and the file's experiment."""
    for name in names:
        if Path(name).is_file():
            from scalewright.orchestrator.config.experiment import load_experiment
            from scalewright.orchestrator.plan.make import study_of

            experiment = load_experiment(name)
            return study_of(experiment), experiment.name
        if name.endswith((".yaml", ".yml")):
            raise UserError(f"{name}: no such file (make a starter with: scalewright init)")
    return Study.at(), None


def resolve(names: Sequence[str]) -> Target:
    """Find the runs that `names` mean; nothing named means every run of the study in this folder.

    Raises UserError for a name that fits nothing, or more than one run.
    """
    study, experiment = find_study(names)
    database = open_database(study.database, create=False)
    known = frames.runs(database)["run_id"].tolist()
    experiments = set(frames.experiments(database)["name"])
    chosen: list[str] = []
    for name in names:
        if Path(name).is_file():
            chosen += frames.progress(database, experiment)["run_id"].tolist()
        elif name in experiments:
            experiment = name
            chosen += frames.progress(database, name)["run_id"].tolist()
        else:
            chosen.append(match(name, known))
    return Target(study, database, experiment, list(dict.fromkeys(chosen)) if names else known)


def match(prefix: str, known: Sequence[str]) -> str:
    found = [run_id for run_id in known if run_id.startswith(prefix)]
    if len(prefix) < SHORTEST_PREFIX or not found:
        raise UserError(
            f"{prefix}: no run, experiment or file (a run's id needs its first {SHORTEST_PREFIX} characters)"
        )
    if len(found) > 1:
        raise UserError(f"{prefix}: {len(found)} runs begin so ({', '.join(found[:3])} ...); write more characters")
    return found[0]
