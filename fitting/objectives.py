"""Objectives by name: which loss on residuals, at which width. Data alone: help reads it without numpy."""

import math
from dataclasses import dataclass, replace

LAD_DELTA = 1e-6  # Huber's loss at this width, divided by it, equals |r| up to half of it


@dataclass(frozen=True)
class Objective:
    """A loss on residuals: Huber's at width `delta` (inf: least squares), on log or raw loss, times `scale`.

    `above` is the weight of a run whose loss lies above the law; below 1 the law leans on the lower envelope.
    """

    name: str
    doc: str
    delta: float
    raw: bool = False
    scale: float = 1.0
    continuation: tuple[float, ...] = ()
    above: float = 1.0

    def with_delta(self, delta: float) -> "Objective":
        """Return the objective at another width."""
        return replace(self, delta=delta)

    def stages(self) -> tuple[float, ...]:
        """List the widths to solve one after another, from least squares down to this objective's own."""
        return (*[d for d in self.continuation if d > self.delta], self.delta)


OBJECTIVES: dict[str, Objective] = {
    "huber": Objective("huber", "Huber on log loss, robust to bad runs", 1e-3, continuation=(math.inf, 1e-2)),
    "lad": Objective(
        "lad", "least absolute log residual", LAD_DELTA, False, 1 / LAD_DELTA, (math.inf, 3e-3, 3e-4, 1e-5)
    ),
    "log-l2": Objective("log-l2", "least squares on log loss", math.inf),
    "raw-l2": Objective("raw-l2", "least squares on the loss itself", math.inf, raw=True),
}
