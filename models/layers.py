"""Attention and MLP: the two bodies of a block. Torch.

Legend: b batch, t time, h heads, c channels of a head, d = h c width, f MLP width.
"""

from functools import lru_cache
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalewright.models.forms import Form, unit
from scalewright.models.joins import make_scale
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import ATTENTION, MLP, NORM_GAIN, Factors, Interior, Shape


def rotary_table(shape: Shape, base: float) -> Tensor:
    """Return cos and sin of t base^(-2i/c), i < c/2, for every head of q and of k: (t, d, 2).

    Su et al. 2021, arXiv:2104.09864.
    """
    frequency = base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angle = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequency  # (t, c/2)
    return torch.stack((angle.cos(), angle.sin()), -1).float().repeat(1, 2 * shape.heads, 1)


class Attention(nn.Module):
    """Causal multi-head attention with RoPE and, where the method says so, normalised queries and keys."""

    roles = {"qkv": ATTENTION, "out": ATTENTION, "q_gain": NORM_GAIN, "k_gain": NORM_GAIN}
    parts = {"qkv": ("query", "key", "value"), "out": ("attention_out",)}

    def __init__(self, spec: ModelSpec, form: Form) -> None:
        super().__init__()
        shape, interior = spec.shape, spec.interior()
        self.form, self.heads, self.exact = form, shape.heads, interior.exact
        self.factors = interior.factors or Factors()
        self.qkv = nn.Parameter(torch.empty(3 * shape.width, shape.width))
        self.out = nn.Parameter(torch.empty(shape.width, shape.width))
        norms = {"rms": spec.norm_eps, "unit": -1.0, None: -1.0 if self.exact else None}
        self.eps = norms[interior.qk_norm]
        self.has_gains = interior.qk_norm == "rms"
        if self.has_gains:
            self.q_gain, self.k_gain = (nn.Parameter(torch.ones(shape.head_dim)) for _ in range(2))
        self.qk_scale = make_scale(interior.qk_scale, shape.width)
        self.softmax_scale = interior.softmax_scale or 1 / sqrt(shape.head_dim)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Return the causal attention of x (batch, time, width), in that shape; table: the rotations of positions."""
        return self.folded(x, table) if self.form.folded and not self.exact else self.plain(x, table)

    def plain(self, x: Tensor, table: Tensor) -> Tensor:
        """Compute the equations in their order; exact norms stand where the factors would."""
        qkv = F.linear(x, self.qkv) * self.factors.qkv
        q, k, v = self.form.heads(qkv, table, self.heads, self.eps)  # (b, h, t, c)
        q_scale, k_scale = self.scales()
        q, k = (q, k) if q_scale is None else ((q * q_scale).to(v.dtype), (k * k_scale).to(v.dtype))
        o = attend(q, k, unit(v) if self.exact else v, self.softmax_scale)
        y = F.linear(o, self.out) * self.factors.p
        return unit(y) if self.exact else y

    def folded(self, x: Tensor, table: Tensor) -> Tensor:
        """As plain: the scales of q and k in one, nu_qkv in the softmax scale unless a norm undoes it.

        nu_v and nu_p are left out: only methods with an exact norm on the output have them, and it undoes them.
        """
        q, k, v = self.form.heads(F.linear(x, self.qkv), table, self.heads, self.eps)  # (b, h, t, c)
        q_scale, k_scale = self.scales()
        q = q if q_scale is None else (q * (q_scale * k_scale)).to(v.dtype)
        factor = self.factors.qkv**2 if self.eps is None else 1.0
        return F.linear(attend(q, k, v, self.softmax_scale * factor), self.out)

    def scales(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return what multiplies q and k: gains (c), learned scales (h, 1, c), or nothing."""
        if self.has_gains:
            return self.q_gain, self.k_gain
        if self.qk_scale is None:
            return None, None
        s = self.qk_scale().view(self.heads, 1, -1)
        return s, s


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return causal softmax(scale q k) v with the heads side by side: (b, h, t, c) -> (b, t, d)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale).transpose(1, 2).flatten(2)


class Mlp(nn.Module):
    """SwiGLU: W_out (u * silu(z)) with u, z = W_uz x (Shazeer 2020, arXiv:2002.05202)."""

    roles = {"uz": MLP, "out": MLP}
    parts = {"uz": ("mlp_u", "mlp_z"), "out": ("mlp_out",)}

    def __init__(self, spec: ModelSpec, form: Form) -> None:
        super().__init__()
        shape, interior = spec.shape, spec.interior()
        self.form, self.exact, self.factors = form, interior.exact, interior.factors or Factors()
        self.uz = nn.Parameter(torch.empty(2 * shape.mlp_width, shape.width))
        self.out = nn.Parameter(torch.empty(shape.width, shape.mlp_width))
        self.u_scale = make_scale(interior.u_scale, shape.mlp_width)
        self.z_scale = make_scale(interior.z_scale, shape.mlp_width)
        self.z_factor = interior.z_factor
        self.nu_acf = 1.0 if form.folded and not self.exact else activation_factor(shape, interior)
        constant = self.z_factor * self.factors.uz
        rows = torch.ones(2, shape.mlp_width, 1) * torch.tensor((1.0, constant))[:, None, None]
        self.register_buffer("rows", rows.flatten(0, 1) if constant != 1.0 else None, persistent=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Return the MLP of x (batch, time, width), in that shape; the table of rotations is not used."""
        return self.folded(x) if self.form.folded and not self.exact else self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        """Compute the equations in their order; exact norms stand where the factors would."""
        u, z = (F.linear(x, self.uz) * self.factors.uz).chunk(2, -1)  # (b, t, f)
        if self.exact:
            u, z = unit(u), unit(z)
        if self.u_scale is not None and self.z_scale is not None:
            u, z = (u * self.u_scale()).to(x.dtype), (z * self.z_scale()).to(x.dtype)
        inner = u * F.silu(z * self.z_factor) * self.nu_acf
        y = F.linear(unit(inner) if self.exact else inner, self.out) * self.factors.d
        return unit(y) if self.exact else y

    def folded(self, x: Tensor) -> Tensor:
        """As plain: what multiplies u and z multiplies the rows of their weights instead.

        nu_u, nu_acf and nu_d are left out: only methods with an exact norm on the output have them, and it undoes them.
        """
        weight = self.uz if self.rows is None else self.uz * self.rows
        if self.u_scale is not None and self.z_scale is not None:
            weight = weight * torch.cat((self.u_scale(), self.z_scale()))[:, None]
        return F.linear(self.form.swiglu(F.linear(x, weight.to(self.uz.dtype))), self.out)


def activation_factor(shape: Shape, interior: Interior) -> float:
    """Return nu_acf as the factors say: a number, or its Monte-Carlo estimate times their multiplier."""
    factors = interior.factors or Factors()
    if factors.acf is not None:
        return factors.acf
    return factors.acf_scale * monte_carlo_nu_acf(shape.mlp_width, interior.z_factor)


@lru_cache
def monte_carlo_nu_acf(mlp_width: int, z_factor: float, n_values: int = 2**22) -> float:
    """Return 1 / E|u * silu(z_factor z)| for random unit vectors u, z of the MLP's width (arXiv:2505.22014, 4.2)."""
    generator = torch.Generator("cpu").manual_seed(0)
    size = (max(64, n_values // mlp_width), mlp_width)
    u, z = (unit(torch.randn(size, generator=generator, device="cpu")) for _ in range(2))
    return 1 / (u * F.silu(z_factor * z)).norm(dim=-1).mean().item()
