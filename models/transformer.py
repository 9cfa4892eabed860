"""Embedding, blocks, head, loss; and how the weights start. Torch.

Legend: b batch, t time, d width, V vocabulary.
"""

from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.block import Block
from models.constraints import constrain, normalise
from models.inits import Fan, initial_std
from models.joins import make_scale
from models.layers import rotary_table
from models.norms import make_norm
from models.spec import ModelSpec
from models.wiring import EMBEDDING, HEAD


class Head(nn.Module):
    """logits = s * (W x)."""

    roles = {"weight": HEAD}
    parts = {"weight": ("head",)}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.vocab_size, spec.width))
        self.scale = make_scale(spec.interior().logit_scale, spec.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        logits = F.linear(x, self.weight)
        return logits if self.scale is None else logits * self.scale()


class Embedding(nn.Module):
    """Rows looked up by token."""

    roles = {"weight": EMBEDDING}
    parts = {"weight": ("embedding",)}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.vocab_size, spec.width))

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight)


class Transformer(nn.Module):
    """A decoder-only language model of any method, gate and init; equal seeds give equal weights."""

    def __init__(self, spec: ModelSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        interior = spec.interior()
        self.embedding = Embedding(spec)
        self.embedding_norm = make_norm(interior.embedding_norm, spec.width, spec.norm_eps)
        self.blocks = nn.ModuleList(Block(spec, layer) for layer in range(spec.depth))
        self.final_norm = make_norm(interior.final_norm, spec.width, spec.norm_eps)
        self.head = Head(spec)
        self.register_buffer("table", rotary_table(spec.shape, spec.rope_base), persistent=False)
        initialise(self, seed)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (b, t, V) of tokens (b, t)."""
        x = self.embedding(tokens)  # (b, t, d)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        for block in self.blocks:
            x = block(x, self.table)
        return self.head(x if self.final_norm is None else self.final_norm(x))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats of targets (b, t), in fp32."""
        return F.cross_entropy(self(tokens).flatten(0, 1).float(), targets.flatten())


def parameter_roles(model: nn.Module) -> dict[str, str]:
    """Return the role of every parameter by name (models.wiring.ROLES); every parameter has exactly one."""
    roles = {}
    for path, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            roles[f"{path}.{name}" if path else name] = module.roles[name]
    return roles


def initialise(model: Transformer, seed: int) -> None:
    """Draw every matrix from a stream of its own, so that no option of gate or method moves another weight."""
    spec = model.spec
    for path, module in model.named_modules():
        for name, parts in getattr(module, "parts", {}).items():
            weight = getattr(module, name)
            for part, piece in zip(parts, weight.data.chunk(len(parts)), strict=True):
                if not piece.is_meta:
                    draw(piece, spec, part, layer_of(path), stream(seed, path, part))
    if not model.table.is_meta:
        settle(model)


def settle(model: Transformer) -> None:
    """Set norms to 1 where the init says so, then apply the method's own constraint once before the first step."""
    if model.spec.init_record.normalise:
        normalise(model)
    constrain(model)()


def layer_of(path: str) -> int:
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
