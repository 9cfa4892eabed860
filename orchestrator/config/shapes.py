"""Sizes asked for by their number of parameters, as the YAML writes them: a ladder, and isoFLOP curves."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scalewright.orchestrator.config import values
from scalewright.orchestrator.config.section import Positive, Section, Text, read_many

TOKENS_PER_PARAMETER = values.Budget(20.0, "tokens per parameter", "20x")  # Hoffmann et al. 2022, arXiv:2203.15556


def read_head_dim(value: Any) -> int:
    """Read the width of a head: even, for rotary embeddings turn pairs."""
    head_dim = values.read_positive_count(value)
    if head_dim % 2:
        raise ValueError(f"must be an even number, not {head_dim}")
    return head_dim


class ShapeRule(Section):
    """What sets a shape beside its parameters. aspect: width over depth; losses hardly differ from about 50 to 150
    (Kaplan et al. 2020, arXiv:2001.08361, figure 5). mlp_ratio: width of the MLP over that of the model."""

    aspect: Positive = 64.0
    head_dim: Annotated[int, BeforeValidator(read_head_dim)] = 64
    mlp_ratio: Positive | None = None


def read_steps(value: Any) -> int:
    """Read how many sizes; ValueError below 2."""
    steps = values.read_count(value)
    if steps < 2:
        raise ValueError(f"must be at least 2, not {steps}; for one size write its shape under `sizes`")
    return steps


class Ladder(ShapeRule):
    """Sizes in equal ratios from one number of non-embedding parameters to another."""

    first: Positive = Field(alias="from")
    last: Positive = Field(alias="to")
    steps: Annotated[int, BeforeValidator(read_steps)]

    @property
    def targets(self) -> list[float]:
        """Return the non-embedding parameters asked for, from the smallest size up."""
        ratio = self.last / self.first
        return [self.first * ratio ** (step / (self.steps - 1)) for step in range(self.steps)]


def _read_compute(value: Any) -> values.Budget:
    """Read a compute: here a bare number is FLOPs."""
    try:
        budget = values.read_budget(value)
    except ValueError:
        budget = None
    if budget is None or budget.unit == "tokens per parameter" or budget.text.lower().endswith(("token", "tokens")):
        raise ValueError(f"{values.show(value)} is no compute; write for example 1e18 or 1e18 FLOPs")
    name = budget.text if budget.unit == "FLOPs" else f"{budget.text} FLOPs"
    return values.Budget(budget.amount, "FLOPs", name)


def read_computes(value: Any) -> tuple[values.Budget, ...]:
    """Read computes, a list or one."""
    return tuple(_read_compute(item) for item in read_many(value))


def read_centre(value: Any) -> float | values.Budget:
    """Read tokens per parameter (`20x`), or a number of parameters."""
    budget = values.read_budget(value)
    if budget.unit == "FLOPs" or budget.text.lower().endswith(("token", "tokens")):
        raise ValueError(f"{values.show(value)}: write tokens per parameter (20x) or parameters (100M)")
    return budget if budget.unit == "tokens per parameter" else budget.amount


class IsoFlop(ShapeRule):
    """Sizes around the middle of each compute, and for each the tokens that bring it to that compute.

    centre: the middle size, by tokens per parameter there or by its parameters; law: a stored law of `method` whose
    optimum it is instead. span: the largest size over the smallest.
    """

    budgets: Annotated[tuple[values.Budget, ...], BeforeValidator(read_computes)]
    sizes: Annotated[int, BeforeValidator(read_steps)] = 5
    span: Positive = 10.0
    centre: Annotated[float | values.Budget, BeforeValidator(read_centre)] = TOKENS_PER_PARAMETER
    law: Text | None = None
    method: Text | None = None
