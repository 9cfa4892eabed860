"""When a run counts as diverged: one rule, a function of the training losses alone. No torch.

Diverged: a loss that is not finite, or a mean over WINDOW_STEPS steps that stays more than `rise_nats` above the lowest
such mean so far for at least `patience` (a share) of the run's steps. A spike that comes back is no divergence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalewright.orchestrator.runs.training_spec import DivergenceSpec

WINDOW_STEPS = 16
DEFAULT_RULE: dict[str, float] = {"rise_nats": 1.0, "patience": 0.1}


@dataclass
class Monitor:
    """Watches the losses of a run one by one. Its state is plain numbers, kept in checkpoints."""

    rise_nats: float
    patience_steps: float
    best: float = math.inf
    high_steps: int = 0
    most_high_steps: int = 0
    window: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, rule: DivergenceSpec, n_steps: int) -> "Monitor":
        """Make the monitor of a run; patience is a share of its steps, at least one window."""
        return cls(rule.rise_nats, max(rule.patience * n_steps, WINDOW_STEPS))

    def why_diverged(self, loss_nats: float) -> str | None:
        """Take the next step's loss; return the reason when the run has diverged with it, else None."""
        if not math.isfinite(loss_nats):
            return f"the training loss is {loss_nats}"
        self.window.append(loss_nats)
        if len(self.window) < WINDOW_STEPS:
            return None
        mean = math.fsum(self.window) / WINDOW_STEPS
        self.window.clear()
        self.best = min(self.best, mean)
        self.high_steps = self.high_steps + WINDOW_STEPS if mean > self.best + self.rise_nats else 0
        self.most_high_steps = max(self.most_high_steps, self.high_steps)
        if self.high_steps < self.patience_steps:
            return None
        since = f"more than {self.rise_nats} above its best {self.best:.3f} for {self.high_steps} steps"
        return f"the training loss is {mean:.3f} nats, {since}"

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        counts = {"high_steps": self.high_steps, "most_high_steps": self.most_high_steps}
        return {"best": self.best, **counts, "window": list(self.window)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up `state` of a checkpoint."""
        self.best, self.high_steps, self.window = state["best"], state["high_steps"], list(state["window"])
        self.most_high_steps = state.get("most_high_steps", 0)
