"""Pre-LN Transformers: y = x + f(rms(x)), SwiGLU, RoPE, no biases, untied head.

`pre-ln` is the baseline of GPAS (arXiv:2506.22049), `gpt+` the one of anGPT (arXiv:2505.22014, Pre-LN with QK-norm).
The flavour of GPT+'s QK-norm is not in its sources; here it is an RMSNorm after RoPE with one gain a channel of a head.
"""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Interior, Shape, Wiring


def pre_ln_wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the Pre-LN wiring, equal in every layer."""
    return Wiring(pre="rms")


def qk_normed(shape: Shape, options: Options) -> Interior:
    """Normalise queries and keys (Henry et al. 2020, arXiv:2010.04245)."""
    return Interior(qk_norm="rms")


GPT = Method(
    doc="Pre-LN without QK-norm, initialised as GPT-2",
    source="arXiv:2505.22014, baseline without QK-norm",
    wiring=pre_ln_wiring,
    init="scaled",
    recipe="gpt",
    baseline=None,
)
GPT_PLUS = Method(
    doc="Pre-LN with QK-norm, initialised as GPT-2",
    source="arXiv:2505.22014, GPT+",
    wiring=pre_ln_wiring,
    interior=qk_normed,
    init="scaled",
    recipe="gpt",
    baseline=None,
)
PRE_LN = Method(
    doc="Pre-LN with large embeddings at the start, as GPAS trains it",
    source="arXiv:2506.22049, Pre-LN; init arXiv:2312.16903",
    wiring=pre_ln_wiring,
    baseline=None,
)
