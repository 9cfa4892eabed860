"""The records a method fills in: where a sub-layer touches the stream, and what it changes inside. No torch.

Every method is one form per sub-layer f (attention or MLP), with empty slots allowed:

    h = post( f( pre(x) * pre_scale ) );   y = out( join(x, h) )
    join = residual_scale * x + branch_scale * h      "add"
         = factor * (x + alpha * (h - x))             "lerp"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["rms", "unit"] | None  # rms: x / rms(x) * gain;  unit: x / |x|, no gain

# Roles partition the parameters. MATRIX_ROLES multiply activations (or are looked up); the rest are gains and scalars.
EMBEDDING, HEAD, ATTENTION, MLP = "embedding", "head", "attention", "mlp"
NORM_GAIN, SCALE, ALPHA, GATE = "norm-gain", "scale", "alpha", "gate"
MATRIX_ROLES = (EMBEDDING, HEAD, ATTENTION, MLP)
VECTOR_ROLES = (NORM_GAIN, SCALE, ALPHA, GATE)
ROLES = MATRIX_ROLES + VECTOR_ROLES


@dataclass(frozen=True)
class Shape:
    """The size of a model: everything a parameter count needs besides the method."""

    width: int
    depth: int
    heads: int
    vocab_size: int
    context: int
    mlp_width: int

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.width // self.heads


@dataclass(frozen=True)
class Wiring:
    """How both sub-layers of one layer touch the residual stream (the form at the top of this module)."""

    pre: Norm = None
    post: Norm = None
    out: Norm = None
    pre_scale: float = 1.0
    pre_gain: float = 1.0  # what the gain of the pre norm starts at
    residual_scale: float = 1.0
    branch_scale: float = 1.0
    join: Literal["add", "lerp"] = "add"

    @property
    def is_trunk(self) -> bool:
        """True when the sum itself is the stream; False when a norm replaces it (Post-LN placements)."""
        return self.out is None


@dataclass(frozen=True)
class Scale:
    """A learned multiplier s = (init / stored) * raw with raw starting at `stored`: Adam moves s by lr * init / stored.

    Source: nGPT, arXiv:2410.01131, section 2.5. `learned=False` keeps s = init and adds no parameter.
    """

    init: float
    stored: float
    shape: Literal["vector", "scalar"] = "vector"
    learned: bool = True

    def n_values(self, length: int) -> int:
        """Parameters that this scale adds for a vector of `length` channels."""
        return 0 if not self.learned else 1 if self.shape == "scalar" else length


@dataclass(frozen=True)
class Factors:
    """anGPT's constants nu (arXiv:2505.22014, section 4.2); nu_acf None means estimated by Monte Carlo times scale."""

    qkv: float = 1.0
    p: float = 1.0
    uz: float = 1.0
    acf: float | None = 1.0
    acf_scale: float = 1.0
    d: float = 1.0


@dataclass(frozen=True)
class Constraint:
    """What is projected after each optimiser step: norms bounded by 1, set to 1, or left free, along an axis.

    row: every row (in_features); ngpt: rows, but columns of the two output projections; frobenius: a whole matrix,
    to the square root of its number of rows.
    """

    kind: Literal["bounded", "normalised", "free"]
    axis: Literal["row", "ngpt", "frobenius"]


@dataclass(frozen=True)
class Interior:
    """What a method changes inside its sub-layers, at the join and at both ends of the stream."""

    qk_norm: Norm = None
    softmax_scale: float | None = None  # None: 1 / sqrt(head_dim)
    qk_scale: Scale | None = None
    u_scale: Scale | None = None
    z_scale: Scale | None = None
    z_factor: float = 1.0
    factors: Factors | None = None
    exact: bool = False  # exact normalisation wherever a factor would stand
    alpha: Scale | None = None
    alpha_abs: bool = True
    residual_factor: float | None = None  # multiplies nu(alpha) = 1/sqrt(alpha^2 + (1-alpha)^2); None: no factor
    residual_factor_gradient: bool = True
    logit_scale: Scale | None = None
    embedding_norm: Norm = None
    final_norm: Norm = "rms"
    constraint: Constraint | None = None
