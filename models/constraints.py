"""What is projected after each optimiser step: bounds and norms of the weights. Torch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.wiring import Constraint

OUTPUT_PARTS = ("attention_out", "mlp_out")
NORM_FLOOR = 1e-12


def constrained_pieces(model: nn.Module, axis: str) -> list[tuple[Tensor, int | tuple[int, int]]]:
    """Return every matrix (fused ones split into their parts) with the axes its norm runs over."""
    pieces: list[tuple[Tensor, int | tuple[int, int]]] = []
    for module in model.modules():
        for name, parts in getattr(module, "parts", {}).items():
            weight = getattr(module, name).data
            if axis == "frobenius":
                pieces += [(piece, (0, 1)) for piece in weight.chunk(len(parts))]
            else:
                pieces.append((weight, 0 if axis == "ngpt" and parts[0] in OUTPUT_PARTS else 1))
    return pieces


def constrain(model: nn.Module) -> Callable[[], None]:
    """Return what to call after each optimiser step; it does nothing for a method without a constraint."""
    constraint = model.spec.interior().constraint
    if constraint is None:
        return lambda: None
    pieces = constrained_pieces(model, constraint.axis)
    return lambda: project(pieces, constraint)


def normalise(model: nn.Module) -> None:
    """Set every norm to 1 along the axis of the method's constraint (rows without one)."""
    constraint = model.spec.interior().constraint
    axis = constraint.axis if constraint else "row"
    project(constrained_pieces(model, axis), Constraint("normalised", axis))


@torch.no_grad()
def project(pieces: list[tuple[Tensor, int | tuple[int, int]]], constraint: Constraint) -> None:
    """Divide each piece by its norms: w / max(|w|, 1) when bounded, w / |w| when normalised."""
    weights = [weight for weight, _ in pieces]
    norms = [torch.linalg.vector_norm(weight, dim=dim, keepdim=True) for weight, dim in pieces]
    if constraint.axis == "frobenius":
        norms = [norm / weight.shape[0] ** 0.5 for norm, weight in zip(norms, weights, strict=True)]
    torch._foreach_clamp_min_(norms, 1.0 if constraint.kind == "bounded" else NORM_FLOOR)
    torch._foreach_div_(weights, norms)
