"""Norms over the last axis. Statistics in fp32, result in the dtype of the input. Torch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.wiring import NORM_GAIN, Norm

NORM_FLOOR = 1e-12  # keeps the norm of a zero vector from dividing by zero


def unit(x: Tensor) -> Tensor:
    """Return x / |x| over the last axis."""
    return F.normalize(x.float(), dim=-1, eps=NORM_FLOOR).to(x.dtype)


def rms(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) * gain over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), gain, eps)


class RmsNorm(nn.Module):
    """RMSNorm with a learned gain (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    roles = {"gain": NORM_GAIN}

    def __init__(self, width: int, eps: float, *, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((width,), gain))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms(x, self.gain, self.eps)


class UnitNorm(nn.Module):
    """x / |x|: no gain, no eps."""

    def forward(self, x: Tensor) -> Tensor:
        return unit(x)


def make_norm(kind: Norm, width: int, eps: float, *, gain: float = 1.0) -> nn.Module | None:
    """Return the norm of that name, or None for an empty slot."""
    if kind is None:
        return None
    return UnitNorm() if kind == "unit" else RmsNorm(width, eps, gain=gain)
