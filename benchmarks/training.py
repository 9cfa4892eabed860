"""What a training step costs here, and what of it is ours: the system against a bare loop, step by step in turn.

Prints for each demo size and method: tokens/s, the step of a bare loop (model, fused AdamW, clipping, constraint), the
step of the system over it, and what Lightning, the journal and the data add outside the steps. One thread, fp32; all in
CPU time, which other work on the machine disturbs least. Usage: python benchmarks/training.py [N_PAIRS]
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scalewright.models.constraints import constrain
from scalewright.models.count import flops_per_token
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, parameter_roles
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.data.prepare import prepare
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.train import process
from scalewright.orchestrator.train.assemble import build_model, recipe_of
from scalewright.orchestrator.train.assignment import read_assignment
from scalewright.orchestrator.train.divergence import DEFAULT_RULE, Monitor
from scalewright.orchestrator.train.progress import Progress
from scalewright.orchestrator.train.ranks import ALONE
from scalewright.orchestrator.train.run import train
from scalewright.orchestrator.train.sampler import TrainSampler, open_train
from scalewright.orchestrator.train.system import System

SIZES = {"27k": (32, 2, 1, 96), "55k": (48, 2, 1, 128), "141k": (64, 3, 1, 160)}  # width, depth, heads, MLP: the demo's
METHODS = {"gpt+": {}, "angpt": {}, "pre-ln": {}, "pre-ln+gpas": {"method": "pre-ln", "gate": "gpas"}}
BATCH, CONTEXT = 4, 128
LR_PEAK = 0.01
WARM_UP = 10


@dataclass(frozen=True)
class Cost:
    """Seconds a step, medians: of a bare loop, of the system's step, and of what a run does around its steps."""

    bare_s: float
    system_s: float
    around_s: float

    @property
    def overhead(self) -> float:
        return (self.system_s + self.around_s) / self.bare_s - 1


def training(n_steps: int) -> dict[str, Any]:
    optimizer = {"name": "adamw", "lr_peak": LR_PEAK, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    optimizer |= {"decay": "matrices", "clip_norm": 1.0, "gate_clip_norm": 0.0}
    return {
        "n_tokens": n_steps * BATCH * CONTEXT,
        "batch_sequences": BATCH,
        "context": CONTEXT,
        "seed": 0,
        "precision": "fp32",
        "optimizer": optimizer,
        "schedule": {"name": "cosine", "warmup_tokens": 0, "final_fraction": 0.0},
        "evaluation": {"n_windows": 8},
        "divergence": DEFAULT_RULE,
    }


def write_run(folder: Path, data_dir: Path, size: str, method: str, n_steps: int) -> Path:
    made = manifest.read(data_dir)
    shape = dict(zip(("width", "depth", "heads", "mlp_width"), SIZES[size], strict=True))
    names = {"method": method} | METHODS[method]
    spec = ModelSpec(**shape, vocab_size=made.vocab_size, context=CONTEXT, **names)
    run = RunSpec(spec.to_dict(), made.identity(), training(n_steps))
    run_dir = folder / f"{size}-{method}-{n_steps}"
    run_dir.mkdir(exist_ok=True)
    record = {"format": 1, "run_id": run.run_id, "identity": run.to_dict(), "settings": {"data_dir": str(data_dir)}}
    record["planned"] = {"flops_per_token": flops_per_token(spec)}
    (run_dir / "spec.json").write_text(json.dumps(record))
    return run_dir


def bare_step(model: Transformer) -> Callable[[torch.Tensor], None]:
    """Return the step of the loop that one would write by hand, at a constant rate."""
    roles = parameter_roles(model)
    decayed = [p for name, p in model.named_parameters() if roles[name] in ("attention", "mlp")]
    rest = [p for name, p in model.named_parameters() if roles[name] not in ("attention", "mlp")]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR_PEAK, betas=(0.9, 0.95), fused=True)
    project = constrain(model)

    def step(batch: torch.Tensor) -> None:
        model.loss(batch[:, :-1], batch[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        project()
        optimizer.zero_grad()

    return step


def open_sampler(data_dir: Path) -> TrainSampler:
    return open_train(data_dir, manifest.read(data_dir), CONTEXT, 0, BATCH)


def compare_steps(run_dir: Path, data_dir: Path, n_pairs: int) -> tuple[float, float]:
    """Time the bare step and the system's in turn on the same batches; return both medians in seconds."""
    job = read_assignment(run_dir)
    progress = Progress(Monitor.of(DEFAULT_RULE, n_pairs), BATCH * CONTEXT, n_pairs + WARM_UP)
    system = System(build_model(job, None), recipe_of(job, ALONE), progress, lambda: False)
    system.configure_optimizers()
    sampler, bare = open_sampler(data_dir), bare_step(build_model(job, None))
    times: dict[str, list[float]] = {"bare": [], "system": []}
    for number in range(n_pairs + WARM_UP):
        batch = torch.from_numpy(sampler.read(number)[0])
        for name, step in (("bare", bare), ("system", system.step_once)):
            began = time.thread_time()
            step(batch)
            times[name].append(time.thread_time() - began)
    return statistics.median(times["bare"][WARM_UP:]), statistics.median(times["system"][WARM_UP:])


def time_around_steps(run_dir: Path) -> float:
    """Train the run for real; return the seconds a step between the end of one step and the beginning of the next."""
    spans: list[tuple[float, float]] = []
    step_once = System.step_once

    def timed(system: System, batch: torch.Tensor) -> None:
        began = time.thread_time()
        step_once(system, batch)
        spans.append((began, time.thread_time()))

    System.step_once = timed
    try:
        train(run_dir)
    finally:
        System.step_once = step_once
    between = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    return sum(between) / len(between)


def measure(folder: Path, data_dir: Path, size: str, method: str, n_pairs: int) -> Cost:
    run_dir = write_run(folder, data_dir, size, method, n_pairs + WARM_UP)
    bare_s, system_s = compare_steps(run_dir, data_dir, n_pairs)
    return Cost(bare_s, system_s, time_around_steps(run_dir))


def main() -> None:
    process.set_up(threads=1)
    n_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'N':>5} {'method':12} {'tokens/s':>9} {'bare ms':>8} {'system':>7} {'around':>7} {'overhead':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(["public_domain_en"], "bytes", folder / "data")
        for size in SIZES:
            for method in METHODS:
                cost = measure(folder, folder / "data", size, method, n_pairs)
                rate = BATCH * CONTEXT / (cost.system_s + cost.around_s)
                parts = f"{cost.bare_s * 1e3:8.2f} {cost.system_s / cost.bare_s:6.3f}x {cost.around_s * 1e3:5.2f}ms"
                print(f"{size:>5} {method:12} {rate:9,.0f} {parts} {cost.overhead:8.1%}", flush=True)


if __name__ == "__main__":
    main()
