"""`train`: a run directory in, an outcome out. Knows the files of the run directory and the data folder, no other."""

import logging
import math
import os
import platform
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment

from models.spec import ModelSpec
from models.transformer import Transformer
from orchestrator.data import manifest as manifests
from orchestrator.errors import UserError
from orchestrator.executors import signals
from orchestrator.executors.ownership import Ownership, new_token, take_ownership
from orchestrator.executors.place import job_place
from orchestrator.executors.records import read_json
from orchestrator.journal import Journal
from orchestrator.train import checkpoint
from orchestrator.train.assignment import Assignment, read_assignment
from orchestrator.train.callbacks import Diagnostician, Ending, Evaluator, Keeper, Recorder, Validation
from orchestrator.train.data import Chunks, chunk_lengths, longest_chunk
from orchestrator.train.divergence import Monitor
from orchestrator.train.progress import Clock, Progress
from orchestrator.train.sampler import open_train, read_validation
from orchestrator.train.schedules import read_schedule
from orchestrator.train.system import Recipe, System

# bf16-pure is no precision of Lightning's: its bf16-true would also round the tables that are no parameters
PRECISIONS = {"fp32": "32-true", "bf16-mixed": "bf16-mixed", "bf16-pure": "32-true"}
STOP_FILE_EVERY_S = 0.5
LASTING = ("completed", "diverged")  # outcomes after which a run is never started again


def train(run_dir: str | Path, *, code: dict[str, Any] | None = None) -> str:
    """Train the run in `run_dir` from its newest checkpoint on; return its outcome.

    Outcomes: completed and diverged (DONE.json is written), stopped and preempted (a checkpoint is), fenced (another
    attempt owns the run). A run that has its DONE.json is left alone. An error is written to the journal as `failed`
    and raised again. code: commit, dirty and snapshot, for the journal.
    """
    done = read_json(Path(run_dir) / "DONE.json")
    if done is not None:
        return str(done["outcome"])
    job = read_assignment(Path(run_dir))
    clock = Clock()
    torch.set_num_threads(job.settings.threads)
    monitor = Monitor.of(job.training["divergence"], job.spec.n_steps)
    progress = Progress(monitor, job.spec.batch_tokens, job.spec.n_steps)
    saved = checkpoint.load_latest(job.run_dir, job.run_id)
    if saved:
        progress.restore(saved["step"], saved["progress"])
    token = new_token()
    with Journal.open(job.run_dir, start_record(job, progress, token, code)) as journal:
        owner = take_ownership(job.run_dir, journal.attempt, token)
        keeper = Keeper(job, owner, journal, clock, wall_s_before=saved["progress"]["wall_s"] if saved else 0.0)
        try:
            fit(job, progress, saved, journal, clock, keeper)
        except (Exception, SystemExit) as error:
            end_failed(journal, progress, clock, error)
            raise
        return conclude(progress, owner, journal, keeper)


def fit(
    job: Assignment, progress: Progress, saved: dict[str, Any] | None, journal: Journal, clock: Clock, keeper: Keeper
) -> None:
    """Build everything and train until the last step or until something ends the attempt."""
    manifest = open_data(job)
    model = build_model(job, saved)
    why_stop = stop_asker(job.run_dir)
    system = System(model, recipe_of(job), progress, lambda: why_stop() is not None, saved and saved["optimizer"])
    validation = open_validation(job, manifest)
    marks = job.steps_at(job.settings.evaluate_at), job.steps_at(job.settings.diagnostics_at)
    all_marks = marks[0] | marks[1]
    callbacks = [
        Recorder(journal, clock, job.settings.log_every_steps, all_marks | {progress.n_steps}, keeper.is_due),
        Ending(why_stop),
        Evaluator(journal, clock, validation, marks[0]),
        Diagnostician(journal, clock, validation, marks[1]),
        keeper,
    ]
    trainer = make_trainer(job, callbacks)
    flops_per_step = job.flops_per_token * job.spec.batch_tokens
    longest = longest_chunk(flops_per_step, trainer.strategy.root_device.type)
    lengths = chunk_lengths(progress.step, progress.n_steps, all_marks, longest)
    training = job.training
    sampler = open_train(
        job.settings.data_dir, manifest, training["context"], training["seed"], training["batch_sequences"]
    )
    if lengths:  # none left where the attempt before ended between its last checkpoint and DONE.json
        trainer.fit(system, Chunks(sampler, progress.step, lengths, pin=trainer.strategy.root_device.type == "cuda"))


def open_data(job: Assignment) -> manifests.Manifest:
    """Read the manifest of the run's data; raises UserError when the folder holds other data than was planned."""
    manifest = manifests.read(job.settings.data_dir)
    if manifest.identity() != job.spec.data:
        raise UserError(
            f"{job.settings.data_dir}: holds data {manifest.fingerprint} (tokenizer {manifest.tokenizer_hash}), run "
            f"{job.run_id} was planned with {job.spec.data['fingerprint']} (tokenizer {job.spec.data['tokenizer']})"
        )
    return manifest


def open_validation(job: Assignment, manifest: manifests.Manifest) -> Validation:
    training = job.training
    n_windows = training["evaluation"]["n_windows"]
    windows = read_validation(job.settings.data_dir, manifest, training["context"], n_windows)
    at_once = job.settings.micro_batch_sequences or training["batch_sequences"]
    return Validation(torch.from_numpy(windows), manifest.bytes_per_token, at_once)


def build_model(job: Assignment, saved: dict[str, Any] | None) -> Transformer:
    """Build the model with the weights of its seed or of a checkpoint, all in bf16 when that is the precision."""
    model = Transformer(ModelSpec.from_dict(job.spec.model), seed=job.training["seed"])
    if job.training["precision"] == "bf16-pure":
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    if saved:
        model.load_state_dict(saved["model"])
    return model


def recipe_of(job: Assignment) -> Recipe:
    training, micro = job.training, job.settings.micro_batch_sequences
    batch = training["batch_sequences"]
    if micro and batch % micro:
        raise UserError(f"micro_batch_sequences {micro}: expected a divisor of the batch of {batch} sequences")
    schedule = read_schedule(training["schedule"], training["n_tokens"])
    return Recipe(training["optimizer"], schedule, batch // micro if micro else 1, job.settings.compile)


def stop_asker(run_dir: Path) -> Callable[[], str | None]:
    """Return what says whether the run is to stop, and why: a signal, or the stop file, looked for now and then."""
    looked = -math.inf
    stop_file = run_dir / "stop"
    found = False

    def why_stop() -> str | None:
        nonlocal looked, found
        if (now := time.monotonic()) - looked > STOP_FILE_EVERY_S:
            looked, found = now, stop_file.exists()
        return signals.requested() or ("stopped" if found else None)

    return why_stop


def make_trainer(job: Assignment, callbacks: list[Callback]) -> Trainer:
    """Make a Trainer that does nothing but run the loop: no logger, bar, checkpoint or signal handler of its own."""
    quieten_lightning()
    return Trainer(
        accelerator="auto",
        devices=job.settings.devices,
        precision=PRECISIONS[job.training["precision"]],
        max_epochs=1,
        callbacks=[*callbacks, KeepSignals()],
        plugins=[LightningEnvironment()],
        default_root_dir=job.run_dir,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


class KeepSignals(Callback):
    """Gives SIGTERM back to whoever had it: Lightning's own handler ends a run in a way that looks like success."""

    def setup(self, trainer: Trainer, system: System, stage: str) -> None:
        self.before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Trainer, system: System) -> None:
        signal.signal(signal.SIGTERM, self.before)


def quieten_lightning() -> None:
    """Keep Lightning's advice out of the logs; its errors stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


def start_record(job: Assignment, progress: Progress, token: str, code: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "run_id": job.run_id,
        "token": token,
        "job": job_place(),
        "resume_step": progress.step,
        "resume_tokens": progress.tokens,
        "code": {"commit": None, "dirty": None, "snapshot": None} | (code or {}),
        "environment": environment(),
    }


def environment() -> dict[str, Any]:
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


def end_failed(journal: Journal, progress: Progress, clock: Clock, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    times = {"wall_s": clock.wall_s(), "train_wall_s": progress.train_wall_s}
    journal.end("failed", progress.step, progress.tokens, reason=reason, error=text, **times)


def conclude(progress: Progress, owner: Ownership, journal: Journal, keeper: Keeper) -> str:
    """Write the end record, and DONE.json where the outcome is for good; return the outcome."""
    progress.finish("completed", "")
    times = {"wall_s": keeper.wall_s(), "train_wall_s": progress.train_wall_s}
    if progress.outcome in LASTING and not owner.holds():
        progress.outcome, progress.reason = "fenced", "another attempt has taken over this run"
    journal.end(progress.outcome, progress.step, progress.tokens, reason=progress.reason, **times)
    if progress.outcome in LASTING:
        owner.finish(done_record(journal.attempt, progress, times))
    return progress.outcome


def done_record(attempt: int, progress: Progress, times: dict[str, float]) -> dict[str, Any]:
    return {
        "outcome": progress.outcome,
        "attempt": attempt,
        "step": progress.step,
        "n_tokens": progress.tokens,
        "loss_nats": progress.final.get("loss_nats"),
        "bits_per_byte": progress.final.get("bits_per_byte"),
        "tokens_per_s": progress.tokens / progress.train_wall_s if progress.train_wall_s else None,
        "time": time.time(),
        "reason": progress.reason,
        **times,
    }
