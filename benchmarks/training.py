"""What a training step costs here, beside other people's models, and what of it is ours; steps are taken in turn.

First table: the bare step (model, fused AdamW, clipping, constraint) of our methods and of the installed peers, at one
shape, batch and precision, over that of gpt+ (medians of the ratios within a turn); FLOPs of gpt+ over the GEMM rate of
the same run (MFU); memory of parameters, gradients and optimiser, and the peak of a step above it; shares of the step.
Second table: the step of the system over the bare one, and what data, the journal and Lightning add outside the steps.
On a CPU all is CPU time of one thread, which other work on the machine disturbs least; seconds of the clock on a GPU.
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peers.training_peers import PEERS, loss_of, seeded
from torch import nn
from torch.profiler import ProfilerActivity, profile

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
from scalewright.orchestrator.train.callbacks import Recorder
from scalewright.orchestrator.train.divergence import DEFAULT_RULE, Monitor
from scalewright.orchestrator.train.progress import Progress
from scalewright.orchestrator.train.ranks import ALONE
from scalewright.orchestrator.train.run import train
from scalewright.orchestrator.train.sampler import TrainSampler, open_train
from scalewright.orchestrator.train.system import System

# width, depth, heads, MLP: the demo's, and shapes of about so many non-embedding parameters
DEMO = {"27k": (32, 2, 1, 96), "55k": (48, 2, 1, 128), "141k": (64, 3, 1, 160)}
SIZES = DEMO | {
    "1M": (128, 4, 4, 512),
    "10M": (320, 6, 5, 1280),
    "50M": (576, 9, 9, 2304),
    "124M": (768, 13, 12, 3072),
    "350M": (1024, 21, 16, 4096),
}
METHODS = {"gpt+": {}, "angpt": {}, "ngpt": {}, "pre-ln": {}, "pre-ln+gpas": {"method": "pre-ln", "gate": "gpas"}}
BASE = "gpt+"
PRECISIONS = {"fp32": torch.float32, "bf16-mixed": torch.bfloat16}
BATCH, CONTEXT, VOCAB = 4, 128, 257
LR_PEAK = 0.01
WARM_UP = 10
PHASES = ("forward", "backward", "optimiser", "constraint")
Marks = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """Seconds a step, medians: of a bare loop, of the system's step, and of what a run does around its steps.

    data_s, logging_s: the parts of around_s that read windows and write the journal; the rest is Lightning's loop.
    """

    bare_s: float
    system_s: float
    around_s: float
    data_s: float
    logging_s: float

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
    run_dir = folder / run.run_id
    run_dir.mkdir(exist_ok=True)
    record = {"format": 1, "run_id": run.run_id, "identity": run.to_dict(), "settings": {"data_dir": str(data_dir)}}
    record["planned"] = {"flops_per_token": flops_per_token(spec)}
    (run_dir / "spec.json").write_text(json.dumps(record))
    return run_dir


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return the matrices of ours, and all matrices of a peer, as decayed; the rest not."""
    if isinstance(model, Transformer):
        roles = parameter_roles(model)
        is_decayed = {name: role in ("attention", "mlp") for name, role in roles.items()}
    else:
        is_decayed = {name: p.ndim > 1 for name, p in model.named_parameters()}
    return [
        {"params": [p for name, p in model.named_parameters() if is_decayed[name] is decayed], "weight_decay": decay}
        for decayed, decay in ((True, 0.1), (False, 0.0))
    ]


def bare_step(
    model: nn.Module, *, precision: str = "fp32", compiled: bool = False, device: str = "cpu"
) -> Callable[..., None]:
    """Return the step of the loop that one would write by hand, at a constant rate; `mark` is told of each phase."""
    optimizer = torch.optim.AdamW(groups_of(model), lr=LR_PEAK / 10, betas=(0.9, 0.95), fused=True)
    loss = model.loss if isinstance(model, Transformer) else loss_of(model)
    loss = torch.compile(loss) if compiled else loss
    project = constrain(model) if isinstance(model, Transformer) else lambda: None

    def step(batch: torch.Tensor, mark: Marks = lambda _: None) -> None:
        with autocast(precision, device):
            value = loss(batch[:, :-1], batch[:, 1:])
        mark("forward")
        value.backward()
        mark("backward")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mark("optimiser")
        project()
        mark("constraint")
        optimizer.zero_grad()

    return step


def autocast(precision: str, device: str) -> Any:
    return torch.autocast(device, torch.bfloat16) if precision == "bf16-mixed" else contextlib.nullcontext()


def now(device: str) -> float:
    if device == "cpu":
        return time.thread_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def gemm_rate(precision: str, device: str) -> float:
    """Return FLOP/s of a square product, the best of ten: the roofline of this run."""
    n = 1024 if device == "cpu" else 8192
    a, b = (torch.randn(n, n, device=device, dtype=PRECISIONS[precision]) for _ in range(2))
    times = []
    for _ in range(10):
        began = now(device)
        a @ b
        times.append(now(device) - began)
    return 2 * n**3 / min(times)


def missing_peers() -> dict[str, str]:
    """Return the package that each peer lacks here."""
    return {name: package for name, (_, package) in PEERS.items() if importlib.util.find_spec(package) is None}


def contestants(size: str, methods: list[str], batch: torch.Tensor) -> dict[str, nn.Module]:
    """Build our methods and the installed peers at one shape."""
    shape = dict(zip(("width", "depth", "heads", "mlp_width"), SIZES[size], strict=True))
    context = batch.shape[1] - 1
    specs = {
        name: ModelSpec(**shape, vocab_size=VOCAB, context=context, **({"method": name} | METHODS[name]))
        for name in dict.fromkeys([BASE, *methods])
    }
    ours = {name: Transformer(spec) for name, spec in specs.items()}
    absent = missing_peers()
    theirs = {name: seeded(make, specs[BASE]) for name, (make, _) in PEERS.items() if name not in absent}
    return {name: model.to(batch.device) for name, model in (ours | theirs).items()}


def step_memory(step: Callable[..., None], batch: torch.Tensor) -> float:
    """Return the bytes that a step holds at its peak above what stands before it: activations and gradients."""
    if batch.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(batch)
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step(batch)
    changes = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in changes), default=0)


@dataclass(frozen=True)
class Timed:
    """Seconds of each turn, and of each phase in it."""

    steps: list[float]
    phases: dict[str, list[float]]


def take_turns(steps: dict[str, Callable[..., None]], batch: torch.Tensor, n_turns: int) -> dict[str, Timed]:
    """Time the steps in turn; the first three turns warm up."""
    device = batch.device.type
    timed = {name: Timed([], {phase: [] for phase in PHASES}) for name in steps}
    for turn in range(n_turns + 3):
        for name, step in steps.items():
            stamps = [now(device)]
            step(batch, lambda _, stamps=stamps: stamps.append(now(device)))
            end = now(device)
            if turn < 3:
                continue
            timed[name].steps.append(end - stamps[0])
            for phase, (before, after) in zip(PHASES, itertools.pairwise(stamps), strict=True):
                timed[name].phases[phase].append(after - before)
    return timed


def compare_peers(size: str, precision: str, compiled: bool, asked: argparse.Namespace) -> None:
    """Print the first table for one size, precision and mode."""
    batch = torch.randint(VOCAB, (asked.batch, asked.context + 1), generator=torch.Generator().manual_seed(0))
    batch = batch.to(asked.device)
    models = contestants(size, asked.methods, batch)
    options = {"precision": precision, "compiled": compiled, "device": asked.device}
    if compiled:
        torch._dynamo.reset()
    steps = {name: bare_step(model, **options) for name, model in models.items()}
    timed = take_turns(steps, batch, asked.turns)
    peak = gemm_rate(precision, asked.device)
    flops = flops_per_token(models[BASE].spec) * asked.batch * asked.context
    mode = "compiled" if compiled else "eager"
    print(f"{size} {precision} {mode}, batch {asked.batch} x {asked.context}, GEMM {peak / 1e9:,.0f} GFLOP/s")
    for name, model in models.items():
        one, base = timed[name], timed[BASE]
        ratio = statistics.median(a / b for a, b in zip(one.steps, base.steps, strict=True))
        step_s = statistics.median(one.steps)
        standing = 4 * sum(p.numel() * p.element_size() for p in model.parameters())  # with gradient and two moments
        shares = " ".join(f"{phase} {statistics.median(one.phases[phase]) / step_s:4.0%}" for phase in PHASES)
        memory = f"{standing / 2**20:7.1f} + {step_memory(steps[name], batch) / 2**20:6.1f} MiB"
        print(
            f"  {name:19} {ratio:6.3f} {step_s * 1e3:9.2f} ms  MFU {flops / step_s / peak:4.0%}  {memory}  {shares}",
            flush=True,
        )


def open_sampler(data_dir: Path) -> TrainSampler:
    return open_train(data_dir, manifest.read(data_dir), CONTEXT, 0, BATCH)


def compare_steps(run_dir: Path, data_dir: Path, n_pairs: int) -> tuple[float, float]:
    """Time the bare step and the system's in turn on the same batches; return both medians in seconds."""
    job = read_assignment(run_dir)
    progress = Progress(Monitor.of(job.training.divergence, n_pairs), BATCH * CONTEXT, n_pairs + WARM_UP)
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


def timed_calls(owner: type, name: str) -> tuple[Callable[[], None], list[tuple[float, float]]]:
    """Note when each call of a method begins and ends; return what puts the method back, and the notes."""
    method, spans = getattr(owner, name), []

    def timed(*arguments: Any) -> Any:
        began = time.thread_time()
        result = method(*arguments)
        spans.append((began, time.thread_time()))
        return result

    setattr(owner, name, timed)
    return lambda: setattr(owner, name, method), spans


def time_around_steps(run_dir: Path) -> tuple[float, float, float]:
    """Train the run for real; return the seconds a step between two steps, and of them those of data and journal."""
    watched = [timed_calls(*one) for one in ((System, "step_once"), (TrainSampler, "read"), (Recorder, "record"))]
    try:
        train(run_dir)
    finally:
        for put_back, _ in watched:
            put_back()
    steps, data, logging = (spans for _, spans in watched)
    n_between = len(steps) - 1
    between = sum(after[0] - before[1] for before, after in itertools.pairwise(steps))
    within = [span for span in logging if span[1] <= steps[-1][0]]
    return between / n_between, total(data) / len(steps), total(within) / n_between


def total(spans: list[tuple[float, float]]) -> float:
    return sum(after - before for before, after in spans)


def measure(folder: Path, data_dir: Path, size: str, method: str, n_pairs: int) -> Cost:
    run_dir = write_run(folder, data_dir, size, method, n_pairs + WARM_UP)
    bare_s, system_s = compare_steps(run_dir, data_dir, n_pairs)
    return Cost(bare_s, system_s, *time_around_steps(run_dir))


def compare_runs(sizes: list[str], methods: list[str], n_pairs: int) -> None:
    """Print the second table: a run beside the bare loop, fp32, eager."""
    print(f"as runs use it, fp32, batch {BATCH} x {CONTEXT}")
    print(f"{'N':>5} {'method':12} {'tokens/s':>9} {'bare ms':>8} {'system':>7} {'around':>8} {'overhead':>9}", end="")
    print("  of a step: data, logging, Lightning")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(["public_domain_en"], "bytes", folder / "data")
        for size, method in itertools.product(sizes, methods):
            cost = measure(folder, folder / "data", size, method, n_pairs)
            whole_s = cost.system_s + cost.around_s
            parts = f"{cost.bare_s * 1e3:8.2f} {cost.system_s / cost.bare_s:6.3f}x {cost.around_s * 1e3:6.2f}ms"
            lightning_s = cost.around_s - cost.data_s - cost.logging_s
            shares = "  ".join(f"{part / whole_s:5.1%}" for part in (cost.data_s, cost.logging_s, lightning_s))
            rate = BATCH * CONTEXT / whole_s
            print(f"{size:>5} {method:12} {rate:9,.0f} {parts} {cost.overhead:8.1%}  {shares}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=["1M"], help="of the first table")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--precisions", nargs="*", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--modes", nargs="*", choices=("eager", "compiled"), default=["eager"])
    parser.add_argument("--turns", type=int, default=15, help="steps of each, in turn")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", nargs="*", choices=SIZES, default=list(DEMO), help="sizes of the second table")
    parser.add_argument("--pairs", type=int, default=200, help="steps of a run in the second table")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    process.set_up(threads=1)
    for name, package in missing_peers().items():
        print(f"{name} is left out: the package {package} is not installed (make bench-training installs it)")
    for size, precision, mode in itertools.product(asked.sizes, asked.precisions, asked.modes):
        compare_peers(size, precision, mode == "compiled", asked)
    if asked.runs:
        compare_runs(asked.runs, asked.methods, asked.pairs)


if __name__ == "__main__":
    main()
