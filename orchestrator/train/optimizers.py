"""Optimisers by name, from a run's spec."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from orchestrator.errors import UserError
from orchestrator.train.groups import group_parameters


def adamw(groups: list[dict[str, Any]], options: Mapping[str, Any], *, fused: bool) -> torch.optim.Optimizer:
    """AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; without weight decay it is Adam."""
    betas = (options["beta1"], options["beta2"])
    return torch.optim.AdamW(groups, lr=options["lr_peak"], betas=betas, eps=options["eps"], fused=fused)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw}


def build_optimizer(model: nn.Module, roles: Mapping[str, str], options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Make the optimiser of `training.optimizer`; raises UserError for an unknown name."""
    if options["name"] not in OPTIMIZERS:
        raise UserError(f"optimizer {options['name']!r}: expected one of {', '.join(OPTIMIZERS)}")
    parameters = list(model.named_parameters())
    groups = group_parameters(parameters, roles, decay=options["decay"], weight_decay=options["weight_decay"])
    return OPTIMIZERS[options["name"]](groups, options, fused=has_fused(parameters[0][1].device))


def has_fused(device: torch.device) -> bool:
    """Tell whether the platform updates all parameters in one call."""
    return device.type in ("cpu", "cuda")
