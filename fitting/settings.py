"""How to fit: objective, level, intervals, and what is known of the parameters beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import unknown
from scalewright.fitting.objectives import OBJECTIVES, Objective


@dataclass(frozen=True)
class FitSettings:
    """How to fit: objective by name, its width (None: its own), confidence level, intervals by profile or not.

    profile: "auto" where the delta method would mislead, "always" or "never". fixed: parameters held at a value;
    bounds: parameters kept between two. above: the weight of runs whose loss lies above the law; below 1 the law leans
    on the lower envelope.
    """

    objective: str = "huber"
    delta: float | None = None
    level: float = 0.95
    profile: str = "auto"
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    above: float = 1.0

    def resolve(self) -> Objective:
        """Return the objective. Raises FittingError for an unknown name, or a width, level or weight out of range."""
        if not 0 < self.level < 1:
            raise FittingError(f"level must lie between 0 and 1, got {self.level}")
        if self.objective not in OBJECTIVES:
            raise FittingError(unknown("objective", self.objective, list(OBJECTIVES)))
        if self.delta is not None and not self.delta > 0:
            raise FittingError(f"delta must be positive, got {self.delta}")
        if not 0 < self.above <= 1:
            raise FittingError(f"the weight of runs above the law must lie between 0 and 1, got {self.above:g}")
        objective = OBJECTIVES[self.objective]
        if objective.raw and self.above < 1:
            others = ", ".join(name for name, other in OBJECTIVES.items() if not other.raw)
            raise FittingError(f"objective {self.objective} has no lower envelope; these have: {others}")
        if self.delta is not None and self.objective == "huber":
            objective = objective.with_delta(self.delta)
        return replace(objective, above=self.above)
