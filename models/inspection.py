"""Questions put to a trained model: which layers matter, how it meets strange input, how good factors are. Torch."""

from dataclasses import dataclass
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from scalewright.models.block import Skipped
from scalewright.models.diagnostics import Watch
from scalewright.models.errors import ModelError
from scalewright.models.folding import fold_gates, why_unfoldable
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer


@dataclass(frozen=True)
class LayerImportance:
    """Loss of the whole model and its change when a layer is removed, in nats; gates: "none", "kept" or "folded".

    kept: the factors of a removed layer go with it, which also changes how later layers mix.
    """

    loss_nats: float
    change_nats: list[float]
    gates: str


def layer_importance(model: Transformer, tokens: Tensor, targets: Tensor, *, gates: str = "folded") -> LayerImportance:
    """Remove one layer at a time and measure the loss on a batch (b, t); gates are folded first, or kept.

    Raises ModelError when gates are to be folded where that is not possible, or for another word.
    """
    if gates not in ("folded", "kept"):
        raise ModelError(f"gates = {gates!r}: expected folded or kept")
    if model.spec.gate == "none":
        gates = "none"
    whole = fold_gates(model).to(tokens.device) if gates == "folded" else model
    with torch.no_grad():
        loss = whole.loss(tokens, targets).item()
        without = [loss_without(whole, layer, tokens, targets) for layer in range(model.spec.depth)]
    return LayerImportance(loss, [value - loss for value in without], gates)


def loss_without(model: Transformer, layer: int, tokens: Tensor, targets: Tensor) -> float:
    """Return the loss with one layer replaced by nothing."""
    removed, model.blocks[layer] = model.blocks[layer], Skipped()
    try:
        return float(model.loss(tokens, targets))
    finally:
        model.blocks[layer] = removed


def can_fold(spec: ModelSpec) -> bool:
    """True where a model has gates that fold into its weights."""
    return spec.gate != "none" and why_unfoldable(spec) is None


@dataclass(frozen=True)
class StrangeNorms:
    """Mean norm of the stream after every layer, on text and on repeated tokens, and the ratio of their means."""

    text: list[float]
    repeated: list[float]

    @property
    def ratio(self) -> float:
        """The sum of norms under repeated tokens over that under text."""
        return sum(self.repeated) / sum(self.text)


def strange_norms(model: Transformer, tokens: Tensor) -> StrangeNorms:
    """Compare the stream on text (b, t) with the stream on sequences of one token each (arXiv:2505.22014, review).

    The repeated tokens are the first ones of the text's sequences.
    """
    repeated = tokens[:, :1].expand_as(tokens)
    return StrangeNorms(stream_norms(model, tokens), stream_norms(model, repeated))


def stream_norms(model: Transformer, tokens: Tensor) -> list[float]:
    """Return the mean norm of the stream after every layer."""
    with Watch(model) as seen, torch.no_grad():
        model(tokens)
    return [float(y.float().norm(dim=-1).mean()) for _, y in seen.layers]


def factor_errors(spec: ModelSpec, *, n_samples: int = 2000, seed: int = 0) -> dict[str, float]:
    """Return how far nu = 1/sqrt(E|Wx|^2) is below E[1/|Wx|], relative, by Monte Carlo with unit rows and unit x.

    One entry a linear map of anGPT (arXiv:2505.22014, section 4.2): a head of qkv, p, uz and d.
    """
    shape = spec.shape
    maps = {
        "qkv": (shape.head_dim, shape.width),
        "p": (shape.width, shape.width),
        "uz": (shape.mlp_width, shape.width),
        "d": (shape.width, shape.mlp_width),
    }
    generator = torch.Generator().manual_seed(seed)
    return {name: factor_error(size, n_samples, generator) for name, size in maps.items()}


def factor_error(size: tuple[int, int], n_samples: int, generator: torch.Generator) -> float:
    """Return E[1/|Wx|] sqrt(n_out / n_in) - 1 over random x, and over several W where W is small."""
    n_out, n_in = size
    n_maps = max(1, min(64, 2**22 // (n_out * n_in)))
    inverse = []
    for _ in range(n_maps):
        w = F.normalize(torch.randn(n_out, n_in, generator=generator), dim=-1)
        x = F.normalize(torch.randn(max(1, n_samples // n_maps), n_in, generator=generator), dim=-1)
        inverse.append((1 / (x @ w.T).norm(dim=-1)).mean())
    return float(torch.stack(inverse).mean()) * sqrt(n_out / n_in) - 1
