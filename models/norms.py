"""Norms as modules. Torch."""

import torch
from torch import Tensor, nn

from scalewright.models.forms import Form
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import NORM_GAIN, Norm


class RmsNorm(nn.Module):
    """RMSNorm with a learned gain (Zhang and Sennrich 2019, arXiv:1910.07467), times a fixed scale."""

    roles = {"gain": NORM_GAIN}

    def __init__(self, width: int, eps: float, form: Form, *, gain: float = 1.0, scale: float = 1.0) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((width,), gain))
        self.eps, self.form, self.scale = eps, form, scale

    def forward(self, x: Tensor) -> Tensor:
        """Return scale gain x / rms(x) over the last axis."""
        if self.scale == 1.0:
            return self.form.rms(x, self.gain, self.eps)
        if self.form.folded:
            return self.form.rms(x, self.gain * self.scale, self.eps)
        return self.form.rms(x, self.gain, self.eps) * self.scale


class UnitNorm(nn.Module):
    """x / |x|: no gain, no eps."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        """Return x / |x| over the last axis."""
        return self.form.unit(x)


def make_norm(kind: Norm, spec: ModelSpec, form: Form, *, gain: float = 1.0, scale: float = 1.0) -> nn.Module | None:
    """Return the norm of that name, or None for an empty slot; its gain starts at `gain`, `scale` is a fixed factor."""
    if kind is None:
        assert scale == 1.0, "a scale needs a norm before it"
        return None
    return UnitNorm(form) if kind == "unit" else RmsNorm(spec.width, spec.norm_eps, form, gain=gain, scale=scale)
