"""Learning-rate schedules: pure functions of the tokens seen, as fractions of the peak. No torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs.training_spec import ScheduleSpec


class ScheduleError(UserError):
    """A schedule that cannot be; `key` is the one in the YAML that says so."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Schedule:
    """A shape with its numbers, in tokens. n_tokens: length of the run, warm-up and decay included.

    decay_tokens: the last part of `wsd`, without meaning elsewhere; final_fraction: rate at the end over the peak.
    """

    name: str
    n_tokens: int
    warmup_tokens: int = 0
    final_fraction: float = 0.0
    decay_tokens: int = 0

    def fraction(self, tokens: float) -> float:
        """Return the rate over the peak after `tokens` tokens, 0 <= tokens <= n_tokens.

        A step takes the value at its middle, so that neither a first step of a warm-up nor a last step is at rate zero.
        """
        if tokens < self.warmup_tokens:
            return tokens / self.warmup_tokens
        return SCHEDULES[self.name](self, tokens)

    def floor(self, falling: float) -> float:
        """Map a fall from 1 to 0 to one from 1 to final_fraction."""
        return self.final_fraction + (1 - self.final_fraction) * falling

    def part_after_warmup(self, tokens: float) -> float:
        """Return how far a run is from the end of warm-up (0) to its last token (1)."""
        return (tokens - self.warmup_tokens) / max(self.n_tokens - self.warmup_tokens, 1)

    @property
    def ends_annealed(self) -> bool:
        """Tell whether the rate comes down before the end, so that the final loss may stand for the budget."""
        return self.name != "constant" and (self.name != "wsd" or self.decay_tokens > 0)


def _cosine(schedule: Schedule, tokens: float) -> float:
    return schedule.floor(0.5 * (1 + math.cos(math.pi * schedule.part_after_warmup(tokens))))


def _linear(schedule: Schedule, tokens: float) -> float:
    return schedule.floor(1 - schedule.part_after_warmup(tokens))


def wsd(schedule: Schedule, tokens: float) -> float:
    """Warm-up, stable, decay: 1, then 1 - sqrt(part of the decay), arXiv:2405.18392, section 3."""
    decayed = tokens - (schedule.n_tokens - schedule.decay_tokens)
    return 1.0 if decayed <= 0 else schedule.floor(1 - math.sqrt(decayed / schedule.decay_tokens))


def _constant(schedule: Schedule, tokens: float) -> float:
    return 1.0


SCHEDULES: dict[str, Callable[[Schedule, float], float]] = {
    "cosine": _cosine,
    "linear": _linear,
    "wsd": wsd,
    "constant": _constant,
}


def read_schedule(record: ScheduleSpec, n_tokens: int) -> Schedule:
    """Make the schedule of a run of `n_tokens` tokens; raises ScheduleError for what cannot be."""
    if record.name not in SCHEDULES:
        raise ScheduleError("name", f"schedule {record.name!r}: expected one of {', '.join(SCHEDULES)}")
    if record.warmup_tokens >= n_tokens:
        raise ScheduleError("warmup", f"a warm-up of {record.warmup_tokens:,} tokens in a run of {n_tokens:,} tokens")
    if (record.name == "wsd") != bool(record.decay_tokens):
        raise ScheduleError(
            "decay",
            f"schedule {record.name}: {'needs a decay above 0' if record.name == 'wsd' else 'takes no decay'}",
        )
    decay_tokens = record.decay_tokens or 0
    if record.warmup_tokens + decay_tokens > n_tokens:
        taken = record.warmup_tokens + decay_tokens
        raise ScheduleError("decay", f"warm-up and decay take {taken:,} tokens of a run of {n_tokens:,} tokens")
    return Schedule(record.name, n_tokens, record.warmup_tokens, record.final_fraction, decay_tokens)
