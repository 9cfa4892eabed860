"""Embedding, blocks, head, loss; and how the weights start. Torch.

Legend: b batch, t time, d width, V vocabulary.
"""

from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalewright.models.block import Block
from scalewright.models.constraints import constrain, normalise
from scalewright.models.forms import FORMS, Form, wide
from scalewright.models.gates import make_gates
from scalewright.models.inits import Fan, initial_std
from scalewright.models.joins import Weights, make_lerps, make_scale
from scalewright.models.layers import rotary_table
from scalewright.models.norms import make_norm
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import EMBEDDING, HEAD


class Head(nn.Module):
    """logits = s * (W x)."""

    roles = {"weight": HEAD}
    parts = {"weight": ("head",)}

    def __init__(self, spec: ModelSpec, form: Form) -> None:
        super().__init__()
        self.folded = form.folded
        self.weight = nn.Parameter(torch.empty(spec.vocab_size, spec.width))
        self.scale = make_scale(spec.interior().logit_scale, spec.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, time, vocab) of x (batch, time, width)."""
        if self.scale is None:
            return F.linear(x, self.weight)
        if self.folded:
            return F.linear(x, (self.weight * self.scale()[:, None]).to(self.weight.dtype))
        return F.linear(x, self.weight) * self.scale()


class Embedding(nn.Module):
    """Rows looked up by token."""

    roles = {"weight": EMBEDDING}
    parts = {"weight": ("embedding",)}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.vocab_size, spec.width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return vectors (batch, time, width) of tokens (batch, time)."""
        return F.embedding(tokens, self.weight)


class Transformer(nn.Module):
    """A decoder-only language model of any method, gate and init; equal seeds give equal weights in either form."""

    def __init__(self, spec: ModelSpec, *, seed: int = 0, form: str = "folded") -> None:
        super().__init__()
        how, interior = FORMS[form], spec.interior()
        self.spec = spec
        self.embedding = Embedding(spec)
        self.embedding_norm = make_norm(interior.embedding_norm, spec, how)
        self.blocks = nn.ModuleList(Block(spec, layer, how) for layer in range(spec.depth))
        self.gates, self.lerps = make_gates(spec), make_lerps(spec)
        self.final_norm = make_norm(interior.final_norm, spec, how)
        self.head = Head(spec, how)
        self.register_buffer("table", rotary_table(spec.shape, spec.rope_base), persistent=False)
        initialise(self, seed)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (b, t, V) of tokens (b, t)."""
        return self.head(self.stream(tokens))

    def stream(self, tokens: Tensor) -> Tensor:
        """Return what the head reads, (b, t, d)."""
        x = self.embedding(tokens)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        factors, weights = self.gate_factors(), self.join_weights()
        table = self.table[: tokens.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, table, factors[i], weights[2 * i : 2 * i + 2])
        return x if self.final_norm is None else self.final_norm(x)

    def gate_factors(self) -> list[tuple[Tensor | None, Tensor | None]]:
        """Return what the gates of every layer multiply by."""
        return [(None, None)] * self.spec.depth if self.gates is None else self.gates.factors()

    def join_weights(self) -> list[Weights | None]:
        """Return the weights of every sub-layer's join."""
        return [None] * (2 * self.spec.depth) if self.lerps is None else [*self.lerps.weights()]

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats of targets (b, t), in fp32."""
        return F.cross_entropy(wide(self(tokens).flatten(0, 1)), targets.flatten())


def parameter_roles(model: nn.Module) -> dict[str, str]:
    """Return the role of every parameter by name (scalewright.models.wiring.ROLES); every parameter has exactly one."""
    roles = {}
    for path, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            roles[f"{path}.{name}" if path else name] = module.roles[name]
    return roles


def linear_maps(model: nn.Module) -> dict[str, int]:
    """Return how many linear maps are stacked, row upon row, in each parameter that holds some: q, k, v in one."""
    return {
        f"{path}.{name}": len(parts)
        for path, module in model.named_modules()
        for name, parts in getattr(module, "parts", {}).items()
    }


def initialise(model: Transformer, seed: int) -> None:
    """Draw every matrix from a stream of its own, so that no option of gate or method moves another weight."""
    spec = model.spec
    for path, module in model.named_modules():
        for name, parts in getattr(module, "parts", {}).items():
            weight = getattr(module, name)
            for part, piece in zip(parts, weight.data.chunk(len(parts)), strict=True):
                if not piece.is_meta:
                    draw(piece, spec, part, _layer_of(path), stream(seed, path, part))
    if not model.table.is_meta:
        settle(model)


def settle(model: Transformer) -> None:
    """Set norms to 1 where the init says so, then apply the method's own constraint once before the first step."""
    if model.spec.init_record.normalise:
        normalise(model)
    constrain(model)()


def _layer_of(path: str) -> int:
    pieces = path.split(".")
    return int(pieces[1]) if pieces[0] == "blocks" else 0


def stream(seed: int, path: str, part: str) -> torch.Generator:
    """Return the generator of one matrix: seeded by what it is, not by what was drawn before."""
    digest = sha256(f"{seed}/{path}/{part}".encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:7], "big"))


def draw(piece: Tensor, spec: ModelSpec, part: str, layer: int, generator: torch.Generator) -> None:
    """Fill a matrix (fan_out, fan_in) by the init of the spec; an embedding is a map from vocabulary to width."""
    fan_out, fan_in = piece.shape if part != "embedding" else piece.shape[::-1]
    init = spec.init_record
    std = initial_std(init, part, Fan(layer, spec.depth, fan_in, fan_out), spec.init_options)
    values = torch.empty(piece.shape, device="cpu")
    if init.truncate is None:
        values.normal_(0.0, std, generator=generator)
    else:
        cut = init.truncate * std
        nn.init.trunc_normal_(values, 0.0, std, -cut, cut, generator=generator)
    piece.copy_(values)
