"""Sublayer and Block: the only place where a wiring becomes tensors. Torch."""

from torch import Tensor, nn

from models.gates import make_gates
from models.joins import make_join
from models.layers import Attention, Mlp
from models.norms import make_norm
from models.spec import ModelSpec


class Sublayer(nn.Module):
    """y = out(join(x, post(body(pre(x) * pre_scale)))), with a gate at one site."""

    def __init__(self, spec: ModelSpec, layer: int, body: nn.Module) -> None:
        super().__init__()
        wiring, width, eps = spec.wiring(layer), spec.width, spec.norm_eps
        self.body, self.site, self.pre_scale = body, spec.gate_site(layer), wiring.pre_scale
        self.pre = make_norm(wiring.pre, width, eps, gain=wiring.pre_gain)
        self.post = make_norm(wiring.post, width, eps)
        self.join = make_join(wiring, spec.interior(), width)
        self.out = make_norm(wiring.out, width, eps)

    def forward(self, x: Tensor, table: Tensor, gate: nn.Module | None) -> Tensor:
        x = gate(x) if gate is not None and self.site == "input" else x
        y = self.join(gate(x) if gate is not None and self.site == "shortcut" else x, self.branch(x, table, gate))
        y = y if self.out is None else self.out(y)
        return gate(y) if gate is not None and self.site == "trunk" else y

    def branch(self, x: Tensor, table: Tensor, gate: nn.Module | None) -> Tensor:
        """Return what the sub-layer adds to the stream."""
        h = x if self.pre is None else self.pre(x)
        h = h if self.pre_scale == 1.0 else h * self.pre_scale
        h = gate(h) if gate is not None and self.site == "norm" else h
        h = self.body(h, table)
        h = h if self.post is None else self.post(h)
        return gate(h) if gate is not None and self.site == "module" else h


class Block(nn.Module):
    """One layer: attention, then MLP."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.attention = Sublayer(spec, layer, Attention(spec))
        self.mlp = Sublayer(spec, layer, Mlp(spec))
        self.gates = nn.ModuleList(make_gates(spec, layer))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        first, last = (self.gates[0], self.gates[-1]) if len(self.gates) else (None, None)
        return self.mlp(self.attention(x, table, first), table, last)
