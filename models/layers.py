"""Attention and MLP: the two bodies of a block. Torch.

Legend: b batch, t time, h heads, c channels of a head, d = h c width, f MLP width.
"""

from functools import lru_cache
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.joins import make_scale
from models.norms import unit
from models.spec import ModelSpec
from models.wiring import ATTENTION, MLP, NORM_GAIN, Factors, Interior, Shape


def rotary_table(shape: Shape, base: float) -> Tensor:
    """Return cos and sin of t base^(-2i/c) for i < c/2: (2, time, c/2). Su et al. 2021, arXiv:2104.09864."""
    frequency = base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angle = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.cos(), angle.sin())).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate adjacent channel pairs of x (b, t, heads, c) by position."""
    cos, sin = table[:, : x.shape[1], None].to(x.dtype)  # (t, 1, c/2)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


class Attention(nn.Module):
    """Causal multi-head attention with RoPE and, where the method says so, normalised queries and keys."""

    roles = {"qkv": ATTENTION, "out": ATTENTION, "q_gain": NORM_GAIN, "k_gain": NORM_GAIN}
    parts = {"qkv": ("query", "key", "value"), "out": ("attention_out",)}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        shape, interior = spec.shape, spec.interior()
        self.heads, self.exact, self.factors = shape.heads, interior.exact, interior.factors or Factors()
        self.qkv = nn.Parameter(torch.empty(3 * shape.width, shape.width))
        self.out = nn.Parameter(torch.empty(shape.width, shape.width))
        self.qk_norm, self.eps = interior.qk_norm, spec.norm_eps
        if self.qk_norm == "rms":
            self.q_gain, self.k_gain = (nn.Parameter(torch.ones(shape.head_dim)) for _ in range(2))
        self.qk_scale = make_scale(interior.qk_scale, shape.width)
        self.softmax_scale = interior.softmax_scale or 1 / sqrt(shape.head_dim)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        qkv = F.linear(x, self.qkv) * self.factors.qkv
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).unbind(2)  # (b, t, h, c)
        q, k = self.normalise(rotate(q, table), rotate(k, table))
        v = unit(v) if self.exact else v
        q, k, v = (item.transpose(1, 2) for item in (q, k, v))  # (b, h, t, c)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
        y = F.linear(o.transpose(1, 2).flatten(2), self.out) * self.factors.p  # (b, t, d)
        return unit(y) if self.exact else y

    def normalise(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.qk_norm == "rms":
            size = (q.shape[-1],)
            return F.rms_norm(q, size, self.q_gain, self.eps), F.rms_norm(k, size, self.k_gain, self.eps)
        if self.qk_norm == "unit" or self.exact:
            q, k = unit(q), unit(k)
        if self.qk_scale is not None:
            s = self.qk_scale().to(q.dtype)
            s = s if s.dim() == 0 else s.unflatten(-1, (self.heads, -1))
            q, k = q * s, k * s
        return q, k


class Mlp(nn.Module):
    """SwiGLU: W_out (u * silu(z)) with u, z = W_uz x (Shazeer 2020, arXiv:2002.05202)."""

    roles = {"uz": MLP, "out": MLP}
    parts = {"uz": ("mlp_u", "mlp_z"), "out": ("mlp_out",)}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        shape, interior = spec.shape, spec.interior()
        self.exact, self.factors, self.z_factor = interior.exact, interior.factors or Factors(), interior.z_factor
        self.nu_acf = activation_factor(shape, interior)
        self.uz = nn.Parameter(torch.empty(2 * shape.mlp_width, shape.width))
        self.out = nn.Parameter(torch.empty(shape.width, shape.mlp_width))
        self.u_scale = make_scale(interior.u_scale, shape.mlp_width)
        self.z_scale = make_scale(interior.z_scale, shape.mlp_width)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        u, z = (F.linear(x, self.uz) * self.factors.uz).chunk(2, -1)  # (b, t, f)
        if self.exact:
            u, z = unit(u), unit(z)
        if self.u_scale is not None and self.z_scale is not None:
            u, z = u * self.u_scale().to(u.dtype), z * self.z_scale().to(z.dtype)
        inner = u * F.silu(z * self.z_factor) * self.nu_acf
        y = F.linear(unit(inner) if self.exact else inner, self.out) * self.factors.d
        return unit(y) if self.exact else y


def activation_factor(shape: Shape, interior: Interior) -> float:
    """Return nu_acf as the factors say: a number, or its Monte-Carlo estimate times their multiplier."""
    factors = interior.factors or Factors()
    if factors.acf is not None:
        return factors.acf
    return factors.acf_scale * monte_carlo_nu_acf(shape.mlp_width, interior.z_factor)


@lru_cache
def monte_carlo_nu_acf(mlp_width: int, z_factor: float, n_values: int = 2**20) -> float:
    """Return 1 / E|u * silu(z_factor z)| for random unit vectors u, z of the MLP's width (arXiv:2505.22014, 4.2)."""
    generator = torch.Generator("cpu").manual_seed(0)
    size = (max(64, n_values // mlp_width), mlp_width)
    with torch.device("cpu"):
        u, z = (F.normalize(torch.randn(size, generator=generator), dim=-1) for _ in range(2))
    return 1 / (u * F.silu(z_factor * z)).norm(dim=-1).mean().item()
