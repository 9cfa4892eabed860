"""How a sub-layer's output joins the stream, and the learned scales behind it. Torch."""

import torch
from torch import Tensor, nn

from models.wiring import ALPHA, SCALE, Interior, Scale, Wiring


class ScaleVector(nn.Module):
    """s = (init / stored) * raw; called without arguments, returns s in fp32."""

    def __init__(self, scale: Scale, length: int, role: str = SCALE) -> None:
        super().__init__()
        self.roles = {"raw": role}
        self.factor = scale.init / scale.stored
        value = torch.full(() if scale.shape == "scalar" else (length,), scale.stored)
        if scale.learned:
            self.raw = nn.Parameter(value)
        else:
            self.register_buffer("raw", value, persistent=False)

    def forward(self) -> Tensor:
        return self.raw.float() * self.factor


def make_scale(scale: Scale | None, length: int, role: str = SCALE) -> ScaleVector | None:
    """Return the scale, or None for an empty slot."""
    return None if scale is None else ScaleVector(scale, length, role)


class Add(nn.Module):
    """residual_scale * x + branch_scale * h."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.residual_scale, self.branch_scale = wiring.residual_scale, wiring.branch_scale

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        if self.branch_scale != 1.0:
            h = h * self.branch_scale
        return x + h if self.residual_scale == 1.0 else torch.add(h, x, alpha=self.residual_scale)


class Lerp(nn.Module):
    """factor * nu(alpha) * (x + alpha (h - x)), nu(alpha) = 1 / sqrt(alpha^2 + (1 - alpha)^2) (arXiv:2505.22014)."""

    def __init__(self, interior: Interior, width: int) -> None:
        super().__init__()
        assert interior.alpha is not None
        self.alpha = ScaleVector(interior.alpha, width, ALPHA)
        self.alpha_abs = interior.alpha_abs
        self.factor, self.factor_gradient = interior.residual_factor, interior.residual_factor_gradient

    def step(self) -> Tensor:
        """Return alpha as used."""
        alpha = self.alpha()
        return alpha.abs() if self.alpha_abs else alpha

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return (a, b) with the joined stream = a x + b h."""
        alpha = self.step()
        rest = 1 - alpha
        if self.factor is None:
            return rest, alpha
        base = alpha if self.factor_gradient else alpha.detach()
        nu = self.factor * torch.rsqrt(base**2 + (1 - base) ** 2)
        return nu * rest, nu * alpha

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        a, b = self.weights()
        return (a * x + b * h).to(x.dtype)


def make_join(wiring: Wiring, interior: Interior, width: int) -> nn.Module:
    """Return the join of a wiring."""
    return Add(wiring) if wiring.join == "add" else Lerp(interior, width)
