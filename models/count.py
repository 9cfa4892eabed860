"""Parameters by role and FLOPs per token, from a ModelSpec alone. No torch.

FLOPs are those of a forward and a backward pass, for one token of a full context; a multiply-add is two FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from scalewright.models.errors import ModelError
from scalewright.models.options import pick
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import ALPHA, ATTENTION, EMBEDDING, GATE, HEAD, MLP, NORM_GAIN, ROLES, SCALE, Norm, Scale

CountKind = Literal["total", "non-embedding", "non-embedding+head"]
COUNT_KINDS = {
    "total": "all parameters",
    "non-embedding": "all but embedding and head (Kaplan et al. 2020, arXiv:2001.08361)",
    "non-embedding+head": "all but the embedding: what multiplies activations",
}


def count_parameters(spec: ModelSpec) -> dict[str, int]:
    """Return the number of parameters of every role; roles that the model lacks are 0."""
    shape = spec.shape
    counts = dict.fromkeys(ROLES, 0)
    counts[EMBEDDING] = counts[HEAD] = shape.vocab_size * shape.width
    counts[ATTENTION] = shape.depth * 4 * shape.width**2
    counts[MLP] = shape.depth * 3 * shape.width * shape.mlp_width
    counts[NORM_GAIN] = _norm_gains(spec)
    counts[SCALE] = _scales(spec)
    alpha = spec.interior().alpha
    counts[ALPHA] = 2 * shape.depth * _values(alpha, shape.width)
    counts[GATE] = 0 if not _gate_is_learned(spec) else shape.depth * (1 if spec.gate_record.shared else 2)
    return counts


def _gate_is_learned(spec: ModelSpec) -> bool:
    return spec.gate != "none" and spec.gate_record.learned


def _norm_gains(spec: ModelSpec) -> int:
    shape, interior = spec.shape, spec.interior()
    wirings = [spec.wiring(layer) for layer in range(shape.depth)]
    on_stream = sum(2 * [w.pre, w.post, w.out].count("rms") for w in wirings)
    at_ends = [interior.embedding_norm, interior.final_norm].count("rms")
    on_heads = 2 * shape.depth * shape.head_dim if interior.qk_norm == "rms" else 0
    return (on_stream + at_ends) * shape.width + on_heads


def _scales(spec: ModelSpec) -> int:
    shape, interior = spec.shape, spec.interior()
    mlp = _values(interior.u_scale, shape.mlp_width) + _values(interior.z_scale, shape.mlp_width)
    per_layer = _values(interior.qk_scale, shape.width) + mlp
    return shape.depth * per_layer + _values(interior.logit_scale, shape.vocab_size)


def _values(scale: Scale | None, length: int) -> int:
    return scale.n_values(length) if scale else 0


def n_params(spec: ModelSpec, kind: str = "non-embedding") -> int:
    """Return one number of parameters, by the convention named (COUNT_KINDS). Raises ModelError for another name."""
    counts = count_parameters(spec)
    left_out = {"total": (), "non-embedding": (EMBEDDING, HEAD), "non-embedding+head": (EMBEDDING,)}
    names: tuple[str, ...] = left_out[pick(kind, left_out, "count of parameters")]
    return sum(n for role, n in counts.items() if role not in names)


def _six_n(spec: ModelSpec) -> int:
    return 6 * n_params(spec, "non-embedding")


def _six_n_head(spec: ModelSpec) -> int:
    return 6 * n_params(spec, "non-embedding+head")


def _six_n_total(spec: ModelSpec) -> int:
    return 6 * n_params(spec, "total")


def _matrix_flops(spec: ModelSpec) -> int:
    counts = count_parameters(spec)
    return 6 * (counts[ATTENTION] + counts[MLP] + counts[HEAD])


def attention_flops(spec: ModelSpec, *, causal: bool) -> int:
    """Return FLOPs per token of q k and p v in all layers: 12 depth context width, half of it when causal."""
    return (6 if causal else 12) * spec.depth * spec.context * spec.width


# Forward FLOPs per element beside the matrix products; a backward pass counts twice as much.
RMS_COST, UNIT_COST = 4, 3  # square, sum, scale (and gain)
ROTARY_COST = 3  # four products and two sums a pair
SWIGLU_COST = 5  # sigmoid counted as three
SCALE_COST, GATE_COST, ADD_COST, LERP_COST = 1, 1, 1, 3
SOFTMAX_COST = 5


def extra_flops(spec: ModelSpec) -> int:
    """Return FLOPs per token of norms, rotary, activation, joins, gates and scales: what a method adds by itself."""
    shape, interior = spec.shape, spec.interior()
    at_ends = (_norm_cost(interior.embedding_norm) + _norm_cost(interior.final_norm)) * shape.width
    logits = SCALE_COST * shape.vocab_size if interior.logit_scale else 0
    return 3 * (at_ends + logits + sum(_layer_cost(spec, layer) for layer in range(shape.depth)))


def _layer_cost(spec: ModelSpec, layer: int) -> int:
    shape, interior, wiring = spec.shape, spec.interior(), spec.wiring(layer)
    norms = sum(_norm_cost(kind) for kind in (wiring.pre, wiring.post, wiring.out))
    scales = sum(SCALE_COST for s in (wiring.pre_scale, wiring.residual_scale, wiring.branch_scale) if s != 1.0)
    join = ADD_COST if wiring.join == "add" else LERP_COST
    stream = 2 * shape.width * (norms + scales + join + (GATE_COST if spec.gate != "none" else 0))
    heads = 2 * shape.width * (ROTARY_COST + _norm_cost(interior.qk_norm) + (SCALE_COST if interior.qk_scale else 0))
    mlp = shape.mlp_width * (SWIGLU_COST + sum(SCALE_COST for s in (interior.u_scale, interior.z_scale) if s))
    exact = UNIT_COST * (3 * shape.width + 3 * shape.mlp_width) if interior.exact else 0  # v, both outputs; u, z, inner
    return stream + heads + mlp + exact + SOFTMAX_COST * shape.heads * shape.context // 2


def _norm_cost(kind: Norm) -> int:
    return 0 if kind is None else RMS_COST if kind == "rms" else UNIT_COST


FLOP_CONVENTIONS: dict[str, Callable[[ModelSpec], int]] = {
    "6n": _six_n,
    "6n+head": _six_n_head,
    "6n-total": _six_n_total,
    "6n+attention-causal": lambda spec: _six_n(spec) + attention_flops(spec, causal=True),
    "6n+attention-full": lambda spec: _six_n(spec) + attention_flops(spec, causal=False),
    "6n+head+attention-causal": lambda spec: _six_n_head(spec) + attention_flops(spec, causal=True),
    "6n+head+attention-full": lambda spec: _six_n_head(spec) + attention_flops(spec, causal=False),
    "all-operations": lambda spec: _matrix_flops(spec) + attention_flops(spec, causal=True) + extra_flops(spec),
}
DEFAULT_FLOP_CONVENTION = "6n+head+attention-causal"


def flops_per_token(spec: ModelSpec, convention: str = DEFAULT_FLOP_CONVENTION) -> int:
    """Return forward and backward FLOPs per token under a named convention. Raises ModelError for another name."""
    if convention not in FLOP_CONVENTIONS:
        raise ModelError(f"unknown FLOP convention {convention!r} (valid: {', '.join(FLOP_CONVENTIONS)})")
    return FLOP_CONVENTIONS[convention](spec)
