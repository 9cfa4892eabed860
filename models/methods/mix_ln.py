"""Mix-LN: Post-LN in the first floor(ratio depth) layers, Pre-LN after (Li et al. 2024, arXiv:2412.13795)."""

from __future__ import annotations

from math import floor

from scalewright.models.methods.method import Method
from scalewright.models.options import Option, Options, number
from scalewright.models.wiring import Wiring

OPTIONS = {
    "ratio": Option(0.25, "share of the layers that are Post-LN", "arXiv:2412.13795, table 5", low=0.0, high=1.0),
}


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return Post-LN for the first layers, Pre-LN for the others."""
    n_post = floor(number(options, "ratio") * depth + 1e-9)  # 0.29 * 100 is a hair below 29 in floating point
    return Wiring(out="rms") if layer < n_post else Wiring(pre="rms")


MIX_LN = Method(
    doc="Post-LN in the first layers, Pre-LN in the others", source="arXiv:2412.13795", wiring=wiring, options=OPTIONS
)
