"""Both kinds of database, fresh for each test, and studies full of journals."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import orjson
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.spec import RunSpec

DEBIAN = Path("/usr/lib/postgresql")
QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=100"


def postgresql_programs():
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).parent if found else None


def server_user():
    """PostgreSQL refuses to run as root: name the user to run it as, or None for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def run_as(user, *command):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    subprocess.run([str(word) for word in command], check=True, user=user, cwd="/", **quiet)


@pytest.fixture(scope="session")
def postgresql_server():
    """A private server on a unix socket in a temporary folder, run by a user that is not root."""
    programs = postgresql_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder, user = Path(tempfile.mkdtemp(prefix="pg-")), server_user()
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    run_as(user, programs / "initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
    options = f"-c listen_addresses='' {QUICK} -k {folder}"
    run_as(user, programs / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    yield f"postgresql+psycopg://{user or pwd.getpwuid(os.geteuid()).pw_name}@/{{name}}?host={folder}"
    run_as(user, programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder, ignore_errors=True)


def emptied(server, name="postgres"):
    """Return the address of a database of the server, with nothing in it."""
    engine = create_engine(server.format(name=name), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
        connection.execute(text(f"{others} AND pid <> pg_backend_pid()"), {"name": name})
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return server.format(name=name)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The address of a database that does not exist yet (SQLite) or is empty (PostgreSQL)."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    return emptied(request.getfixturevalue("postgresql_server"))


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def shared_url(request, tmp_path_factory):
    """As `url`, for all tests of a module that change nothing."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("shared") / "runs.sqlite")
    return emptied(request.getfixturevalue("postgresql_server"))


@pytest.fixture
def second_postgresql(postgresql_server):
    """The address of one more empty PostgreSQL database."""
    engine = create_engine(postgresql_server.format(name="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        if not connection.execute(text("SELECT 1 FROM pg_database WHERE datname = 'second'")).scalar():
            connection.execute(text("CREATE DATABASE second"))
    return emptied(postgresql_server, "second")


@pytest.fixture
def db(url):
    database = open_database(url)
    yield database
    database.close()


def spec_of(seed=0, **training):
    model = {"method": "gpt+", "gate": "none", "init": "gpt2", "width": 64, "depth": 2, "heads": 4}
    shape = {"vocab_size": 256, "context": 128}
    data = {"fingerprint": "f", "tokenizer": "t", "vocab_size": 256}
    optimizer = {"name": "adamw", "lr_peak": 0.01, "weight_decay": 0.1}
    batch = {"n_tokens": 102400, "batch_sequences": 8, "context": 128, "seed": seed, "precision": "fp32"}
    return RunSpec(model | shape, data, batch | {"optimizer": optimizer, "schedule": {"name": "cosine"}} | training)


PLANNED = {
    "n_params_non_embedding": 5000,
    "n_params_total": 9000,
    "n_params_head": 2000,
    "flops_per_token": 3e4,
    "n_steps": 100,
    "wall_s": 9.0,
}
START = {"token": "t", "resume_step": 0, "resume_tokens": 0, "job": {"cluster": "c", "job_id": "7"}}
MACHINE = {"code": {"commit": "abc", "dirty": False}, "environment": {"device": "cpu", "threads": 1}}


class Folder:
    """A study's folder in which a test writes what jobs would write."""

    def __init__(self, root):
        self.root = root
        self.runs_dir = root / "runs"
        self.runs_dir.mkdir(parents=True, exist_ok=True)

    def run(self, seed=0, **training):
        """Make a run directory with its spec; return it."""
        spec = spec_of(seed, **training)
        run_dir = self.runs_dir / spec.run_id
        run_dir.mkdir(exist_ok=True)
        content = {"format": 1, "run_id": spec.run_id, "identity": spec.to_dict(), "settings": {}, "planned": PLANNED}
        (run_dir / "spec.json").write_text(json.dumps(content))
        return run_dir

    def line(self, **record):
        """Return a journal's line."""
        return orjson.dumps(record) + b"\n"

    def journal(self, run_dir, resume_step=0):
        start = {**START, **MACHINE, "run_id": run_dir.name}
        return Journal.open(run_dir, start | {"resume_step": resume_step, "resume_tokens": resume_step * 1024})

    def write(self, run_dir, steps, *, resume_step=0, loss=lambda step: 10.0 / step):
        """Write an attempt that logs `steps` and does not end."""
        with self.journal(run_dir, resume_step) as journal:
            for step in steps:
                journal.metrics(step, step * 1024, {"loss_nats": loss(step), "tokens_per_s": 100.0})
        return journal

    def finish(self, run_dir, steps, *, resume_step=0, loss=2.0, outcome="completed"):
        """Write an attempt that ends with a result."""
        journal, last = self.journal(run_dir, resume_step), steps[-1]
        for step in steps:
            journal.metrics(step, step * 1024, {"loss_nats": 10.0 / step, "tokens_per_s": 100.0})
        values = {"loss_nats": loss, "bits_per_byte": loss / 0.6931}
        journal.evaluation(last, last * 1024, values, n_tokens=4096, final=True, annealed=True)
        self.done(run_dir, journal.attempt, last, loss, outcome)
        journal.end(outcome, last, last * 1024, wall_s=2.0, train_wall_s=1.5)
        journal.close()

    def done(self, run_dir, attempt, step, loss, outcome="completed"):
        content = {"outcome": outcome, "attempt": attempt, "step": step, "n_tokens": step * 1024, "loss_nats": loss}
        content |= {"bits_per_byte": loss / 0.6931, "wall_s": 2.0, "train_wall_s": 1.5, "tokens_per_s": 100.0}
        (run_dir / "DONE.json").write_text(json.dumps(content | {"time": 1.0, "reason": ""}))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "study")


@pytest.fixture
def folder_at():
    """Make a study's folder somewhere else."""
    return Folder


@pytest.fixture
def rows_of():
    """Run SQL and return plain tuples."""

    def rows(database, sql, **parameters):
        with database.read() as connection:
            return [tuple(row) for row in connection.execute(text(sql), parameters)]

    return rows


@pytest.fixture
def values_of(rows_of):
    """Return the stored values of a run's metric by step, no step of which may come twice."""

    def values(database, run_id, metric="loss_nats"):
        rows = rows_of(database, "SELECT step, value FROM curves WHERE run_id = :r AND metric = :m", r=run_id, m=metric)
        assert len(rows) == len({step for step, _ in rows})
        return dict(rows)

    return values
