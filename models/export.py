"""A trained model as a stock Llama checkpoint: names, layout and config. Torch; writes no file."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalewright.models.block import Block, Sublayer
from scalewright.models.errors import ModelError
from scalewright.models.folding import fold_gates, why_unfoldable
from scalewright.models.norms import RmsNorm
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer


@dataclass(frozen=True)
class LlamaCheckpoint:
    """Tensors under their names in a stock Llama, and its config."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]


def why_not_llama(spec: ModelSpec) -> str | None:
    """Say why a model has no form as a stock Llama, or None."""
    interior, wirings = spec.interior(), [spec.wiring(layer) for layer in range(spec.depth)]
    if any(w.out is not None or w.pre != "rms" or w.join != "add" for w in wirings):
        return f"{spec.method} is not a Pre-LN stream: Llama has one norm before each sub-layer and none after the sum"
    if any(w.post is not None for w in wirings):
        return f"{spec.method} normalises the outputs of its sub-layers, Llama does not"
    if any(w.residual_scale == 0 for w in wirings):
        return f"{spec.method} at depth {spec.depth} drops its stream, Llama keeps it"
    if interior.qk_norm or interior.embedding_norm:
        return f"{spec.method} normalises queries and keys or embeddings, Llama does not"
    return why_unfoldable(spec)


@torch.no_grad()
def to_llama(model: Transformer) -> LlamaCheckpoint:
    """Return the model as a stock Llama with the same logits up to the norms' eps; gates are folded.

    Raises ModelError with the reason where the method has no such form.
    """
    why = why_not_llama(model.spec)
    if why:
        raise ModelError(f"no Llama checkpoint: {why}")
    plain = fold_gates(model)
    tensors = {
        "model.embed_tokens.weight": plain.embedding.weight,
        "lm_head.weight": plain.head.weight,
        "model.norm.weight": plain.final_norm.gain,
    }
    scale = 1.0
    for layer, block in enumerate(plain.blocks):
        for sublayer in (block.attention, block.mlp):
            scale = fold_sum(sublayer, plain.spec, layer, scale)
        tensors |= {f"model.layers.{layer}.{name}": value for name, value in block_tensors(block, plain.spec).items()}
    return LlamaCheckpoint(
        {name: value.detach().clone().contiguous() for name, value in tensors.items()}, config_of(plain.spec)
    )


def fold_sum(sublayer: Sublayer, spec: ModelSpec, layer: int, scale: float) -> float:
    """r c x + b h = r c (x + b h / (r c)): bring a scaled sum to a plain one and return the new scale of the stream."""
    wiring = spec.wiring(layer)
    sublayer.body.out.mul_(wiring.branch_scale / (wiring.residual_scale * scale))
    return wiring.residual_scale * scale


def block_tensors(block: Block, spec: ModelSpec) -> dict[str, Tensor]:
    """Return the tensors of one layer under Llama's names."""
    q, k, v = block.attention.body.qkv.chunk(3)
    up, gate = block.mlp.body.uz.chunk(2)
    return {
        "self_attn.q_proj.weight": to_halves(q, spec.heads),
        "self_attn.k_proj.weight": to_halves(k, spec.heads),
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": block.attention.body.out,
        "mlp.up_proj.weight": up,
        "mlp.gate_proj.weight": gate,
        "mlp.down_proj.weight": block.mlp.body.out,
        "input_layernorm.weight": _effective_gain(block.attention.pre),
        "post_attention_layernorm.weight": _effective_gain(block.mlp.pre),
    }


def _effective_gain(norm: RmsNorm | None) -> Tensor:
    assert norm is not None, "only placements with a norm before each sub-layer are exported"
    return norm.gain * norm.scale


def to_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of every head from adjacent rotary pairs to Llama's two halves."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def config_of(spec: ModelSpec) -> dict[str, Any]:
    """Return config.json of a stock Llama of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "hidden_size": spec.width,
        "intermediate_size": spec.mlp_width,
        "num_hidden_layers": spec.depth,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.heads,
        "head_dim": spec.shape.head_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.context,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_base,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
