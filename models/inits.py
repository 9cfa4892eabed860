"""How weights start: (part, layer, depth, fan_in, fan_out) -> std, as an axis of its own. No torch.

Parts name the matrices one by one, also where several are stored fused: query, key and value in one tensor,
the two inputs of the MLP (u and z, the latter going through the silu) in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

from scalewright.models.options import Option, Options, number

PARTS = ("embedding", "query", "key", "value", "attention_out", "mlp_u", "mlp_z", "mlp_out", "head")
OUTPUTS = ("attention_out", "mlp_out")
XAVIER_BETA = ("value", "attention_out", "mlp_u", "mlp_z", "mlp_out")


@dataclass(frozen=True)
class Fan:
    """Where a matrix stands: layer (from 0; 0 for embedding and head), depth, and its two sizes."""

    layer: int
    depth: int
    fan_in: int
    fan_out: int


@dataclass(frozen=True)
class Init:
    """A rule for the std of every part; truncate: cut at that many sigmas; normalise: then set norms to 1."""

    doc: str
    source: str
    std: Callable[[str, Fan, Options], float]
    options: Mapping[str, Option]
    truncate: float | None = None
    normalise: bool = False


def initial_std(init: Init, part: str, fan: Fan, options: Options) -> float:
    """Return the std of a part; the option `embedding_std`, where set, wins for the embedding."""
    if part == "embedding" and options["embedding_std"] is not None:
        return number(options, "embedding_std")
    return init.std(part, fan, options)


def constant(part: str, fan: Fan, options: Options) -> float:
    """std = std."""
    return number(options, "std")


def scaled(part: str, fan: Fan, options: Options) -> float:
    """std = std / sqrt(2 depth) for the two output projections, std elsewhere."""
    return number(options, "std") / (sqrt(2 * fan.depth) if part in OUTPUTS else 1.0)


def mitchell(part: str, fan: Fan, options: Options) -> float:
    """std = 1/sqrt(fan_in), for output projections 1/sqrt(2 fan_in (layer + 1)); embedding 1/sqrt(width)."""
    if part == "embedding":
        return 1 / sqrt(fan.fan_out)
    return 1 / sqrt(fan.fan_in * (2 * (fan.layer + 1) if part in OUTPUTS else 1))


def deepnorm(part: str, fan: Fan, options: Options) -> float:
    """std = gain sqrt(2 / (fan_in + fan_out)), gain (8 depth)^(-1/4) for v, o and the MLP, 1 for q and k."""
    if part not in XAVIER_BETA and part not in ("query", "key"):
        return number(options, "std")
    gain = (8 * fan.depth) ** -0.25 if part in XAVIER_BETA else 1.0
    return gain * sqrt(2 / (fan.fan_in + fan.fan_out))


def unit(part: str, fan: Fan, options: Options) -> float:
    """std = 1/sqrt(width), then every norm is set to 1, so the std matters little."""
    return 1 / sqrt(fan.fan_out if part in ("embedding", *OUTPUTS) else fan.fan_in)


STD = Option(0.02, "std of the normal distribution", "GPT-2, and all baselines of arXiv:2506.22049", low=0.0)
SPIKE_NO_MORE_STD = sqrt(2 / 5)  # Takase et al. 2023, arXiv:2312.16903: embeddings of std sqrt(2/5)


def embedding_std(default: float | None) -> Option:
    """Return the option `embedding_std`, unset or 0 and above."""
    return Option(default, "std of the embedding; unset: the init's rule", "arXiv:2312.16903", low=0.0, optional=True)


INITS: dict[str, Init] = {
    "normal-0.02": Init(
        "normal, std 0.02 everywhere", "GPT-2", constant, {"std": STD, "embedding_std": embedding_std(None)}
    ),
    "scaled": Init(
        "normal, output projections smaller by sqrt(2 depth)",
        "GPT-2; Megatron, arXiv:1909.08053",
        scaled,
        {"std": STD, "embedding_std": embedding_std(None)},
    ),
    "spike-no-more": Init(
        "normal, std 0.02, embeddings sqrt(2/5)",
        "arXiv:2312.16903; used by arXiv:2506.22049",
        constant,
        {"std": STD, "embedding_std": embedding_std(SPIKE_NO_MORE_STD)},
    ),
    "mitchell": Init(
        "by fan-in and layer, cut at 3 sigma",
        "OLMo, arXiv:2402.00838 (init of Mitchell)",
        mitchell,
        {"embedding_std": embedding_std(None)},
        truncate=3.0,
    ),
    "deepnorm": Init(
        "Xavier normal with DeepNorm's beta; embedding and head normal",
        "arXiv:2203.00555, figure 2",
        deepnorm,
        {"std": STD, "embedding_std": embedding_std(SPIKE_NO_MORE_STD)},
    ),
    "normalised": Init(
        "normal, then every row set to norm 1 (along the axis of the method's constraint)",
        "arXiv:2410.01131, arXiv:2505.22014",
        unit,
        {"embedding_std": embedding_std(None)},
        normalise=True,
    ),
}
