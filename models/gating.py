"""The gates that can be named, where each sits, and which combinations have a source. No torch.

GPAS (arXiv:2506.22049): x <- x' - act(alpha) stopgrad(x'), alpha a scalar that starts at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scalewright.models.options import Option, Options
from scalewright.models.wiring import Wiring

PAPER = "arXiv:2506.22049"
PRE_LN_FAMILY = ("gpt", "gpt+", "pre-ln")  # one wiring; QK-norm and init do not touch the stream
PUBLISHED = (*PRE_LN_FAMILY, "sandwich-ln", "mix-ln", "lns", "deepnorm", "scale-res")

Site = Literal["trunk", "shortcut", "input", "norm", "module"]
ACTIVATIONS = ("silu", "identity", "relu", "tanh", "leaky_relu", "scale_silu")
POSITIONS = {
    "architecture": "after the sum on trunk placements, on the shortcut inside the norm on Post-LN placements",
    "before-sublayer": "on the input of the sub-layer, shortcut included",
    "after-norm": "on the output of the pre norm",
    "after-module": "on the output of attention or MLP, before the sum",
}


@dataclass(frozen=True)
class Gate:
    """A named gate: how it scales, and on which methods a source has it (at the architecture's own position)."""

    doc: str
    source: str
    methods: tuple[str, ...] = PUBLISHED
    options: Mapping[str, Option] = field(default_factory=dict)
    stop_gradient: bool = True
    shared: bool = True  # one alpha for both sub-layers of a layer
    learned: bool = True


INIT = Option(0.0, "alpha at the start; 0 is the ungated network", PAPER)
ACTIVATION = Option("silu", "act in 1 - act(alpha)", f"{PAPER}, public code", ACTIVATIONS)
POSITION = Option(
    "architecture", "where it sits; anything else was an ablation on Pre-LN", f"{PAPER}, table 4", tuple(POSITIONS)
)
VALUES = Option(
    0.05,
    "share taken off the stream at each site, one number or one a layer",
    f"{PAPER}, predefined gates; their values are not published",
    low=-1.0,
    high=1.0,
    per_layer=True,
)

GATES: dict[str, Gate] = {
    "none": Gate("no gate", "-", methods=()),
    "gpas": Gate(
        "one learned scalar a layer, shared by both sub-layers, gradient stopped",
        f"{PAPER}, equation 2",
        options={"init": INIT, "activation": ACTIVATION, "position": POSITION},
    ),
    "gpas-per-sublayer": Gate(
        "one learned scalar a sub-layer, gradient stopped",
        "variant of GPAS, untested there",
        options={"init": INIT, "activation": ACTIVATION, "position": POSITION},
        shared=False,
    ),
    "naive": Gate(
        "as gpas, but gradients are scaled too",
        f"{PAPER}, table 5",
        methods=PRE_LN_FAMILY,
        options={"init": INIT, "activation": ACTIVATION, "position": POSITION},
        stop_gradient=False,
    ),
    "fixed": Gate(
        "predefined scales, gradient stopped",
        f"{PAPER}, review discussion",
        methods=PRE_LN_FAMILY,
        options={"values": VALUES, "position": POSITION},
        learned=False,
    ),
}


def site_of(position: object, wiring: Wiring) -> Site:
    """Return where the gate of a layer sits, given the option `position` and the wiring."""
    if position == "architecture":
        return "trunk" if wiring.is_trunk or wiring.join == "lerp" else "shortcut"
    sites: dict[object, Site] = {"before-sublayer": "input", "after-norm": "norm", "after-module": "module"}
    return sites[position]


def why_unsourced(name: str, gate: Gate, method: str, options: Options) -> str | None:
    """Say why no source has this gate on this method, or None where one has."""
    if name == "none":
        return None
    if method not in gate.methods:
        return f"{name} on {method} has no source ({name} was published on: {', '.join(gate.methods)})"
    position = options["position"]
    if position != "architecture" and method not in PRE_LN_FAMILY:
        family = ", ".join(PRE_LN_FAMILY)
        return f"{name} at position {position} on {method} has no source (it was tried on Pre-LN: {family})"
    return None
