"""Decoders of other code at the shape of one of ours: untied, no dropout, no bias; PEERS by name.

Each is built by its own package, which is imported only then: ImportError says that it is missing.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Nano(nn.Module):
    """A plain decoder in the manner of nanoGPT: learned positions, LayerNorm, GELU; its MLP is wide enough for N."""

    def __init__(self, spec):
        super().__init__()
        width = spec.width
        self.heads = spec.heads
        self.tokens, self.positions = nn.Embedding(spec.vocab_size, width), nn.Embedding(spec.context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width, bias=False),
                    "qkv": nn.Linear(width, 3 * width, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "norm2": nn.LayerNorm(width, bias=False),
                    "up": nn.Linear(width, 3 * spec.mlp_width // 2, bias=False),  # two matrices where SwiGLU has three
                    "down": nn.Linear(3 * spec.mlp_width // 2, width, bias=False),
                }
            )
            for _ in range(spec.depth)
        )
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, spec.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            qkv = block["qkv"](block["norm1"](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
            q, k, v = (one.transpose(1, 2) for one in qkv)
            x = x + block["out"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        return self.head(self.norm(x))


def litgpt(spec):
    from litgpt.config import Config
    from litgpt.model import GPT

    sizes = {"n_layer": spec.depth, "n_head": spec.heads, "n_embd": spec.width, "intermediate_size": spec.mlp_width}
    sizes |= {"block_size": spec.context, "vocab_size": spec.vocab_size, "padded_vocab_size": spec.vocab_size}
    kinds = {"norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "norm_qk": True, "rotary_percentage": 1.0}
    return GPT(Config(**sizes, **kinds, bias=False, parallel_residual=False))


def hf_config(kind, spec, **more):
    return kind(
        hidden_size=spec.width,
        intermediate_size=spec.mlp_width,
        num_hidden_layers=spec.depth,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        vocab_size=spec.vocab_size,
        max_position_embeddings=spec.context,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **more,
    )


class LogitsOf(nn.Module):
    """A model whose output holds the logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


def hf_llama(spec):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LogitsOf(LlamaForCausalLM(hf_config(LlamaConfig, spec)))


def hf_qwen3(spec):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return LogitsOf(Qwen3ForCausalLM(hf_config(Qwen3Config, spec, head_dim=spec.width // spec.heads)))


# name: (builder, package)
PEERS = {
    "plain nanoGPT-like": (Nano, "torch"),
    "LitGPT, QK-norm": (litgpt, "litgpt"),
    "HF Llama": (hf_llama, "transformers"),
    "HF Qwen3": (hf_qwen3, "transformers"),
}


def loss_of(model):
    """Return the mean cross-entropy in fp32, as ours."""

    def loss(tokens, targets):
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())

    return loss


def seeded(builder, spec):
    torch.manual_seed(0)
    return builder(spec)
