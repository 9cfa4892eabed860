"""ScaleRes, y = (1 - 1/L) x + (1/L) f(rms(x)), L the depth (a baseline in the review discussion of arXiv:2506.22049).

Where the norm sits and whether L counts layers or sub-layers is not stated there; here Pre-LN, and layers.
"""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Wiring


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return Pre-LN with a convex sum. At depth 1 the shortcut vanishes, as the equation says."""
    return Wiring(pre="rms", residual_scale=1 - 1 / depth, branch_scale=1 / depth)


SCALE_RES = Method(
    doc="Pre-LN with a convex sum of stream and branch", source="arXiv:2506.22049, review discussion", wiring=wiring
)
