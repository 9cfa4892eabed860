"""Peri-LN, y = x + rms(f(rms(x))), embedding and output normalised too (Kim et al. 2025, arXiv:2502.02732)."""

from __future__ import annotations

from scalewright.models.methods.method import Method
from scalewright.models.options import Options
from scalewright.models.wiring import Interior, Shape, Wiring


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the Peri-LN wiring, equal in every layer."""
    return Wiring(pre="rms", post="rms")


def interior(shape: Shape, options: Options) -> Interior:
    """Normalise the embedding; the final norm is there by default."""
    return Interior(embedding_norm="rms")


PERI_LN = Method(
    doc="norms around every body, and on the embedding", source="arXiv:2502.02732", wiring=wiring, interior=interior
)
