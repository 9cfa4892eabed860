"""anGPT (Franke et al. 2025, arXiv:2505.22014): norms of the stream replaced by constant factors, weights bounded.

    q, k, v = nu_qkv W h;   q, k <- norm(RoPE(q)), norm(RoPE(k));   softmax scale sqrt(head_dim)
    h <- nu(alpha) (h + alpha (norm(nu_p W_p o) - h)),   nu(alpha) = 1 / sqrt(alpha^2 + (1 - alpha)^2)
    u, z = nu_uz W h;   h_M = norm(nu_d W_d nu_acf (u * silu(sqrt(width) z)));   logits = s (W h)

The sources leave several points open or contradict each other; each such point is an option with its source.
With exact norms on q, k and on both outputs every constant but the one before the silu is inert.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

from scalewright.models.methods.method import Method
from scalewright.models.methods.ngpt import constraint_of, shape_of
from scalewright.models.options import Option, Options, number
from scalewright.models.wiring import Factors, Interior, Scale, Shape, Wiring

PAPER = "arXiv:2505.22014"
REVIEW = f"{PAPER}, review discussion"
OPEN = f"{PAPER} leaves it open; default as in nGPT, arXiv:2410.01131"

OPTIONS = {
    "alpha_init": Option(0.01, "step size of a sub-layer at the start (sources: 0.01, 0.05)", REVIEW, low=0.0),
    "alpha_shape": Option("vector", "one step size a channel, or one a sub-layer", OPEN, ("vector", "scalar")),
    "logit_scale_init": Option(1.0, "factor on the logits at the start", OPEN, low=0.0, added=True),
    "alpha_abs": Option(True, "use |alpha|", OPEN),
    "learned_scales": Option("logits", "learn s on the logits alone, or also s_qk, s_u, s_z", OPEN, ("logits", "all")),
    "qk_norm": Option(True, "normalise queries and keys", f"{PAPER}, figure 5"),
    "nu_p": Option(
        "one",
        "factor after the attention's output projection: 1, or 1/sqrt(heads)",
        f"{REVIEW} (one); summaries of the paper (heads)",
        ("one", "heads"),
    ),
    "constant_factors": Option(
        1.0, "multiply all constant factors, or leave them out", f"{REVIEW}, table 1", (1.0, 0.5, 2.0, "off")
    ),
    "residual_factor": Option(1.0, "multiply nu(alpha), or leave it out", f"{REVIEW}, table 1", (1.0, 0.5, 2.0, "off")),
    "residual_factor_gradient": Option(True, "let gradients reach alpha through nu(alpha)", f"{PAPER} leaves it open"),
    "normalisation": Option(
        "factors", "constant factors, or exact norms in their place", f"{REVIEW}, table 1", ("factors", "exact")
    ),
    "join": Option(
        "lerp", "interpolate, or the standard residual with its factor 1/sqrt(2)", f"{REVIEW}, table 1", ("lerp", "add")
    ),
    "constraint": Option(
        "bounded",
        "norms of the weights bounded by 1, set to 1, or free",
        f"{PAPER}, section 4.2",
        ("bounded", "normalised", "none"),
    ),
    "bound_axis": Option(
        "row",
        "what the constraint measures: rows, nGPT's axis, or whole matrices",
        f"{PAPER}, section 4.2 (row)",
        ("row", "ngpt", "frobenius"),
    ),
    "final_norm": Option(False, "normalise before the head, a failsafe", REVIEW),
}


def wiring(layer: int, depth: int, options: Options) -> Wiring:
    """Return the wiring: an exact norm on the sub-layer's output, a factor (or a norm) on the joined stream."""
    out: Literal["unit"] | None = "unit" if options["normalisation"] == "exact" else None
    if options["join"] == "lerp":
        return Wiring(post="unit", out=out, join="lerp")
    factor = 1 / sqrt(2) * (multiplier(options["residual_factor"]) or sqrt(2))
    return Wiring(post="unit", out=out, residual_scale=factor, branch_scale=factor)


def interior(shape: Shape, options: Options) -> Interior:
    """Return anGPT's factors and scales (sections 4.1 to 4.3)."""
    stored, learned = 1 / sqrt(shape.width), options["learned_scales"] == "all"
    exact, lerp = options["normalisation"] == "exact", options["join"] == "lerp"
    return Interior(
        qk_norm="unit" if options["qk_norm"] else None,
        softmax_scale=sqrt(shape.head_dim),
        qk_scale=Scale(1.0, stored) if learned else None,
        u_scale=Scale(1.0, 1.0) if learned else None,
        z_scale=Scale(1.0, 1.0) if learned else None,
        z_factor=sqrt(shape.width),
        factors=None if exact else factors(shape, options),
        exact=exact,
        alpha=Scale(number(options, "alpha_init"), stored, shape_of(options, "alpha_shape")) if lerp else None,
        alpha_abs=bool(options["alpha_abs"]),
        residual_factor=multiplier(options["residual_factor"]) if lerp and not exact else None,
        residual_factor_gradient=bool(options["residual_factor_gradient"]),
        logit_scale=Scale(number(options, "logit_scale_init"), stored),
        final_norm="unit" if options["final_norm"] else None,
        constraint=constraint_of(options, axis_of(options)),
    )


def factors(shape: Shape, options: Options) -> Factors | None:
    """Return nu for each linear map: 1/sqrt(E|Wx|^2) with unit x and unit rows is sqrt(n_in / n_out)."""
    k = multiplier(options["constant_factors"])
    if k is None:
        return None
    return Factors(
        qkv=k * sqrt(shape.width / shape.head_dim),
        p=k * (1.0 if options["nu_p"] == "one" else 1 / sqrt(shape.heads)),
        uz=k * sqrt(shape.width / shape.mlp_width),
        acf=None,
        acf_scale=k,
        d=k * sqrt(shape.mlp_width / shape.width),
    )


def multiplier(value: object) -> float | None:
    """Read an option that is a number, or `off` for None."""
    return float(value) if isinstance(value, int | float) else None


def axis_of(options: Options) -> Literal["row", "ngpt", "frobenius"]:
    """Read the option `bound_axis`."""
    return "frobenius" if options["bound_axis"] == "frobenius" else "ngpt" if options["bound_axis"] == "ngpt" else "row"


ANGPT = Method(
    doc="approximately normalised Transformer: constant factors instead of norms, bounded weights, LERP residual",
    source=PAPER,
    wiring=wiring,
    interior=interior,
    init="normalised",
    recipe="normalized",
    baseline="gpt+",
    options=OPTIONS,
)
