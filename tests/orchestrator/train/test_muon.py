"""Muon for the matrices, AdamW for the rest: against a restatement, through a resume, and from the YAML to the run."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, linear_maps, parameter_roles
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.runs.training_spec import OptimizerSpec
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.optimizers import build_optimizer
from scalewright.orchestrator.train.run import train

MUON = OptimizerSpec(
    name="muon",
    lr_peak=0.02,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    weight_decay=0.1,
    decay="matrices",
    clip_norm=0.0,
    gate_clip_norm=0.0,
    momentum=0.8,
)


def orthogonalised(m: torch.Tensor) -> torch.Tensor:
    """Five steps of the quintic iteration, in bf16 as published."""
    x = m.bfloat16() / m.bfloat16().norm().clamp(min=1e-7)
    x = x.T if m.shape[0] > m.shape[1] else x
    for _ in range(5):
        a = x @ x.T
        x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)  # rounds as published code
    return (x.T if m.shape[0] > m.shape[1] else x).float()


def test_each_linear_map_is_updated_by_itself_and_the_rest_by_adamw() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelSpec(8, 1, 2, 16, 8, method="gpt+", mlp_width=24), seed=0)
    plain = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, parameter_roles(model), MUON, linear_maps(model))
    maps = {name: n for name, n in linear_maps(model).items() if parameter_roles(model)[name] in ("attention", "mlp")}
    assert sorted(maps.values()) == [1, 1, 2, 3]
    rest = {name: torch.nn.Parameter(value.clone()) for name, value in plain.items() if name not in maps}
    adamw = torch.optim.AdamW(rest.values(), lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    buffers = {name: torch.zeros_like(plain[name]) for name in maps}
    for _ in range(3):
        gradients = {name: torch.randn_like(value) for name, value in plain.items()}
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(gradients[name])
        optimizer.step()
        for name, parameter in rest.items():
            parameter.grad = gradients[name]
        adamw.step()
        for name, n in maps.items():
            buffers[name].lerp_(gradients[name], 0.2)
            ahead = gradients[name].lerp(buffers[name], 0.8)
            for value, piece in zip(plain[name].chunk(n), ahead.chunk(n), strict=True):
                value.mul_(1 - 0.02 * 0.1)
                value.sub_(0.02 * 0.2 * math.sqrt(max(value.shape)) * orthogonalised(piece))
    for name, parameter in model.named_parameters():
        expected = plain[name] if name in maps else rest[name]
        torch.testing.assert_close(parameter, expected, atol=1e-6, rtol=1e-5)


@pytest.fixture
def muon(training: dict[str, object]) -> dict[str, object]:
    return {"optimizer": dict(MUON.model_dump(), clip_norm=1.0)}


def test_a_run_of_muon_resumes_bit_for_bit(make_run: Callable[..., Path], muon: dict[str, object]) -> None:
    whole, cut = make_run("whole", **muon), make_run("cut", settings={"checkpoint_every_s": 0.0}, **muon)
    assert train(whole) == train(cut) == "completed"
    steps = list(checkpoint.checkpoints(cut))
    steps[0].unlink()
    (cut / "DONE.json").unlink()
    assert train(cut) == "completed"
    ends = [checkpoint.load_latest(folder, folder.name) for folder in (whole, cut)]
    assert ends[0] is not None and ends[1] is not None
    assert all(torch.equal(ends[0]["model"][name], ends[1]["model"][name]) for name in ends[0]["model"])


GRID = """
experiment: m
sizes: {s: {width: 16, depth: 1, heads: 2}}
budgets: [3k]
methods:
  - {label: adam, method: pre-ln, recipe: gpt}
  - {label: muon, method: pre-ln, recipe: muon%s}
lr: 0.01
context: 64
batch: 4
%s
"""


def test_the_recipe_reaches_the_run_and_changes_its_loss(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(GRID % (", optimizer: {momentum: 0.9}", ""))
    assert run(["submit", "m.yaml", "--executor", "debug"]) == 0
    capsys.readouterr()
    assert run(["runs", "m", "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)}
    specs = {
        label: json.loads((tmp_path / "runs" / row["run_id"] / "spec.json").read_text())["identity"]["training"]
        for label, row in rows.items()
    }
    assert specs["muon"]["optimizer"]["name"] == "muon" and specs["muon"]["optimizer"]["momentum"] == 0.9
    assert "momentum" not in specs["adam"]["optimizer"]
    assert rows["muon"]["loss_nats"] != rows["adam"]["loss_nats"]


def test_momentum_of_adamw_is_refused_at_its_line(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(GRID % ("", "optimizer: {momentum: 0.9}"))
    assert run(["plan", "m.yaml"]) == 1
    assert "m.yaml:11: optimizer.momentum: only muon has it; the optimizer of adam is adamw" in capsys.readouterr().err
