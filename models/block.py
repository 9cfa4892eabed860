"""Sublayer and Block: the only place where a wiring becomes tensors. Torch."""

from collections.abc import Callable

from torch import Tensor, nn

from scalewright.models.forms import Form
from scalewright.models.gates import gate_of
from scalewright.models.joins import Weights, lerp_takes_norm, make_join
from scalewright.models.layers import Attention, Mlp
from scalewright.models.norms import make_norm
from scalewright.models.spec import ModelSpec

GatedJoin = Callable[[Tensor, Tensor, Tensor], Tensor]


class Sublayer(nn.Module):
    """y = out(join(x, post(body(pre(x) * pre_scale)))), with a gate at one site.

    factor: what the gate multiplies by, None without a gate; weights: those of an interpolating join.
    """

    def __init__(self, spec: ModelSpec, layer: int, body: nn.Module, form: Form) -> None:
        super().__init__()
        wiring = spec.wiring(layer)
        self.body, self.site, self.gate = body, spec.gate_site(layer), gate_of(spec, form)
        self.pre = make_norm(wiring.pre, spec, form, gain=wiring.pre_gain, scale=wiring.pre_scale)
        self.post = None if lerp_takes_norm(wiring, form) else make_norm(wiring.post, spec, form)
        self.join = make_join(wiring, form)
        self.out = make_norm(wiring.out, spec, form)
        self.gated_join = make_gated_join(spec, layer, form)

    def forward(self, x: Tensor, table: Tensor, factor: Tensor | None, weights: Weights | None) -> Tensor:
        """Return the stream (batch, time, width) after it; factor: of the gate; weights: of the join."""
        x = self.gate(x, factor) if self.site == "input" else x
        h = self.branch(x, table, factor)
        if self.gated_join is not None:
            y = self.gated_join(x, h, factor)
            return y if self.out is None else self.out(y)
        y = self.join(self.gate(x, factor) if self.site == "shortcut" else x, h, weights)
        y = y if self.out is None else self.out(y)
        return self.gate(y, factor) if self.site == "trunk" else y

    def branch(self, x: Tensor, table: Tensor, factor: Tensor | None) -> Tensor:
        """Return what the sub-layer adds to the stream."""
        h = x if self.pre is None else self.pre(x)
        h = self.gate(h, factor) if self.site == "norm" else h
        h = self.body(h, table)
        h = h if self.post is None else self.post(h)
        return self.gate(h, factor) if self.site == "module" else h


def make_gated_join(spec: ModelSpec, layer: int, form: Form) -> GatedJoin | None:
    """Return sum and gate as one operation, where the sum is gated as a whole or on its shortcut."""
    wiring, site = spec.wiring(layer), spec.gate_site(layer)
    if wiring.join != "add" or wiring.branch_scale != 1.0 or not spec.gate_record.stop_gradient:
        return None
    if site == "trunk" and wiring.residual_scale == 1.0:
        return form.gated_sum
    if site == "shortcut":
        return lambda x, h, factor: form.gated_shortcut(x, h, factor, wiring.residual_scale)
    return None


class Block(nn.Module):
    """One layer: attention, then MLP; factors and weights hold one entry for each of the two."""

    def __init__(self, spec: ModelSpec, layer: int, form: Form) -> None:
        super().__init__()
        self.attention = Sublayer(spec, layer, Attention(spec, form), form)
        self.mlp = Sublayer(spec, layer, Mlp(spec, form), form)

    def forward(
        self,
        x: Tensor,
        table: Tensor,
        factors: tuple[Tensor | None, Tensor | None],
        weights: tuple[Weights | None, Weights | None],
    ) -> Tensor:
        """Return the stream (batch, time, width) after attention, then MLP; factors and weights: one for each."""
        x = self.attention(x, table, factors[0], weights[0])
        return self.mlp(x, table, factors[1], weights[1])


class Skipped(nn.Module):
    """What stands where a layer was removed."""

    def forward(self, x: Tensor, table: Tensor, factors: object, weights: object) -> Tensor:
        """Return x itself."""
        return x
