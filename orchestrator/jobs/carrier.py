"""What submitit carries: a path. In the job it checks the code, trains the pack, and decides what follows.

Knows pack.json, the run directories and submitit's job environment; no database. What follows: nothing (all runs
have an outcome), a requeue (asked to end, or a retry within the budget) or the end of the batch (the same error in
too many runs).
"""

import faulthandler
import importlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.jobs.lanes import run_lanes
from scalewright.orchestrator.jobs.records import BatchStopped, Failed, Finished, Hangs, Pack, Started, runs_in
from scalewright.orchestrator.jobs.restarts import HANG_EXIT_CODE, job_name, restarts_of_job
from scalewright.orchestrator.jobs.snapshot import check_snapshot
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Owner
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.talk import say
from scalewright.orchestrator.train.tasks import rank_of_task

PAYLOADS = {"train": "scalewright.orchestrator.jobs.job", "debug": "scalewright.orchestrator.jobs.debug_payload"}
INLINE = "SCALEWRIGHT_INLINE"
ERROR_KEY_CHARACTERS = 200
REQUEUE_WAITS_S = (1.0, 5.0, 15.0)
EARLY_TICK_S = 0.25
NOTIFY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Carrier:
    """The callable that a job unpickles: everything else is read from `job_dir/pack.json` when the job starts."""

    job_dir: str

    def __call__(self) -> dict[str, str]:
        """Run the job in the process that submitit started; return the outcome of each run."""
        return run_job(Path(self.job_dir))

    def checkpoint(self) -> Any:
        """Tell submitit what to run after a requeue: the same path; where to go on is found on disk."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run_job(job_dir: Path) -> dict[str, str]:
    """Execute a pack; return each run's outcome. May leave through SystemExit, after a requeue."""
    (job_dir / "failed.json").unlink(missing_ok=True)
    try:
        return run_checked(job_dir, Pack.read(job_dir))
    except Exception as error:
        with suppress(OSError):
            write_json(job_dir / "failed.json", Failed(f"{type(error).__name__}: {error}", time.time()))
        raise


def run_checked(job_dir: Path, pack: Pack) -> dict[str, str]:
    """Check the code, say that the job has started, run the payload and decide what follows."""
    if INLINE not in os.environ:
        check_snapshot(Path(pack.root), pack.snapshot)
    signals.install()
    run_pack = importlib.import_module(PAYLOADS[pack.payload]).run_pack
    if pack.payload == "train" and rank_of_task(pack.devices):  # a task besides the first trains along, no more
        return run_payload(run_pack, job_dir, pack, job_dir.parent)
    write_json(job_dir / "started.json", Started(Process.this(), job_place(), time.time()))

    def run_watched(folder: Path, part: Pack) -> dict[str, str]:
        start_watching(folder, part)
        return run_payload(run_pack, folder, part, job_dir.parent)

    outcomes = run_watched(job_dir, pack) if pack.lanes == 1 else run_lanes(job_dir, pack, run_watched)
    if outcomes is None:  # a lane besides the first: the first concludes for all
        return {}
    conclude(job_dir, pack, outcomes)
    return outcomes


def start_watching(job_dir: Path, pack: Pack) -> None:
    """Watch this process from threads of its own, except where a person looks at it (`--executor debug`)."""
    if INLINE not in os.environ:
        threading.Thread(target=watch_for_hang, args=(job_dir, pack), daemon=True).start()
        threading.Thread(target=leave_before_training, args=(pack,), daemon=True).start()


def run_payload(
    run_pack: Callable[..., dict[str, str]], job_dir: Path, pack: Pack, submission_dir: Path
) -> dict[str, str]:
    """Run the pack; a SystemExit from inside would look like success to submitit and SLURM, so it becomes an error."""
    try:
        return run_pack(
            job_dir,
            before_run=lambda run_dir: reason_to_skip(submission_dir, pack, run_dir),
            after_run=lambda run_dir, outcome, error: try_to_note(submission_dir, pack, run_dir, outcome, error),
        )
    except SystemExit as leaving:
        raise RuntimeError(f"the payload left through SystemExit({leaving.code})") from leaving


def reason_to_skip(submission_dir: Path, pack: Pack, run_dir: Path) -> str | None:
    """Say why a run is not to be started now, or None."""
    if (run_dir / "DONE.json").exists():
        return "it has its outcome"
    if (run_dir / "stop").exists():
        return "it was asked to stop"
    if why := read_run(run_dir).why_failed():
        return f"its retries are used up: {why}"
    stopped = usable(submission_dir / "batch_stopped.json", BatchStopped)
    return stopped.message if stopped else None


# --- errors: how often, and when to give up --------------------------------------------------------------------------


def try_to_note(submission_dir: Path, pack: Pack, run_dir: Path, outcome: str, error: str | None) -> None:
    """Count an outcome where the disk takes it; the other runs of the pack go on all the same."""
    try:
        note_outcome(submission_dir, pack, run_dir, outcome, error)
    except OSError as trouble:
        say(f"scalewright: {submission_dir}: the outcome of {run_dir.name} was not counted ({trouble.strerror})")


def note_outcome(submission_dir: Path, pack: Pack, run_dir: Path, outcome: str, error: str | None) -> None:
    """Count a run's error; stop the whole batch when as many runs as the budget says died of the same one."""
    if outcome != "failed":
        forget_errors(submission_dir, run_dir)
        return
    folder = submission_dir / "errors" / error_key(error or "unknown error")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / run_dir.name).write_text(error or "")
    n_runs = sum(1 for _ in folder.iterdir())
    if n_runs < pack.retry["same_error"] or (submission_dir / "batch_stopped.json").exists():
        return
    first_line = (error or "unknown error").strip().splitlines()[-1]
    message = f"the same error in {counted(n_runs, 'run')} stopped the batch: {first_line}"
    write_json(submission_dir / "batch_stopped.json", BatchStopped(message, n_runs, time.time()))
    notify(pack, "batch-stopped", message)


def forget_errors(submission_dir: Path, run_dir: Path) -> None:
    """A run that got over its error no longer counts against the batch."""
    for mark in (submission_dir / "errors").glob(f"*/{run_dir.name}"):
        mark.unlink(missing_ok=True)


def error_key(error: str) -> str:
    """Make errors that differ only in numbers, addresses and paths the same."""
    last = error.strip().splitlines()[-1] if error.strip() else "empty"
    plain = re.sub(r"0x[0-9a-f]+|/[^\s'\"]+|\d+", "#", last)
    return re.sub(r"[^A-Za-z#]+", "-", plain)[:ERROR_KEY_CHARACTERS].strip("-") or "error"


# --- what follows ----------------------------------------------------------------------------------------------------


def conclude(job_dir: Path, pack: Pack, outcomes: dict[str, str]) -> None:
    """Requeue the job if it was asked to end or has more to do; otherwise see whether the submission is over.

    More to do: a run to retry, or runs that had no turn, since on several devices an error ends the process. A job that
    a person cancelled is left ended.
    """
    open_runs = [run_dir for run_dir in map(Path, pack.runs) if reason_to_skip(job_dir.parent, pack, run_dir) is None]
    if signals.requested() and open_runs:
        if not restarts_of_job().taken_away():
            requeue("asked to end")
        return
    retry = [run_dir for run_dir in open_runs if outcomes.get(run_dir.name) == "failed"]
    no_turn = [run_dir for run_dir in open_runs if run_dir.name not in outcomes and "failed" in outcomes.values()]
    if retry or no_turn:
        requeue(f"{counted(len(retry), 'failed run')} to retry, {len(no_turn)} not started")
        return
    write_json(job_dir / "finished.json", Finished(outcomes, time.time(), job_place()))
    if all((other / "finished.json").exists() for other in _packs_of(job_dir.parent)):
        say_finished(job_dir.parent, pack)


def _packs_of(submission_dir: Path) -> list[Path]:
    return [path.parent for path in submission_dir.glob("*/pack.json")]


def requeue(why: str) -> None:
    """Ask for this job to start again, in a new process; leaves through SystemExit where that is possible.

    Under SLURM and submitit's local controller this is submitit's own handler for its signal: it calls
    Carrier.checkpoint, writes the pickle anew and requeues. A local job that was told to end is not started again:
    its user ended it.
    """
    handler = signals.saved(signal.SIGUSR2)
    if not callable(handler) or (restarts_of_job().ends_when_asked and signals.requested()):
        return
    say(f"scalewright: this job will be started again ({why})")
    for half_written in Path(os.environ["SUBMITIT_FOLDER"]).glob(f"{job_name()}_submitted.pkl.save_tmp"):
        half_written.unlink()  # of a life that ended in the middle of this; submitit would refuse to go on
    for wait_s in REQUEUE_WAITS_S:
        try:
            handler(signal.SIGUSR2, None)
        except subprocess.CalledProcessError:  # the controller is busy, or has requeued the job already
            time.sleep(wait_s)
    handler(signal.SIGUSR2, None)


def leave_before_training(pack: Pack) -> None:
    """End a local job that is asked to end while it still imports its libraries: there is nothing to save yet."""
    while restarts_of_job().ends_when_asked and not _has_begun(pack):
        if signals.requested():
            os._exit(0)
        time.sleep(EARLY_TICK_S)


def _has_begun(pack: Pack) -> bool:
    owners = (usable(Path(run_dir) / "owner.json", Owner) for run_dir in pack.runs)
    return any(owner is not None and owner.pid == os.getpid() for owner in owners)


def watch_for_hang(job_dir: Path, pack: Pack) -> None:
    """End a job whose runs wrote nothing for `hang_s`.

    Print where it hangs, requeue it while tokens advance, and die.
    """
    while True:
        time.sleep(min(pack.hang_s / 4, 30.0))
        last = last_sign_of_life(job_dir, pack)
        if time.time() - last > pack.hang_s:
            break
    say(f"scalewright: no sign of life for {pack.hang_s:.0f} s: this job hangs; where:")
    faulthandler.dump_traceback(all_threads=True)
    os._exit(restarts_of_job().after_hang() if hangs_seen(job_dir) <= pack.retry["errors"] else HANG_EXIT_CODE)


def hangs_seen(job_dir: Path) -> int:
    """Count this hang and say how many there were at the same place, that is, since the journals last grew in size."""
    before = usable(job_dir / "hangs.json", Hangs) or Hangs(0, [])
    pack = Pack.read(job_dir)
    size = sum(path.stat().st_size for run in pack.runs for path in (Path(run) / "ckpt").glob("*"))
    n_done = sum((Path(run) / "DONE.json").exists() for run in pack.runs)
    place = [n_done, max((path.name for run in pack.runs for path in (Path(run) / "ckpt").glob("*")), default=""), size]
    n_hangs = before.n + 1 if before.place == place else 1
    with suppress(OSError):
        write_json(job_dir / "hangs.json", Hangs(n_hangs, place))
    return n_hangs


def last_sign_of_life(job_dir: Path, pack: Pack) -> float:
    """Return when any file that a living job writes was last written (seconds since the epoch, the files' clock)."""
    newest = (job_dir / "started.json").stat().st_mtime
    for run_dir in map(Path, pack.runs):
        for path in (*run_dir.glob("journal.*"), run_dir / "DONE.json"):
            with suppress(FileNotFoundError):
                newest = max(newest, path.stat().st_mtime)
    return newest


# --- notification ----------------------------------------------------------------------------------------------------


def say_finished(submission_dir: Path, pack: Pack) -> None:
    """Run the notification command once a submission, by whichever job is the last to finish."""
    try:
        (submission_dir / "notified").touch(exist_ok=False)
    except FileExistsError:
        return
    packs = [folder.name for folder in _packs_of(submission_dir)]
    runs = [run for name in packs for run in runs_in(submission_dir.parent, submission_dir.name, name)]
    n_done = sum((run / "DONE.json").exists() for run in runs)
    notify(
        pack, "finished", f"submission {pack.submission_id}: {n_done} of {counted(len(runs), 'run')} with an outcome"
    )


def notify(pack: Pack, event: str, message: str) -> None:
    """Run the user's command with the event and the message in its environment and on its standard input."""
    if not pack.notify:
        return
    env = os.environ | {
        "SCALEWRIGHT_EVENT": event,
        "SCALEWRIGHT_MESSAGE": message,
        "SCALEWRIGHT_SUBMISSION": pack.submission_id,
    }
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", pack.notify],
            env=env,
            input=message + "\n",
            text=True,
            timeout=NOTIFY_TIMEOUT_S,
            check=False,
        )
        code = f"exit {done.returncode}"
    except subprocess.TimeoutExpired:
        code = f"no answer in {NOTIFY_TIMEOUT_S:.0f} s"
    if code != "exit 0":
        say(f"scalewright: the notification command {shlex.quote(pack.notify)} failed ({code})")
