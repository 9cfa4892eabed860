"""`train`: a run directory in, an outcome out. Knows the files of the run directory and the data folder, no other."""

import math
import os
import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lightning
import torch

from scalewright.orchestrator.files import Broken, UnusableFile, read
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.journal import LASTING, Journal
from scalewright.orchestrator.runs.ownership import Ownership, new_token, take_ownership
from scalewright.orchestrator.runs.records import Done, Outcome
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.talk import say
from scalewright.orchestrator.train import checkpoint, process, trunk
from scalewright.orchestrator.train.assemble import (
    build_model,
    open_corpora,
    open_data,
    open_validation,
    recipe_of,
    run_trainer,
)
from scalewright.orchestrator.train.assignment import Assignment, read_assignment
from scalewright.orchestrator.train.callbacks import (
    Diagnostician,
    Ending,
    Evaluator,
    Follower,
    Keeper,
    Recorder,
    Warmer,
)
from scalewright.orchestrator.train.divergence import Monitor
from scalewright.orchestrator.train.mirrors import mirrored
from scalewright.orchestrator.train.progress import Clock, Progress
from scalewright.orchestrator.train.ranks import ALONE, Ranks
from scalewright.orchestrator.train.system import System

STOP_FILE_EVERY_S = 0.5


def train(
    run_dir: str | Path, *, code: dict[str, Any] | None = None, threads: int | None = None, ranks: Ranks = ALONE
) -> str:
    """Train the run in `run_dir` from its newest checkpoint on; return its outcome.

    Outcomes: completed and diverged (DONE.json is written), stopped and preempted (a checkpoint is), fenced (another
    attempt owns the run). A run that has its DONE.json is left alone. An error is written to the journal as `failed`
    and raised again. code: commit, dirty and snapshot, for the journal. threads: of each process, instead of the
    settings'. ranks: the processes that train it together; this one is the first.
    """
    done = read(Path(run_dir) / "DONE.json", Done, run_id=Path(run_dir).name)
    if isinstance(done, Broken):
        raise UnusableFile(f"{done}; remove it and the run goes on from its checkpoint")
    if done is not None:
        return done.outcome
    clock = Clock()
    try:
        job = read_assignment(Path(run_dir))
        process.set_up(threads or job.settings.threads)
        trunk.adopt(job)
        saved = checkpoint.load_latest(job.run_dir, job.run_id)
        progress = _progress_from(job, saved)
    except Exception as error:
        say_failed_at_once(Path(run_dir), code, error)
        raise
    token = new_token()
    start = _start_record(job, progress, token, code, ranks)
    with Journal.open(job.run_dir, start) as own, mirrored(own, mirrors_of(job), job.spec.to_dict()) as journal:
        owner = take_ownership(job.run_dir, journal.attempt, token)
        keeper = Keeper(job, owner, journal, clock, wall_s_before=saved["progress"]["wall_s"] if saved else 0.0)
        try:
            fit(job, progress, saved, keeper, ranks)
        except (Exception, SystemExit) as error:
            _end_failed(journal, progress, clock, error)
            raise
        return conclude(progress, owner, journal, keeper)


def mirrors_of(job: Assignment) -> list[dict[str, Any]]:
    """Return the mirrors asked for; a name alone stands for a mirror without options."""
    return [{"name": mirror} if isinstance(mirror, str) else mirror for mirror in job.settings.mirrors]


def fit(job: Assignment, progress: Progress, saved: dict[str, Any] | None, keeper: Keeper, ranks: Ranks) -> None:
    """Build everything and train until the last step or until something ends the attempt."""
    manifest, recipe = open_data(job), recipe_of(job, ranks)
    validation, model = open_validation(job, manifest), build_model(job, saved)
    journal, clock, settings = keeper.journal, keeper.clock, job.settings
    why_stop = stop_asker(job.run_dir)
    evaluate_at, diagnostics_at = job.steps_at(settings.evaluate_at), job.steps_at(settings.diagnostics_at)
    marks = job.marks | {progress.n_steps}
    context = job.training.context
    epoch_tokens = manifest.train.n_windows(context) * context
    callbacks = [
        Warmer(),
        Ending(why_stop),
        Recorder(journal, clock, settings.log_every_steps, marks, keeper.is_due, epoch_tokens=epoch_tokens),
        Evaluator(journal, clock, validation, evaluate_at, open_corpora(job)),
        Diagnostician(journal, clock, validation, diagnostics_at),
        keeper,
    ]
    state = saved["optimizer"] if saved else None
    system = System(model, recipe, progress, lambda: why_stop() is not None, optimizer_state=state, ranks=ranks)
    ranks.send((str(job.run_dir), progress.step))
    say(f"{job.run_dir.name}: trains from step {progress.step} of {progress.n_steps}")
    run_trainer(job, manifest, system, callbacks)


def train_beside(run_dir: Path, step: int, ranks: Ranks) -> None:
    """Train a run from its checkpoint of `step` as one of the ranks besides the first; write nothing."""
    job = read_assignment(run_dir)
    process.set_up(job.settings.threads)
    saved = checkpoint.load(checkpoint.path_of(run_dir, step)) if step else None
    progress = _progress_from(job, saved)
    model, state = build_model(job, saved), saved["optimizer"] if saved else None
    system = System(model, recipe_of(job, ranks), progress, lambda: False, optimizer_state=state, ranks=ranks)
    run_trainer(job, open_data(job), system, [Warmer(), Follower()])


def _progress_from(job: Assignment, saved: dict[str, Any] | None) -> Progress:
    monitor = Monitor.of(job.training.divergence, job.spec.n_steps)
    progress = Progress(monitor, job.spec.batch_tokens, job.spec.n_steps)
    if saved:
        progress.restore(saved["step"], saved["progress"])
    return progress


def stop_asker(run_dir: Path) -> Callable[[], str | None]:
    """Return what says whether the run is to stop, and why: a signal, or the stop file, looked for now and then.

    Once yes, always yes: a chunk of steps that was cut short must be the last.
    """
    looked = -math.inf
    stop_file = run_dir / "stop"
    found = False

    def why_stop() -> str | None:
        nonlocal looked, found
        if (now := time.monotonic()) - looked > STOP_FILE_EVERY_S:
            looked, found = now, found or stop_file.exists()
        return signals.requested() or ("stopped" if found else None)

    return why_stop


def say_failed_at_once(run_dir: Path, code: dict[str, Any] | None, error: Exception) -> None:
    """Write an attempt that failed before it knew where to begin: it counts, and it rewinds nothing."""
    last = read_run(run_dir).newest
    step, tokens = (last.step, last.tokens) if last else (0, 0)
    start = {"run_id": run_dir.name, "token": new_token(), "job": job_place(), "resume_step": step}
    start |= {"resume_tokens": tokens, "code": code or {}, "environment": _environment()}
    with Journal.open(run_dir, start) as journal:
        journal.end("failed", step, tokens, reason=_reason_of(error), error="".join(traceback.format_exception(error)))


def _reason_of(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _start_record(
    job: Assignment, progress: Progress, token: str, code: dict[str, Any] | None, ranks: Ranks
) -> dict[str, Any]:
    return {
        "run_id": job.run_id,
        "token": token,
        "job": job_place(),
        "resume_step": progress.step,
        "resume_tokens": progress.tokens,
        "code": {"commit": None, "dirty": None, "snapshot": None} | (code or {}),
        "environment": _environment() | {"devices": ranks.size},
    }


def _environment() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "device": device,
        "threads": torch.get_num_threads(),
        "cpu": platform.processor() or platform.machine(),
        "n_cpus": os.cpu_count(),
    }


def _end_failed(journal: Journal, progress: Progress, clock: Clock, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    journal.end(
        "failed",
        progress.step,
        progress.tokens,
        reason=_reason_of(error),
        error=text,
        wall_s=clock.wall_s(),
        train_wall_s=progress.train_wall_s,
    )


def conclude(progress: Progress, owner: Ownership, journal: Journal, keeper: Keeper) -> str:
    """Write the end record, and DONE.json where the outcome is for good; return the outcome."""
    progress.finish("completed", "")
    assert progress.outcome is not None
    times = {"wall_s": keeper.wall_s(), "train_wall_s": progress.train_wall_s}
    if progress.outcome in LASTING and not owner.holds():
        progress.outcome, progress.reason = "fenced", "another attempt has taken over this run"
    journal.end(
        progress.outcome,
        progress.step,
        progress.tokens,
        reason=progress.reason,
        wall_s=times["wall_s"],
        train_wall_s=times["train_wall_s"],
    )
    if progress.outcome in LASTING:
        owner.finish(_done_record(owner.run_dir.name, journal.attempt, progress, times))
    why = f" ({progress.reason})" if progress.reason else ""
    say(f"{owner.run_dir.name}: {progress.outcome} at step {progress.step} of {progress.n_steps}{why}")
    return progress.outcome


def _done_record(run_id: str, attempt: int, progress: Progress, times: dict[str, float]) -> Done:
    return Done(
        outcome=cast(Outcome, progress.outcome),
        attempt=attempt,
        step=progress.step,
        n_tokens=progress.tokens,
        loss_nats=progress.final.get("loss_nats"),
        bits_per_byte=progress.final.get("bits_per_byte"),
        tokens_per_s=progress.tokens / progress.train_wall_s if progress.train_wall_s else None,
        time=time.time(),
        reason=progress.reason,
        run_id=run_id,
        **times,
    )
