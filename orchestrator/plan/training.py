"""Recipe, overrides and rate -> the training part of a run's identity, every number resolved. No heavy import."""

from collections.abc import Mapping
from typing import Any

from scalewright.orchestrator.config.experiment import Experiment, Method, Size
from scalewright.orchestrator.config.models import method_record
from scalewright.orchestrator.config.recipes import MUON_MOMENTUM, RECIPES
from scalewright.orchestrator.config.values import Extent
from scalewright.orchestrator.plan.expand import Point
from scalewright.orchestrator.runs.training_spec import (
    DivergenceSpec,
    EvaluationSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrainingSpec,
)

NO_CLIP = 0.0  # how a spec writes "no clipping"


def recipe_of(experiment: Experiment, method: Method) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the optimiser and schedule of the method's recipe, one of the file's own laid over its base."""
    name = method.recipe or method_record(method).recipe
    own = experiment.recipes.get(name)
    base = RECIPES[own.base if own else name]
    layers = [own] if own else []
    return overlay(base.optimizer, layers, "optimizer"), overlay(base.schedule, layers, "schedule")


def overlay(base: Mapping[str, Any], layers: list[Any], part: str) -> dict[str, Any]:
    """Lay what each layer's `part` has written over the base, the later layer on top."""
    merged = dict(base)
    for layer in layers:
        overrides = getattr(layer, part)
        merged |= overrides.written() if overrides else {}
    return merged


def training_options(
    experiment: Experiment, point: Point, method: Method, size: Size
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return optimiser and schedule of a point: recipe < experiment < size < method < axis of the grid."""
    optimizer, schedule = recipe_of(experiment, method)
    layers = [experiment, size, method]
    optimizer, schedule = overlay(optimizer, layers, "optimizer"), overlay(schedule, layers, "schedule")
    for key, value in point.overrides:
        part, _, name = key.partition(".")
        {"optimizer": optimizer, "schedule": schedule}.get(part, {})[name] = value
    return optimizer, schedule


def training_spec(
    experiment: Experiment,
    point: Point,
    options: tuple[dict[str, Any], dict[str, Any]],
    *,
    n_tokens: int,
    lr_peak: float,
) -> TrainingSpec:
    """Write how a point is trained: whole numbers and floats in fixed types, nothing left to a default."""
    optimizer, schedule = options
    if "momentum" in optimizer and optimizer["name"] != "muon":
        why = f"only muon has it; the optimizer of {point.method} is {optimizer['name']}"
        raise experiment.source.error(("optimizer", "momentum"), why)
    return TrainingSpec(
        n_tokens=n_tokens,
        batch_sequences=point.batch,
        context=point.context,
        seed=point.seed,
        precision=point.precision,
        optimizer=OptimizerSpec(
            name=optimizer["name"],
            lr_peak=float(lr_peak),
            beta1=float(optimizer["beta1"]),
            beta2=float(optimizer["beta2"]),
            eps=float(optimizer["eps"]),
            weight_decay=float(optimizer["weight_decay"]),
            decay=optimizer["decay"] if optimizer["weight_decay"] else "none",
            clip_norm=float(optimizer["clip_norm"] or NO_CLIP),
            gate_clip_norm=float(optimizer["gate_clip_norm"] or NO_CLIP),
            momentum=float(optimizer.get("momentum", MUON_MOMENTUM)) if optimizer["name"] == "muon" else None,
        ),
        schedule=schedule_spec(schedule, n_tokens, point.batch * point.context),
        evaluation=EvaluationSpec(n_windows=experiment.evaluation.n_windows),
        divergence=DivergenceSpec(**experiment.divergence.model_dump()),
    )


def schedule_spec(schedule: Mapping[str, Any], n_tokens: int, batch_tokens: int) -> ScheduleSpec:
    """Write the schedule in tokens, rounded to whole steps; a decay is part of `wsd` alone."""
    decay = Extent(float(schedule["decay"]), "share") if schedule["name"] == "wsd" else None
    return ScheduleSpec(
        name=schedule["name"],
        warmup_tokens=schedule["warmup"].to_tokens(n_tokens, batch_tokens),
        final_fraction=float(schedule["final"]),
        decay_tokens=decay.to_tokens(n_tokens, batch_tokens) if decay else None,
    )
