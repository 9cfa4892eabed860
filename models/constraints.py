"""What is projected after each optimiser step: bounds and norms of the weights. Torch."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from scalewright.models.wiring import Constraint

OUTPUT_PARTS = ("attention_out", "mlp_out")
NORM_FLOOR = 1e-12


def constrained_weights(model: nn.Module, axis: str) -> list[tuple[nn.Parameter, int, int]]:
    """Return every matrix with the axis its norms run over and the number of matrices fused in it."""
    return [
        (getattr(module, name), 0 if axis == "ngpt" and parts[0] in OUTPUT_PARTS else 1, len(parts))
        for module in model.modules()
        for name, parts in getattr(module, "parts", {}).items()
    ]


def constrain(model: nn.Module) -> Callable[[], None]:
    """Return what to call after each optimiser step; it does nothing for a method without a constraint."""
    constraint = model.spec.interior().constraint
    if constraint is None or constraint.kind == "free":
        return lambda: None
    weights = constrained_weights(model, constraint.axis)
    return lambda: project(weights, constraint)


def normalise(model: nn.Module) -> None:
    """Set every norm to 1 along the axis of the method's constraint (rows without one)."""
    constraint = model.spec.interior().constraint
    normalised = replace(constraint, kind="normalised") if constraint else Constraint("normalised", "row")
    project(constrained_weights(model, normalised.axis), normalised)


@torch.no_grad()
def project(weights: list[tuple[nn.Parameter, int, int]], constraint: Constraint) -> None:
    """Divide by the norms: w / max(|w|, 1) when bounded, w / |w| when normalised; one foreach pass over all."""
    if constraint.axis == "frobenius":
        pieces = [piece for weight, _, n in weights for piece in weight.chunk(n)]
        norms = [piece.norm().view(1, 1) / piece.shape[0] ** 0.5 for piece in pieces]
    else:
        pieces = [weight for weight, _, _ in weights]
        norms = [_row_norms(weight) if dim == 1 else column_norms(weight) for weight, dim, _ in weights]
    torch._foreach_clamp_min_(norms, 1.0 if constraint.kind == "bounded" else NORM_FLOOR)
    torch._foreach_div_(pieces, norms)


def _row_norms(weight: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weight, dim=1, keepdim=True)


def column_norms(weight: Tensor) -> Tensor:
    """As vector_norm over axis 0, which on a CPU is several times slower than this sum."""
    return weight.square().sum(0, keepdim=True).sqrt_()
