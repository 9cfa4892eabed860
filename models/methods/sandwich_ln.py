"""Sandwich-LN, y = x + rms(f(rms(x))) (Ding et al. 2021, CogView, arXiv:2105.13290)."""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Wiring


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the Sandwich-LN wiring: a norm on both sides of the body."""
    return Wiring(pre="rms", post="rms")


SANDWICH_LN = Method(doc="a norm before and after each body", source="arXiv:2105.13290", wiring=wiring)
