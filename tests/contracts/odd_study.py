"""A study with every key at a value that is not its default, and the plainest loop that trains a run of it again."""

import contextlib
import io
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scalewright.db import frames
from scalewright.db.engine import open_database
from scalewright.db.typed import records
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, parameter_roles
from scalewright.orchestrator import cli
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.train.sampler import open_train, read_validation

YAML = """
experiment: odd
data: { corpus: [words.jsonl], field: body, tokenizer: bpe, vocab_size: 290, lossy_tokenizer: true, validation: 25% }
sizes:
  a: { width: 16, depth: 2, heads: 2, mlp_width: 24, rope_base: 4, norm_eps: 0.01 }
  b: { width: 8, depth: 1, heads: 2 }
budgets: { short: 1.2k, long: 3x }
methods:
  - label: mine
    method: pre-ln
    gate: gpas
    gate_options: { init: 0.3 }
    init: spike-no-more
    init_options: { std: 0.1 }
    recipe: own
  - label: theirs
    method: angpt
    options: { alpha_init: 0.2 }
    lr:
      rule: power
      lr: 0.04
      at: a
      exponent: 0.5
      token_exponent: 0.25
      tokens_at: 300
      methods: { theirs: { lr: 0.08, exponent: 1, token_exponent: 0.5 } }
seeds: [2, 5]
batch: 3
context: 20
precision: [bf16-mixed, fp32]
lr: { rule: table, values: { mine: { a: 0.04, default: 0.03 }, default: 0.05 } }
lr_factor: [0.5, 2]
optimizer: { beta1: 0.6, beta2: 0.7, eps: 0.001, weight_decay: 2, decay: all, clip_norm: 0.5, gate_clip_norm: 0.01 }
schedule: { name: wsd, warmup: 4 steps, decay: 30%, final: 0.25 }
recipes: { own: { base: gpt } }
grid:
  - { name: main, method: mine, size: a, budget: short, seed: 5, lr_factor: 0.5, precision: fp32 }
  - name: pair
    zip: { size: [b, a], budget: [short, long] }
    method: all
    seed: 2
    lr_factor: 2
    precision: fp32
    exclude: [{ size: a }]
  - name: held
    method: theirs
    size: b
    budget: short
    seed: [2, 5]
    lr_factor: 2
    precision: bf16-mixed
    holdout: true
exclude: [{ precision: bf16-mixed, seed: 5 }]
holdout: [{ size: a }]
compare: [theirs over mine]
evaluation: { at: [10%, 7 steps], every: 6 steps, n_windows: 9 }
divergence: { rise_nats: 0.7, patience: 33% }
diagnostics: [50%]
log_every: 3
checkpoint_every: 45s
database: odd.sqlite
executor: debug
max_parallel: 1
retry: { errors: 2, same_error: 4, hang: 20min }
resources:
  profiles:
    other: { threads: 2 }
    own: { micro_batch: 1, flops_per_s: 1e9, pack: 1 }
  rules: [{ use: own, methods: mine, sizes: [a, b], min_params: 10, max_params: 1M }]
"""
BATCH, CONTEXT, N_STEPS, LOG_EVERY, PEAK, SEED, N_WINDOWS = 3, 20, 20, 3, 0.02, 5, 9
BATCH_TOKENS = BATCH * CONTEXT
AGREES = 2e-5  # relative: fp32, with sums in another order, over 20 steps


@dataclass(frozen=True)
class Numbers:
    """What the run `mine` of size a is trained with, by hand from the YAML."""

    width: int = 16
    depth: int = 2
    heads: int = 2
    mlp_width: int = 24
    rope_base: float = 4.0
    norm_eps: float = 0.01
    gate_init: float = 0.3
    std: float = 0.1
    peak: float = 0.04 * 0.5
    beta1: float = 0.6
    beta2: float = 0.7
    eps: float = 1e-3
    weight_decay: float = 2.0
    decayed: str = "all"
    clip_norm: float = 0.5
    gate_clip_norm: float = 0.01
    schedule: str = "wsd"
    warmup_steps: float = 4
    decay_steps: float = 6
    final: float = 0.25
    seed: int = SEED
    batch: int = BATCH
    context: int = CONTEXT
    n_windows: int = N_WINDOWS

    def rate(self, step: int) -> float:
        """The rate of a step, 1 to N_STEPS, at its middle."""
        at = step - 0.5
        if at < self.warmup_steps:
            return self.peak * at / self.warmup_steps
        if self.schedule == "cosine":
            fall = 0.5 * (1 + math.cos(math.pi * (at - self.warmup_steps) / (N_STEPS - self.warmup_steps)))
        else:
            into = (at - (N_STEPS - self.decay_steps)) / self.decay_steps
            fall = 1 - math.sqrt(max(into, 0.0))
        return self.peak * (self.final + (1 - self.final) * fall)


@dataclass
class Trained:
    """What the plain loop gives: loss and norm of each step, validation loss after each."""

    losses: list[float]
    norms: list[float]
    validation: list[float]


def plain_loop(data_dir: Path, n: Numbers) -> Trained:
    """Train by the equations of AdamW (arXiv:1711.05101), sharing only the model and the windows."""
    made = manifest.read(data_dir)
    spec = ModelSpec(
        width=n.width, depth=n.depth, heads=n.heads, vocab_size=made.vocab_size, context=n.context, method="pre-ln",
        gate="gpas", gate_options={"init": n.gate_init}, init="spike-no-more", init_options={"std": n.std},
        mlp_width=n.mlp_width, rope_base=n.rope_base, norm_eps=n.norm_eps,
    )  # fmt: skip
    model = Transformer(spec, seed=n.seed)
    roles = parameter_roles(model)
    named = dict(model.named_parameters())
    sampler = open_train(data_dir, made, n.context, n.seed, n.batch)
    windows = torch.from_numpy(read_validation(data_dir, made, n.context, n.n_windows))
    first, second = ({name: torch.zeros_like(p) for name, p in named.items()} for _ in range(2))
    out = Trained([], [], [])
    for step in range(1, N_STEPS + 1):
        batch = torch.from_numpy(sampler.read(step - 1)[0])
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        gradients = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
        gradients = {name: g * min(1.0, n.clip_norm / norm) for name, g in gradients.items()}
        gates = math.sqrt(sum(float(g.square().sum()) for name, g in gradients.items() if roles[name] == "gate"))
        with torch.no_grad():
            for name, parameter in named.items():
                g = gradients[name] * (min(1.0, n.gate_clip_norm / gates) if roles[name] == "gate" else 1.0)
                first[name] = n.beta1 * first[name] + (1 - n.beta1) * g
                second[name] = n.beta2 * second[name] + (1 - n.beta2) * g * g
                mean, square = first[name] / (1 - n.beta1**step), second[name] / (1 - n.beta2**step)
                is_decayed = n.decayed == "all" or roles[name] in ("attention", "mlp")
                parameter -= n.rate(step) * (n.weight_decay * parameter if is_decayed else 0.0)
                parameter -= n.rate(step) * mean / (square.sqrt() + n.eps)
            out.validation.append(float(model.loss(windows[:, :-1], windows[:, 1:])))
        out.losses.append(float(loss.detach()))
        out.norms.append(norm)
    return out


@dataclass
class Seen:
    """What the study holds after it ran: of each run its spec, its journal, its row and its page."""

    folder: Path
    specs: dict[str, dict[str, Any]]  # by group of the grid
    journals: dict[str, list[dict[str, Any]]]
    rows: dict[str, dict[str, Any]]
    pages: dict[str, str]
    html: str
    evaluations: Any
    packs: dict[str, Pack]
    reference: Trained

    @property
    def main(self) -> dict[str, Any]:
        return self.specs["main"]

    @property
    def other(self) -> dict[str, Any]:
        return self.specs["theirs"]

    @property
    def data_dir(self) -> Path:
        return Path(self.main["settings"]["data_dir"])

    def journal(self, spec: dict[str, Any], kind: str) -> list[dict[str, Any]]:
        return [line for line in self.journals[spec["run_id"]] if line["type"] == kind]

    def row(self, spec: dict[str, Any]) -> dict[str, Any]:
        return self.rows[spec["run_id"]]


def write_corpus(file: Path) -> None:
    rng = random.Random(0)
    words = ["whale", "sea", "ship", "the", "a", "of", "and", "white", "harbour", "lantern", "thunder"]
    lines = [{"body": " ".join(rng.choices(words, k=12)) + ".", "text": "not this"} for _ in range(400)]
    file.write_text("\n".join(map(json.dumps, lines)))


def look(folder: Path) -> Seen:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/spec.json"))]
    run_dirs = {one["run_id"]: folder / "runs" / one["run_id"] for one in found}
    lines = {name: (place / "journal.a1.jsonl").read_text().splitlines() for name, place in run_dirs.items()}
    database = open_database(folder / "odd.sqlite")
    rows = {row["run_id"]: row for row in records(frames.runs(database, "odd"))}
    evaluations = frames.evaluations(database)
    places = {row["run_id"]: row["label"] if row["run_group"] == "pair" else row["run_group"] for row in rows.values()}
    specs = {places[one["run_id"]]: one for one in found}
    database.close()
    packs = [Pack.read(path.parent) for path in sorted(folder.glob("jobs/*/*/pack.json"))]
    return Seen(
        folder, specs, {name: [json.loads(line) for line in own] for name, own in lines.items()}, rows,
        {name: page_of(name) for name in run_dirs}, next(folder.glob("figures/**/*.html")).read_text(), evaluations,
        {Path(run).name: pack for pack in packs for run in pack.runs},
        plain_loop(Path(found[0]["settings"]["data_dir"]), Numbers()),
    )  # fmt: skip


def page_of(run_id: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.run(["show", run_id, "--of", "odd.yaml"]) == 0
    return printed.getvalue()
