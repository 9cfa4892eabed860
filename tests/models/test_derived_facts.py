"""What follows from the equations of both papers, checked on built models and random matrices."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from scalewright.models.count import n_params
from scalewright.models.errors import ModelError
from scalewright.models.folding import fold_gates, why_unfoldable
from scalewright.models.gating import POSITIONS
from scalewright.models.layers import monte_carlo_nu_acf
from scalewright.models.methods import METHODS
from scalewright.models.methods.angpt import factors
from scalewright.models.options import resolve_options
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer
from scalewright.models.wiring import Scale, Shape

SHAPE = {"width": 16, "depth": 4, "heads": 2, "vocab_size": 19, "context": 12}
TRUNK = ["pre-ln", "lns", "sandwich-ln"]


def tokens_of(spec, seed=0):
    tokens = torch.randint(spec.vocab_size, (3, spec.context + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def unit_rows(*size, dim=-1):
    return F.normalize(torch.randn(*size, generator=torch.Generator().manual_seed(size[0])), dim=dim)


def trained_gates(model, low=0.05, high=0.4):
    """Move the gates off 0, each to another value."""
    with torch.no_grad():
        values = torch.linspace(low, high, model.gates.alpha.numel())
        model.gates.alpha.copy_(values.view_as(model.gates.alpha))
    return model


# anGPT, arXiv:2505.22014


@pytest.mark.parametrize(
    "n_out,n_in,dim,expected",
    [
        (64, 1024, 1, 0.2499),  # queries of one head: sqrt(64 / 1024)
        (1024, 1024, 1, 0.9997),
        (4096, 1024, 1, 1.9995),
        (1024, 4096, 1, 0.49996),
        (1024, 4096, 0, 0.9991),  # columns set to norm 1, as nGPT does with its output projections
    ],
)
def test_expected_norm_of_a_random_linear_map(n_out, n_in, dim, expected):
    w, x = unit_rows(n_out, n_in, dim=dim), unit_rows(400, n_in)
    # E|Wx| over x for one W varies with W by about 1/sqrt(2 n_out n_in) relative; over 400 x by 1/sqrt(800 n_out)
    assert (x @ w.T).norm(dim=-1).mean().item() == pytest.approx(expected, rel=4 / math.sqrt(800 * min(n_out, n_in)))


def test_the_factor_of_the_activation_is_that_of_a_swiglu_with_the_gate_at_std_one_half():
    # the relative error of the estimate is about 1.9 / sqrt(values drawn); three of them
    assert monte_carlo_nu_acf(4096, 32.0) == pytest.approx(3.7244, rel=3e-3)
    assert monte_carlo_nu_acf(256, 8.0) == pytest.approx(3.741, rel=3e-3)


def test_the_factors_of_a_model_are_the_published_ones():
    shape = Shape(1024, 24, 16, 50304, 2048, 4096)
    nu = factors(shape, resolve_options(METHODS["angpt"].options, {}, "angpt"))
    assert (nu.qkv, nu.p, nu.uz, nu.d) == (4.0, 1.0, 0.5, 2.0)
    nu = factors(shape, resolve_options(METHODS["angpt"].options, {"nu_p": "heads"}, "angpt"))
    assert nu.p == 0.25


def test_the_residual_factor_at_the_published_step_sizes():
    for alpha, expected in ((0.01, 1.01005), (0.05, 1.051177), (0.12, 1.1259), (0.25, 1.2649), (0.5, math.sqrt(2))):
        model = Transformer(ModelSpec(**SHAPE, method="angpt", method_options={"alpha_init": alpha}))
        a, b = model.lerps.weights()[0]
        assert a.mean().item() == pytest.approx(expected * (1 - alpha), rel=1e-4)
        assert b.mean().item() == pytest.approx(expected * alpha, rel=1e-4)


def test_the_norm_of_the_stream_stays_near_one_at_the_start_only_with_the_residual_factor():
    norms = {}
    for factor in (1.0, "off", 0.5, 2.0):
        options = {"residual_factor": factor, "alpha_init": 0.05}
        spec = ModelSpec(64, 24, 1, 97, 32, method="angpt", method_options=options)
        model = Transformer(spec)
        norms[factor] = model.stream(tokens_of(spec)[0]).norm(dim=-1).mean().item()
    assert norms[1.0] == pytest.approx(1.0, abs=0.1)
    assert norms["off"] < 0.4 and norms[0.5] < 0.2 and norms[2.0] > 1e12


@pytest.mark.parametrize("name", ["qkv", "p", "acf", "d"])
def test_most_constants_are_inert_under_exact_norms(name):
    """Doubling nu_qkv, nu_p, nu_acf or nu_d changes neither the output nor a gradient; nu_uz acts, through the silu."""
    spec = ModelSpec(**SHAPE, method="angpt")
    results = []
    for factor in (1.0, 2.0):
        model = Transformer(spec, form="plain").double()
        for block in model.blocks:
            change_factor(block, name, factor)
        loss = model.loss(*tokens_of(spec))
        loss.backward()
        results.append((loss, {n: p.grad for n, p in model.named_parameters()}))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)


def change_factor(block, name, factor):
    if name == "acf":
        block.mlp.body.nu_acf *= factor
        return
    body = block.attention.body if name in ("qkv", "p") else block.mlp.body
    body.factors = replace(body.factors, **{name: getattr(body.factors, name) * factor})


def test_the_constant_before_the_silu_is_not_inert():
    def loss(factor):
        model = Transformer(ModelSpec(**SHAPE, method="angpt", method_options={"constant_factors": factor})).double()
        return model.loss(*tokens_of(model.spec)).item()

    assert abs(loss(1.0) - loss(2.0)) > 1e-6


def test_published_parameter_counts_of_angpt():
    """32M, 247M and 0.5B are printed; matrices alone are 32.0, 247.1 and 505.7 million, the rest is vectors."""
    for width, depth, millions in ((256, 6, 32.0), (768, 18, 247.1), (1024, 24, 505.7)):
        spec = ModelSpec(width, depth, width // 64, 50304, 2048, method="angpt")
        vectors = 2 * depth * width + 50304
        assert f"{(n_params(spec, 'total') - vectors) / 1e6:.1f}" == str(millions)


# GPAS, arXiv:2506.22049

PRINTED = {  # width, MLP width, depth, heads -> parameters
    "71M": (512, 1368, 12, 8, 70_578_688),
    "130M": (768, 2048, 12, 12, 134_105_856),
    "250M": (768, 2560, 24, 16, 247_370_496),
    "350M": (1024, 2736, 24, 16, 367_969_280),
    "1B": (2048, 5461, 24, 32, 1_339_082_752),
    "7B": (4096, 11008, 32, 32, 6_738_415_616),
}


@pytest.mark.parametrize("size", list(PRINTED))
def test_published_parameter_counts_of_the_gpas_baselines(size):
    width, mlp_width, depth, heads, total = PRINTED[size]
    spec = ModelSpec(width, depth, heads, 32000, 256, method="pre-ln", mlp_width=mlp_width)
    assert n_params(spec, "total") == total
    gated = ModelSpec(width, depth, heads, 32000, 256, method="pre-ln", gate="gpas", mlp_width=mlp_width)
    assert n_params(gated, "total") == total + depth


def test_a_published_size_builds_with_the_count_printed():
    width, mlp_width, depth, heads, total = PRINTED["71M"]
    with torch.device("meta"):
        model = Transformer(ModelSpec(width, depth, heads, 32000, 256, method="pre-ln", mlp_width=mlp_width))
    assert sum(parameter.numel() for parameter in model.parameters()) == total


@pytest.mark.parametrize("method", TRUNK)
@pytest.mark.parametrize("form", ["plain", "folded"])
def test_gpas_gradients_on_a_trunk_are_the_naive_ones_over_the_product_of_later_factors(method, form):
    models = [
        trained_gates(Transformer(ModelSpec(**SHAPE, method=method, gate=gate, experimental=True), form=form).double())
        for gate in ("gpas", "naive")
    ]
    for model in models:
        model.loss(*tokens_of(model.spec)).backward()
    gpas, naive = (dict(model.named_parameters()) for model in models)
    factors = [factor.item() for pair in models[0].gates.factors() for factor in pair]
    for name, parameter in naive.items():
        if name.startswith("gates"):
            continue
        later = math.prod(factors[first_site(name) :])
        torch.testing.assert_close(gpas[name].grad, parameter.grad / later, rtol=1e-8, atol=1e-12)


def first_site(name):
    """Return the first gate that a parameter's gradient passes through."""
    if name.startswith("embedding"):
        return 0
    if not name.startswith("blocks"):
        return None if name.startswith("gates") else 10**6
    _, layer, kind = name.split(".")[:3]
    return 2 * int(layer) + (kind == "mlp")


@pytest.mark.parametrize("method", ["deepnorm", "mix-ln"])
def test_gpas_gradients_on_a_shortcut_are_not_parallel_to_the_naive_ones(method):
    grads = []
    for gate in ("gpas", "naive"):
        model = trained_gates(Transformer(ModelSpec(**SHAPE, method=method, gate=gate, experimental=True)).double())
        with torch.no_grad():
            for block in model.blocks:
                block.mlp.body.uz.mul_(20)  # away from the start, where sub-layers add next to nothing
        model.loss(*tokens_of(model.spec)).backward()
        grads.append(model.blocks[0].attention.body.out.grad.flatten())
    assert F.cosine_similarity(*grads, dim=0).item() < 1 - 1e-9


def test_the_last_gate_of_a_trunk_is_dead():
    """It feeds a norm alone, so its factor cancels up to eps: the function stays, its gradient nearly vanishes."""
    spec = ModelSpec(**SHAPE, method="pre-ln", gate="gpas-per-sublayer")
    model = trained_gates(Transformer(spec))
    tokens, targets = tokens_of(spec)
    before = model(tokens)
    model.loss(tokens, targets).backward()
    grads = model.gates.alpha.grad.flatten().abs()
    with torch.no_grad():
        model.gates.alpha[-1, -1] += 0.3
    torch.testing.assert_close(model(tokens), before, rtol=1e-4, atol=1e-5)
    assert grads[-1] < 5e-3 * grads[:-1].median()


@pytest.mark.parametrize("eps,tolerance", [(1e-6, 1e-3), (1e-12, 2e-6)])
@pytest.mark.parametrize("method", ["gpt", "gpt+", "pre-ln", "sandwich-ln", "mix-ln", "lns", "deepnorm", "scale-res"])
def test_folding_the_gates_keeps_the_logits_up_to_eps(method, eps, tolerance):
    spec = ModelSpec(**SHAPE, method=method, gate="gpas", norm_eps=eps, init_options={"embedding_std": 0.6})
    model = trained_gates(Transformer(spec))
    tokens, _ = tokens_of(spec)
    with torch.no_grad():
        torch.testing.assert_close(fold_gates(model)(tokens), model(tokens), rtol=0, atol=tolerance)


def foldable_specs():
    """Every method with every gate at every position that the model allows and that folds."""
    for method, gate, position in itertools.product(METHODS, ("naive", "fixed", "gpas-per-sublayer"), POSITIONS):
        try:
            options = {"position": position, **({"values": [0.3, -0.2, 0.1, 0.2]} if gate == "fixed" else {})}
            spec = ModelSpec(**SHAPE, method=method, gate=gate, gate_options=options, norm_eps=1e-12, experimental=True)
        except ModelError:
            continue
        if why_unfoldable(spec) is None:
            yield pytest.param(spec, id=f"{method}-{gate}-{position}")


@pytest.mark.parametrize("spec", list(foldable_specs()))
def test_folding_works_for_every_placement_gate_and_position(spec):
    model = Transformer(spec).double()
    model = model if spec.gate == "fixed" else trained_gates(model)
    with torch.no_grad():
        for block in model.blocks:  # away from the start, where sub-layers add next to nothing
            block.attention.body.qkv.mul_(3)
            block.mlp.body.uz.mul_(3)
        tokens, targets = tokens_of(spec)
        folded = fold_gates(model).double()
        torch.testing.assert_close(folded(tokens), model(tokens), rtol=0, atol=2e-6)
        assert abs(Transformer.loss(folded, tokens, targets) - model.loss(tokens, targets)) < 1e-6


@pytest.mark.parametrize("position", ["before-sublayer", "after-norm", "after-module"])
def test_each_ablated_position_scales_what_it_names(position):
    """With alpha set, all positions compute different functions, and none of them is the ungated one."""
    spec = ModelSpec(**SHAPE, method="pre-ln", gate="gpas", gate_options={"position": position})
    model, tokens = trained_gates(Transformer(spec)), tokens_of(spec)[0]
    block, factor = model.blocks[0], model.gate_factors()[0][0]
    x = torch.randn(2, spec.context, spec.width)
    y = block.attention(x, model.table, factor, None)

    def body(v):
        return block.attention.body(v, model.table)

    pre = block.attention.pre
    expected = {
        "before-sublayer": lambda: x * factor + body(pre(x * factor)),
        "after-norm": lambda: x + body(pre(x) * factor),
        "after-module": lambda: x + body(pre(x)) * factor,
    }[position]()
    torch.testing.assert_close(y, expected)
    assert not torch.allclose(model(tokens), fold_free(model)(tokens))


def fold_free(model):
    """Return the same weights without gates."""
    plain = Transformer(replace(model.spec, gate="none", gate_options={}))
    plain.load_state_dict({n: v for n, v in model.state_dict().items() if not n.startswith("gates.")})
    return plain


def test_a_scale_counts_what_it_learns():
    scale = Scale(1.0, 0.5)
    assert [one.n_values(7) for one in (scale, replace(scale, shape="scalar"), replace(scale, learned=False))] == [
        7,
        1,
        0,
    ]
