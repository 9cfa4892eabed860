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
from scalewright.orchestrator.train.groups import MATRICES, group_parameters


def adamw(groups: list[dict[str, Any]], options: OptimizerSpec, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; without weight decay it is Adam."""
    betas = (options.beta1, options.beta2)
    return torch.optim.AdamW(groups, lr=options.lr_peak, betas=betas, eps=options.eps, fused=fused)


class Muon(torch.optim.Optimizer):
    """Muon for matrices and AdamW for vectors, as one optimiser with one learning rate.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon, with steps of .2 sqrt(max(rows, columns)), which are
    as long as AdamW's (Liu et al. 2025, arXiv:2502.16982, equation 4). groups: those of matrices have `matrices`.
    """

    def __init__(self, groups: list[dict[str, Any]], options: OptimizerSpec, *, fused: bool) -> None:
        kinds: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for group in groups:
            kinds[group.pop("matrices", False)].append(group)
        self.parts = [
            torch.optim.Muon(kinds[True], options.lr_peak, momentum=options.momentum, adjust_lr_fn="match_rms_adamw"),
            adamw(kinds[False], options, fused=fused),
        ]
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._join()

    def _join(self) -> None:
        """Let both parts work on the groups and the state of the whole."""
        first = len(self.parts[0].param_groups)
        self.parts[0].param_groups, self.parts[1].param_groups = self.param_groups[:first], self.param_groups[first:]
        for part in self.parts:
            part.state = self.state

    def step(self, closure: Any = None) -> None:
        """Make one step of both."""
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        super().load_state_dict(state_dict)
        self._join()


NORM_FLOOR = 1e-6  # as torch's clipping has it

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": Muon}


def build_optimizer(
    model: nn.Module, roles: Mapping[str, str], options: OptimizerSpec, maps: Mapping[str, int]
) -> torch.optim.Optimizer:
    """Make the optimiser of `training.optimizer`; raises UserError for an unknown name.

    maps: how many linear maps each parameter stacks; Muon updates each by itself.
    """
    if options.name not in OPTIMIZERS:
        raise UserError(f"optimizer {options.name!r}: expected one of {', '.join(OPTIMIZERS)}")
    parameters = dict(model.named_parameters())
    matrices = {name for name in parameters if options.name == "muon" and roles[name] in MATRICES}
    groups = []
    for names in (matrices, parameters.keys() - matrices):
        chosen = {name: parameters[name] for name in parameters if name in names}
        of_names = {name: roles[name] for name in chosen}
        split = group_parameters(chosen.items(), of_names, decay=options.decay, weight_decay=options.weight_decay)
        for group in split:
            vector = flatten(group["params"])
            if names is matrices:
                known = {id(parameter): maps[name] for name, parameter in chosen.items()}
                pieces = [piece for one in group["params"] for piece in split_maps(one, known[id(one)])]
                groups.append(group | {"params": pieces, "matrices": True})
            else:
                groups.append(group | {"params": [vector]})
    return OPTIMIZERS[options.name](groups, options, fused=has_fused(next(iter(parameters.values())).device))


def split_maps(parameter: nn.Parameter, n_maps: int) -> list[nn.Parameter]:
    """Return the linear maps stacked in a parameter, as views of it with views of its gradient."""
    assert parameter.grad is not None
    pieces = []
    for values, gradient in zip(parameter.detach().chunk(n_maps), parameter.grad.chunk(n_maps), strict=True):
        pieces.append(nn.Parameter(values))
        pieces[-1].grad = gradient
    return pieces


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
