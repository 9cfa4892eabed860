"""Gates as tensors: what scales the stream. Torch.

GPAS (arXiv:2506.22049, equation 2): y = x - s stopgrad(x), s = act(alpha).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.spec import ModelSpec
from models.wiring import GATE

ACTIVATIONS = {
    "silu": F.silu,
    "identity": lambda a: a,
    "relu": F.relu,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "scale_silu": lambda a: a * torch.sigmoid(8 * a),
}


class LearnedGate(nn.Module):
    """One scalar alpha; the stream is multiplied by 1 - act(alpha)."""

    roles = {"alpha": GATE}

    def __init__(self, init: float, activation: str, *, stop_gradient: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(init))
        self.activation = activation
        self.stop_gradient = stop_gradient

    def share(self) -> Tensor:
        """Return s, the share taken off the stream, in fp32."""
        return ACTIVATIONS[self.activation](self.alpha.float())

    def forward(self, x: Tensor) -> Tensor:
        if self.stop_gradient:
            return x - (self.share() * x.detach()).to(x.dtype)
        return (x * (1 - self.share())).to(x.dtype)


class FixedGate(nn.Module):
    """A predefined share, gradient stopped."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def share(self) -> Tensor:
        return torch.tensor(self.value)

    def forward(self, x: Tensor) -> Tensor:
        return x - self.value * x.detach()


def make_gates(spec: ModelSpec, layer: int) -> list[nn.Module]:
    """Return the gates of a layer: none, one that both sub-layers share, or one each."""
    if spec.gate == "none":
        return []
    gate, options = spec.gate_record, spec.gate_options
    if not gate.learned:
        values = options["values"]
        return [FixedGate(values[layer] if isinstance(values, list) else values)]
    return [LearnedGate(options["init"], options["activation"], stop_gradient=gate.stop_gradient)
            for _ in range(1 if gate.shared else 2)]
