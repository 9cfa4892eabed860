"""The operations that layers are made of, in two forms: plain equations, and hand-written gradients. Torch.

PLAIN computes a model word for word. FOLDED computes the same function with constants and learned scale vectors
folded into the weights, and operations from models/fused.py. Both share parameters: they can be compared and swapped.

Legend: b batch, t time, h heads, c channels of a head, d = h c width, f MLP width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scalewright.models import fused

NORM_FLOOR = fused.NORM_FLOOR


def wide(x: Tensor) -> Tensor:
    """Return x in fp32, where norms, gates and scales are computed; fp64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def unit(x: Tensor) -> Tensor:
    """x / |x| over the last axis."""
    return F.normalize(wide(x), dim=-1, eps=NORM_FLOOR).to(x.dtype)


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gain over the last axis."""
    return F.rms_norm(wide(x), (x.shape[-1],), wide(gain), eps).to(x.dtype)


def unit_lerp(x: Tensor, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a x + b h / |h|."""
    return (a * x + b * unit(h)).to(x.dtype)


def swiglu(uz: Tensor) -> Tensor:
    """u * silu(z), (b, t, 2f) -> (b, t, f)."""
    u, z = uz.chunk(2, -1)
    return u * F.silu(z)


def gated(x: Tensor, f: Tensor) -> Tensor:
    """f x with the gradient of the identity for x: x - s stopgrad(x), s = 1 - f (arXiv:2506.22049, equation 2)."""
    return (wide(x) - (1 - f) * wide(x).detach()).to(x.dtype)


def gated_sum(x: Tensor, h: Tensor, f: Tensor) -> Tensor:
    """gated(x + h, f)."""
    return gated(x + h, f)


def gated_shortcut(x: Tensor, h: Tensor, f: Tensor, weight: float) -> Tensor:
    """weight gated(x, f) + h."""
    return torch.add(h, gated(x, f), alpha=weight)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate adjacent channel pairs of x (b, t, h, c) by position; table (t, pairs, 2) holds cos and sin."""
    cos, sin = table[:, None, : x.shape[-1] // 2].unbind(-1)  # (t, 1, c/2)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def heads(qkv: Tensor, table: Tensor, n_heads: int, eps: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Split (b, t, 3d) into q, k, v (b, h, t, c), q and k rotated and normed in fp32 (eps None: no norm, < 0: unit)."""
    q, k, v = qkv.unflatten(-1, (3, n_heads, -1)).unbind(2)
    q, k = (normed(rotate(wide(item), table), eps).to(v.dtype) for item in (q, k))
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def normed(x: Tensor, eps: float | None) -> Tensor:
    """Norm without gain: None none, below 0 unit, else RMS."""
    if eps is None:
        return x
    return unit(x) if eps < 0 else F.rms_norm(x, (x.shape[-1],), None, eps)


@dataclass(frozen=True)
class Form:
    """How a model is computed; `folded` says whether constants and scales go into the weights."""

    folded: bool
    unit: Callable[[Tensor], Tensor]
    rms: Callable[[Tensor, Tensor, float], Tensor]
    unit_lerp: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor], Tensor]
    heads: Callable[[Tensor, Tensor, int, float | None], tuple[Tensor, Tensor, Tensor]]
    gated: Callable[[Tensor, Tensor], Tensor]
    gated_sum: Callable[[Tensor, Tensor, Tensor], Tensor]
    gated_shortcut: Callable[[Tensor, Tensor, Tensor, float], Tensor]


def eager(kernel: Callable[..., Any], equation: Callable[..., Any]) -> Callable[..., Any]:
    """Use the kernel, but the equation while torch.compile traces: the compiler fuses it better."""

    def choose(x: Tensor, *rest: Any) -> Any:
        return equation(x, *rest) if torch.compiler.is_compiling() else kernel(x, *rest)

    return choose


def eager_full(kernel: Callable[..., Any], equation: Callable[..., Any]) -> Callable[..., Any]:
    """As eager, and the equation in half precision too."""

    def choose(x: Tensor, *rest: Any) -> Any:
        by_hand = x.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling()
        return kernel(x, *rest) if by_hand else equation(x, *rest)

    return choose


PLAIN = Form(False, unit, rms, unit_lerp, swiglu, heads, gated, gated_sum, gated_shortcut)
FOLDED = Form(
    True,
    unit=eager_full(fused.Unit.apply, unit),
    rms=eager_full(fused.Rms.apply, rms),
    unit_lerp=eager_full(fused.UnitLerp.apply, unit_lerp),
    swiglu=eager_full(fused.SwiGlu.apply, swiglu),
    heads=eager_full(fused.Heads.apply, heads),
    gated=eager(fused.Gated.apply, gated),
    gated_sum=eager(fused.GatedSum.apply, gated_sum),
    gated_shortcut=eager(fused.GatedShortcut.apply, gated_shortcut),
)
FORMS = {"plain": PLAIN, "folded": FOLDED}
