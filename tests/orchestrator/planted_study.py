"""A study whose runs are planned for real and whose results are planted, not trained."""

import json
import math
from pathlib import Path

import numpy as np

from scalewright.orchestrator.plan.make import plan_file, record
from scalewright.orchestrator.runs.journal import Journal

TOKENS_PER_S = {"small": 50_000.0, "middle": 30_000.0, "large": 15_000.0}
FASTER = {"gpt+": 1.0, "angpt": 1.6}
YAML = """
experiment: planted
data: {corpus: texts, tokenizer: bytes}
sizes:
  small: {width: 16, depth: 1, heads: 2, mlp_width: 32}
  middle: {width: 32, depth: 2, heads: 2, mlp_width: 64}
  large: {width: 64, depth: 2, heads: 2, mlp_width: 128}
budgets: [0.1M, 0.2M, 0.4M]
methods: [gpt+, angpt]
compare: [angpt over gpt+]
batch: 2
context: 32
evaluation: {n_windows: 4}
"""


def planted_loss(label: str, n_params: float, n_tokens: float) -> float:
    """L = 0.9 + 6 N^-0.35 + 95 (s D)^-0.4 with s = FASTER: a method that needs s times fewer tokens."""
    return float(0.9 + 6 * n_params**-0.35 + 95 * (n_tokens * FASTER[label]) ** -0.4)


def best_rate(n_params: float) -> float:
    return 0.016 * (n_params / 10_000) ** -0.2


def plant(folder: Path, *, n_left: int = 0, text: str = YAML, best_rate: bool = False) -> Path:
    """Plan the YAML in `folder` and write journals of runs that ended as the law says; the last `n_left` have none."""
    folder.mkdir(exist_ok=True)
    (folder / "texts").mkdir(exist_ok=True)
    for number in range(40):
        (folder / "texts" / f"{number}.txt").write_text(f"document {number}: " + "all work and no play. " * 40)
    path = folder / "experiments.yaml"
    path.write_text(text)
    plan, study = plan_file(path)
    record(plan, study)
    rng = np.random.default_rng(0)
    for planned in plan.runs[: len(plan.runs) - n_left]:
        factor = detuned(planned) if best_rate else math.exp(0.004 * rng.normal())
        write_results(study.run_dir(planned.run_id), planned, factor)
    return path


def detuned(planned) -> float:
    """How much higher a loss ends for a learning rate off its best: a parabola in its logarithm."""
    off = math.log(planned.spec.training["optimizer"]["lr_peak"] / best_rate(planned.planned["n_params_non_embedding"]))
    return math.exp(0.02 * off**2)


def write_results(run_dir: Path, planned, factor: float) -> None:
    n_tokens, n_steps = planned.spec.training["n_tokens"], planned.planned["n_steps"]
    loss = factor * planted_loss(planned.label, planned.planned["n_params_non_embedding"], n_tokens)
    seconds = n_tokens / TOKENS_PER_S[planned.size]
    run_dir.mkdir(parents=True)
    start = {"run_id": planned.run_id, "token": "t", "job": {}, "resume_step": 0, "resume_tokens": 0, "code": {},
             "environment": {"device": "cpu", "threads": 1}}  # fmt: skip
    with Journal.open(run_dir, start) as journal:
        for step, shift, final in ((n_steps // 2, 0.2, False), (n_steps, 0.0, True)):
            values = {"loss_nats": loss + shift, "bits_per_byte": (loss + shift) / math.log(2)}
            tokens = n_tokens * step // n_steps
            if planned.size == "large":
                variance = [1.0 + shift, 3.0 + shift]
                journal.layers(step, tokens, {"activation_variance": variance, "weight_norm": [7.0, 9.0]})
            journal.evaluation(step, tokens, values, n_tokens=128, final=final, annealed=final)
        journal.end("completed", n_steps, n_tokens, wall_s=seconds + 1, train_wall_s=seconds)
    done = {"outcome": "completed", "attempt": 1, "step": n_steps, "n_tokens": n_tokens, "loss_nats": loss, "time": 1.0,
            "bits_per_byte": loss / math.log(2), "wall_s": seconds + 1, "train_wall_s": seconds,
            "tokens_per_s": TOKENS_PER_S[planned.size], "reason": ""}  # fmt: skip
    (run_dir / "DONE.json").write_text(json.dumps(done))
