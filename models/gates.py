"""Gates as tensors: what scales the stream. Torch.

GPAS (arXiv:2506.22049, equation 2): y = x - s stopgrad(x), s = act(alpha).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalewright.models.forms import Form, wide
from scalewright.models.spec import ModelSpec
from scalewright.models.wiring import GATE

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "identity": lambda a: a,
    "relu": F.relu,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "scale_silu": lambda a: a * torch.sigmoid(8 * a),
}
FACTOR_FLOOR = 1e-30  # keeps 1 - s from being exactly 0, so that x can be had back from (1 - s) x; else it rounds away


class Gates(nn.Module):
    """The scalars of all layers in one tensor: (depth, 1) where both sub-layers share one, (depth, 2) otherwise."""

    roles = {"alpha": GATE}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.activation = str(spec.gate_options.get("activation", "identity"))
        size = (spec.depth, 1 if spec.gate_record.shared else 2)
        if spec.gate_record.learned:
            self.alpha = nn.Parameter(torch.full(size, spec.gate_options["init"]))
        else:
            values = torch.tensor(spec.gate_options["values"]).expand(spec.depth)
            self.register_buffer("alpha", values[:, None].clone(), persistent=False)

    def shares(self) -> Tensor:
        """Return s of every gate (depth, 1 or 2) in fp32."""
        return ACTIVATIONS[self.activation](wide(self.alpha))

    def factors(self) -> list[tuple[Tensor, Tensor]]:
        """Return 1 - s for the two sub-layers of every layer."""
        values = (1 - self.shares() + FACTOR_FLOOR).flatten().unbind(0)
        n = self.alpha.shape[1]
        return [(values[i], values[i + n - 1]) for i in range(0, len(values), n)]


def make_gates(spec: ModelSpec) -> Gates | None:
    """Return the gates of a model, or None."""
    return None if spec.gate == "none" else Gates(spec)


def gate_of(spec: ModelSpec, form: Form) -> Callable[[Tensor, Tensor], Tensor]:
    """Return how a tensor is scaled by a factor: gradients stopped as published, or not."""
    return form.gated if spec.gate_record.stop_gradient else scaled


def scaled(x: Tensor, f: Tensor) -> Tensor:
    """f x with its true gradient: the ablation without stop-gradient (arXiv:2506.22049, table 5)."""
    return (wide(x) * f).to(x.dtype)
