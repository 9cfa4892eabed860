"""Post-LN, y = rms(x + f(x)): the original placement (Vaswani et al. 2017, arXiv:1706.03762); a final norm on top."""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Wiring


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the Post-LN wiring, equal in every layer."""
    return Wiring(out="rms")


POST_LN = Method(doc="Post-LN: the stream is normalised after every sum", source="arXiv:1706.03762", wiring=wiring)
