"""Processes killed at any moment, disks that are full, many at once: nothing flushed is lost and nothing doubled.

Children are forked from this process, so that a trial costs milliseconds and not the seconds of an import.
"""

import os
import random
import resource
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from sqlalchemy import Engine, event, text

from scalewright.db import frames, lease
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.db.errors import CannotWrite
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync import sync as sync_module
from scalewright.orchestrator.sync.sync import rebuild, sync_database

N_TRIALS = 100


def forked(work):
    """Run `work` in a child process; return its id. Whatever happens there stays there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def kill_after(child, seconds):
    """Kill a child at a moment of our choice; return whether it was still at work."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def sound(database):
    if database.dialect == "sqlite":
        with database.read() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"


def counts(database, rows_of):
    """Return rows and distinct places by run, so that a doubled row would show."""
    return dict(rows_of(database, "SELECT run_id, count(*) FROM curves WHERE metric = 'loss_nats' GROUP BY run_id"))


def test_a_writer_killed_at_any_moment_loses_nothing_it_wrote(tmp_path, folder, rows_of):
    chance = random.Random(1)
    written = {}
    n_killed = 0
    for trial in range(N_TRIALS):
        run_dir = folder.run(seed=trial)
        read_end, write_end = os.pipe()

        def work(run_dir=run_dir, write_end=write_end):
            journal = folder.journal(run_dir)
            for step in range(1, 100_000):
                journal.metrics(step, step * 1024, {"loss_nats": 1.0 / step, "lr": 0.1})
                os.write(write_end, b".")  # said only after the step was written

        child = forked(work)
        os.close(write_end)
        n_said, n_awaited = 0, chance.choice([0, 0, 1, 3, 10, 30])
        while n_said < n_awaited and (said := os.read(read_end, 1 << 20)):  # a count: a busy machine takes its time
            n_said += len(said)
        n_killed += kill_after(child, chance.uniform(0, 0.005))
        os.set_blocking(read_end, False)
        with suppress(BlockingIOError):
            n_said += len(os.read(read_end, 1 << 20))
        written[run_dir.name] = n_said
        os.close(read_end)
        if chance.random() < 0.5:  # the page cache of a dead host may leave a torn or zeroed tail
            with (run_dir / "journal.a1.jsonl").open("ab") as file:
                file.write(chance.choice([b'{"type":"metr', b"\0" * 100, b"\0\0\n", b'{"type":"metrics","step":1']))
    assert n_killed > N_TRIALS / 2
    database = open_database(tmp_path / "runs.sqlite")
    sync_database(database, folder.runs_dir)
    found = counts(database, rows_of)
    for run_id, n_acknowledged in written.items():
        assert n_acknowledged <= found.get(run_id, 0) <= n_acknowledged + 1
    assert sum(written.values()) > N_TRIALS
    sound(database)


def test_a_writer_killed_and_started_again_continues_without_a_gap(db, folder, rows_of):
    chance, run_dir, resume = random.Random(2), folder.run(), 0
    for _ in range(20):

        def work(resume=resume):
            journal = folder.journal(run_dir, resume)
            for step in range(resume + 1, 100_000):
                journal.metrics(step, step * 1024, {"loss_nats": float(journal.attempt)})

        kill_after(forked(work), chance.uniform(0.003, 0.02))
        sync_database(db, folder.runs_dir)
        steps = [row[0] for row in rows_of(db, "SELECT step FROM curves ORDER BY step")]
        assert steps == list(range(1, len(steps) + 1))
        resume = max(0, len(steps) - chance.randint(0, 20))
    before = content_hash(db)
    rebuild(Study.at(folder.root, database=db.url.render_as_string(hide_password=False)))
    assert content_hash(db) == before


def fill(folder, n_runs, n_steps):
    for seed in range(n_runs):
        run_dir = folder.run(seed)
        folder.write(run_dir, range(1, n_steps + 1))
        if seed % 2:
            folder.finish(run_dir, range(n_steps // 2 + 1, n_steps + 1), resume_step=n_steps // 2)


def dying_at(k_statement, work):
    """Do `work`, but kill this process just before it says its k-th statement (from 0) to a database."""
    said = iter(range(k_statement))

    def count(*_):
        if next(said, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)
    work()


class GrowingStudy:
    """Four runs whose journals grow between the syncs that are killed."""

    def __init__(self, folder, url):
        self.folder, self.url, self.steps = folder, url, 0
        self.directories = [folder.run(seed) for seed in range(4)]
        self.journals = [folder.journal(run_dir) for run_dir in self.directories]
        self.database = open_database(url)
        sync_database(self.database, folder.runs_dir)

    def sync(self):
        sync_database(open_database(self.url), self.folder.runs_dir)

    def grow(self):
        for _ in range(100):
            self.steps += 1
            for journal in self.journals:
                journal.metrics(self.steps, self.steps * 1024, {"loss_nats": 1.0 / self.steps})

    def check_whole(self, rows_of):
        """The next sync stores everything once, and a database made anew from the journals is the same."""
        assert sync_database(self.database, self.folder.runs_dir, wait_s=60).skipped == ""
        assert counts(self.database, rows_of) == {run_dir.name: self.steps for run_dir in self.directories}
        assert rows_of(self.database, "SELECT count(*) FROM ingest_errors") == [(0,)]
        sound(self.database)
        before = content_hash(self.database)
        rebuild(Study.at(self.folder.root, database=self.url), wait_s=60)
        assert content_hash(self.database) == before


@pytest.fixture
def growing(url, folder, monkeypatch):
    monkeypatch.setattr(sync_module, "FLUSH_ROWS", 200)
    monkeypatch.setattr(sync_module, "CHUNK_BYTES", 4096)
    return GrowingStudy(folder, url)


def test_sync_killed_before_any_statement_leaves_nothing_half_done(growing, rows_of):
    k_statement, is_killed = 0, True
    while is_killed:
        growing.grow()
        is_killed = os.WIFSIGNALED(os.waitpid(forked(lambda k=k_statement: dying_at(k, growing.sync)), 0)[1])
        assert all(n <= growing.steps for n in counts(growing.database, rows_of).values())
        k_statement += 1 if k_statement < 40 else 20
    assert k_statement > 100
    growing.check_whole(rows_of)


@pytest.mark.parametrize("n_at_once", [1, 3])
def test_sync_killed_at_any_moment_leaves_nothing_half_done(growing, rows_of, n_at_once):
    """A killed sync's lease is taken over at once because its process is gone.

    How many are still at work when they are killed is the machine's affair: those at once wait for nobody's lease.
    """
    chance = random.Random(3)
    n_trials = 40 if growing.database.dialect == "sqlite" else 20
    for _ in range(n_trials):
        growing.grow()
        children = [forked(growing.sync) for _ in range(n_at_once)]
        for child in children:
            kill_after(child, chance.uniform(0.0, 0.06))
        assert all(n <= growing.steps for n in counts(growing.database, rows_of).values())
    growing.check_whole(rows_of)


def test_two_syncs_at_once_store_everything_once(url, folder, rows_of):
    fill(folder, n_runs=6, n_steps=200)
    open_database(url).close()
    children = [forked(lambda: sync_database(open_database(url), folder.runs_dir, wait_s=30)) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    database = open_database(url)
    assert set(counts(database, rows_of).values()) == {200} and len(frames.runs(database)) == 6
    sound(database)


def test_a_second_sync_says_who_is_at_work_and_does_nothing(db, folder):
    folder.write(folder.run(), [1])
    other = lease.Owner(host="elsewhere", pid=7)
    assert lease.acquire(db, other) == ""
    receipt = sync_database(db, folder.runs_dir)
    assert receipt.skipped == "another sync is at work (process 7 on elsewhere)" and receipt.n_lines == 0
    lease.release(db, other)
    assert sync_database(db, folder.runs_dir).n_lines == 2


@pytest.mark.parametrize(("later_s", "is_free"), [(1, False), (29, False), (31, True), (-3600, True)])
def test_a_lease_expires_and_one_from_a_wrong_clock_is_worth_nothing(db, later_s, is_free):
    assert lease.acquire(db, lease.Owner(host="elsewhere"), now=1000.0) == ""
    assert (lease.acquire(db, lease.Owner(), now=1000.0 + later_s) == "") == is_free


def test_a_sync_that_lost_its_lease_writes_nothing_more(db, folder, rows_of, monkeypatch):
    folder.write(folder.run(), range(1, 50))
    thief = lease.Owner(host="elsewhere")
    steal = sync_module.find_news

    def find_and_be_robbed(*arguments):
        yield from steal(*arguments)
        with db.write() as connection:
            connection.execute(text("UPDATE leases SET owner = :owner"), {"owner": str(thief)})

    monkeypatch.setattr(sync_module, "find_news", find_and_be_robbed)
    receipt = sync_database(db, folder.runs_dir)
    assert "took over" in receipt.skipped
    assert rows_of(db, "SELECT count(*) FROM metrics") == [(0,)]
    monkeypatch.undo()
    lease.release(db, thief)
    assert sync_database(db, folder.runs_dir).n_rows == 98


def test_readers_during_writes_see_whole_transactions(url, folder, rows_of, monkeypatch):
    """Every transaction stores whole lines of two metrics: a reader must count as many of one as of the other."""
    monkeypatch.setattr(sync_module, "FLUSH_ROWS", 100)
    monkeypatch.setattr(sync_module, "CHUNK_BYTES", 2048)
    for seed in range(4):
        folder.write(folder.run(seed), range(1, 601))
    store = sync_module.flush

    def store_and_rest(*arguments):
        store(*arguments)
        time.sleep(0.01)  # so that the reader's turn comes between two transactions

    monkeypatch.setattr(sync_module, "flush", store_and_rest)
    database = open_database(url)
    child = forked(lambda: sync_database(open_database(url), folder.runs_dir))
    seen = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        query = "SELECT count(*) FROM curves WHERE metric = :m"
        with database.read() as connection:
            one, other = [connection.execute(text(query), {"m": m}).scalar() for m in ("loss_nats", "tokens_per_s")]
        if database.dialect == "sqlite":
            assert one == other
        seen.append(one)
    assert seen == sorted(seen) and len(seen) > 2
    assert set(counts(database, rows_of).values()) == {600}


def test_64_writers_and_a_sync_lose_nothing(url, folder, rows_of):
    n_writers, n_steps = 64, 40
    directories = [folder.run(seed) for seed in range(n_writers)]

    def write(run_dir):
        with folder.journal(run_dir) as journal:
            for step in range(1, n_steps + 1):
                journal.metrics(step, step * 1024, {"loss_nats": 1.0 / step})

    children = [forked(lambda run_dir=run_dir: write(run_dir)) for run_dir in directories]
    database = open_database(url)
    sync_database(database, folder.runs_dir)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    sync_database(database, folder.runs_dir)
    assert counts(database, rows_of) == {run_dir.name: n_steps for run_dir in directories}
    sound(database)


def test_attempts_started_at_the_same_moment_have_journals_of_their_own(folder):
    run_dir = folder.run()
    children = [forked(lambda: folder.write(run_dir, range(1, 20))) for _ in range(16)]
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    assert sorted(int(p.name.split(".")[1][1:]) for p in run_dir.glob("journal.*")) == list(range(1, 17))
    assert all(len(path.read_text().splitlines()) == 20 for path in run_dir.glob("journal.*"))


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here ({mounted.stderr.strip()[:80]}); the test beside it runs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_no_training_and_costs_no_step_once_there_is_room(db, small_disk, folder_at, rows_of, capfd):
    folder, ballast = folder_at(small_disk), small_disk / "ballast"
    journal = folder.journal(folder.run())
    ballast.write_bytes(b"x" * 50_000)
    for step in range(1, 1001):
        journal.metrics(step, step * 1024, {"loss_nats": 1.0 / step})
    assert not journal.sync_to_disk()
    sync_database(db, folder.runs_dir)
    assert 0 < counts(db, rows_of)[journal.path.parent.name] < 1000
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    journal.metrics(1001, 1001 * 1024, {"loss_nats": 0.5})
    assert journal.sync_to_disk()
    journal.close()
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert [row[0] for row in rows_of(db, "SELECT step FROM curves ORDER BY step")] == list(range(1, 1002))
    assert capfd.readouterr().err.count("No space left on device; training goes on") == 1


def test_writes_that_stop_in_the_middle_of_a_line_are_continued_there(db, folder, rows_of):
    """A limit on file size makes the kernel write a part of a line and then refuse, as a full disk does."""
    run_dir = folder.run()

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = folder.journal(run_dir)
        for step in range(1, 301):
            if step in (50, 200):
                resource.setrlimit(resource.RLIMIT_FSIZE, (3000 if step == 50 else -1, -1))
            journal.metrics(step, step * 1024, {"loss_nats": 1.0 / step})
        journal.close()

    assert os.waitpid(forked(work), 0)[1] == 0
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert [row[0] for row in rows_of(db, "SELECT step FROM curves ORDER BY step")] == list(range(1, 301))


def test_a_full_disk_at_the_database_costs_nothing_but_the_sync(small_disk, folder, rows_of):
    fill(folder, n_runs=2, n_steps=15_000)
    database = open_database_on(small_disk)
    with pytest.raises(CannotWrite, match="the disk of .* is full"):
        sync_database(database, folder.runs_dir)
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    assert sync_database(database, folder.runs_dir).skipped == ""
    assert set(counts(database, rows_of).values()) == {15_000}
    sound(database)


def open_database_on(small_disk):
    """Make a database where there is room for its tables and hardly more."""
    subprocess.run(["mount", "-o", "remount,size=600k", str(small_disk)], check=True)
    return open_database(small_disk / "runs.sqlite")
