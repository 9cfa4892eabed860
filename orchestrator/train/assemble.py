"""From what spec.json asks to the parts that train it: data, model, recipe, system and trainer."""

import logging
import signal
import threading
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment

from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer
from scalewright.orchestrator.data import manifest as manifests
from scalewright.orchestrator.data.manifest import Manifest
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.train.assignment import Assignment
from scalewright.orchestrator.train.data import Chunks, chunk_lengths, longest_chunk
from scalewright.orchestrator.train.evaluate import Validation
from scalewright.orchestrator.train.ranks import Ranks
from scalewright.orchestrator.train.sampler import open_train, read_corpus, read_validation
from scalewright.orchestrator.train.schedules import read_schedule
from scalewright.orchestrator.train.system import Recipe, System

EVALUATION_LOGITS = 2**20  # at once, 4 MiB: small training batches need not make evaluations slow
# bf16-pure is no precision of Lightning's: its bf16-true would also round the tables that are no parameters
PRECISIONS = {"fp32": "32-true", "bf16-mixed": "bf16-mixed", "bf16-pure": "32-true"}


def open_data(job: Assignment) -> Manifest:
    """Read the manifest of the run's data; raises UserError when the folder holds other data than was planned."""
    manifest = manifests.read(job.settings.data_dir)
    if manifest.identity() != job.spec.data:
        raise UserError(
            f"{job.settings.data_dir}: holds data {manifest.fingerprint} (tokenizer {manifest.tokenizer_hash}), run "
            f"{job.run_id} was planned with {job.spec.data['fingerprint']} (tokenizer {job.spec.data['tokenizer']})"
        )
    return manifest


def open_validation(job: Assignment, manifest: Manifest) -> Validation:
    """Read the windows that are evaluated, and how many fit in memory at once by their logits."""
    training = job.training
    n_windows = training.evaluation.n_windows
    windows = read_validation(job.settings.data_dir, manifest, training.context, n_windows)
    return Validation(torch.from_numpy(windows), manifest.bytes_per_token, sequences_at_once(job, manifest))


def open_corpora(job: Assignment) -> dict[str, Validation]:
    """Read the windows of other texts, by name; raises UserError for shards that another tokenizer made."""
    found = {}
    for name, folder in job.settings.corpora.items():
        manifest = manifests.read(folder)
        if manifest.tokenizer_hash != job.spec.data["tokenizer"]:
            raise UserError(f"{folder}: corpus {name} is in tokens of another tokenizer than the training data")
        windows = read_corpus(folder, manifest, job.training.context, job.training.evaluation.n_windows)
        n_bytes = manifest.train.n_bytes + manifest.validation.n_bytes
        bytes_per_token = n_bytes / (manifest.train.n_tokens + manifest.validation.n_tokens)
        found[name] = Validation(torch.from_numpy(windows), bytes_per_token, sequences_at_once(job, manifest))
    return found


def sequences_at_once(job: Assignment, manifest: Manifest) -> int:
    """Return how many windows an evaluation takes through the model together."""
    in_training = job.settings.micro_batch_sequences or job.training.batch_sequences
    return max(in_training, EVALUATION_LOGITS // (job.training.context * manifest.vocab_size))


def build_model(job: Assignment, saved: dict[str, Any] | None) -> Transformer:
    """Build the model with the weights of its seed or of a checkpoint, all in bf16 when that is the precision."""
    model = Transformer(ModelSpec.from_dict(job.spec.model), seed=job.training.seed)
    if job.training.precision == "bf16-pure":
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    if saved:
        model.load_state_dict(saved["model"])
    return model


def recipe_of(job: Assignment, ranks: Ranks) -> Recipe:
    """Work out how a rank goes through its share of a batch; raises UserError where that is no whole number."""
    training, micro = job.training, job.settings.micro_batch_sequences
    ranks.check_batch(training.batch_sequences)
    share = training.batch_sequences // ranks.size
    part = min(micro or share, share)
    if share % part:
        raise UserError(f"micro_batch_sequences {micro}: expected a divisor of the {share} sequences a device takes")
    schedule = read_schedule(training.schedule, training.n_tokens)
    return Recipe(training.optimizer, schedule, share // part, job.settings.compile)


def run_trainer(job: Assignment, manifest: Manifest, system: System, callbacks: list[Callback]) -> None:
    """Train from where the system's progress stands to the last step, or until a callback ends it."""
    trainer = make_trainer(job, system.ranks, callbacks)
    device, progress, training = trainer.strategy.root_device.type, system.progress, job.training
    longest = longest_chunk(job.flops_per_token * progress.batch_tokens, device)
    lengths = chunk_lengths(progress.step, progress.n_steps, job.marks, longest)
    order = (training.context, training.seed, training.batch_sequences)
    sampler = open_train(job.settings.data_dir, manifest, *order)
    if lengths:  # none where the attempt before ended between its last checkpoint and DONE.json
        trainer.fit(system, Chunks(sampler, progress.step, lengths, pin=device == "cuda"))


def make_trainer(job: Assignment, ranks: Ranks, callbacks: list[Callback]) -> Trainer:
    """Make a Trainer that does nothing but run the loop: no logger, bar, checkpoint or signal handler of its own.

    It knows of one device: what several ranks share goes through `ranks`.
    """
    quieten_lightning()
    if job.settings.compile:
        torch._dynamo.reset()  # each model is another graph, and their number in a process is limited
    return Trainer(
        accelerator="auto",
        devices=[ranks.rank] if torch.cuda.is_available() else 1,
        precision=PRECISIONS[job.training.precision],
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
        """Note the handler before Lightning sets its own."""
        self.before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Trainer, system: System) -> None:
        """Put the handler back; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.before)


def quieten_lightning() -> None:
    """Keep Lightning's advice out of the logs; its errors stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")
