"""Optimisers by name, from a run's spec; they see each parameter group as one long vector.

A step of a small model is mostly the cost of calls: with its parameters side by side in memory, clipping, updating and
clearing take a call a group instead of one a parameter.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs.training_spec import OptimizerSpec
from scalewright.orchestrator.train.groups import group_parameters


def adamw(groups: list[dict[str, Any]], options: OptimizerSpec, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; without weight decay it is Adam."""
    betas = (options.beta1, options.beta2)
    return torch.optim.AdamW(groups, lr=options.lr_peak, betas=betas, eps=options.eps, fused=fused)


NORM_FLOOR = 1e-6  # as torch's clipping has it

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw}


def build_optimizer(model: nn.Module, roles: Mapping[str, str], options: OptimizerSpec) -> torch.optim.Optimizer:
    """Make the optimiser of `training.optimizer`; raises UserError for an unknown name."""
    if options.name not in OPTIMIZERS:
        raise UserError(f"optimizer {options.name!r}: expected one of {', '.join(OPTIMIZERS)}")
    parameters = list(model.named_parameters())
    groups = group_parameters(parameters, roles, decay=options.decay, weight_decay=options.weight_decay)
    vectors = [group | {"params": [flatten(group["params"])]} for group in groups]
    return OPTIMIZERS[options.name](vectors, options, fused=has_fused(parameters[0][1].device))


def flatten(parameters: list[nn.Parameter]) -> nn.Parameter:
    """Move parameters and their gradients into one vector each, of which they become views; return that vector.

    A gradient must then be cleared in place: setting it to None would part it from the vector.
    """
    vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    vector.grad = torch.zeros_like(vector)
    sizes = [parameter.numel() for parameter in parameters]
    pieces = zip(parameters, vector.detach().split(sizes), vector.grad.split(sizes), strict=True)
    for parameter, values, gradient in pieces:
        parameter.data = values.view_as(parameter)
        parameter.grad = gradient.view_as(parameter)
    return vector


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the gradient of each group, one vector a group."""
    return [vector.grad for group in optimizer.param_groups for vector in group["params"]]


def clip_norm(gradients: list[torch.Tensor], limit: float | None) -> torch.Tensor:
    """Scale gradients so that their joint norm is at most `limit` (None or 0: leave them); return the norm before."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)).float())
    if limit:
        torch._foreach_mul_(gradients, (limit / (norm + NORM_FLOOR)).clamp(max=1.0).to(gradients[0].dtype))
    return norm


def has_fused(device: torch.device) -> bool:
    """Tell whether the platform updates all parameters in one call."""
    return device.type in ("cpu", "cuda")
