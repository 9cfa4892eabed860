"""The options of anGPT, nGPT and LNS: each changes what its source says, and both forms agree."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

SHAPE = {"width": 16, "depth": 2, "heads": 2, "vocab_size": 19, "context": 12, "mlp_width": 24}
VALUES = {"alpha_init": [0.01, 0.05], "logit_scale_init": [1.0, 4.0], "ratio": [0.25, 0.5]}


def choices(option, name):
    if option.choices:
        return list(option.choices)
    return VALUES.get(name, [False, True])


CASES = [
    (method, name, value)
    for method in METHODS
    for name, option in METHODS[method].options.items()
    for value in choices(option, name)
]


def build(method, form="folded", **options):
    spec = ModelSpec(**SHAPE, method=method, method_options=options)
    model = Transformer(spec, form=form).double()
    with torch.no_grad():  # off the starting point, where several options would coincide
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "lerps" in name:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
                parameter.mul_(1 + 0.3 * noise)
    return model


def batch():
    tokens = torch.randint(19, (2, 13), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("method,name,value", CASES, ids=str)
def test_plain_and_folded_agree_in_loss_and_gradients_under_every_option(method, name, value):
    losses, grads = [], []
    for form in ("plain", "folded"):
        model = build(method, form, **{name: value})
        loss = model.loss(*batch())
        loss.backward()
        losses.append(loss)
        grads.append({n: p.grad for n, p in model.named_parameters()})
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-8, atol=0)
    for name in grads[0]:  # the folded constants are stored in fp32
        size = grads[0][name].abs().max().item()
        torch.testing.assert_close(grads[0][name], grads[1][name], rtol=1e-6, atol=1e-6 * size + 1e-12)


INERT_AT_THE_START = {"constraint", "alpha_abs"}  # act on training, or on negative step sizes


@pytest.mark.parametrize("method,name", sorted({case[:2] for case in CASES}))
def test_every_option_changes_something(method, name):
    values = choices(METHODS[method].options[name], name)
    losses, grads = set(), set()
    for value in values:
        model = build(method, "plain", **{name: value})
        model.loss(*batch()).backward()
        losses.add(round(model.loss(*batch()).item(), 7))
        grads.add(round(model.lerps.raw.grad.norm().item(), 9) if model.lerps is not None else 0)
    if name in INERT_AT_THE_START or name == "nu_p":  # nu_p is undone by the exact norm that follows
        assert len(losses) == 1
    elif name == "residual_factor_gradient":
        assert len(losses) == 1 and len(grads) == 2
    elif name == "trainable":
        assert count(method, trainable=True) == count(method)
    else:
        assert len(losses) == len(values)


def count(method, **options):
    return sum(parameter.numel() for parameter in build(method, **options).parameters())


def test_every_option_has_a_doc_and_a_source():
    for method in METHODS.values():
        assert method.doc and method.source
        assert all(option.doc and option.source for option in method.options.values())


def test_scalar_and_fixed_scales_add_the_parameters_they_should():
    width, mlp, vocab, depth = 16, 24, 19, 2
    full = count("ngpt")
    assert full - count("ngpt", alpha_shape="scalar") == 2 * depth * (width - 1)
    assert full - count("ngpt", scale_shape="scalar") == depth * (width - 1 + 2 * (mlp - 1))
    assert full - count("ngpt", logit_scale_shape="scalar") == vocab - 1
    assert full - count("ngpt", fixed_scales=True) == depth * (width + 2 * mlp)
    assert count("angpt", learned_scales="all") - count("angpt") == depth * (width + 2 * mlp)
    assert count("angpt") - count("angpt", join="add") == 2 * depth * width


def test_adam_moves_an_effective_scale_by_the_rate_times_init_over_stored():
    """arXiv:2505.22014, section 4.3: alpha moves by lr 0.01 sqrt(width) in the first step, s by lr sqrt(width)."""
    model = Transformer(ModelSpec(**SHAPE, method="angpt"))
    before = model.lerps.steps().detach().clone(), model.head.scale().detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.loss(*batch()).backward()
    optimizer.step()
    moved = (model.lerps.steps() - before[0]).abs(), (model.head.scale() - before[1]).abs()
    assert moved[0].median().item() == pytest.approx(1e-3 * 0.01 * math.sqrt(16), rel=1e-2)
    assert moved[1].median().item() == pytest.approx(1e-3 * math.sqrt(16), rel=1e-2)


@pytest.mark.parametrize("method", ["angpt", "ngpt"])
def test_the_logit_scale_starts_where_it_is_told_to_and_moves_in_proportion(method):
    model = Transformer(ModelSpec(**SHAPE, method=method, method_options={"logit_scale_init": 3.0}))
    before = model.head.scale().detach().clone()
    torch.testing.assert_close(before, torch.full_like(before, 3.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.loss(*batch()).backward()
    optimizer.step()
    moved = (model.head.scale() - before).abs()
    assert moved.median().item() == pytest.approx(1e-3 * 3.0 * math.sqrt(16), rel=1e-2)


def test_exact_normalisation_puts_a_norm_where_each_factor_stood():
    """Restated: norms of v, u, z, the product and the stream, and none of the factors."""
    model = build("angpt", normalisation="exact")
    tokens = batch()[0]
    x = model.embedding(tokens)
    for layer, block in enumerate(model.blocks):
        q, k, v = F.linear(x, block.attention.body.qkv).unflatten(-1, (3, 2, 8)).unbind(2)
        q, k, v = (F.normalize(y, dim=-1).transpose(1, 2) for y in (turned(q, model), turned(k, model), v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=math.sqrt(8)).transpose(1, 2).flatten(2)
        x = joined(x, o @ block.attention.body.out.T, model.lerps.steps()[2 * layer])
        u, z = (F.normalize(y, dim=-1) for y in F.linear(x, block.mlp.body.uz).chunk(2, -1))
        inner = F.normalize(u * F.silu(4.0 * z), dim=-1)
        x = joined(x, inner @ block.mlp.body.out.T, model.lerps.steps()[2 * layer + 1])
    torch.testing.assert_close(model.stream(tokens), x, rtol=1e-9, atol=1e-12)


def turned(x, model):
    cos, sin = model.table[:, None, :4].unbind(-1)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)).flatten(-2)


def joined(x, h, alpha):
    return F.normalize(x + alpha * (F.normalize(h, dim=-1) - x), dim=-1)


def test_the_standard_residual_of_angpt_divides_the_sum_by_the_root_of_two():
    model = build("angpt", join="add")
    block, x = model.blocks[0], torch.randn(2, 12, 16, dtype=torch.float64)
    h = F.normalize(block.attention.body(x, model.table), dim=-1)
    torch.testing.assert_close(block.attention(x, model.table, None, None), (x + h) / math.sqrt(2))


def test_without_qk_norm_the_factor_of_the_queries_acts():
    losses = [build("angpt", qk_norm=False, constant_factors=factor).loss(*batch()).item() for factor in (1.0, 2.0)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-9)


def test_lns_scales_norm_outputs_by_a_fixed_factor_or_by_the_first_value_of_the_gain():
    fixed, trainable = build_lns(False), build_lns(True)
    for layer, (one, two) in enumerate(zip(fixed.blocks, trainable.blocks, strict=True), start=1):
        for a, b in ((one.attention.pre, two.attention.pre), (one.mlp.pre, two.mlp.pre)):
            assert (a.scale, b.scale) == (1 / math.sqrt(layer), 1.0)
            assert a.gain.eq(1).all()
            torch.testing.assert_close(b.gain.detach(), torch.full((16,), 1 / math.sqrt(layer)))
    torch.testing.assert_close(fixed(batch()[0]), trainable(batch()[0]))


def build_lns(trainable):
    return Transformer(ModelSpec(**{**SHAPE, "depth": 3}, method="lns", method_options={"trainable": trainable}))


@pytest.mark.parametrize(
    "depth,ratio,n_post",
    [
        (12, 0.25, 3),
        (24, 0.25, 6),
        (32, 0.0625, 2),
        (2, 0.25, 0),
        (4, 1.0, 4),
        (100, 0.29, 29),
    ],
)
def test_mix_ln_is_post_ln_in_the_first_layers(depth, ratio, n_post):
    spec = ModelSpec(**{**SHAPE, "depth": depth}, method="mix-ln", method_options={"ratio": ratio})
    kinds = [spec.wiring(layer).out is not None for layer in range(depth)]
    assert kinds == [True] * n_post + [False] * (depth - n_post)


def test_deepnorm_constants_are_those_of_the_paper():
    for depth, alpha in ((12, 2.213364), (24, 2.632148), (32, 2.828427)):
        spec = ModelSpec(**{**SHAPE, "depth": depth}, method="deepnorm")
        assert spec.wiring(0).residual_scale == pytest.approx(alpha, abs=1e-6)


@pytest.mark.parametrize("activation", ["silu", "identity", "relu", "tanh", "leaky_relu", "scale_silu"])
def test_gate_activations(activation):
    spec = ModelSpec(**SHAPE, method="pre-ln", gate="gpas", gate_options={"activation": activation, "init": 0.3})
    share = {
        "silu": 0.3 / (1 + math.exp(-0.3)),
        "identity": 0.3,
        "relu": 0.3,
        "tanh": math.tanh(0.3),
        "leaky_relu": 0.3,
        "scale_silu": 0.3 / (1 + math.exp(-2.4)),
    }[activation]
    for pair in Transformer(spec).gates.factors():
        assert [f.item() for f in pair] == pytest.approx([1 - share] * 2, rel=1e-6)


def test_a_gate_with_its_true_gradient_scales_as_one_without():
    stopped, true = (Transformer(ModelSpec(**SHAPE, method="pre-ln", gate=g)) for g in ("gpas", "naive"))
    true.load_state_dict(stopped.state_dict())
    with torch.no_grad():
        for model in (stopped, true):
            model.gates.alpha.fill_(0.3)
        torch.testing.assert_close(true(batch()[0]), stopped(batch()[0]), rtol=1e-5, atol=1e-6)


def test_gates_are_shared_within_a_layer_as_published_or_not():
    shared, split = (Transformer(ModelSpec(**SHAPE, method="pre-ln", gate=g)) for g in ("gpas", "gpas-per-sublayer"))
    assert shared.gates.alpha.shape == (2, 1) and split.gates.alpha.shape == (2, 2)


def test_fixed_gates_take_one_value_or_one_a_layer_and_learn_nothing():
    for values, expected in ((0.1, [0.9, 0.9]), ([0.1, 0.2], [0.9, 0.8])):
        spec = ModelSpec(**SHAPE, method="pre-ln", gate="fixed", gate_options={"values": values})
        model = Transformer(spec)
        assert [f[0].item() for f in model.gates.factors()] == pytest.approx(expected)
        assert not [name for name, _ in model.named_parameters() if "gates" in name]


def test_pairs_of_angpt_options_build_and_run():
    """Ablations are combined in practice; every pair of the structural ones gives a finite loss in both forms."""
    table = METHODS["angpt"].options
    structural = ["normalisation", "join", "qk_norm", "learned_scales", "constant_factors", "residual_factor"]
    for one, two in itertools.combinations(structural, 2):
        for a, b in itertools.product(choices(table[one], one), choices(table[two], two)):
            losses = [build("angpt", form, **{one: a, two: b}).loss(*batch()).item() for form in ("plain", "folded")]
            assert losses[0] == pytest.approx(losses[1], rel=1e-8), (one, a, two, b)
