"""LayerNorm Scaling, y = x + f(rms(x) / sqrt(l)), l from 1 (Sun et al. 2025, arXiv:2502.05795, equation 12)."""

from __future__ import annotations

from math import sqrt

from scalewright.models.methods.method import Method
from scalewright.models.options import Option, Options
from scalewright.models.wiring import Wiring

OPTIONS = {
    "trainable": Option(
        False,
        "only start the gains at 1/sqrt(l), as the public code of arXiv:2506.22049 does",
        "arXiv:2506.22049, public code",
    ),
}


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return Pre-LN whose norm outputs shrink with the layer, by a fixed factor or by the gain's first value."""
    scale = 1 / sqrt(layer + 1)
    return Wiring(pre="rms", pre_gain=scale) if options["trainable"] else Wiring(pre="rms", pre_scale=scale)


LNS = Method(
    doc="Pre-LN with norm outputs scaled by 1/sqrt(layer)", source="arXiv:2502.05795", wiring=wiring, options=OPTIONS
)
