"""How a sub-layer's output joins the stream, and learned scales. Torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from scalewright.models.forms import Form, wide
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import ALPHA, SCALE, Scale, Wiring

Weights = tuple[Tensor, Tensor]
Join = Callable[[Tensor, Tensor, Any], Tensor]  # (stream, branch, Weights of an interpolating join)


class ScaleVector(nn.Module):
    """s = (init / stored) * raw; called without arguments, returns s in fp32, a vector or a scalar."""

    roles = {"raw": SCALE}

    def __init__(self, scale: Scale, length: int) -> None:
        super().__init__()
        self.factor, self.length = scale.init / scale.stored, length
        value = torch.full((1 if scale.shape == "scalar" else length,), scale.stored)
        if scale.learned:
            self.raw = nn.Parameter(value)
        else:
            self.register_buffer("raw", value, persistent=False)

    def forward(self) -> Tensor:
        """Return the scales (length,), in float32 or wider."""
        return (wide(self.raw) * self.factor).expand(self.length)


def make_scale(scale: Scale | None, length: int) -> ScaleVector | None:
    """Return the scale, or None for an empty slot."""
    return None if scale is None else ScaleVector(scale, length)


class Lerps(nn.Module):
    """The step sizes alpha of all sub-layers in one tensor (2 depth, width or 1), and the weights they make.

    join = factor nu(alpha) (x + alpha (h - x)),  nu(alpha) = 1 / sqrt(alpha^2 + (1 - alpha)^2)  (arXiv:2505.22014)
    """

    roles = {"raw": ALPHA}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        interior = spec.interior()
        assert interior.alpha is not None
        scale = interior.alpha
        self.factor, self.alpha_abs = scale.init / scale.stored, interior.alpha_abs
        self.nu, self.nu_gradient = interior.residual_factor, interior.residual_factor_gradient
        size = (2 * spec.depth, 1 if scale.shape == "scalar" else spec.width)
        self.raw = nn.Parameter(torch.full(size, scale.stored))

    def steps(self) -> Tensor:
        """Return alpha as used, (2 depth, width or 1) in fp32."""
        alpha = wide(self.raw) * self.factor
        return alpha.abs() if self.alpha_abs else alpha

    def weights(self) -> list[Weights]:
        """Return (a, b) of every sub-layer, with the joined stream = a x + b h."""
        alpha = self.steps()
        a, b = 1 - alpha, alpha
        if self.nu is not None:
            base = alpha if self.nu_gradient else alpha.detach()
            nu = self.nu * torch.rsqrt(base**2 + (1 - base) ** 2)
            a, b = nu * a, nu * b
        return list(zip(a.unbind(0), b.unbind(0), strict=True))


def make_lerps(spec: ModelSpec) -> Lerps | None:
    """Return the step sizes of a model, or None for a method that adds."""
    return None if spec.interior().alpha is None else Lerps(spec)


def make_join(wiring: Wiring, form: Form) -> Join:
    """Return join(x, h, weights): the sum, or the interpolation with the exact norm of h where folded."""
    if wiring.join == "add":
        return add_with(wiring.residual_scale, wiring.branch_scale)
    if lerp_takes_norm(wiring, form):
        return lambda x, h, weights: form.unit_lerp(x, h, *weights)
    return lambda x, h, weights: (weights[0] * x + weights[1] * h).to(x.dtype)


def lerp_takes_norm(wiring: Wiring, form: Form) -> bool:
    """True where the folded form computes the post norm inside the join."""
    return form.folded and wiring.join == "lerp" and wiring.post == "unit"


def add_with(residual_scale: float, branch_scale: float) -> Join:
    """Return residual_scale x + branch_scale h."""
    if branch_scale != 1.0:
        return lambda x, h, _: torch.add(residual_scale * x, h, alpha=branch_scale)
    if residual_scale != 1.0:
        return lambda x, h, _: torch.add(h, x, alpha=residual_scale)
    return lambda x, h, _: x + h
