"""Operations of scalewright.models.forms with hand-written gradients: fewer passes, fewer temporaries. Torch.

Legend: b batch, t time, h heads, c channels of a head, d = h c width, f MLP width.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Context = Any  # what autograd hands from forward to backward; torch gives its attributes no types
NORM_FLOOR = 1e-12  # keeps the norm of a zero vector from dividing by zero


class Gated(Function):
    """y = f x with the gradient of the identity for x and <x, g> for the scalar f; saves y, which others keep too.

    The backward pass is differentiable as it stands, so it goes without the guard of the others, a tenth of its time.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, f: Tensor) -> Tensor:
        """Return f x; keep the product for backward."""
        y = scaled(x, f)
        ctx.save_for_backward(y, f)
        return y

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, with the gate not in its way, and of f: <y, g> / f."""
        y, f = ctx.saved_tensors
        return g, dot(y, g, f.dtype) / f


class GatedSum(Function):
    """y = f (x + h) as in Gated, the sum and the factor in one buffer."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, h: Tensor, f: Tensor) -> Tensor:
        """Return f (x + h); keep the product for backward."""
        y = x + h
        y = y.mul_(f) if y.dtype == f.dtype else scaled(y, f)
        ctx.save_for_backward(y, f)
        return y

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and h, with the gate not in their way, and of f: <y, g> / f."""
        y, f = ctx.saved_tensors
        return g, g, dot(y, g, f.dtype) / f


class GatedShortcut(Function):
    """y = weight f x + h with the gradient weight g for x; saves x, which the sub-layer's first matrix saves anyway."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, h: Tensor, f: Tensor, weight: float) -> Tensor:
        """Return weight f x + h."""
        ctx.save_for_backward(x, f)
        ctx.weight = weight
        return torch.add(h, scaled(x, f), alpha=weight)

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, h and f: weight g, g and weight <x, g>; none for the weight."""
        x, f = ctx.saved_tensors
        d_x = g if ctx.weight == 1.0 else g * ctx.weight
        return d_x, g, dot(x, g, f.dtype) * ctx.weight, None


def scaled(x: Tensor, f: Tensor) -> Tensor:
    """Return f x in the dtype of x, multiplied in the (wider) dtype of f."""
    return x * f if x.dtype == f.dtype else (x.to(f.dtype) * f).to(x.dtype)


def dot(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the dot product of two tensors of one shape, summed in a dtype."""
    return torch.dot(a.reshape(-1).to(dtype), b.reshape(-1).to(dtype))


class Unit(Function):
    """y = x / |x| over the last axis; saves y and 1 / |x|."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        """Return x / |x| over the last axis."""
        r = _inverse_norm(x)
        y = x * r
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g: Tensor) -> Tensor:
        """Return (g - y <g, y>) / |x|: the part of g along the sphere."""
        y, r = ctx.saved_tensors
        return tangent(g, y, (g * y).sum(-1, keepdim=True), r)


class Rms(Function):
    """y = x / sqrt(mean(x^2) + eps) * gain over the last axis."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """Return gain x / rms(x) over the last axis; eps is added to the mean square."""
        r = _inverse_rms(x, eps)
        y = x * r
        ctx.save_for_backward(y, r, gain)
        return y * gain

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and gain (width,); none for eps."""
        y, r, gain = ctx.saved_tensors
        gy = g * y
        d_gain = gy.flatten(0, -2).sum(0)
        inner = rows_times(gy, gain).view(r.shape).div_(y.shape[-1])
        return tangent(g * gain, y, inner, r), d_gain, None


def _inverse_norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(NORM_FLOOR).reciprocal_()


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def rows_times(x: Tensor, vector: Tensor) -> Tensor:
    """Return x @ vector over the last axis, flat. With an `out`, so that autocast leaves it in full precision."""
    rows = x.flatten(0, -2)
    return torch.mv(rows, vector, out=rows.new_empty(rows.shape[0]))


def tangent(g: Tensor, y: Tensor, inner: Tensor, r: Tensor) -> Tensor:
    """Return r (g - y inner): the gradient through a norm whose output is y."""
    return torch.addcmul(g, y, inner, value=-1).mul_(r)


class UnitLerp(Function):
    """y = a x + b h / |h| with a and b one number a channel: an exact norm and a join in one."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Return a x + b h / |h|, in the dtype of x."""
        h = h.to(x.dtype)  # under autocast h is in half precision and the stream is not
        r = _inverse_norm(h)
        n = h * r
        ctx.save_for_backward(x, n, r, a, b)
        return (x * a).addcmul_(n, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, h, a and b, those of a and b in their own shapes."""
        x, n, r, a, b = ctx.saved_tensors
        gn = (g * n).flatten(0, -2)
        inner = rows_times(gn, b.expand(n.shape[-1])).view(r.shape)
        d_a = (g * x).flatten(0, -2).sum(0)
        return g * a, tangent(g * b, n, inner, r), d_a.sum_to_size(a.shape), gn.sum(0).sum_to_size(b.shape)


class SwiGlu(Function):
    """y = u * silu(z) for uz (b, t, 2f); the gradients of u and z are written into one buffer."""

    @staticmethod
    def forward(ctx: Context, uz: Tensor) -> Tensor:
        """Return silu(z) u of uz (..., 2 hidden): u its first half, z its second."""
        u, z = uz.chunk(2, -1)
        s = F.silu(z)
        ctx.save_for_backward(uz, s)
        return s * u

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g: Tensor) -> Tensor:
        """Return the gradient of uz, (..., 2 hidden)."""
        uz, s = ctx.saved_tensors
        u, z = uz.chunk(2, -1)
        d_uz = torch.empty_like(uz)
        d_u, d_z = d_uz.chunk(2, -1)
        torch.mul(g, s, out=d_u)
        torch.mul(g, u, out=d_z)
        torch.ops.aten.silu_backward.grad_input(d_z, z, grad_input=d_z)
        return d_uz


class Heads(Function):
    """Split qkv (b, t, 3d) into rotated, normed heads (b, h, t, c); table (t, d, 2) covers every pair of q and of k.

    A norm keeps the direction and a rotation keeps the norm, so their order does not matter.
    eps: None for no norm, below 0 for x / |x|, else x / sqrt(mean(x^2) + eps).
    """

    @staticmethod
    def forward(ctx: Context, qkv: Tensor, table: Tensor, heads: int, eps: float | None) -> tuple[Tensor, ...]:
        """Return q, k, v (batch, heads, time, head_dim) of qkv (batch, time, 3 width); eps None: no norm."""
        b, t, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        turn = torch.view_as_complex(table)
        pairs = torch.view_as_complex(qkv[..., : 2 * width].unflatten(-1, (-1, 2)))  # (b, t, d)
        qk = by_head(torch.view_as_real(pairs * turn), 2, heads)
        out = qkv.new_empty(3, b, heads, t, width // heads)
        out[2].copy_(by_head(qkv[..., 2 * width :], 1, heads)[0])
        r = None if eps is None else _inverse_norm(qk) if eps < 0 else _inverse_rms(qk, eps)
        out[:2].copy_(qk) if r is None else torch.mul(qk, r, out=out[:2])
        ctx.save_for_backward(out[:2], r, turn)
        ctx.divisor = 1 if eps is None or eps < 0 else width // heads
        return out.unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of qkv, (batch, time, 3 width); none for the rest."""
        qk, r, turn = ctx.saved_tensors
        _, b, heads, t, c = qk.shape
        d_qkv, d_pairs = qk.new_empty(b, t, 3 * heads * c), qk.new_empty(b, t, 2 * heads * c)
        by_head(d_qkv[..., 2 * heads * c :], 1, heads)[0].copy_(d_v)
        d_qk = by_head(d_pairs, 2, heads)
        for i, g in enumerate((d_q, d_k)):
            norm_gradient(g, qk[i], None if r is None else r[i], ctx.divisor, d_qk[i])
        into = torch.view_as_complex(d_qkv[..., : 2 * heads * c].unflatten(-1, (-1, 2)))
        torch.mul(torch.view_as_complex(d_pairs.unflatten(-1, (-1, 2))), turn.conj().resolve_conj(), out=into)
        return d_qkv, None, None, None


def by_head(x: Tensor, n: int, heads: int) -> Tensor:
    """View (b, t, n h c), or the same in pairs, as (n, b, h, t, c)."""
    return x.flatten(2).unflatten(-1, (n, heads, -1)).permute(2, 0, 3, 1, 4)


def norm_gradient(g: Tensor, y: Tensor, r: Tensor | None, divisor: int, out: Tensor) -> None:
    """Write the gradient through a norm with output y = r x into out; without a norm, copy."""
    if r is None:
        out.copy_(g)
        return
    inner = (g * y).sum(-1, keepdim=True)
    torch.mul(torch.addcmul(g, y, inner, value=-1 / divisor), r, out=out)


class ChunkedCrossEntropy(Function):
    """Mean cross-entropy of x W^T in nats, some rows at a time: all logits of a large vocabulary never exist at once.

    The gradients are made beside the loss, so no logit is computed twice; those of W are summed in fp32.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
        """Return the loss of x (n, width) under weight (vocab, width) at targets (n,), in fp32."""
        n, needs_gradient = len(x), any(ctx.needs_input_grad)
        total = x.new_zeros((), dtype=torch.float32)
        d_x = torch.empty_like(x) if needs_gradient else x
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_gradient else weight
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, n, rows):
                part, wanted = x[start : start + rows], targets[start : start + rows, None]
                logits = (part @ weight.T).float()
                normaliser = logits.logsumexp(-1, keepdim=True)
                total += (normaliser - logits.gather(-1, wanted)).sum()
                if needs_gradient:
                    d_logits = logits.sub_(normaliser).exp_()
                    d_logits.scatter_add_(-1, wanted, torch.full_like(normaliser, -1.0))
                    d_logits = (d_logits / n).to(x.dtype)
                    d_x[start : start + rows] = d_logits @ weight
                    d_weight += d_logits.T @ part
        ctx.save_for_backward(d_x, d_weight.to(weight.dtype))
        return total / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and weight; none for the rest."""
        d_x, d_weight = ctx.saved_tensors
        return d_x * g.to(d_x.dtype), d_weight * g.to(d_weight.dtype), None, None
