"""What is in a run's identity and what is not; ten ids are frozen."""

import json
from pathlib import Path

import pytest

from scalewright.orchestrator.config.load import read_experiment
from scalewright.orchestrator.plan.runs import plan_runs
from scalewright.orchestrator.runs.spec import RunSpec

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "run_ids.json"
BASE = """\
experiment: i
sizes:
  s: { width: 32, depth: 2, heads: 2 }
budgets: [0.3M]
methods: [pre-ln]
batch: 4
lr: 0.02
"""


class Split:
    def n_windows(self, context):
        return 1_000_000 // context


class Data:
    vocab_size = 256
    train = Split()

    def __init__(self, fingerprint: str = "0" * 16):
        self.fingerprint = fingerprint

    def identity(self):
        return {"fingerprint": self.fingerprint, "tokenizer": "1" * 16, "vocab_size": 256}


def run_of(text: str = BASE, data=None):
    (run,) = plan_runs(read_experiment(text), data or Data())
    return run


SAME = [
    ("experiment: i", "experiment: other"),
    ("  s:", "  renamed:"),
    ("[0.3M]", "{ short: 300k }"),
    ("[pre-ln]", "{ baseline: pre-ln }"),
    ("batch: 4", "batch: 4\nexecutor: slurm\nmax_parallel: 3\nnotify: mail\nretry: { errors: 9 }"),
    ("batch: 4", "batch: 4\nlog_every: 1\ncheckpoint_every: 5min\ncompile: true"),
    ("batch: 4", "batch: 4\nmirrors: tensorboard\ndiagnostics: 50%"),
    ("batch: 4", "batch: 4\nevaluation: { at: 50%, every: 100 steps }"),
    ("batch: 4", "batch: 4\nresources: { profiles: { gpu: { gpus: 1, devices: 2, threads: 8, micro_batch: 2 } } }"),
    ("batch: 4", "batch: 4\nholdout: [{ size: s }]\ndatabase: x.sqlite"),
    ("lr: 0.02", "lr: 2e-2"),
    ("lr: 0.02", "lr: { rule: power, lr: 0.02, at: s, exponent: 0.5 }"),
    ("lr: 0.02", "lr: 0.01\nlr_factor: 2"),
    ("lr: 0.02", "lr: 0.02\noptimizer: { beta2: 0.999 }\nschedule: { warmup: 10% }"),
    ("heads: 2", "heads: 2, mlp_width: 128, rope_base: 1e4"),
    ("batch: 4", "batch: 4\ncontext: 128\nprecision: fp32\nseeds: [0]"),
]  # fmt: skip

OTHER = [
    ("width: 32", "width: 36"),
    ("depth: 2", "depth: 3"),
    ("heads: 2", "heads: 4"),
    ("heads: 2", "heads: 2, mlp_width: 96"),
    ("heads: 2", "heads: 2, norm_eps: 1e-5"),
    ("[0.3M]", "[0.4M]"),
    ("[pre-ln]", "[gpt+]"),
    ("[pre-ln]", "[pre-ln+gpas]"),
    ("[pre-ln]", "[{ method: pre-ln, init: normal-0.02 }]"),
    ("[pre-ln]", "[{ method: pre-ln, recipe: gpt }]"),
    ("batch: 4", "batch: 8"),
    ("batch: 4", "batch: 4\ncontext: 64"),
    ("batch: 4", "batch: 4\nprecision: bf16-mixed"),
    ("batch: 4", "batch: 4\nseeds: [1]"),
    ("batch: 4", "batch: 4\nevaluation: { n_windows: 64 }"),
    ("batch: 4", "batch: 4\ndivergence: { rise_nats: 2 }"),
    ("lr: 0.02", "lr: 0.03"),
    ("lr: 0.02", "lr: 0.02\noptimizer: { clip_norm: none }"),
    ("lr: 0.02", "lr: 0.02\noptimizer: { gate_clip_norm: 0.01 }"),
    ("lr: 0.02", "lr: 0.02\nschedule: { name: wsd }"),
    ("lr: 0.02", "lr: 0.02\nschedule: { final: 0 }"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_changes_no_result_changes_no_identity(old, new):
    assert old in BASE
    assert run_of(BASE.replace(old, new)).run_id == run_of().run_id


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_changes_the_result_changes_the_identity(old, new):
    assert old in BASE
    assert run_of(BASE.replace(old, new)).run_id != run_of().run_id


def test_other_data_is_another_run():
    assert run_of(data=Data("2" * 16)).run_id != run_of().run_id


def test_an_identity_survives_json():
    spec = run_of().spec
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.run_id == spec.run_id


def test_the_canonical_text_is_sorted_compact_and_complete():
    text = run_of().spec.canonical()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    assert set(json.loads(text)) == {"model", "data", "training", "parent"}


GOLDEN_YAML = """\
experiment: golden
sizes:
  s: { width: 32, depth: 2, heads: 2, mlp_width: 96 }
  l: { width: 64, depth: 3, heads: 4 }
budgets: [0.2M, 20x]
methods: [gpt+, angpt, ngpt, pre-ln+gpas, { method: mix-ln, label: mix }]
batch: 3
lr: { rule: power, lr: 0.02, at: 55k, exponent: 0.33 }
grid:
  - zip: { size: [s, l], budget: [0.2M, 20x] }
"""


def test_ten_identities_are_frozen():
    """A change here means that finished runs are not found again: bump nothing without docs/decisions."""
    found = {f"{run.label} {run.size}": run.run_id for run in plan_runs(read_experiment(GOLDEN_YAML), Data())}
    assert found == json.loads(GOLDEN.read_text())
    assert len(found) == 10
