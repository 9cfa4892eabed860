"""The studies that every round starts from, and a verb as a person types it on them."""

import json
import shutil
import signal
import subprocess
import time
import traceback
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from tiny_study import YAML, write_study

from fuzz.breaks import open_up
from scalewright.db.engine import open_database
from scalewright.orchestrator import cli
from scalewright.orchestrator.files import write_json
from scalewright.orchestrator.jobs.executors.here import is_alive
from scalewright.orchestrator.jobs.observe import refresh
from scalewright.orchestrator.jobs.records import Chunk, Started, read_chunks, runs_in
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.study import Study

EIGHT_RUNS = YAML + "seeds: 2\nresources: {profiles: {default: {pack: 2}}}\n"
PATIENCE_S = 120.0
N_RUNNING = 2
KEPT = ("snapshots", "data", "text.txt", "experiments.yaml")  # the same in every round


@dataclass
class Scene:
    """A study that every round starts from. saved: its files; running: ids of the runs that a process works on."""

    root: Path
    saved: Path
    running: frozenset[str]
    sleeper: "subprocess.Popen[bytes] | None" = None

    def restore(self) -> None:
        """Put every file back."""
        for path in self.root.iterdir():
            if path.name not in KEPT:
                open_up(path)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self.saved, self.root, dirs_exist_ok=True)

    def put_to_work(self) -> None:
        """Give the jobs of the running runs a live process, one that is not asked to end in vain."""
        self.sleeper = subprocess.Popen(["sleep", "7200"], stdout=subprocess.DEVNULL, preexec_fn=ignore_term)
        process = Process.of(self.sleeper.pid)
        assert process is not None, "it was started just now"
        for path in self.root.glob("jobs/*/chunk-*.json"):
            chunk = Chunk.read(path)
            names = [name for name in chunk.packs if self.is_running(chunk, name)]
            replace(chunk, jobs=chunk.jobs | dict.fromkeys(names, process), closed=False).write(self.root / "jobs")
            for name in names:
                write_json(path.parent / name / "started.json", Started(process, time=time.time()), durable=False)
        for run_id in self.running:
            interrupt(self.root / "runs" / run_id, process.pid)

    def is_running(self, chunk: Chunk, name: str) -> bool:
        runs = runs_in(self.root / "jobs", chunk.submission_id, name)
        return any(run.name in self.running for run in runs)

    def end(self) -> None:
        if self.sleeper is not None:
            self.sleeper.kill()
            self.sleeper.wait()


def make_finished(folder: Path) -> Scene:
    """Run a small study of the debug payload to its end."""
    root = folder / "finished"
    write_study(root, EIGHT_RUNS)
    with chdir(root):
        expect(ask("plan"))
        shutil.copyfile(root / "runs.sqlite", root / "planned.sqlite")
        expect(ask("submit", "--payload", "debug"))
        deadline = time.monotonic() + PATIENCE_S
        while set(states(root).values()) != {"completed"} or has_jobs(root / "jobs"):
            assert time.monotonic() < deadline, states(root)
            time.sleep(0.3)
    return Scene(root, save(root, folder / "finished.saved"), frozenset())


def has_jobs(jobs_dir: Path) -> bool:
    return any(is_alive(chunk, jobs_dir, name) for chunk in read_chunks(jobs_dir, closed=True) for name in chunk.packs)


def make_running(finished: Scene, folder: Path) -> Scene:
    """Make a study in which the jobs of some runs are at work: half a journal, no outcome, a live process."""
    root = folder / "running"
    shutil.copytree(finished.root, root)
    (submission,) = root.glob("jobs/*/submission.json")
    place = {"path": str(root), "inode": root.stat().st_ino}
    submission.write_text(json.dumps(json.loads(submission.read_text()) | {"study": place}))
    running = set()
    for chunk in read_chunks(root / "jobs", closed=True):
        for name in chunk.packs:
            mine = [run.name for run in runs_in(root / "jobs", chunk.submission_id, name)]
            if len(running) < N_RUNNING:
                running.add(mine[-1])
                (submission.parent / name / "finished.json").unlink()
    shutil.copyfile(root / "planned.sqlite", root / "runs.sqlite")
    scene = Scene(root, folder / "none", frozenset(running))
    scene.put_to_work()
    assert {run for run, state in states(root).items() if state == "running"} == running, states(root)
    scene.saved = save(root, folder / "running.saved")
    return scene


def interrupt(run_dir: Path, pid: int) -> None:
    """Take a run back to the middle of its training, in a job that is this process."""
    (run_dir / "DONE.json").unlink()
    journal = run_dir / "journal.a1.jsonl"
    start, *lines = journal.read_text().splitlines(keepends=True)
    record = json.loads(start)
    record["job"]["job_id"] = str(pid)
    journal.write_text(json.dumps(record) + "\n" + "".join(lines[: len(lines) // 2]))


def ignore_term() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def save(root: Path, saved: Path) -> Path:
    shutil.copytree(root, saved, ignore=lambda folder, _: KEPT if Path(folder) == root else ())
    return saved


def states(root: Path) -> dict[str, str]:
    study = Study(root, str(root / "runs.sqlite"))
    refresh(study)
    return {run_id: row[0] for run_id, row in results(study.database).items()}


def results(database: str) -> dict[str, tuple[Any, ...]]:
    """Return state and final loss by run id."""
    db = open_database(database, create=False)
    try:
        with db.read() as connection:
            rows = connection.exec_driver_sql("SELECT run_id, state, loss_nats FROM all_runs").all()
    finally:
        db.close()
    return {row[0]: tuple(row[1:]) for row in rows}


@dataclass(frozen=True)
class Said:
    """What a verb answered."""

    verb: str
    code: int
    text: str
    wall_s: float


def ask(*verb: str) -> Said:
    """Type a verb; an error that only a bug raises is part of the text, and the code 99."""
    out, began = StringIO(), time.perf_counter()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            code = cli.run(list(verb))
        except BaseException:  # noqa: BLE001 - the very thing that is looked for
            code = 99
            out.write(traceback.format_exc())
    return Said(" ".join(verb), code, out.getvalue(), time.perf_counter() - began)


def expect(said: Said) -> None:
    assert said.code == 0, f"{said.verb}: {said.text}"
