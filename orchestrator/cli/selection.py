"""What a verb's names mean: a YAML file, an experiment, runs by the start of their ids, a database by path or URL."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewright.db import frames
from scalewright.db.engine import Database, open_database
from scalewright.db.experiments import ARCHIVE
from scalewright.db.run_states import ENDED
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.control import Target
from scalewright.orchestrator.runs.spec import match
from scalewright.orchestrator.study import Asked, Study, sweep_name
from scalewright.orchestrator.talk import say

SQLITE_HEADER = b"SQLite format 3\0"
DEFAULT_YAML = "experiments.yaml"


@dataclass(frozen=True)
class Reading:
    """An open database, its study, and the experiment that was named, if any."""

    study: Study
    database: Database
    experiment: str | None


def open_study(place: str | None = None, *, fresh: bool = True) -> Reading:
    """Open the study of `place`: a YAML file, or the name of an experiment in this folder's database.

    fresh: sync first; what a person should be told goes to stderr. Raises DbError for a missing database.
    """
    study, experiment = find_study([place] if place else [])
    require_database(study)
    if fresh:
        from scalewright.orchestrator.jobs.observe import refresh

        for line in refresh(study):
            say(line)
    return Reading(study, open_database(study.database, create=False), experiment or place)


def require_database(study: Study) -> None:
    """Raise the error a person can act on where the study has no database: its runs may be there without one."""
    has_runs = any(study.runs_dir.glob("*/spec.json"))
    if has_runs and "://" not in study.database and not Path(study.database).exists():
        raise UserError(
            f"{study.database}: no such database, but runs lie in {study.runs_dir}; run: scalewright db rebuild"
        )
    open_database(study.database, create=False).close()


def study_of_database(place: str | None) -> Study:
    """Find the study whose database is meant: a URL, a SQLite file, a YAML file or a folder; by default this folder."""
    if place and ("://" in place or is_sqlite(Path(place))):
        folder = Path(place).parent if "://" not in place else Path.cwd()
        return Study.at(folder, database=place if "://" in place else str(Path(place).resolve()))
    if place and Path(place).is_dir():
        return Study.at(place)
    return find_study([place] if place else [])[0]


def is_sqlite(path: Path) -> bool:
    """Tell whether a file is a SQLite database, or is named like one where it does not exist yet."""
    if not path.is_file():
        return path.suffix in (".sqlite", ".sqlite3", ".db")
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER


def meant(place: str | None) -> str | None:
    """Return what is meant where nothing is named: this folder's experiments.yaml, else its database's only experiment.

    None where there are several experiments, or none.
    """
    if place is not None or Path(DEFAULT_YAML).is_file():
        return place or DEFAULT_YAML
    names = known_experiments(Study.at())
    return names[0] if len(names) == 1 else None


def meant_one(place: str | None) -> str:
    """Return what is meant, or raise UserError with the names to choose from."""
    found = meant(place)
    if found is None:
        names = known_experiments(Study.at())
        choice = f"name one of: {', '.join(names)}" if names else f"there is none here, and no {DEFAULT_YAML}"
        raise UserError(f"no experiment is named; {choice}")
    return found


def known_experiments(study: Study) -> list[str]:
    """List the experiments of a study's database, without archived ones."""
    require_database(study)
    database = open_database(study.database, create=False)
    try:
        return [name for name in frames.experiments(database)["name"] if not name.startswith(ARCHIVE)]
    finally:
        database.close()


def find_study(names: Sequence[str]) -> tuple[Study, str | None]:
    """Find the study of the first name that is a YAML file, else of the current folder; and the file's experiment."""
    for name in names:
        if Path(name).is_file():
            from scalewright.orchestrator.config.load import load_experiment
            from scalewright.orchestrator.plan.make import study_of

            experiment = load_experiment(name)
            study = study_of(experiment)
            return study, _under_way(study, experiment.name) if experiment.tune else experiment.name
        if name.endswith((".yaml", ".yml")):
            raise UserError(f"{name}: no such file (make a starter with: scalewright init)")
    return Study.at(), None


def _under_way(study: Study, experiment: str) -> str:
    """Return the name of a file's sweep while runs of it are missing, else that of its experiment."""
    from scalewright.orchestrator.plan.earlier_runs import open_existing

    sweep = sweep_name(experiment)
    with open_existing(study) as database:
        if database is None or sweep not in set(frames.experiments(database)["name"]):
            return experiment
        return experiment if frames.progress(database, sweep)["state"].isin(ENDED).all() else sweep


def resolve(names: Sequence[str]) -> Target:
    """Find the runs that `names` mean; nothing named means every run of the study in this folder.

    Raises UserError for a name that fits nothing, or more than one run.
    """
    study, experiment = find_study(names)
    require_database(study)
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


def ask(place: str | None, *, sync: bool = True) -> Asked:
    """Find the experiment and sync its study; what a person should be told goes to stderr.

    Raises UserError for a file that is not there, DbError for an unknown name or a missing database.
    """
    asked = find(meant_one(place))
    require_experiment(asked)
    if sync:
        from scalewright.orchestrator.jobs.observe import refresh

        for line in refresh(asked.study):
            say(line)
    return asked


def find(place: str) -> Asked:
    """Find an experiment by its YAML file, or by its name in the study of the current folder."""
    if Path(place).is_file():
        from scalewright.orchestrator.config.load import load_experiment
        from scalewright.orchestrator.plan.make import study_of

        experiment = load_experiment(place)
        pairs = tuple((pair.method, pair.baseline) for pair in experiment.compare)
        return Asked(study_of(experiment), experiment.name, pairs)
    if place.endswith((".yaml", ".yml")):
        raise UserError(f"{place}: no such file (make a starter with: scalewright init)")
    return Asked(Study.at(), place)


def experiment_at(place: str, name: str | None = None) -> Asked:
    """Find an experiment by its study's folder, a YAML file, a SQLite file or a database's URL.

    name: which one, where the YAML file (of a folder: its experiments.yaml) does not say, or another is meant.
    Raises UserError for a place that is not there, and with the names to choose from where several could be meant.
    """
    path = Path(place)
    if "://" not in place and not path.exists():
        raise UserError(f"{place}: no such folder or file; expected a study's folder, a YAML or SQLite file, or a URL")
    yaml = path / DEFAULT_YAML if path.is_dir() else path
    if yaml.suffix in (".yaml", ".yml") and yaml.is_file():
        asked = find(str(yaml))
        asked = asked if name in (None, asked.experiment) else Asked(asked.study, str(name))
    else:
        study = study_of_database(place)
        asked = Asked(study, name or _the_only(known_experiments(study), place))
    require_experiment(asked)
    return asked


def _the_only(names: Sequence[str], place: str) -> str:
    if len(names) != 1:
        raise UserError(f"{place}: no experiment is named; experiments there: {', '.join(names) or 'none'}")
    return names[0]


def require_experiment(asked: Asked) -> None:
    """Raise DbError with the names that exist where the database does not know the experiment."""
    from scalewright.db.frames import experiment_numbers

    require_database(asked.study)
    database = open_database(asked.study.database, create=False)
    try:
        with database.read() as connection:
            experiment_numbers(connection, asked.experiment)
    finally:
        database.close()
