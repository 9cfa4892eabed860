"""One round: break some files of a study, ask every verb, and compare with what must hold."""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.breaks import corrupt, is_folder, open_up
from fuzz.studies import Scene, ask, make_finished, make_running, results
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.jobs.observe import refresh
from scalewright.orchestrator.study import Study

SAID_EVERY = 50


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
        faults += check_rebuild(scene, before, touched, tally)
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


Result = tuple[str, Any]  # state and loss


def check_rebuild(scene: Scene, before: dict[str, tuple[Any, ...]], touched: set[Path], tally: Tally) -> Iterator[str]:
    """Compare a rebuilt database, one that is filled for the first time, and one that is read once more.

    Where a run's DONE.json was touched, the rebuilt one may also know what it was: a run stays over for a database that
    saw the file, and one that did not cannot know it.
    """
    yield from answers(("db", "rebuild"), tally)
    yield from answers(("status",), tally)
    fresh = Study(scene.root, str(scene.root / "planned.sqlite"))
    refresh(fresh)
    (rebuilt, in_rebuilt), (filled, in_filled) = contents(scene.root / "runs.sqlite"), contents(Path(fresh.database))
    if rebuilt != filled:
        yield "db rebuild and a first sync hold other things"
    touched_ends = {path.parent.name for path in touched if path.name == "DONE.json" or not is_folder(path.parent)}
    for run_id, result in in_rebuilt.items():
        known = [of_files(before[run_id])] if run_id in touched_ends else []
        if result not in [in_filled[run_id], *known]:
            yield f"{run_id}: {result} after db rebuild, {in_filled[run_id]} after a first sync, was {before[run_id]}"
    again = refresh(fresh)
    if contents(Path(fresh.database)) != (filled, in_filled):
        yield f"a second sync changed something: {again}"


def contents(database: Path) -> tuple[str, dict[str, Result]]:
    """Return the hash of what was measured, and what is known of each run's end."""
    found = results(str(database))
    opened = open_database(database)
    try:
        return content_hash(opened), {run_id: of_files(row) for run_id, row in sorted(found.items())}
    finally:
        opened.close()


def of_files(result: tuple[Any, ...]) -> Result:
    """Return state and loss of a run; of one without a result only that, for whether it was claimed no file says."""
    state, loss = result
    return (state if loss is not None else "", loss)


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
