"""nGPT (Loshchilov et al. 2024, arXiv:2410.01131): everything on the unit sphere.

h <- norm(h + alpha (norm(f(h)) - h));   q, k <- norm(q) s_qk, norm(k) s_qk;   softmax scale sqrt(head_dim)
u <- s_u u;   z <- s_z sqrt(width) z;   logits <- s_logit (W h);   matrices normalised after every step
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

from scalewright.models.methods.method import Method
from scalewright.models.options import Option, Options, number
from scalewright.models.wiring import Constraint, Interior, Scale, Shape, Wiring

TABLE = "arXiv:2410.01131, ablation table"

OPTIONS = {
    "alpha_init": Option(0.05, "step size of a sub-layer at the start", "arXiv:2410.01131, section 2.6", low=0.0),
    "alpha_shape": Option("vector", "one step size a channel, or one a sub-layer", TABLE, ("vector", "scalar")),
    "logit_scale_init": Option(
        1.0, "factor on the logits at the start", "arXiv:2410.01131, section 2.5", low=0.0, added=True
    ),
    "scale_shape": Option("vector", "s_qk, s_u, s_z: one a channel, or one each", TABLE, ("vector", "scalar")),
    "logit_scale_shape": Option("vector", "one logit scale a token, or one", TABLE, ("vector", "scalar")),
    "fixed_scales": Option(False, "keep s_qk = s_u = s_z = 1", TABLE),
    "qk_norm": Option(True, "normalise queries and keys", TABLE),
    "constraint": Option(
        "normalised",
        "rows set to norm 1, bounded by it, or free",
        "arXiv:2505.22014, figure 5 (bounded)",
        ("normalised", "bounded", "none"),
    ),
}


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the nGPT wiring: both the sub-layer's output and the stream are set to norm 1."""
    return Wiring(post="unit", out="unit", join="lerp")


def interior(shape: Shape, options: Options) -> Interior:
    """Return nGPT's scales; raw values start at 1/sqrt(width) (s_u, s_z: 1), section 2.5."""
    stored = 1 / sqrt(shape.width)
    kind, learned = shape_of(options, "scale_shape"), not options["fixed_scales"]
    return Interior(
        qk_norm="unit" if options["qk_norm"] else None,
        softmax_scale=sqrt(shape.head_dim),
        qk_scale=Scale(1.0, stored, kind, learned),
        u_scale=Scale(1.0, 1.0, kind, learned),
        z_scale=Scale(1.0, 1.0, kind, learned),
        z_factor=sqrt(shape.width),
        alpha=Scale(number(options, "alpha_init"), stored, shape_of(options, "alpha_shape")),
        logit_scale=Scale(number(options, "logit_scale_init"), stored, shape_of(options, "logit_scale_shape")),
        final_norm=None,
        constraint=constraint_of(options, "ngpt"),
    )


def shape_of(options: Options, name: str) -> Literal["vector", "scalar"]:
    """Read an option that says whether a scale is a vector."""
    return "scalar" if options[name] == "scalar" else "vector"


def constraint_of(options: Options, axis: Literal["row", "ngpt", "frobenius"]) -> Constraint:
    """Read the option `constraint`; the axis also says how the init normalises."""
    if options["constraint"] == "none":
        return Constraint("free", axis)
    return Constraint("bounded" if options["constraint"] == "bounded" else "normalised", axis)


NGPT = Method(
    doc="normalised Transformer: stream, sub-layer outputs and weights on the unit sphere",
    source="arXiv:2410.01131",
    wiring=wiring,
    interior=interior,
    init="normalised",
    recipe="normalized",
    baseline="gpt+",
    options=OPTIONS,
)
