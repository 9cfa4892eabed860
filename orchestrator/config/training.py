"""The training part of an experiments.yaml: optimiser, schedule, evaluation, divergence, diagnostics."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from scalewright.orchestrator.config import values
from scalewright.orchestrator.config.recipes import MUON_MOMENTUM, OPTIMIZERS, PRECISIONS
from scalewright.orchestrator.config.section import (
    BelowOne,
    Count,
    Extent,
    Limit,
    NotNegative,
    Positive,
    Section,
    Share,
    Text,
    one_of,
    read_list,
    read_many,
    read_name,
)
from scalewright.orchestrator.train.divergence import DEFAULT_RULE
from scalewright.orchestrator.train.groups import DECAY
from scalewright.orchestrator.train.schedules import SCHEDULES

VALIDATION = "validation"

Precision = Annotated[str, BeforeValidator(one_of(*PRECISIONS, what="precision"))]
Extents = Annotated[tuple[Extent, ...], BeforeValidator(read_list)]


class Overrides(Section):
    """Changes to a recipe: only what is written counts, the rest stays as the recipe has it."""

    def written(self) -> dict[str, Any]:
        """Return the keys that the file gives, without defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Optimizer(Overrides):
    """Changes to a recipe's optimiser. Norms are L2; `none` turns a clip off. momentum: of `muon`."""

    name: Annotated[str, BeforeValidator(one_of(*OPTIMIZERS, what="optimizer"))] = "adamw"
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.95
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    decay: Annotated[str, BeforeValidator(one_of(*DECAY, what="set of decayed roles"))] = "none"
    momentum: BelowOne = MUON_MOMENTUM
    clip_norm: Limit = 1.0
    gate_clip_norm: Limit = None


class Schedule(Overrides):
    """Changes to a recipe's schedule: `warmup` a part of the run, `decay` (wsd) a share of it, `final` of the peak."""

    name: Annotated[str, BeforeValidator(one_of(*SCHEDULES, what="schedule"))] = "cosine"
    warmup: Extent = values.Extent(0.1, "share")
    decay: Share = 0.2
    final: Share = 0.0


def read_corpora(value: Any) -> Any:
    """Read texts by name: a path or a list of them each."""
    if not isinstance(value, dict):
        raise ValueError("expected texts by name, for example  corpora: {wiki: wiki.jsonl}")
    for name in value:
        if read_name(name) == VALIDATION:
            raise ValueError(f"{VALIDATION} is what the split of the training data is called; take another name")
    return {name: read_many(paths) for name, paths in value.items()}


class Evaluation(Section):
    """When the validation loss is measured besides at the end, and on how many fixed windows.

    corpora: other texts by name, whose loss is measured at the end too.
    """

    at: Extents = ()
    every: Extent | None = None
    n_windows: Count = 256
    corpora: Annotated[dict[str, tuple[Text, ...]], BeforeValidator(read_corpora)] = {}


class Divergence(Section):
    """When a run counts as diverged: a loss that is not finite, or one that stays `rise_nats` above its best for the
    share `patience` of the run."""

    rise_nats: Positive = DEFAULT_RULE["rise_nats"]
    patience: Share = DEFAULT_RULE["patience"]


class Diagnostics(Section):
    """When the per-layer diagnostics are measured: never, unless asked."""

    at: Extents = ()


OVERRIDE_SECTIONS: dict[str, type[Overrides]] = {"optimizer": Optimizer, "schedule": Schedule}


def override_reader(key: str) -> Callable[[Any], Any]:
    """Return the reader of an axis such as `optimizer.weight_decay`; options of models are read by their looks."""
    part, _, name = key.partition(".")
    section = OVERRIDE_SECTIONS.get(part)
    return values.guess if section is None else lambda value: _read_override(section, name, value)


def _read_override(section: type[Overrides], name: str, value: Any) -> Any:
    try:
        return getattr(section.model_validate({name: value}), name)
    except ValidationError as error:
        finding = error.errors()[0]
        raise ValueError(str(finding.get("ctx", {}).get("error", finding["msg"]))) from None
