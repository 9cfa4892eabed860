"""A trained run answers what its layers do, and leaves as a stock checkpoint; through the command where it prints."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from scalewright.models.transformer import Transformer
from scalewright.orchestrator.cli import run as scalewright
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.train.inspect_run import export_checkpoint, inspect_run, load_run
from scalewright.orchestrator.train.run import train


@pytest.fixture
def trained(make_run, tmp_path):
    """Return a function that trains a small run and gives its study and id."""

    def make(**model):
        run_dir = make_run(model={"depth": 3, **model})
        assert train(run_dir) == "completed"
        return Study.at(tmp_path), run_dir.name

    return make


def test_a_run_is_inspected_layer_by_layer(trained):
    study, run_id = trained(method="pre-ln", gate="gpas")
    found = inspect_run(study, run_id[:6], n_windows=10)
    done = json.loads((study.run_dir(run_id) / "DONE.json").read_text())
    assert found["loss_nats"] == pytest.approx(done["loss_nats"], abs=1e-4)  # the run's ten validation windows
    assert found["run_id"] == run_id and found["step"] == 40 and found["gates_in_removal"] == "folded"
    assert [row["layer"] for row in found["layers"]] == [0, 1, 2]
    assert all({"loss_change_nats", "activation_norm", "gate_factor_mlp"} <= row.keys() for row in found["layers"])
    assert found["factor_errors"] is None


def test_the_gates_of_a_removed_layer_may_be_kept(trained):
    study, run_id = trained(method="pre-ln", gate="gpas")
    kept, folded = (inspect_run(study, run_id, gates=gates) for gates in ("kept", "folded"))
    assert kept["gates_in_removal"] == "kept"
    assert kept["loss_nats"] == pytest.approx(folded["loss_nats"], abs=1e-4)
    assert kept["layers"][0]["loss_change_nats"] != folded["layers"][0]["loss_change_nats"]


def test_the_factors_of_angpt_are_put_to_the_test(trained, monkeypatch, capsys):
    study, run_id = trained(method="angpt")
    assert set(inspect_run(study, run_id)["factor_errors"]) == {"qkv", "p", "uz", "d"}
    monkeypatch.chdir(study.root)
    assert scalewright(["inspect", run_id[:8]]) == 0
    shown = capsys.readouterr().out
    assert "loss_change_nats" in shown and "factor nu_qkv" in shown and "removed with gates: none" in shown
    (line,) = [line for line in shown.splitlines() if "nu_qkv" in line]
    assert re.fullmatch(
        r"factor nu_qkv stands for the mean of 1/\|Wx\|; the mean measured here is [+-]\d+\.\d\d% from it", line
    )
    assert "final loss" not in shown  # all ten windows of the run were used
    assert scalewright(["inspect", run_id[:8], "--windows", "4"]) == 0
    assert "(the first 4 of 10 windows, so not the final loss)" in capsys.readouterr().out
    assert scalewright(["inspect", run_id[:8], "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 3


def test_an_exported_run_is_the_run_with_its_gates_folded(trained, monkeypatch, capsys):
    study, run_id = trained(method="pre-ln", gate="gpas")
    monkeypatch.chdir(study.root)
    assert scalewright(["export-checkpoint", run_id[:8]]) == 0
    folder = study.root / "export" / run_id
    assert capsys.readouterr().out.strip() == str(folder)
    tensors, model = load_file(folder / "model.safetensors"), load_run(study, run_id).model
    assert torch.equal(tensors["model.embed_tokens.weight"], model.embedding.weight)
    first = 1 / model.gates.factors()[0][0]  # the first site scales what the second sub-layer must be divided by
    torch.testing.assert_close(tensors["model.layers.0.mlp.down_proj.weight"], model.blocks[0].mlp.body.out * first)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def test_what_cannot_be_exported_says_why(trained, monkeypatch, capsys):
    study, run_id = trained(method="gpt+")
    monkeypatch.chdir(study.root)
    assert scalewright(["export-checkpoint", run_id]) == 1
    assert "gpt+ normalises queries and keys" in capsys.readouterr().err
    assert not (study.root / "export").exists()


def test_a_tokenizer_beside_the_data_is_exported_too(trained, data_dir, tmp_path):
    study, run_id = trained(method="gpt")
    assert not (export_checkpoint(study, run_id, tmp_path / "bytes") / "tokenizer.json").exists()
    (data_dir / "tokenizer.json").write_text("{}")
    try:
        assert (export_checkpoint(study, run_id, tmp_path / "bpe") / "tokenizer.json").read_text() == "{}"
    finally:
        (data_dir / "tokenizer.json").unlink()


def test_a_run_without_a_checkpoint_says_so(make_run, tmp_path):
    run_dir = make_run()
    with pytest.raises(UserError, match=f"no checkpoint of run {run_dir.name} yet"):
        load_run(Study.at(tmp_path), run_dir.name)
    with pytest.raises(UserError, match="no run"):
        load_run(Study.at(tmp_path), "ffff")


def test_a_bf16_run_is_inspected_in_fp32(make_run, tmp_path):
    run_dir = make_run(model={"depth": 2}, precision="bf16-pure")
    assert train(run_dir) == "completed"
    loaded = load_run(Study.at(tmp_path), run_dir.name)
    assert isinstance(loaded.model, Transformer)
    assert inspect_run(Study.at(tmp_path), run_dir.name)["loss_nats"] > 0
