"""What a reading verb reads: the study of a YAML file or of this folder, synced first; databases by path or URL."""

import sys
from dataclasses import dataclass
from pathlib import Path

from scalewright.db.engine import Database, open_database
from scalewright.orchestrator.cli.targets import find_study
from scalewright.orchestrator.study import Study

SQLITE_HEADER = b"SQLite format 3\0"


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
    open_database(study.database, create=False).close()
    if fresh:
        from scalewright.orchestrator.jobs.observe import refresh

        for line in refresh(study):
            print(line, file=sys.stderr)
    return Reading(study, open_database(study.database, create=False), experiment or place)


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
