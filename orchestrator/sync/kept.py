"""What a person said of a study, kept beside its runs, so that a lost database comes back whole: kept/ in its folder.

plan-*.json.gz: an experiment as planned, with its runs; points-*.json.gz: imported points; words.jsonl: tags and notes,
a line each. Stored fits are not kept: `scalewright fit` makes them again.
"""

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.db.points import Point, record_points
from scalewright.db.store import PlannedRun, add_note, add_tag, record_experiment, remove_tag, set_run_states
from scalewright.orchestrator.files import read_json
from scalewright.orchestrator.study import Study

WORDS = "words.jsonl"
STOPPED = {"cancel": ("cancelled", "cancelled by its user"), "hold": ("held", "held by its user")}


def kept_dir(study: Study) -> Path:
    return study.root / "kept"


def keep_plan(study: Study, name: str, text: str, runs: Sequence[PlannedRun]) -> None:
    """Keep an experiment as it is planned now; the same plan again is the same file with a newer time."""
    keep(study, "plan", {"name": name, "text": text, "runs": [asdict(run) for run in runs]})


def keep_points(study: Study, name: str, description: str, points: Sequence[Point]) -> None:
    keep(study, "points", {"name": name, "text": description, "points": [asdict(point) for point in points]})


def keep(study: Study, kind: str, record: Mapping[str, Any]) -> Path:
    """Write a record whole, under the hash of its content; return its path."""
    content = orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY, default=str)
    path = kept_dir(study) / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.json.gz"
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        os.utime(path)
        return path
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with temporary.open("wb") as file:
        file.write(gzip.compress(content, mtime=0))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return path


def keep_word(study: Study, what: str, run_id: str, text: str) -> None:
    """Keep one tag (`tag`, `untag`) or note (`note`) in one append."""
    kept_dir(study).mkdir(exist_ok=True)
    word = {"what": what, "run_id": run_id, "text": text, "time": time.time()}
    with (kept_dir(study) / WORDS).open("ab") as file:
        file.write(orjson.dumps(word, option=orjson.OPT_APPEND_NEWLINE))


def read_kept(study: Study) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every kept plan and import, oldest first; a file that cannot be read is an empty record."""
    for path in sorted(kept_dir(study).glob("*.json.gz"), key=lambda one: one.stat().st_mtime):
        try:
            record = orjson.loads(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            record = {}
        yield path, record if isinstance(record, dict) else {}


def rename_kept(study: Study, old: str, new: str) -> None:
    """Let kept plans and imports carry an experiment's new name."""
    for path, record in list(read_kept(study)):
        if record.get("name") == old:
            when = path.stat().st_mtime
            os.utime(keep(study, path.name.partition("-")[0], record | {"name": new}), (when, when))
            path.unlink()


def forget_kept(study: Study, name: str) -> None:
    for path, record in list(read_kept(study)):
        if record.get("name") == name:
            path.unlink()


def restore_plans(study: Study, db: Database) -> list[str]:
    """Put kept plans and imports into a database that lost them; return what could not be put back, a line each."""
    trouble: list[str] = []
    for path, record in read_kept(study):
        try:
            restore_one(db, record)
        except (KeyError, TypeError, AttributeError):
            trouble.append(f"{path}: not a kept plan or import")
        except (DbError, ValueError) as error:
            trouble.append(f"{path}: {error}")
    return trouble


def restore_one(db: Database, record: Mapping[str, Any]) -> None:
    if "points" in record:
        record_points(db, record["name"], record["text"], [Point(**point) for point in record["points"]])
    else:
        record_experiment(db, record["name"], record["text"], [PlannedRun(**run) for run in record["runs"]])


def restore_words(study: Study, db: Database) -> list[str]:
    """Tag and note runs again; return what could not be put back, a line each."""
    trouble: list[str] = []
    path = kept_dir(study) / WORDS
    if not path.exists():
        return trouble
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            word = orjson.loads(line)
            put_word(db, word)
        except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError):
            trouble.append(f"{path}: line {number} is no tag or note")
        except (DbError, ValueError) as error:
            trouble.append(f"{path}: line {number}: {error}")
    return trouble


def put_word(db: Database, word: Mapping[str, Any]) -> None:
    if word["what"] == "note":
        add_note(db, word["run_id"], word["text"], at=float(word["time"]))
    else:
        {"tag": add_tag, "untag": remove_tag}[word["what"]](db, word["run_id"], word["text"])


def knows_nothing(db: Database) -> bool:
    """Tell whether a database is as new: no experiment, no run."""
    with db.read() as connection:
        found = [
            connection.exec_driver_sql(f"SELECT 1 FROM {name} LIMIT 1").first() for name in ("experiments", "runs")
        ]
    return not any(found)


def restore_wishes(study: Study, db: Database) -> None:
    """Cancel and hold again what a stop file in its directory says was cancelled or held, and has no result."""
    changes = []
    for path in sorted(study.runs_dir.glob("*/stop")):
        wish = read_json(path)
        state = STOPPED.get(str(wish.get("why"))) if isinstance(wish, dict) else None
        if state and not (path.parent / "DONE.json").exists():
            changes.append((path.parent.name, *state, {"by": "user"}))
    set_run_states(db, changes)
