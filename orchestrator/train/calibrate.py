"""How fast this machine trains a run: a few of its steps, timed, on tokens drawn at random. Writes nothing."""

import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.runs.training_spec import read_settings, read_training
from scalewright.orchestrator.train import process
from scalewright.orchestrator.train.assemble import PRECISIONS, build_model, recipe_of
from scalewright.orchestrator.train.assignment import Assignment
from scalewright.orchestrator.train.divergence import Monitor
from scalewright.orchestrator.train.progress import Progress
from scalewright.orchestrator.train.ranks import ALONE
from scalewright.orchestrator.train.system import System

WARM_UP_STEPS = 2
LEAST_STEPS, MOST_STEPS = 3, 50


def has_gpu() -> bool:
    """Tell whether runs of this machine train on a GPU."""
    return torch.cuda.is_available()


def tokens_per_s(spec: RunSpec, settings: dict[str, Any], *, seconds: float) -> float:
    """Return the tokens a second of a run's own steps on this machine: the median step of about so many seconds."""
    training = read_training(spec.training, "training")
    job = Assignment(Path(), spec.run_id, spec, training, read_settings(settings, "settings"), 0.0)
    process.set_up(job.settings.threads)
    device = "cuda" if has_gpu() else "cpu"
    progress = Progress(Monitor.of(training.divergence, spec.n_steps), spec.batch_tokens, spec.n_steps)
    system = System(build_model(job, None).to(device), recipe_of(job, ALONE), progress, lambda: False)
    system.configure_optimizers()
    shape = (training.batch_sequences, training.context + 1)
    batch = torch.randint(spec.data["vocab_size"], shape, generator=torch.Generator().manual_seed(0)).to(device)
    mixed = PRECISIONS[training.precision] == "bf16-mixed"
    times: list[float] = []
    while len(times) < WARM_UP_STEPS + LEAST_STEPS or (
        sum(times[WARM_UP_STEPS:]) < seconds and len(times) < MOST_STEPS
    ):
        began = time.perf_counter()
        progress.step = 0  # the schedule is that of the first steps, however short the run
        with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
            system.step_once(batch)
        system.recent.pop()[0].item()  # waits for the device
        times.append(time.perf_counter() - began)
    return spec.batch_tokens / median(times[WARM_UP_STEPS:])
