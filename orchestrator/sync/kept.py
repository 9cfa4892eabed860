"""What a person said of a study, kept beside its runs, so that a lost database comes back whole: kept/ in its folder.

plan-*.json.gz: an experiment as planned, with its runs; points-*.json.gz: imported points; words.jsonl: tags and notes,
a line each. Stored fits are not kept: `scalewright fit` makes them again.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.db.frames import notes
from scalewright.db.points import Point, record_points
from scalewright.db.store import PlannedRun, add_note, add_tag, record_experiment, remove_tag, set_run_states
from scalewright.orchestrator.files import Broken, parse, write_bytes
from scalewright.orchestrator.runs.run_files import read_stop
from scalewright.orchestrator.study import Study

WORDS = "words.jsonl"
RESTORING = "restoring"  # lies there while a lost database is being filled again
STOPPED = {"cancel": ("cancelled", "cancelled by its user"), "hold": ("held", "held by its user")}


@dataclass(frozen=True)
class Plan:
    """An experiment as it was planned last: its name, its YAML and its runs."""

    name: str
    text: str
    runs: list[PlannedRun]


@dataclass(frozen=True)
class Import:
    """Imported points: the experiment that they are, where they came from, and they themselves."""

    name: str
    text: str
    points: list[Point]


@dataclass(frozen=True)
class Word:
    """A tag put on or taken off a run, or a note about it; time in seconds since 1970."""

    what: Literal["tag", "untag", "note"]
    run_id: str
    text: str
    time: float


KINDS: dict[str, type[Plan | Import]] = {"plan": Plan, "points": Import}


def _kept_dir(study: Study) -> Path:
    return study.root / "kept"


def keep(study: Study, record: Plan | Import) -> Path:
    """Keep a plan or an import under the hash of its content; the same again is the same file with a newer time."""
    content = orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY, default=str)
    kind = next(name for name, one in KINDS.items() if isinstance(record, one))
    path = _kept_dir(study) / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.json.gz"
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        os.utime(path)
    else:
        write_bytes(path, gzip.compress(content, mtime=0))
    return path


def keep_word(study: Study, word: Word) -> None:
    """Keep a tag or a note in one append."""
    _kept_dir(study).mkdir(exist_ok=True)
    with (_kept_dir(study) / WORDS).open("ab") as file:
        file.write(orjson.dumps(word, option=orjson.OPT_APPEND_NEWLINE))


def read_kept(study: Study) -> Iterator[tuple[Path, Plan | Import | Broken]]:
    """Yield every kept plan and import, oldest first."""
    for path in sorted(_kept_dir(study).glob("*.json.gz"), key=age):
        yield path, _read_one(path)


def age(path: Path) -> float:
    """Return the time of a file, or 0 where there is none behind its name."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_one(path: Path) -> Plan | Import | Broken:
    kind = KINDS.get(path.name.partition("-")[0])
    if kind is None:
        return Broken(path, f"its name does not begin with {' or '.join(KINDS)}")
    try:
        return parse(gzip.decompress(path.read_bytes()), kind)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        return Broken(path, str(error))


def rename_kept(study: Study, old: str, new: str) -> None:
    """Let kept plans and imports carry an experiment's new name."""
    for path, record in list(read_kept(study)):
        if not isinstance(record, Broken) and record.name == old:
            when = path.stat().st_mtime
            os.utime(keep(study, replace(record, name=new)), (when, when))
            path.unlink()


def forget_kept(study: Study, name: str) -> None:
    """Drop what was kept of an experiment."""
    for path, record in list(read_kept(study)):
        if not isinstance(record, Broken) and record.name == name:
            path.unlink()


def restore_plans(study: Study, db: Database) -> list[str]:
    """Put kept plans and imports into a database that lost them; return what could not be put back, a line each."""
    trouble: list[str] = []
    for path, record in read_kept(study):
        try:
            if isinstance(record, Plan):
                record_experiment(db, record.name, record.text, record.runs)
            elif isinstance(record, Import):
                record_points(db, record.name, record.text, record.points)
            else:
                trouble.append(str(record))
        except (DbError, KeyError, TypeError, ValueError) as error:
            trouble.append(f"{path}: {error}")
    return trouble


def restore_words(study: Study, db: Database) -> list[str]:
    """Tag and note runs again; return what could not be put back, a line each."""
    trouble: list[str] = []
    path = _kept_dir(study) / WORDS
    if not path.exists():
        return trouble
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            _put_word(db, parse(line, Word))
        except (DbError, ValueError) as error:
            trouble.append(f"{path}, line {number}: {error}")
    return trouble


def _put_word(db: Database, word: Word) -> None:
    if word.what == "note":
        known = notes(db, word.run_id)
        if not ((known["time"] == word.time) & (known["text"] == word.text.strip())).any():
            add_note(db, word.run_id, word.text, at=word.time)
    else:
        {"tag": add_tag, "untag": remove_tag}[word.what](db, word.run_id, word.text)


@contextmanager
def restoring(study: Study, db: Database) -> Iterator[bool]:
    """Tell whether the database was lost, or is still half restored because that was killed; both mean: restore."""
    mark = _kept_dir(study) / RESTORING
    was_lost = mark.exists() or knows_nothing(db)
    if was_lost:
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    yield was_lost
    mark.unlink(missing_ok=True)


def knows_nothing(db: Database) -> bool:
    """Tell whether a database has no experiment; runs it may have, from a `sync` after its loss."""
    with db.read() as connection:
        return connection.exec_driver_sql("SELECT 1 FROM experiments LIMIT 1").first() is None


def restore_wishes(study: Study, db: Database) -> None:
    """Cancel and hold again what a stop file in its directory says was cancelled or held, and has no result."""
    changes: list[tuple[str, str, str, dict[str, Any]]] = []
    for path in sorted(study.runs_dir.glob("*/stop")):
        stop = read_stop(path.parent)
        if stop and stop.why in STOPPED and not (path.parent / "DONE.json").exists():
            changes.append((path.parent.name, *STOPPED[stop.why], {"by": "user"}))
    set_run_states(db, changes)
