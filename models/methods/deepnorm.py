"""DeepNorm, y = rms(a x + f(x)), a = (2 depth)^(1/4) (Wang et al. 2022, arXiv:2203.00555, figure 2, decoder-only)."""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Wiring


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return Post-LN with a heavier shortcut; the init of the same name scales the branch down."""
    return Wiring(out="rms", residual_scale=(2 * depth) ** 0.25)


DEEPNORM = Method(
    doc="Post-LN with a heavier shortcut and smaller branches",
    source="arXiv:2203.00555",
    wiring=wiring,
    init="deepnorm",
)
