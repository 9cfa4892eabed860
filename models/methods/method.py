"""The record of one method. Knows wirings and options; no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scalewright.models.options import Option, Options
from scalewright.models.wiring import Interior, Shape, Wiring


def plain_interior(shape: Shape, options: Options) -> Interior:
    """Nothing special inside: Llama blocks, softmax at 1/sqrt(head_dim), a final norm."""
    return Interior()


@dataclass(frozen=True)
class Method:
    """A named wiring with its inside, its defaults, its options and the sources of all that.

    wiring(layer, depth, options) gives the wiring of a layer, counted from 0. recipe: the name of the optimiser and
    schedule defaults it trains with; baseline: the method it is compared with where an experiment names none.
    """

    doc: str
    source: str
    wiring: Callable[[int, int, Options], Wiring]
    interior: Callable[[Shape, Options], Interior] = plain_interior
    init: str = "spike-no-more"
    recipe: str = "adam"
    baseline: str | None = "pre-ln"
    options: Mapping[str, Option] = field(default_factory=dict)
