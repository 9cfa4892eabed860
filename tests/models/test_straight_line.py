"""Every method and gate restated with einsum and loops, no shared code: outputs and all gradients agree in fp64."""

import math

import pytest
import torch
from torch import einsum

from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

D, L, H, V, T, F = 12, 4, 2, 17, 9, 20
C = D // H
EPS = 1e-6
GATED = ["gpt", "gpt+", "pre-ln", "sandwich-ln", "mix-ln", "lns", "deepnorm", "scale-res"]


def rms_norm(x, gain):
    return x / (einsum("...d,...d->...", x, x) / x.shape[-1] + EPS).sqrt()[..., None] * gain


def unit_norm(x):
    return x / einsum("...d,...d->...", x, x).sqrt()[..., None]


def silu(x):
    return x / (1 + torch.exp(-x))


def rope(x):
    """x (time, channels) of one head: pair i turns by t 10000^(-2i/c)."""
    rows = []
    for t in range(x.shape[0]):
        row = []
        for i in range(C // 2):
            angle = t * 10000.0 ** (-2 * i / C)
            a, b = x[t, 2 * i], x[t, 2 * i + 1]
            row += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def attention(p, x, *, treat, scale=C**-0.5, nu=1.0, nu_p=1.0):
    """treat(q or k of one head, head, which) is what happens after the rotation."""
    w_q, w_k, w_v = p["qkv"][:D], p["qkv"][D : 2 * D], p["qkv"][2 * D :]
    sequences = []
    for sequence in x:
        heads = []
        for head in range(H):
            rows = slice(head * C, (head + 1) * C)
            q, k, v = (nu * einsum("td,cd->tc", sequence, w[rows]) for w in (w_q, w_k, w_v))
            q, k = treat(rope(q), head, 0), treat(rope(k), head, 1)
            out = []
            for t in range(T):
                scores = torch.stack([scale * einsum("c,c->", q[t], k[s]) for s in range(t + 1)])
                weights = torch.exp(scores - scores.max()) / torch.exp(scores - scores.max()).sum()
                out.append(einsum("s,sc->c", weights, v[: t + 1]))
            heads.append(torch.stack(out))
        sequences.append(torch.cat(heads, -1))
    return nu_p * einsum("btd,od->bto", torch.stack(sequences), p["attention_out"])


def mlp(p, x, *, s_u=1.0, s_z=1.0, nu=1.0, nu_acf=1.0, nu_d=1.0):
    u = s_u * nu * einsum("btd,fd->btf", x, p["uz"][:F])
    z = s_z * nu * einsum("btd,fd->btf", x, p["uz"][F:])
    return nu_d * einsum("btf,df->btd", nu_acf * u * silu(z), p["mlp_out"])


def untreated(q, head, which):
    return q


def gate(x, s):
    """GPAS, equation 2: the factor acts on values only."""
    return x - s * x.detach()


def straight(method, p, tokens, shares):
    """Return logits; p: parameters by name, one dict a layer under p[l]; shares[l]: s of the layer."""
    x = p["embedding"][tokens]
    x = rms_norm(x, p["first"]) if method == "peri-ln" else x
    for layer in range(L):
        q = p[layer]
        a, m = (lambda y, q=q: attention(q, y, treat=untreated)), (lambda y, q=q: mlp(q, y))
        x = LAYERS[method](q, x, a, m, layer, lambda y, s=shares[layer]: y if s is None else gate(y, s))
    if method == "ngpt":
        return math.sqrt(D) * p["logit_scale"] * einsum("btd,vd->btv", x, p["head"])
    if method == "angpt":
        return math.sqrt(D) * p["logit_scale"] * einsum("btd,vd->btv", x, p["head"])
    return einsum("btd,vd->btv", rms_norm(x, p["final"]), p["head"])


def pre_ln(q, x, a, m, layer, g):
    x = g(x + a(rms_norm(x, q["pre_a"])))
    return g(x + m(rms_norm(x, q["pre_m"])))


def gpt_plus(q, x, a, m, layer, g):
    def treat(y, head, which):
        return rms_norm(y, q["k_gain"] if which else q["q_gain"])

    return pre_ln(q, x, lambda y: attention(q, y, treat=treat), m, layer, g)


def post_ln(q, x, a, m, layer, g):
    x = rms_norm(g(x) + a(x), q["out_a"])
    return rms_norm(g(x) + m(x), q["out_m"])


def deepnorm(q, x, a, m, layer, g):
    weight = (2 * L) ** 0.25
    x = rms_norm(weight * g(x) + a(x), q["out_a"])
    return rms_norm(weight * g(x) + m(x), q["out_m"])


def sandwich(q, x, a, m, layer, g):
    x = g(x + rms_norm(a(rms_norm(x, q["pre_a"])), q["post_a"]))
    return g(x + rms_norm(m(rms_norm(x, q["pre_m"])), q["post_m"]))


def peri_ln(q, x, a, m, layer, g):
    return sandwich(q, x, a, m, layer, g)


def mix_ln(q, x, a, m, layer, g):
    return (post_ln if layer < L // 4 else pre_ln)(q, x, a, m, layer, g)


def lns(q, x, a, m, layer, g):
    x = g(x + a(rms_norm(x, q["pre_a"]) / math.sqrt(layer + 1)))
    return g(x + m(rms_norm(x, q["pre_m"]) / math.sqrt(layer + 1)))


def scale_res(q, x, a, m, layer, g):
    x = g((1 - 1 / L) * x + (1 / L) * a(rms_norm(x, q["pre_a"])))
    return g((1 - 1 / L) * x + (1 / L) * m(rms_norm(x, q["pre_m"])))


def ngpt(q, x, a, m, layer, g):
    root = math.sqrt(D)

    def treat(y, head, which):
        return unit_norm(y) * (q["s_qk"] * root)[head * C : (head + 1) * C]

    h = unit_norm(attention(q, x, treat=treat, scale=math.sqrt(C)))
    x = unit_norm(x + (q["alpha_a"] * 0.05 * root).abs() * (h - x))
    h = unit_norm(mlp(q, x, s_u=q["s_u"], s_z=q["s_z"] * root))
    return unit_norm(x + (q["alpha_m"] * 0.05 * root).abs() * (h - x))


def angpt(q, x, a, m, layer, g):
    root = math.sqrt(D)

    def join(x, h, raw):
        alpha = (raw * 0.01 * root).abs()
        return (x + alpha * (h - x)) / (alpha**2 + (1 - alpha) ** 2).sqrt()

    h = attention(q, x, treat=lambda y, head, which: unit_norm(y), scale=math.sqrt(C), nu=math.sqrt(D / C), nu_p=1.0)
    x = join(x, unit_norm(h), q["alpha_a"])
    h = mlp(q, x, s_z=root, nu=math.sqrt(D / F), nu_acf=3.7, nu_d=math.sqrt(F / D))
    return join(x, unit_norm(h), q["alpha_m"])


LAYERS = {
    "gpt": pre_ln,
    "gpt+": gpt_plus,
    "pre-ln": pre_ln,
    "post-ln": post_ln,
    "deepnorm": deepnorm,
    "sandwich-ln": sandwich,
    "peri-ln": peri_ln,
    "mix-ln": mix_ln,
    "lns": lns,
    "scale-res": scale_res,
    "ngpt": ngpt,
    "angpt": angpt,
}
ENDS = {
    "embedding": "embedding.weight",
    "head": "head.weight",
    "final": "final_norm.gain",
    "first": "embedding_norm.gain",
    "logit_scale": "head.scale.raw",
}
INSIDE = {
    "qkv": "attention.body.qkv",
    "attention_out": "attention.body.out",
    "uz": "mlp.body.uz",
    "mlp_out": "mlp.body.out",
    "q_gain": "attention.body.q_gain",
    "k_gain": "attention.body.k_gain",
    "s_qk": "attention.body.qk_scale.raw",
    "s_u": "mlp.body.u_scale.raw",
    "s_z": "mlp.body.z_scale.raw",
    **{
        f"{place}_{short}": f"{long}.{place}.gain"
        for place in ("pre", "post", "out")
        for short, long in (("a", "attention"), ("m", "mlp"))
    },
}


def by_name(model):
    """Return the model's parameters under the names of the equations."""
    found = dict(model.named_parameters())
    p = {name: found[path] for name, path in ENDS.items() if path in found}
    for layer in range(L):
        p[layer] = {
            name: found[f"blocks.{layer}.{path}"] for name, path in INSIDE.items() if f"blocks.{layer}.{path}" in found
        }
        if "lerps.raw" in found:
            p[layer]["alpha_a"], p[layer]["alpha_m"] = found["lerps.raw"][2 * layer], found["lerps.raw"][2 * layer + 1]
    return p


def perturbed(method, gate_name, form):
    """Build a model in fp64 with gains, scales and gates off their starting points."""
    model = Transformer(
        ModelSpec(D, L, H, V, T, method=method, gate=gate_name, mlp_width=F), seed=1, form=form
    ).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "lerps" in name:
                parameter.mul_(1 + 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            if "gates" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
            if name.endswith((".qkv", ".uz")) and method not in ("angpt", "ngpt"):
                parameter.mul_(10)  # away from the linear regime of softmax and silu
    # the fp32 table of angles is refined, so that the comparison can be made to the last digits of fp64
    angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, C, 2, dtype=torch.float64) / C)
    model.table.copy_(torch.stack((angle.cos(), angle.sin()), -1).repeat(1, 2 * H, 1))
    return model


def compare(method, gate_name, form):
    model = perturbed(method, gate_name, form)
    tokens = torch.randint(V, (2, T), generator=torch.Generator().manual_seed(0))
    upstream = torch.randn(2, T, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alphas = model.gates.alpha if model.gates is not None else None
    shares = [None if alphas is None else silu(alphas[layer, 0]) for layer in range(L)]
    expected, got = straight(method, by_name(model), tokens, shares), model(tokens)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = [torch.autograd.grad(y, parameters, upstream) for y in (got, expected)]
    for name, one, two in zip(names, *grads, strict=True):
        small = 1e-8 * (1 + two.abs().max().item())
        torch.testing.assert_close(one, two, rtol=1e-7, atol=small, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("form", ["plain", "folded"])
@pytest.mark.parametrize("method", [name for name in METHODS if name in LAYERS])
def test_a_method_is_its_equations(method, form):
    compare(method, "none", form)


@pytest.mark.parametrize("form", ["plain", "folded"])
@pytest.mark.parametrize("method", GATED)
def test_a_gated_method_is_its_equations_with_the_gate_of_gpas(method, form):
    compare(method, "gpas", form)


def test_every_method_has_a_restatement():
    assert set(METHODS) - set(LAYERS) == set()
