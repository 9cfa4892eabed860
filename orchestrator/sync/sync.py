"""Journals -> database, by one writer at a time: incremental, in any order, as often as one likes.

Everything in a run directory is what an untrusted job wrote: it is parsed as JSON, never unpickled.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from scalewright.db.attempts import JournalPart
from scalewright.db.engine import Database, connect, open_database
from scalewright.db.ingest import apply_parts, store_errors
from scalewright.db.lease import LeaseLostError, Owner, acquire, release, renew
from scalewright.db.maintenance import forget_measured
from scalewright.db.metric_names import MetricKeys
from scalewright.db.results import evidence_of, refresh_results
from scalewright.db.rows import insert_runs, run_row
from scalewright.db.states import StateChange, change_states, states_of
from scalewright.db.tracked import Tracked, offsets_of, tracked_runs
from scalewright.db.upgrade import free_name
from scalewright.fitting.words import counted
from scalewright.orchestrator.files import Broken, open_file, read
from scalewright.orchestrator.runs.journal import NAME, is_foreign
from scalewright.orchestrator.runs.records import Done, SpecFile, read_spec
from scalewright.orchestrator.runs.run_files import lost_words, read_run
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.journal_rows import note_error, read_lines
from scalewright.orchestrator.sync.kept import restore_plans, restore_wishes, restore_words, restoring
from scalewright.orchestrator.sync.next_state import next_state

RUN_DIR = re.compile(r"[0-9a-f]{16}")
CHUNK_BYTES = 4 << 20
LONGEST_LINE = 16 << 20
LONGEST_MESSAGE = 200
FLUSH_ROWS = 200_000
FLUSH_PARTS = 1000
LONGEST_LOG = 32 << 20  # of SQLite, bytes
POLL_S = 0.1


@dataclass
class SyncReceipt:
    """What a sync did: counts of runs touched, lines read, metric rows, bad lines and state changes.

    skipped: who else is at work, where nothing was done; notice: what a person should know about the database;
    was_lost: plans and words came back from kept/, but for `not_restored`.
    """

    n_runs: int = 0
    n_lines: int = 0
    n_rows: int = 0
    n_errors: int = 0
    n_changes: int = 0
    seconds: float = 0.0
    skipped: str = ""
    notice: str = ""
    anew: bool = False
    was_lost: bool = False
    not_restored: list[str] = field(default_factory=list, repr=False)
    touched: set[int] = field(default_factory=set, repr=False)

    def summary(self) -> dict[str, Any]:
        """Return the counts for a program."""
        names = ("n_runs", "n_lines", "n_rows", "n_errors", "n_changes", "seconds", "skipped", "notice")
        return {name: getattr(self, name) for name in names}

    def sentence(self) -> str:
        """Say the counts to a person."""
        bad = f", {counted(self.n_errors, 'line')} that could not be read" if self.n_errors else ""
        what = " ".join(
            (
                counted(self.n_rows, "metric row"),
                "of",
                counted(self.n_lines, "line"),
                "from",
                counted(self.n_runs, "run"),
            )
        )
        return f"{what}{bad}; {self.n_changes} changed state ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Found:
    """A run directory with something new in it: journals as (attempt, path, bytes read so far).

    broken: what of it cannot be used.
    """

    run_id: str
    run: int
    journals: list[tuple[int, Path, int]]
    done: Done | None
    broken: list[Broken]


def sync(study: Study, *, wait_s: float = 0.0) -> SyncReceipt:
    """Bring the study's database up to date with its run directories; a missing database is made.

    wait_s: how long to wait for another sync; where that is still at work, nothing is done and `skipped` says so.
    """
    db = open_database(study.database)
    try:
        return sync_database(db, study.runs_dir, wait_s=wait_s)
    finally:
        db.close()


def rebuild(study: Study, *, wait_s: float = 0.0) -> SyncReceipt:
    """Forget everything measured and read every journal anew; plans, states, fits, tags and notes stay.

    A missing database is made, and a broken SQLite file is put aside first; then runs come from their directories, and
    plans, imports, tags, notes and cancels from kept/. Interrupted, it is finished by any later sync.
    """
    put_broken_aside(study.database)
    db = open_database(study.database)
    try:
        with restoring(study, db) as was_lost:
            trouble = restore_plans(study, db) if was_lost else []
            receipt = sync_database(db, study.runs_dir, wait_s=wait_s, anew=True)
            if was_lost:
                receipt.not_restored = [*trouble, *restore_words(study, db)]
                restore_wishes(study, db)
                receipt.was_lost = True
        return receipt
    finally:
        db.close()


def put_broken_aside(database: str) -> None:
    """Rename a SQLite file that cannot be read as one."""
    db = connect(database, create=True)
    if db.path is None or not db.path.exists():
        return
    try:
        with db.read() as connection:
            sound = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() == "ok"
    except DatabaseError:
        sound = False
    db.close()
    if not sound:
        for ending in ("-wal", "-shm", ""):
            file = db.path.with_name(db.path.name + ending)
            if file.exists():
                file.rename(free_name(file.with_name(f"broken.{file.name}")))


def sync_database(db: Database, runs_dir: Path, *, wait_s: float = 0.0, anew: bool = False) -> SyncReceipt:
    """Do what `sync` says with an open database; anew: as `rebuild` says."""
    began, owner = time.monotonic(), Owner()
    receipt = SyncReceipt(notice=db.notice, anew=anew)
    with db.kept_open():
        receipt.skipped = _wait_for_lease(db, owner, wait_s)
        if not receipt.skipped:
            sync_as_holder(db, runs_dir, owner, receipt)
    receipt.n_runs = len(receipt.touched)
    receipt.seconds = time.monotonic() - began
    return receipt


def sync_as_holder(db: Database, runs_dir: Path, owner: Owner, receipt: SyncReceipt) -> None:
    """Read everything new while the lease is ours, and give it back."""
    try:
        if receipt.anew:
            _forget(db, owner)
        ingest(db, runs_dir, owner, receipt)
    except LeaseLostError as lost:
        receipt.skipped = str(lost)
    finally:
        release(db, owner)


def _forget(db: Database, owner: Owner) -> None:
    with db.write() as connection:
        renew(connection, owner)
        forget_measured(connection)


def _wait_for_lease(db: Database, owner: Owner, wait_s: float) -> str:
    deadline = time.monotonic() + wait_s
    while (holder := acquire(db, owner)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return holder


def ingest(db: Database, runs_dir: Path, owner: Owner, receipt: SyncReceipt) -> None:
    """Read everything new and store it, some 100,000 rows a transaction."""
    keys, unstored = MetricKeys(db), Unstored()
    for found in find_news(db, runs_dir, owner):
        for attempt, path, offset in found.journals:
            for part in read_journal(found, attempt, path, offset, keys):
                unstored.add(part)
                if unstored.n_rows >= FLUSH_ROWS:
                    flush(db, owner, unstored, receipt, runs_dir)
        if found.done is not None:
            unstored.done[found.run] = asdict(found.done)
        unstored.broken += found.broken
        if len(unstored.parts) + len(unstored.done) >= FLUSH_PARTS:
            flush(db, owner, unstored, receipt, runs_dir)
    flush(db, owner, unstored, receipt, runs_dir)


@dataclass
class Unstored:
    """What was read since the last transaction."""

    parts: list[JournalPart] = field(default_factory=list)
    done: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    n_rows: int = 0

    def add(self, part: JournalPart) -> None:
        """Take a part and count the rows it will write."""
        self.parts.append(part)
        self.n_rows += len(part.metrics) + len(part.layers)


def flush(db: Database, owner: Owner, unstored: Unstored, receipt: SyncReceipt, runs_dir: Path) -> None:
    """Store what was read in one transaction that also proves that the lease is still ours; then forget it."""
    parts, done, broken = unstored.parts, unstored.done, unstored.broken
    if not parts and not done and not broken:
        return
    with db.write() as connection:
        renew(connection, owner)
        touched = apply_parts(connection, parts) | set(done)
        refresh_results(connection, touched, done)
        seen = evidence_of(connection, touched).values()
        fresh = [one for one in seen if not receipt.anew or one.state == "planned" or one.done]
        changes = [next_state(one, lambda run_id: read_run(runs_dir / run_id)) for one in fresh]
        n_changes = change_states(connection, [change for change in changes if change])
        n_changes += change_states(connection, lost_outcomes(connection, broken))
        store_errors(connection, [_error_row(one) for one in broken])
    db.shorten_log(LONGEST_LOG)
    receipt.n_changes += n_changes
    receipt.n_rows += unstored.n_rows
    receipt.n_lines += sum(part.n_lines for part in parts)
    receipt.n_errors += sum(len(part.errors) for part in parts)
    receipt.touched |= touched
    unstored.parts, unstored.done, unstored.broken, unstored.n_rows = [], {}, [], 0


def lost_outcomes(connection: Connection, broken: Sequence[Broken]) -> list[StateChange]:
    """Return unknown as the state of runs whose DONE.json cannot be used: they ended, and nobody can read how."""
    lost = {one.path.parent.name: one for one in broken if one.path.name == "DONE.json"}
    left_alone = states_of(connection, "cancelled") | states_of(connection, "held") if lost else set()
    return [StateChange(run, "unknown", lost_words(one)) for run, one in lost.items() if run not in left_alone]


def _error_row(broken: Broken) -> dict[str, Any]:
    place = {"run_id": broken.path.parent.name, "file": broken.path.name, "offset": 0, "excerpt": ""}
    return {**place, "message": f"not usable: {broken.why}"[:LONGEST_MESSAGE]}


def find_news(db: Database, runs_dir: Path, owner: Owner) -> Iterator[Found]:
    """Yield the run directories that hold something not yet stored; runs that were unknown are registered first."""
    if not runs_dir.is_dir():
        return
    known = tracked_runs(db)
    names = sorted(entry.name for entry in os.scandir(runs_dir) if RUN_DIR.fullmatch(entry.name))
    unknown = [name for name in names if name not in known]
    if unknown:
        register(db, owner, runs_dir, unknown)
        known = tracked_runs(db)
    offsets = offsets_of(db)
    for name in names:
        if name not in known:
            continue
        read = offsets.get(known[name].run, {})
        if not known[name].is_whole or has_grown(f"{runs_dir}/{name}", read):
            found = look(runs_dir / name, known[name], read)
            if found.journals or found.done is not None or found.broken:
                yield found


def has_grown(run_dir: str, offsets: Mapping[int, int]) -> bool:
    """Tell whether a run that has ended has other journals than those read: longer, shorter, or of a next attempt.

    Some microseconds a run, for thousands of them are asked at every sync.
    """
    journals = ((attempt, n_bytes) for attempt, n_bytes in [*offsets.items(), (max(offsets, default=0) + 1, 0)])
    return any(size_of(f"{run_dir}/journal.a{attempt}.jsonl", n_bytes) != n_bytes for attempt, n_bytes in journals)


def size_of(path: str, n_read: int) -> int:
    """Return the size of a journal; of one that is gone, what was read of it: that stays known."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - making a Path takes longer than asking
    except OSError:
        return n_read


def look(run_dir: Path, run: Tracked, offsets: Mapping[int, int]) -> Found:
    """Find what is new in one run directory.

    A journal that is shorter than what was read of it is read from its beginning: it was put in place of the one that
    was read, or lost its end, and what is written to it from now on must not be missed.
    """
    journals: list[tuple[int, Path, int]] = []
    done: Done | Broken | None = None
    try:
        for entry in os.scandir(run_dir):
            if match := NAME.fullmatch(entry.name):
                attempt, size = int(match[1]), entry.stat().st_size
                n_read = offsets.get(attempt, 0)
                if size != n_read:
                    journals.append((attempt, Path(entry.path), n_read if size > n_read else 0))
            elif entry.name == "DONE.json" and not run.has_done:
                done = read(Path(entry.path), Done, run_id=run_dir.name)
    except OSError as trouble:
        return Found(run_dir.name, run.run, [], None, [Broken(run_dir, str(trouble.strerror).lower())])
    broken = [done] if isinstance(done, Broken) else []
    return Found(run_dir.name, run.run, sorted(journals), done if isinstance(done, Done) else None, broken)


def register(db: Database, owner: Owner, runs_dir: Path, run_ids: list[str]) -> None:
    """Add runs that only their directories know (a lost database); what identifies them must give their id."""
    specs = [read_spec(runs_dir / run_id) for run_id in run_ids]
    broken = [one for one in specs if isinstance(one, Broken)]
    rows = []
    for one in specs:
        if isinstance(one, SpecFile):
            try:
                rows.append(run_row(one.run_id, one.spec.to_dict(), one.planned, one.settings))
            except (ValueError, TypeError, KeyError, AttributeError) as trouble:
                broken.append(Broken(runs_dir / one.run_id / "spec.json", str(trouble)))
    with db.write() as connection:
        renew(connection, owner)
        insert_runs(connection, rows)
        store_errors(connection, [_error_row(one) for one in broken])


def read_journal(found: Found, attempt: int, path: Path, offset: int, keys: MetricKeys) -> Iterator[JournalPart]:
    """Yield the new whole lines of a journal, a few megabytes at a time; a torn last line is left for later."""
    try:
        file = open_file(path)
    except OSError as trouble:
        yield unreadable(found, attempt, offset, offset, str(trouble.strerror).lower())
        return
    with file:
        if is_foreign(file.readline(LONGEST_LINE), found.run_id):
            size = file.seek(0, os.SEEK_END)
            yield unreadable(found, attempt, offset, size, "the journal of another run: nothing of it counts")
            return
        file.seek(offset)
        for chunk, n_skipped in whole_lines(file):
            part = JournalPart(found.run, found.run_id, attempt, offset, offset)
            if n_skipped:
                note_error(part, offset, chunk, f"a line of {n_skipped} bytes")
                part.n_bytes, part.n_lines = offset + n_skipped, 1
            else:
                read_lines(part, chunk, keys)
            offset = part.n_bytes
            yield part


def unreadable(found: Found, attempt: int, offset: int, n_bytes: int, why: str) -> JournalPart:
    """Return the part of a journal that says only why nothing of it was taken."""
    part = JournalPart(found.run, found.run_id, attempt, offset, n_bytes, n_lines=int(n_bytes > offset))
    note_error(part, 0, b"", why)
    return part


def whole_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield (whole lines, 0), or for one absurdly long line (its beginning, its bytes)."""
    rest = b""
    while data := file.read(CHUNK_BYTES):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end], 0
        rest = data[end:]
        if len(rest) > LONGEST_LINE:
            n_bytes = skip_line(file, len(rest))
            if not n_bytes:
                return
            yield rest[:200], n_bytes
            rest = b""


def skip_line(file: BinaryIO, n_bytes: int) -> int:
    """Go to the end of a line of which `n_bytes` were read; return its length, 0 where it has no end yet."""
    while data := file.read(CHUNK_BYTES):
        end = data.find(b"\n") + 1
        if end:
            file.seek(end - len(data), os.SEEK_CUR)
            return n_bytes + end
        n_bytes += len(data)
    return 0
