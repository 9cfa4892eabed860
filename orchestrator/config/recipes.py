"""Optimiser and schedule defaults by method: named recipes, each number with its source. No heavy import.

Learning rates are not part of a recipe's claim: `lr` is a rule of thumb for tiny byte models and a plan that uses it
says so. Sources: anGPT arXiv:2505.22014, nGPT arXiv:2410.01131, GPAS arXiv:2506.22049.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalewright.orchestrator.config.values import Extent

PRECISIONS = ("fp32", "bf16-mixed", "bf16-pure")
OPTIMIZERS = ("adamw", "muon")
MUON_MOMENTUM = 0.95

ADAMW: dict[str, Any] = {"name": "adamw", "eps": 1e-8, "clip_norm": 1.0, "gate_clip_norm": None}
COSINE: dict[str, Any] = {"name": "cosine", "decay": 0.2}  # `decay`: share of a wsd schedule


@dataclass(frozen=True)
class Recipe:
    """How one family of methods is trained; norms L2, None is off."""

    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    doc: str
    source: str


RECIPES: dict[str, Recipe] = {
    "gpt": Recipe(
        ADAMW | {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "decay": "matrices+embeddings"},
        COSINE | {"warmup": Extent(0.1, "share"), "final": 0.0},
        "AdamW with decay of every matrix and a warm-up; cosine to zero",
        "arXiv:2505.22014 names decay and warm-up without values; decay, betas and floor as nGPT's baseline "
        "(arXiv:2410.01131 and its code), warm-up share as arXiv:2506.22049",
    ),
    "muon": Recipe(
        ADAMW | {"name": "muon", "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "decay": "matrices+embeddings"},
        COSINE | {"warmup": Extent(0.1, "share"), "final": 0.0},
        "Muon for the matrices of attention and MLP, with steps as long as AdamW's, AdamW for the rest; else as `gpt`",
        "arXiv:2502.16982, section 2.2 (steps, decay, momentum); betas, warm-up and floor: our choice, as `gpt`",
    ),
    "normalized": Recipe(
        ADAMW | {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.0, "decay": "none"},
        COSINE | {"warmup": Extent(0.0, "share"), "final": 0.0},
        "Adam without decay and without warm-up; cosine to zero",
        "arXiv:2505.22014 (no decay, no warm-up); betas and floor from nGPT's code, arXiv:2410.01131",
    ),
    "adam": Recipe(
        ADAMW | {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "decay": "none"},
        COSINE | {"warmup": Extent(0.1, "share"), "final": 0.1},
        "Adam without decay, 10% warm-up, cosine to 10%; clipping on, unlike the published runs up to 1B",
        "arXiv:2506.22049, published code and rebuttal S4",
    ),
    "adam-gate-clip": Recipe(
        ADAMW | {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "decay": "none", "gate_clip_norm": 0.01},
        COSINE | {"warmup": Extent(0.1, "share"), "final": 0.1},
        "as `adam`, and the joint gradient norm of all gates clipped at 0.01 after the global clip",
        "arXiv:2506.22049, published scripts: Sandwich-LN with GPAS at 1B, and 7B",
    ),
    "adam-unclipped": Recipe(
        ADAMW | {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "decay": "none", "clip_norm": None},
        COSINE | {"warmup": Extent(0.1, "share"), "final": 0.1},
        "as `adam` without gradient clipping",
        "arXiv:2506.22049, published scripts 71M to 1B",
    ),
}
