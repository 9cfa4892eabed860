"""Where a run stands: what the training loop counts and what a checkpoint keeps besides the weights. No torch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from scalewright.orchestrator.train.divergence import Monitor


@dataclass
class Progress:
    """step: finished optimiser steps. train_wall_s: seconds in training steps of the attempts that led here.

    unlogged: losses of finished steps that no metrics record covers yet. final: the last evaluation, once made.
    """

    monitor: Monitor
    batch_tokens: int
    n_steps: int
    step: int = 0
    train_wall_s: float = 0.0
    unlogged: list[float] = field(default_factory=list)
    final: dict[str, float] = field(default_factory=dict)
    outcome: str | None = None
    reason: str = ""

    @property
    def tokens(self) -> int:
        """Tokens trained on so far."""
        return self.step * self.batch_tokens

    def finish(self, outcome: str, reason: str) -> None:
        """Note how the attempt ends; what was noted first stays."""
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason

    def state(self, wall_s: float) -> dict[str, Any]:
        """Return what a checkpoint keeps; wall_s: seconds with everything, of the attempts that led here."""
        monitor, unlogged, final = self.monitor.state(), list(self.unlogged), dict(self.final)
        times = {"train_wall_s": self.train_wall_s, "wall_s": wall_s}
        return {"monitor": monitor, "unlogged": unlogged, "final": final, **times}

    def restore(self, step: int, state: dict[str, Any]) -> None:
        """Take up what a checkpoint kept; the attempt's own clock starts anew."""
        self.step = step
        self.monitor.restore(state["monitor"])
        self.train_wall_s = state["train_wall_s"]
        self.unlogged, self.final = list(state["unlogged"]), dict(state["final"])


class Clock:
    """Seconds of the attempt, and laps that leave out what is no training."""

    def __init__(self) -> None:
        self.began = self.lap_began = time.perf_counter()

    def wall_s(self) -> float:
        """Return the seconds since the attempt began, with evaluation and checkpoints."""
        return time.perf_counter() - self.began

    def lap_s(self) -> float:
        """Return the seconds since the last lap ended, less the pauses, and begin a new one."""
        now = time.perf_counter()
        lap, self.lap_began = now - self.lap_began, now
        return lap

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time inside out of the current lap."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.lap_began += time.perf_counter() - began
