"""What a method, a gate, the folded form and the constraint cost a step, each against its counterpart, step by step.

Prints four tables: the step of every method over GPT+'s; throughput with a gate over without; the plain form over the
folded one; the share of the constraint in a step. One thread, fp32, batch 8 x 128, forward, backward, fused AdamW and
constraint. CPU time, medians of steps taken in turn, so that other work on the machine disturbs both sides alike.
Usage: python benchmarks/methods.py [SECONDS, by default 90]
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from scalewright.models.constraints import constrain
from scalewright.models.count import n_params
from scalewright.models.gating import PUBLISHED
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer
from scalewright.orchestrator.train import process

BATCH, CONTEXT, VOCAB = 8, 128, 257
# width: width, depth, heads
SIZES = {48: (48, 2, 3), 64: (64, 3, 4), 128: (128, 3, 4), 256: (256, 3, 8), 512: (512, 3, 8)}
WARM_UP = 2
Step = Callable[[], None]


def make_step(width: int, *, form: str = "folded", constrained: bool = True, **changes: Any) -> Step:
    """Return one optimiser step of a model on one fixed batch."""
    model = Transformer(ModelSpec(*SIZES[width], VOCAB, CONTEXT, **changes), form=form)
    tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    after = constrain(model) if constrained else lambda: None

    def step() -> None:
        model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    return step


def medians(steps: Mapping[str, Step], seconds: float) -> dict[str, list[float]]:
    """Take the steps in turn for some seconds of CPU time; return the times of each, in order of the turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    end = time.thread_time() + seconds
    while time.thread_time() < end or len(next(iter(times.values()))) < 5:
        for name, step in steps.items():
            start = time.thread_time()
            step()
            times[name].append(time.thread_time() - start)
    return times


def ratio(times: Mapping[str, list[float]], name: str, base: str) -> float:
    """Return the median of the ratios within each turn."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def methods_over_gpt_plus(seconds: float) -> None:
    print(f"step over GPT+'s, batch {BATCH} x {CONTEXT}")
    for width in (48, 64):
        times = medians({name: make_step(width, method=name) for name in METHODS}, seconds / 2)
        n = n_params(ModelSpec(*SIZES[width], VOCAB, CONTEXT))
        print(f"  width {width}, depth {SIZES[width][1]}, {n:,} non-embedding parameters")
        for name in METHODS:
            tokens_per_s = BATCH * CONTEXT / statistics.median(times[name])
            print(f"    {name:12} {ratio(times, name, 'gpt+'):6.3f}   {tokens_per_s:9,.0f} tokens/s")


def gated_over_ungated(seconds: float) -> None:
    print("throughput with GPAS over without")
    for width in SIZES:
        steps = {gate: make_step(width, method="pre-ln", gate=gate) for gate in ("none", "gpas")}
        print(f"    pre-ln, width {width:4} {1 / ratio(medians(steps, seconds / 7), 'gpas', 'none'):6.3f}")
    for name in [name for name in PUBLISHED if name != "pre-ln"]:
        steps = {gate: make_step(128, method=name, gate=gate) for gate in ("none", "gpas")}
        print(f"    {name}, width 128 {1 / ratio(medians(steps, seconds / 14), 'gpas', 'none'):6.3f}")


def plain_over_folded(seconds: float) -> None:
    print("step of the plain form over the folded one")
    cases = {
        "gpt+": {},
        "pre-ln+gpas": {"method": "pre-ln", "gate": "gpas"},
        "angpt": {"method": "angpt"},
        "ngpt": {"method": "ngpt"},
    }
    for width in (48, 128):
        for name, changes in cases.items():
            steps = {form: make_step(width, form=form, **{"method": "gpt+", **changes}) for form in ("plain", "folded")}
            print(f"    {name:12} width {width:4} {ratio(medians(steps, seconds / 8), 'plain', 'folded'):6.3f}")


def share_of_the_constraint(seconds: float) -> None:
    print("share of the constraint in a step")
    for width in (48, 64, 128, 256):
        for name in ("angpt", "ngpt"):
            spec = ModelSpec(*SIZES[width], VOCAB, CONTEXT, method=name)
            steps = {"step": make_step(width, method=name), "constraint": constrain(Transformer(spec))}
            share = ratio(medians(steps, seconds / 8), "constraint", "step")
            print(f"    {name:6} width {width:4} {share:7.2%}")


def main() -> None:
    process.set_up(threads=1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 90.0
    methods_over_gpt_plus(seconds * 0.2)
    gated_over_ungated(seconds * 0.6)
    plain_over_folded(seconds * 0.12)
    share_of_the_constraint(seconds * 0.08)


if __name__ == "__main__":
    main()
