"""Exported checkpoints: a Llama forward written out here, and the transformers package where it is installed."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

from scalewright.models.errors import ModelError
from scalewright.models.export import to_llama, why_not_llama
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

SHAPE = {"width": 24, "depth": 3, "heads": 2, "vocab_size": 19, "context": 16, "mlp_width": 40}
EXPORTABLE = [
    ("gpt", "none"),
    ("pre-ln", "none"),
    ("pre-ln", "gpas"),
    ("pre-ln", "naive"),
    ("lns", "gpas"),
    ("scale-res", "gpas"),
    ("gpt", "gpas-per-sublayer"),
]


def trained(method, gate, **changes):
    """Build a model whose gains, gates and weights are away from their start."""
    model = Transformer(
        ModelSpec(**{**SHAPE, **changes}, method=method, gate=gate, norm_eps=1e-9, init_options={"embedding_std": 0.6})
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
            parameter.add_(0.1 * (noise.abs() if "gates" in name else noise))
    return model


def tokens():
    return torch.randint(19, (2, 16), generator=torch.Generator().manual_seed(0))


def llama(w, config, ids):
    """Llama's forward: RMSNorm, half-split rotary, softmax at 1/sqrt(head_dim), SwiGLU."""
    h, c, eps = config["num_attention_heads"], config["head_dim"], config["rms_norm_eps"]
    angle = torch.arange(ids.shape[1])[:, None] * config["rope_theta"] ** (-torch.arange(0, c, 2) / c)
    cos, sin = (torch.cat((y, y), -1) for y in (angle.cos(), angle.sin()))

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w[name]

    def turn(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = norm(x, at + "input_layernorm.weight")
        q, k, v = ((y @ w[f"{at}self_attn.{n}_proj.weight"].T).unflatten(-1, (h, c)).transpose(1, 2) for n in "qkv")
        scores = turn(q) @ turn(k).transpose(-1, -2) / math.sqrt(c)
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        o = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + o @ w[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm.weight")
        inner = F.silu(y @ w[at + "mlp.gate_proj.weight"].T) * (y @ w[at + "mlp.up_proj.weight"].T)
        x = x + inner @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T


@pytest.mark.parametrize("method,gate", EXPORTABLE)
def test_the_checkpoint_computes_the_same_logits_as_a_llama(method, gate):
    model = trained(method, gate)
    checkpoint = to_llama(model)
    with torch.no_grad():
        torch.testing.assert_close(
            llama(checkpoint.tensors, checkpoint.config, tokens()), model(tokens()), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("method,gate", EXPORTABLE)
def test_the_transformers_package_loads_it(method, gate, tmp_path):
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import save_file

    model = trained(method, gate)
    checkpoint = to_llama(model)
    save_file(checkpoint.tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(checkpoint.config))
    stock, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.no_grad():
        torch.testing.assert_close(stock(tokens()).logits, model(tokens()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {method for method, _ in EXPORTABLE}))
def test_other_methods_say_why_they_have_no_llama_form(method):
    model = Transformer(ModelSpec(**{**SHAPE, "depth": 4}, method=method))
    assert method in why_not_llama(model.spec)
    with pytest.raises(ModelError, match="no Llama checkpoint: " + method.replace("+", r"\+")):
        to_llama(model)


def test_a_gate_that_turns_the_stream_around_cannot_be_folded():
    model = trained("pre-ln", "gpas")
    with torch.no_grad():
        model.gates.alpha[1] = 3.0
    with pytest.raises(ModelError, match="layer 1 multiplies by -1.86"):
        to_llama(model)
