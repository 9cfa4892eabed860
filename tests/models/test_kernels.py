"""Hand-written gradients against the plain equations under autograd, in fp64; and what they save and how they round."""

import pytest
import torch

from scalewright.models import forms, fused
from scalewright.models.forms import FOLDED, PLAIN
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

B, T, H, C = 3, 7, 2, 6
D = H * C


def tensors(*sizes, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]


def compare(kernel, equation, inputs, *constants):
    """Check outputs and input gradients under one random upstream gradient."""
    results = []
    for function in (kernel, equation):
        y = function(*inputs, *constants)
        y = y if isinstance(y, tuple) else (y,)
        upstream = [item.detach() for item in tensors(*(item.shape for item in y), seed=9)]
        results.append((y, torch.autograd.grad(y, inputs, upstream)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)


def test_unit_norm():
    compare(fused.Unit.apply, forms.unit, tensors((B, T, D)))


def test_rms_norm():
    compare(fused.Rms.apply, forms.rms, tensors((B, T, D), (D,)), 1e-3)


@pytest.mark.parametrize("length", [D, 1])
def test_interpolation_with_a_unit_norm(length):
    compare(fused.UnitLerp.apply, forms.unit_lerp, tensors((B, T, D), (B, T, D), (length,), (length,)))


def test_a_half_precision_output_joins_a_full_precision_stream_in_full_precision():
    (x, h), (a, b) = (tensors(*sizes, dtype=torch.float32) for sizes in (((B, T, D), (B, T, D)), ((D,), (D,))))
    half = h.detach().bfloat16().requires_grad_()
    got, expected = (fused.UnitLerp.apply(x, item, a, b) for item in (half, half.detach().float()))
    assert torch.equal(got, expected)
    got.sum().backward()
    assert half.grad.dtype == torch.bfloat16


def test_swiglu():
    compare(fused.SwiGlu.apply, forms.swiglu, tensors((B, T, 2 * D)))


@pytest.mark.parametrize("eps", [None, -1.0, 1e-3])
def test_heads(eps):
    angle = torch.randn(T, C // 2, dtype=torch.float64)
    table = torch.stack((angle.cos(), angle.sin()), -1).repeat(1, 2 * H, 1)
    compare(fused.Heads.apply, forms.heads, tensors((B, T, 3 * D)), table, H, eps)


@pytest.mark.parametrize("factor", [1.0, 0.9, 1.2, -0.5, 1e-6, 1e-30])
def test_gates(factor):
    """The equation is x - (1 - f) stopgrad(x), also where f is as good as 0 and x has to be had back from f x."""
    f = torch.tensor(factor, dtype=torch.float64, requires_grad=True)
    (x, h), g = tensors((B, T, D), (B, T, D)), tensors((B, T, D), seed=4)[0].detach()
    d_x, d_f = torch.autograd.grad(fused.Gated.apply(x, f), (x, f), g)
    assert torch.equal(d_x, g)
    torch.testing.assert_close(d_f, (x * g).sum(), rtol=1e-9, atol=1e-12)
    d_x, d_h, d_f = torch.autograd.grad(fused.GatedSum.apply(x, h, f), (x, h, f), g)
    assert torch.equal(d_x, g) and torch.equal(d_h, g)
    torch.testing.assert_close(d_f, ((x + h) * g).sum(), rtol=1e-9, atol=1e-12)
    shortcut = fused.GatedShortcut.apply(x, h, f, 2.2)
    d_x, d_h, d_f = torch.autograd.grad(shortcut, (x, h, f), g)
    assert torch.equal(d_x, 2.2 * g) and torch.equal(d_h, g)
    torch.testing.assert_close(d_f, 2.2 * (x * g).sum(), rtol=1e-9, atol=1e-12)
    if abs(factor) > 1e-3:
        compare(fused.GatedShortcut.apply, forms.gated_shortcut, [x, h, f], 2.2)
        compare(fused.Gated.apply, forms.gated, [x, f])
        compare(fused.GatedSum.apply, forms.gated_sum, [x, h, f])


def test_a_gate_that_multiplies_by_zero_still_learns():
    """The factor is kept a hair off 0, so that x can be had back from the output and alpha has a gradient."""
    options = {"activation": "identity", "init": 1.0}
    model = Transformer(ModelSpec(16, 2, 2, 19, 12, method="pre-ln", gate="gpas", gate_options=options))
    tokens = torch.randint(19, (2, 12), generator=torch.Generator().manual_seed(0))
    model.loss(tokens, tokens).backward()
    assert model.gates.alpha.grad.isfinite().all() and (model.gates.alpha.grad[0] != 0).all()


def test_the_gate_saves_nothing_but_its_output():
    """The output is what the next norm saves anyway; the ungated sum saves nothing, and so do its inputs here."""
    x, h = tensors((B, T, D), (B, T, D), dtype=torch.float32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = fused.GatedSum.apply(x, h, torch.tensor(0.9, requires_grad=True))
    assert sorted(t.numel() for t in saved) == [1, y.numel()]
    assert any(t.data_ptr() == y.data_ptr() for t in saved)


def test_the_gate_computes_its_factor_in_fp32_in_a_bf16_network():
    """Rounding 0.9975 to bf16 gives 0.99609375, a share half as large again; only the product may be rounded."""
    x = (1 + torch.rand(2000, generator=torch.Generator().manual_seed(0))).bfloat16()
    for kernel in (fused.Gated.apply, forms.gated, lambda x, f: fused.GatedSum.apply(x, torch.zeros_like(x), f)):
        assert torch.equal(kernel(x, torch.tensor(0.9975)), (x.double() * 0.9975).bfloat16())


def test_the_gradient_of_alpha_is_summed_in_fp32_in_a_bf16_network():
    x, g = (torch.full((1, 70_000), v, dtype=torch.bfloat16) for v in (1.0, 0.0078125))
    f = torch.tensor(1.0, requires_grad=True)
    fused.Gated.apply(x.requires_grad_(), f).backward(g)
    assert f.grad.dtype == torch.float32 and f.grad.item() == pytest.approx(70_000 * 0.0078125)


def test_gradients_of_norms_stay_in_full_precision_when_backward_runs_under_autocast():
    (x, h), (gain, b) = (tensors(*sizes, dtype=torch.float32) for sizes in (((B, T, D), (B, T, D)), ((D,), (D,))))

    def gradients():
        y = fused.Rms.apply(x, gain, 1e-6) + fused.UnitLerp.apply(x, h, gain, b) + fused.Unit.apply(h)
        return torch.autograd.grad(y.sin().sum(), (x, h, gain, b))

    expected = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients()
    assert all(torch.equal(one, two) for one, two in zip(got, expected, strict=True))


@pytest.mark.parametrize("gate", ["none", "gpas"])
@pytest.mark.parametrize("method", ["gpt+", "deepnorm", "ngpt", "angpt"])
def test_pure_bf16_and_autocast_models_train_near_the_fp32_one(method, gate):
    if gate == "gpas" and method in ("ngpt", "angpt"):
        pytest.skip("no such combination")
    spec = ModelSpec(32, 2, 2, 19, 12, method=method, gate=gate)
    tokens = torch.randint(19, (2, 13), generator=torch.Generator().manual_seed(0))
    expected = Transformer(spec).loss(tokens[:, :-1], tokens[:, 1:])
    pure = Transformer(spec).bfloat16()
    loss = pure.loss(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        mixed_model = Transformer(spec)
        mixed = mixed_model.loss(tokens[:, :-1], tokens[:, 1:])
    mixed.backward()
    assert loss.dtype == mixed.dtype == torch.float32
    assert all(p.grad.isfinite().all() for model in (pure, mixed_model) for p in model.parameters())
    assert loss.item() == pytest.approx(expected.item(), abs=0.03)
    assert mixed.item() == pytest.approx(expected.item(), abs=0.03)


def test_both_forms_name_the_same_operations():
    assert not PLAIN.folded and FOLDED.folded
