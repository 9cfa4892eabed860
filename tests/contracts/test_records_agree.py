"""What one module writes into a run's directory and another reads: no key unread, none missing.

The small files (DONE.json, again.json, stop, owner, spec, pack, chunk, started, kept plans, manifest) are read as the
very types that are written, which refuse a key too many or too few (tests/orchestrator/test_files.py). Journals and
checkpoints are read key by key, so the keys that are looked at are counted here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from scalewright.db.attempts import JournalPart, first_row, news_of
from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.sync.journal_rows import READERS
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.divergence import Monitor
from scalewright.orchestrator.train.progress import Progress

RUN_ID = "0123456789abcdef"
KEYS = {"loss_nats": 1, "tokens_per_s": 2, "norm": 3}
# Keys that nobody needs to read, and why.
UNREAD: dict[str, set[str]] = {
    "start": {"type", "attempt"},  # the name of the file says it
    "end": {"wall_s"},  # DONE.json has it with the attempts before; of one attempt: its last sign less its start
}


class Watched(dict[str, Any]):
    """A record that remembers which of its keys were looked at."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(record)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def written(run_dir: Path) -> dict[str, dict[str, Any]]:
    """One line of each kind, as Journal writes it, by kind."""
    run_dir.mkdir()
    start = {"run_id": RUN_ID, "token": "t", "job": {}, "resume_step": 0, "resume_tokens": 0}
    with Journal.open(run_dir, start | {"code": {}, "environment": {}}) as journal:
        journal.metrics(1, 10, {"loss_nats": 2.0, "tokens_per_s": 3.0})
        journal.layers(1, 10, {"norm": [1.0]})
        journal.evaluation(1, 10, {"loss_nats": 2.0, "bits_per_byte": 3.0}, n_tokens=5, final=True, annealed=True)
        journal.checkpoint(1, 10, "ckpt/x", 7)
        journal._last_write = -1e9
        journal.heartbeat(1, 10)
        journal.end("completed", 1, 10, reason="", error=None, wall_s=1.0, train_wall_s=0.5)
    lines = map(orjson.loads, journal.path.read_bytes().splitlines())
    return {line["type"]: line for line in lines}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return written(tmp_path_factory.mktemp("records") / RUN_ID)


def test_every_kind_of_line_has_a_reader_and_is_written(lines: dict[str, dict[str, Any]]) -> None:
    assert lines.keys() == READERS.keys()


@pytest.mark.parametrize("kind", READERS)
def test_every_key_of_a_line_is_read(lines: dict[str, dict[str, Any]], kind: str, tmp_path: Path) -> None:
    record, part = Watched(lines[kind]), JournalPart(1, RUN_ID, 1)
    READERS[kind](part, record, KEYS)
    if kind == "start":
        part.start = record
        database = open_database(tmp_path / "runs.sqlite")
        with database.write() as connection:
            first_row(connection, part, {})
        database.close()
    if kind == "end":
        part.end = record
        news_of(part, {"last_step": None, "started_at": 1.0})
    assert set(record) - record.read - {"type"} - UNREAD.get(kind, set()) == set()


STANDS_ON = [("start", "resume_step"), ("metrics", "values"), ("evaluation", "step"), ("checkpoint", "path"),
             ("end", "outcome"), ("heartbeat", "step")]  # fmt: skip


@pytest.mark.parametrize(("kind", "key"), STANDS_ON)
def test_a_line_without_a_key_that_it_stands_on_is_refused(lines: dict[str, Any], kind: str, key: str) -> None:
    record = {name: value for name, value in lines[kind].items() if name != key}
    with pytest.raises(KeyError, match=key):
        READERS[kind](JournalPart(1, RUN_ID, 1), record, KEYS)


def progressed() -> Progress:
    """A run in the middle, no number of it at its beginning."""
    progress = Progress(Monitor(1.0, 32.0, 2.5, 16, [2.6]), batch_tokens=10, n_steps=9, step=4, train_wall_s=3.0)
    progress.unlogged, progress.final = [2.7], {"loss_nats": 2.4}
    return progress


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    else:
        yield path


def test_what_a_checkpoint_keeps_of_the_progress_comes_back_whole(tmp_path: Path) -> None:
    before = progressed()
    checkpoint.save(tmp_path, {"run_id": RUN_ID, "step": 4, "progress": before.state(wall_s=5.0), "model": {}})
    found = checkpoint.load_latest(tmp_path, RUN_ID)
    assert found is not None
    after = Progress(Monitor(1.0, 32.0), batch_tokens=10, n_steps=9)
    after.restore(found["step"], found["progress"])
    assert after == before
    assert after.state(wall_s=5.0) == before.state(wall_s=5.0)


NOT_NEEDED = (".wall_s", ".final.", ".monitor.most_high_steps")  # the last came after checkpoints were written
KEPT = [path for path in leaves(progressed().state(0.0)) if not path.startswith(NOT_NEEDED)]


@pytest.mark.parametrize("path", KEPT)
def test_a_checkpoint_without_a_part_of_the_progress_is_refused(path: str) -> None:
    """wall_s is the keeper's (test_resume_run); what an evaluation gives is no part of its own."""
    state = progressed().state(wall_s=5.0)
    *above, last = path.removeprefix(".").split(".")
    inner = state[above[0]] if above else state
    del inner[last]
    with pytest.raises(KeyError, match=last):
        Progress(Monitor(1.0, 32.0), batch_tokens=10, n_steps=9).restore(4, state)
