"""What a broken file costs: a finished and a running study, corrupted at random, and every verb asked about it.

    python benchmarks/fuzz.py [--rounds 500] [--seed 0] [--only ROUND]

Each round restores a study of eight runs that train nothing, breaks one to four of the files that jobs and submissions
left (truncated, zeroed, of wrong types, exchanged between runs, deleted, closed to the reader, replaced by a folder, a
pipe or a link to nowhere), and checks: no traceback and no control character on the terminal; every verb answers; the
runs whose files are sound keep state and result, and none of them is started again; `db rebuild` of a database that had
seen the sound files, and `sync` of one that had not, hold the same. Even rounds are of the finished study. Prints one
JSON object; exit code 1 where a check failed. Permissions do not bind root: run it as somebody else,
or with: setpriv --bounding-set -dac_override,-dac_read_search python benchmarks/fuzz.py
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scalewright.db.content import content_hash  # noqa: E402
from scalewright.db.engine import open_database  # noqa: E402
from scalewright.orchestrator import cli  # noqa: E402
from scalewright.orchestrator.files import write_json  # noqa: E402
from scalewright.orchestrator.jobs.executors.here import is_alive  # noqa: E402
from scalewright.orchestrator.jobs.observe import refresh  # noqa: E402
from scalewright.orchestrator.jobs.records import Chunk, Started, read_chunks, runs_in  # noqa: E402
from scalewright.orchestrator.runs.processes import Process  # noqa: E402
from scalewright.orchestrator.study import Study  # noqa: E402

YAML = """
experiment: tiny
data: {corpus: text.txt, tokenizer: bytes, validation: 0.3}
sizes:
  s: {width: 16, depth: 1, heads: 2}
budgets: [4k, 8k]
methods: [pre-ln, gpt+]
seeds: 2
batch: 2
context: 32
evaluation: {n_windows: 4}
resources: {profiles: {default: {pack: 2}}}
"""
PATIENCE_S = 120.0
N_RUNNING = 2
SAID_EVERY = 50
KEPT = ("snapshots", "data", "text.txt", "experiments.yaml")  # the same in every round
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 3, 1.5, 1e308, 2**70, "", "many", "\x1b[31mred\x07", [], [1, "x"], {}, {"outcome": "won"},
    {"type": "end", "step": 3, "tokens": 5}, {"pid": "x"}, "0123456789abcdef", "../../etc", "x" * 3000,
)  # fmt: skip


# --- the studies -----------------------------------------------------------------------------------------------------


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
    root.mkdir()
    words = "the quick brown fox jumps over the lazy dog. " * 20
    (root / "text.txt").write_text("\n\n".join(f"Document {n}: {words}" for n in range(30)))
    (root / "experiments.yaml").write_text(YAML)
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


# --- what breaks a file ----------------------------------------------------------------------------------------------

Break = Callable[[Path, random.Random, Sequence[Path]], None]


def truncate(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.choice([0, rng.randrange(len(content) + 1)])])


def zero(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    content = bytearray(path.read_bytes())
    start = rng.choice([0, rng.randrange(len(content) + 1)])
    content[start:] = bytes(len(content) - start)
    path.write_bytes(bytes(content))


def replace_value(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.write_text(json.dumps(rng.choice(VALUES)) + rng.choice(["", "\n"]))


def change_types(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    """Put another value under some key of a JSON file, or of some lines of a journal."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for index in rng.sample(range(len(lines)), min(len(lines), rng.randint(1, 4))):
        try:
            record = json.loads(lines[index])
        except ValueError:
            continue
        change(record, rng)
        lines[index] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


def change(record: Any, rng: random.Random) -> None:
    """Change, drop or add one key, here or further in."""
    if not isinstance(record, dict) or not record:
        return
    key = rng.choice(list(record))
    if isinstance(record[key], dict) and record[key] and rng.random() < 0.5:
        change(record[key], rng)
    elif rng.random() < 0.2:
        del record[key]
    elif rng.random() < 0.1:
        record["colour\x1b[2J"] = 1
    else:
        record[key] = rng.choice(VALUES)


def add_rubbish(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    with path.open("ab") as file:
        file.write(rng.choice([rng.randbytes(50), b'{"type":"end","step":3,"tokens":5}\n', b"\xff\xfe\n", b"[]\n"]))


def exchange(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """Exchange a file with the one of the same name of another run or pack."""
    alike = [other for other in others if other.name == path.name and other != path and is_file(other)]
    if alike:
        other = rng.choice(alike)
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)


def overlay(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """Lay any other file over this one."""
    path.write_bytes(rng.choice([other for other in others if is_file(other)]).read_bytes())


def delete(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()


def close_up(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.chmod(rng.choice([0o000, 0o200, 0o400]))


def close_folder(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.parent.chmod(rng.choice([0o000, 0o400, 0o500]))


def put_folder(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()
    path.mkdir()


def put_pipe(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.unlink()
    path.symlink_to(rng.choice(["nowhere", path.name, "/dev/zero"]))


def delete_folder(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    shutil.rmtree(path.parent)


BREAKS: tuple[Break, ...] = (
    *(truncate, zero, replace_value, change_types, change_types, add_rubbish, exchange, exchange, overlay, delete),
    *(close_up, close_folder, put_folder, put_pipe, put_link, delete_folder),
)
REACHES_OTHERS = {exchange}


def breakable(root: Path) -> list[Path]:
    """Name the small files and journals that jobs and submissions left; each may also be one that is not there yet."""
    found = [path for path in root.glob("runs/*/*") if is_file(path)]
    found += [path for path in root.glob("jobs/**/*") if path.suffix == ".json" and is_file(path)]
    return sorted(found)


def is_file(path: Path) -> bool:
    """Tell what Path.is_file tells; in a closed folder there is none."""
    with suppress(PermissionError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    with suppress(PermissionError):
        return path.is_dir()
    return False


NOT_THERE_YET = ("again.json", "stop", "DONE.json", "journal.a2.jsonl", "ckpt")


def corrupt(root: Path, rng: random.Random) -> tuple[list[str], set[Path]]:
    """Break one to four files; return what was done, and the files that may be other than before."""
    said, touched = [], set[Path]()
    for _ in range(rng.randint(1, 4)):
        files = breakable(root)
        if rng.random() < 0.1:
            folder = rng.choice(sorted({path.parent for path in files if path.parent.parent.name == "runs"}))
            path, way = folder / rng.choice(NOT_THERE_YET), replace_value
            if os.path.lexists(path):
                continue
        else:
            path, way = rng.choice(files), rng.choice(BREAKS)
        try:
            way(path, rng, files)
        except OSError:  # closed by the break before
            continue
        alike = {other for other in files if other.name == path.name} if way in REACHES_OTHERS else set()
        touched |= {path, *alike}
        said.append(f"{way.__name__} {path.relative_to(root)}")
    return said, touched


def open_up(path: Path) -> None:
    """Give back the permissions that were taken."""
    for folder in [path, *path.rglob("*")] if path.is_dir() else []:
        if not folder.is_symlink():
            folder.chmod(0o700 if folder.is_dir() else 0o600)
            if folder.is_dir() and folder is not path:
                open_up(folder)


# --- what must hold --------------------------------------------------------------------------------------------------


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


@dataclass
class Tally:
    """What a series of rounds came to."""

    rounds: int = 0
    verbs: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)
    slowest_s: float = 0.0


def play(scene: Scene, seed: int, tally: Tally) -> None:
    """One round: restore, break, ask, compare."""
    scene.restore()
    rng = random.Random(seed)
    before = results(str(scene.root / "runs.sqlite"))
    said, touched = corrupt(scene.root, rng)
    faults: list[str] = []
    with chdir(scene.root):
        faults += check_reading(scene, before, touched, rng, tally)
        faults += check_rebuild(scene, touched, tally)
        faults += check_acting(scene, before, touched, rng, tally)
    tally.rounds += 1
    tally.breaks.update(one.split()[0] for one in said)
    if faults:
        tally.faults.append({"round": seed, "study": scene.root.name, "broke": said, "faults": faults})
        print(json.dumps(tally.faults[-1]), file=sys.stderr, flush=True)


def answers(verb: Sequence[str], tally: Tally, allowed: Sequence[int] = (0,)) -> Iterator[str]:
    """Ask a verb; yield what is wrong with its answer."""
    said = ask(*verb)
    tally.verbs[verb[0]] += 1
    tally.codes[said.code] += 1
    tally.slowest_s = max(tally.slowest_s, said.wall_s)
    if "Traceback" in said.text or said.code not in allowed:
        yield f"{said.verb}: exit {said.code}: {said.text[-1500:]}"
    if any(not (c.isprintable() or c in "\n\t\r") for c in said.text):
        yield f"{said.verb}: a control character"


READING = (
    *(("status",), ("status", "--runs"), ("status", "experiments.yaml", "--runs", "--json"), ("sync",), ("sync",)),
    *(("runs",), ("runs", "--json"), ("db", "check"), ("db", "stats"), ("query", "select * from ingest_errors")),
    *(("submit", "--dry-run", "--payload", "debug"), ("plan",), ("export", "all.csv")),
)


def check_reading(
    scene: Scene, before: dict[str, tuple[Any, ...]], touched: set[Path], rng: random.Random, tally: Tally
) -> Iterator[str]:
    for verb in READING:
        yield from answers(verb, tally)
    one, other = rng.sample(sorted(before), 2)
    for verb in (("show", one), ("show", other, "--json"), ("curve", one), ("diff", one, other)):
        yield from answers(verb, tally, (0, 1))  # 1: no such metric where no journal can be read
    yield from answers(("logs", one), tally, (0, 1))
    yield from changed(scene, before, touched)


def changed(scene: Scene, before: dict[str, tuple[Any, ...]], touched: set[Path]) -> Iterator[str]:
    """Yield the sound runs that are not what they were."""
    now = results(str(scene.root / "runs.sqlite"))
    broken = {path.relative_to(scene.root).parts[1] for path in touched if path.is_relative_to(scene.root / "runs")}
    jobs_are_sound = not any(path.is_relative_to(scene.root / "jobs") for path in touched)
    for run_id in before.keys() - broken:
        if now[run_id] != before[run_id] and (jobs_are_sound or run_id not in scene.running):
            yield f"{run_id}: was {before[run_id]}, is {now[run_id]}"


def check_rebuild(scene: Scene, touched: set[Path], tally: Tally) -> Iterator[str]:
    """Compare a rebuilt database, one that is filled for the first time, and one that is read once more.

    A run is over for a database that saw its DONE.json, whatever becomes of the file; one that did not cannot know it.
    """
    yield from answers(("db", "rebuild"), tally)
    yield from answers(("status",), tally)
    fresh = Study(scene.root, str(scene.root / "planned.sqlite"))
    refresh(fresh)
    kept, filled = scene.root / "runs.sqlite", scene.root / "planned.sqlite"
    found = [(content_hash(open_database(path)), of_files(results(str(path)))) for path in (kept, filled)]
    if found[0][0] != found[1][0]:
        yield "db rebuild and a first sync hold other things"
    gone = {path.parent.name for path in touched if path.name == "DONE.json" or not is_folder(path.parent)}
    differ = [row for row in sorted(set(found[0][1]) ^ set(found[1][1]), key=str) if row[0] not in gone]
    if differ:
        yield f"db rebuild and a first sync differ: {differ}"
    again = refresh(fresh)
    if (content_hash(open_database(filled)), of_files(results(str(filled)))) != found[1]:
        yield f"a second sync changed something: {again}"


def of_files(found: dict[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return results by run; of a run without a result only that, for whether it was claimed no file says."""
    return [(run_id, state if loss is not None else "", loss) for run_id, (state, loss) in sorted(found.items())]


def check_acting(
    scene: Scene, before: dict[str, tuple[Any, ...]], touched: set[Path], rng: random.Random, tally: Tally
) -> Iterator[str]:
    """Ask the verbs that change something; no sound run that is over, or that a live job has, is started again."""
    broken = {path.relative_to(scene.root).parts[1] for path in touched if path.is_relative_to(scene.root / "runs")}
    jobs = [path for path in touched if path.is_relative_to(scene.root / "jobs")]
    sound = {run_id for run_id in before.keys() - broken if not (jobs and run_id in scene.running)}
    attempts = {run_id: n_attempts(scene.root, run_id) for run_id in sound}
    one = rng.choice(sorted(before))
    for verb in (("retry", one), ("cancel", one), ("resume", one), ("hold", one), ("release", one)):
        yield from answers(verb, tally, (0, 1))
    yield from answers(("submit", "--executor", "debug", "--payload", "debug"), tally, (0, 1, 3))
    for run_id, n in attempts.items():
        if run_id != one and n_attempts(scene.root, run_id) != n:
            yield f"{run_id}: started again"
    yield from answers(("cancel", "experiments.yaml"), tally, (0, 1))
    yield from answers(("status",), tally)
    done = {run_id: at for run_id, at in before.items() if at[0] == "completed" and run_id in sound}
    now = results(str(scene.root / "runs.sqlite"))
    yield from (f"{run_id}: was {at}, is {now[run_id]}" for run_id, at in done.items() if now[run_id] != at)


def n_attempts(root: Path, run_id: str) -> int:
    return len(list((root / "runs" / run_id).glob("journal.a*.jsonl")))


def fuzz(folder: Path, seeds: Sequence[int]) -> Tally:
    """Play the rounds of `seeds` on studies made in `folder`."""
    tally = Tally()
    finished = make_finished(folder)
    running = make_running(finished, folder)
    try:
        for seed in seeds:
            play(running if seed % 2 else finished, seed, tally)
            if tally.rounds % SAID_EVERY == 0:
                print(
                    f"{tally.rounds} of {len(seeds)} rounds, {len(tally.faults)} with faults",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        running.end()
        open_up(folder)
    return tally


def permissions_bind(folder: Path) -> bool:
    """Tell whether a closed file is closed to this process; to root it is not."""
    path = folder / "closed"
    path.touch(0o000)
    try:
        path.read_bytes()
    except PermissionError:
        return True
    finally:
        path.unlink()
    return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--only", type=int, help="play one round")
    given = parser.parse_args()
    os.environ.pop("SCALEWRIGHT_DB", None)
    began = time.perf_counter()
    seeds = [given.only] if given.only is not None else range(given.seed, given.seed + given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        bound = permissions_bind(Path(folder))
        tally = fuzz(Path(folder).resolve(), seeds)
    numbers = {"rounds": tally.rounds, "wall_s": round(time.perf_counter() - began, 1), "permissions_bind": bound}
    asked = {"verbs": dict(tally.verbs), "codes": dict(tally.codes), "breaks": dict(tally.breaks)}
    print(json.dumps(numbers | asked | {"slowest_s": round(tally.slowest_s, 2), "faults": tally.faults}, indent=1))
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
