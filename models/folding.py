"""Gates folded into the weights: a trained gated model becomes a plain one with the same logits. Torch.

A trunk multiplied by c is undone by the next norm, so only the ratio of stream and branch counts: write the stream as
c x, divide the branch by c. Exact up to the norm's eps. Derived for GPAS, arXiv:2506.22049.
"""

from dataclasses import replace

import torch
from torch import Tensor

from scalewright.models.block import Sublayer
from scalewright.models.errors import ModelError
from scalewright.models.gating import Site
from scalewright.models.layers import Attention
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer


def why_unfoldable(spec: ModelSpec) -> str | None:
    """Say why the gates of a model cannot be folded into its weights, or None."""
    if spec.gate == "none":
        return None
    if spec.wiring(0).join == "lerp":
        return f"{spec.method} interpolates: a scaled stream is not undone by a norm"
    if spec.interior().final_norm is None:
        return f"{spec.method} has no final norm to undo the last factor"
    return None


@torch.no_grad()
def fold_gates(model: Transformer) -> Transformer:
    """Return an ungated copy of the model with the same function up to the norms' eps.

    Raises ModelError where the method does not allow it or a factor is not above 0.
    """
    why = why_unfoldable(model.spec)
    if why:
        raise ModelError(f"gates of {model.spec.method} can't be folded: {why}")
    plain = Transformer(replace(model.spec, gate="none", gate_options={}))
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("gates.")}
    plain.load_state_dict(state)
    if model.gates is not None:
        fold_into(plain, model)
    return plain


def fold_into(plain: Transformer, model: Transformer) -> None:
    """Carry the scale of the stream from sub-layer to sub-layer and rescale the branches by it."""
    assert model.gates is not None
    scale = torch.ones((), dtype=torch.float64)
    for layer, (block, factors) in enumerate(zip(plain.blocks, model.gates.factors(), strict=True)):
        for sublayer, factor in zip((block.attention, block.mlp), factors, strict=True):
            if not factor > 0:
                raise ModelError(f"gates can't be folded: layer {layer} multiplies by {factor.item():.3g}, not above 0")
            scale = fold(sublayer, model.spec.gate_site(layer), scale, factor.double())


def fold(sublayer: Sublayer, site: Site | None, scale: Tensor, factor: Tensor) -> Tensor:
    """Fold one factor f at `site` where the stream is c x; return the c of the next sub-layer.

    out(a x + b h) = out(a (x + b h / a)): the branch carries the inverse of what the stream has in front, and a norm on
    the sum takes the stream back to 1. A branch that starts with a norm does not see c; any other reads x by weights.
    """
    seen = scale * factor if site == "input" else scale
    if site == "norm":
        assert sublayer.pre is not None
        sublayer.pre.gain.mul_(factor)
    if sublayer.pre is None:
        multiply_input(sublayer, seen)
    shortcut = seen * factor if site == "shortcut" else seen
    multiply_branch(sublayer, (factor if site == "module" else 1) / shortcut)
    if sublayer.out is not None:
        return torch.ones_like(scale)
    return shortcut * factor if site == "trunk" else shortcut


def multiply_input(sublayer: Sublayer, factor: Tensor) -> None:
    """Multiply what attention or MLP reads, in its first weights."""
    body = sublayer.body
    (body.qkv if isinstance(body, Attention) else body.uz).mul_(factor)


def multiply_branch(sublayer: Sublayer, factor: Tensor) -> None:
    """Multiply what the sub-layer adds: in the gain of its output norm, or else in its output projection."""
    (sublayer.body.out if sublayer.post is None else sublayer.post.gain).mul_(factor)
