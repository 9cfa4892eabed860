"""The Lightning system: how one optimiser step is made. Several steps are one batch of Lightning's (see data.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn

from scalewright.models.constraints import constrain
from scalewright.models.transformer import linear_maps, parameter_roles
from scalewright.orchestrator.runs.training_spec import OptimizerSpec
from scalewright.orchestrator.train.optimizers import build_optimizer, clip_norm, gradients_of
from scalewright.orchestrator.train.progress import Progress
from scalewright.orchestrator.train.ranks import ALONE, Ranks
from scalewright.orchestrator.train.schedules import Schedule

GATE_ROLE = "gate"


@dataclass(frozen=True)
class Recipe:
    """How a run is trained: `training.optimizer` of its spec, its schedule, and how a batch is split.

    micro_batches: parts of a batch that go through the model one after another, their gradients summed.
    """

    optimizer: OptimizerSpec
    schedule: Schedule
    micro_batches: int = 1
    compile: bool = False


class System(LightningModule):
    """A model in training. `asked_to_stop` is looked at before each step; `recent` collects what the steps gave."""

    automatic_optimization = False  # a batch is several optimiser steps

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        progress: Progress,
        asked_to_stop: Callable[[], bool],
        *,
        optimizer_state: dict[str, Any] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__()
        self.model, self.recipe, self.progress, self.asked_to_stop = model, recipe, progress, asked_to_stop
        self.loss = torch.compile(model.loss) if recipe.compile else model.loss
        self.recent: list[tuple[torch.Tensor, torch.Tensor]] = []  # (loss, gradient norm) of steps not yet looked at
        self.optimizer: Any = None  # made in configure_optimizers, when the model is on its device
        self.optimizer_state, self.ranks = optimizer_state, ranks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build the optimiser, with the state of a checkpoint where there is one, and what each step needs of it."""
        roles = parameter_roles(self.model)
        self.optimizer = build_optimizer(self.model, roles, self.recipe.optimizer, linear_maps(self.model))
        if self.optimizer_state is not None:
            self.optimizer.load_state_dict(self.optimizer_state)
            self.optimizer_state = None
        self.gradients = gradients_of(self.optimizer)
        self.gate_gradients = [p.grad for name, p in self.model.named_parameters() if roles[name] == GATE_ROLE]
        self.constrain = constrain(self.model)
        return self.optimizer

    def training_step(self, chunk: torch.Tensor, batch_idx: int) -> None:
        """Make one optimiser step with each batch of `chunk`: (steps, sequences, context+1).

        Stops between steps when asked to; several ranks stop together, so between chunks only.
        """
        for batch in chunk:
            if self.ranks.size == 1 and self.asked_to_stop():
                return
            self.step_once(batch)

    def step_once(self, batch: torch.Tensor) -> None:
        """Make one optimiser step on `batch` (batch, context + 1): rate, gradients, clipping, constraints."""
        rate = self.rate(self.progress.tokens)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.ranks.average(self.gradients, self.backward_through(self.ranks.share(batch)))
        norm = self.clip()
        self.optimizer.step()
        self.constrain()
        self.zero_grad()
        self.progress.step += 1
        self.recent.append((loss, norm))

    def rate(self, tokens: int) -> float:
        """Return the learning rate of the step that begins after `tokens` tokens: the schedule's at its middle."""
        middle = tokens + self.progress.batch_tokens / 2
        return self.recipe.optimizer.lr_peak * self.recipe.schedule.fraction(middle)

    def backward_through(self, batch: torch.Tensor) -> torch.Tensor:
        """Leave the gradient of the batch's mean loss in the parameters; return that loss, detached."""
        n_parts = self.recipe.micro_batches
        if n_parts == 1:
            loss = self.loss(batch[:, :-1], batch[:, 1:])
            loss.backward()
            return loss.detach()
        losses = []
        for part in batch.chunk(n_parts):  # parts of equal size, so the mean of their means is the mean
            loss = self.loss(part[:, :-1], part[:, 1:]) / n_parts
            loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def clip(self) -> torch.Tensor:
        """Clip the gradient by its global norm, then the gates' by their joint norm (arXiv:2506.22049, its code).

        Return the global norm before.
        """
        norm = clip_norm(self.gradients, self.recipe.optimizer.clip_norm)
        gate_limit = self.recipe.optimizer.gate_clip_norm
        if gate_limit and self.gate_gradients:
            clip_norm(self.gate_gradients, gate_limit)
        return norm

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear the gradients in place, for Lightning too: they are views that None would cut off (see flatten)."""
        torch._foreach_zero_(self.gradients)
