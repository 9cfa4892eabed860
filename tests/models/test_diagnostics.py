"""Diagnostics against values computed by hand from the same model, and on models whose answer is known."""

import math

import pytest
import torch
import torch.nn.functional as F

from scalewright.models.diagnostics import DIAGNOSTICS, collect
from scalewright.models.errors import ModelError
from scalewright.models.inspection import factor_errors, layer_importance, strange_norms
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

SHAPE = {"width": 16, "depth": 3, "heads": 2, "vocab_size": 19, "context": 12, "mlp_width": 24}


def build(method="pre-ln", gate="none", **options):
    return Transformer(ModelSpec(**SHAPE, method=method, gate=gate, gate_options=options))


def batch():
    tokens = torch.randint(19, (4, 13), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("method", list(METHODS))
def test_every_diagnostic_is_finite_documented_and_has_a_value_a_layer(method):
    values = collect(build(method), *batch())
    assert set(values) <= set(DIAGNOSTICS)
    for name, items in values.items():
        assert len(items) == (1 if name.startswith("logit") else 3), name
        assert all(math.isfinite(item) for item in items), name


def test_the_stream_is_described_as_by_hand():
    model = build(gate="gpas", init=0.3)
    values = collect(model, *batch())
    x = model.embedding(batch()[0])
    share = 0.3 / (1 + math.exp(-0.3))
    for layer, block in enumerate(model.blocks):
        y = block(x, model.table, model.gate_factors()[layer], (None, None))
        assert values["activation_variance"][layer] == pytest.approx(y.var(-1, correction=0).mean().item(), rel=1e-4)
        before = (y / (1 - share)).var(-1, correction=0).mean().item()
        assert values["activation_variance_before_gate"][layer] == pytest.approx(before, rel=1e-4)
        assert values["activation_norm"][layer] == pytest.approx(y.norm(dim=-1).mean().item(), rel=1e-4)
        cosine = (x * y).sum(-1) / x.norm(dim=-1) / y.norm(dim=-1)
        assert values["angular_distance"][layer] == pytest.approx((cosine.arccos() / math.pi).mean().item(), rel=1e-3)
        x = y
    assert values["gate_alpha"] == pytest.approx([0.3] * 3)
    assert values["gate_factor_mlp"] == pytest.approx([1 - share] * 3, rel=1e-5)


def test_bodies_are_described_by_what_they_read_and_return():
    model = build("sandwich-ln")
    values = collect(model, *batch())
    x = model.embedding(batch()[0])
    body = model.blocks[0].attention.body
    read = model.blocks[0].attention.pre(x)
    h = body(read, model.table)
    ratio = (read.norm(dim=-1).mean() / h.norm(dim=-1).mean()).item()
    assert values["norm_ratio_attention"][0] == pytest.approx(ratio, rel=1e-4)
    assert values["cosine_attention"][0] == pytest.approx(F.cosine_similarity(x, h, dim=-1).mean().item(), abs=1e-5)


def test_norm_ratios_of_angpt_are_near_one_at_the_start_since_factors_stand_before_the_post_norm():
    values = collect(
        Transformer(ModelSpec(64, 2, 1, 97, 16, method="angpt")),
        *(torch.randint(97, (4, 16), generator=torch.Generator().manual_seed(i)) for i in (0, 1)),
    )
    assert values["norm_ratio_mlp"] == pytest.approx([1.0, 1.0], abs=0.1)
    assert values["step_attention"] == pytest.approx([0.01, 0.01])


def test_gradients_are_those_of_the_loss_and_the_models_own_stay_as_they_were():
    model = build()
    values = collect(model, *batch())
    assert all(parameter.grad is None for parameter in model.parameters())
    model.loss(*batch()).backward()
    for layer, block in enumerate(model.blocks):
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in block.parameters()))
        assert values["gradient_norm"][layer] == pytest.approx(norm, rel=1e-4)
        norm = math.sqrt(sum(p.square().sum().item() for p in block.parameters()))
        assert values["weight_norm"][layer] == pytest.approx(norm, rel=1e-5)


def test_a_layer_that_adds_nothing_has_no_importance():
    model = build()
    with torch.no_grad():
        model.blocks[1].attention.body.out.zero_()
        model.blocks[1].mlp.body.out.zero_()
    importance = layer_importance(model, *batch())
    assert importance.gates == "none"
    assert importance.change_nats[1] == 0 and importance.change_nats[0] != 0
    assert importance.loss_nats == pytest.approx(model.loss(*batch()).item())


def test_importance_says_whether_gates_were_kept_or_folded_and_these_differ():
    model = build(gate="gpas", init=0.4)
    kept, folded = (layer_importance(model, *batch(), gates=word) for word in ("kept", "folded"))
    assert (kept.gates, folded.gates) == ("kept", "folded")
    assert kept.loss_nats == pytest.approx(folded.loss_nats, abs=1e-5)
    assert kept.change_nats[0] != pytest.approx(folded.change_nats[0], rel=1e-3)
    with pytest.raises(ModelError, match="expected folded or kept"):
        layer_importance(model, *batch(), gates="both")


def test_norms_on_repeated_tokens_are_compared_with_those_on_text():
    norms = strange_norms(build("post-ln"), batch()[0])
    assert len(norms.text) == len(norms.repeated) == 3
    assert norms.ratio == pytest.approx(1.0, rel=1e-3)  # a Post-LN stream has norm sqrt(width) on any input
    assert norms.text[0] == pytest.approx(4.0, rel=1e-3)
    assert strange_norms(build("pre-ln"), batch()[0]).ratio != pytest.approx(1.0, rel=1e-6)


def test_errors_of_the_factors_are_the_published_ones():
    """At width 1024 and heads of 64: 1.17 %, .07 %, .02 % and .07 %, all below 2 %."""
    errors = factor_errors(ModelSpec(1024, 1, 16, 100, 16, method="angpt"), n_samples=4000)
    assert errors["qkv"] == pytest.approx(0.0117, abs=0.002)
    assert errors["p"] == pytest.approx(0.0007, abs=0.001)
    assert errors["uz"] == pytest.approx(0.0002, abs=0.001)
    assert errors["d"] == pytest.approx(0.0007, abs=0.001)
