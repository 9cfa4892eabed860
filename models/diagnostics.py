"""What goes on inside a model on one batch: norms, variances, angles, gates and gradients by layer. Torch.

Legend: b batch, t time, d width. Every value is a mean over the batch's tokens unless said otherwise.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalewright.models.transformer import Transformer

Values = dict[str, list[float]]
SUBLAYERS = ("attention", "mlp")

DIAGNOSTICS = {
    "activation_variance": "variance over the channels of a layer's output",
    "activation_variance_before_gate": "the same before the layer's last gate scales the stream",
    "activation_rms": "root mean square of a layer's output",
    "activation_rms_before_gate": "the same before the layer's last gate scales the stream",
    "activation_norm": "norm of a layer's output (arXiv:2505.22014, figure 1)",
    "norm_ratio_attention": "mean norm of what attention reads over that of what it returns, before a post norm",
    "norm_ratio_mlp": "the same for the MLP",
    "cosine_attention": "cosine of what attention adds with the stream it is added to",
    "cosine_mlp": "the same for the MLP",
    "angular_distance": "angle between a layer's input and output over pi (arXiv:2502.05795, equation 1)",
    "gradient_norm": "norm of the loss gradient over all parameters of a layer",
    "weight_norm": "norm of all parameters of a layer",
    "gate_alpha": "alpha of a layer's first gate",
    "gate_factor_attention": "what the gate multiplies by after attention",
    "gate_factor_mlp": "what the gate multiplies by after the MLP",
    "step_attention": "mean step size alpha of an interpolating join, attention",
    "step_mlp": "the same for the MLP",
    "logit_rms": "root mean square of the logits around their mean over the vocabulary (one value)",
    "logit_scale": "mean of the learned scale on the logits (one value)",
}


def collect(model: Transformer, tokens: Tensor, targets: Tensor) -> Values:
    """Return diagnostics by name (DIAGNOSTICS), a value a layer, on a batch (b, t); the model's gradients stay.

    Computed on a twin in plain form, where every factor of the equations is at its place.
    """
    twin = plain_twin(model)
    with Watch(twin) as seen:
        logits = twin(tokens)
        F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
    with torch.no_grad():
        values = stream_values(twin, seen) | body_values(twin, seen) | parameter_values(twin) | gate_values(twin)
        values["logit_rms"] = [logits.float().std(-1).mean()]
        if twin.head.scale is not None:
            values["logit_scale"] = [twin.head.scale().mean()]
    return {name: [value.detach().item() for value in items] for name, items in values.items()}


def plain_twin(model: Transformer) -> Transformer:
    """Return a model in plain form that shares the weights of another, with gradients of its own."""
    weight = model.embedding.weight
    twin = Transformer(model.spec, form="plain").to(weight.device)
    twin.load_state_dict(model.state_dict(), assign=True)
    return twin


class Watch:
    """Record (input, output) of every layer and of every attention and MLP while a forward pass runs."""

    def __init__(self, model: Transformer) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.streams: dict[str, list[Tensor]] = {name: [] for name in SUBLAYERS}
        self.bodies: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in SUBLAYERS}
        self.handles = [hook for block in model.blocks for hook in self.attach(block)]

    def attach(self, block: nn.Module) -> list[torch.utils.hooks.RemovableHandle]:
        """Hook a block's input, streams and sub-layers; return the handles that take the hooks off again."""
        handles = [block.register_forward_hook(_keep_pair(self.layers))]
        for name in SUBLAYERS:
            sublayer = getattr(block, name)
            handles.append(sublayer.register_forward_hook(_keep_input(self.streams[name])))
            handles.append(sublayer.body.register_forward_hook(_keep_pair(self.bodies[name])))
        return handles

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()


def _keep_pair(into: list[tuple[Tensor, Tensor]]) -> Callable[..., None]:
    return lambda module, inputs, output: into.append((inputs[0].detach(), output.detach()))


def _keep_input(into: list[Tensor]) -> Callable[..., None]:
    return lambda module, inputs, output: into.append(inputs[0].detach())


def stream_values(model: Transformer, seen: Watch) -> dict[str, list[Tensor]]:
    """Describe the stream after every layer; before the gate, where the last gate scales the whole stream."""
    outputs = [y.float() for _, y in seen.layers]
    trunk = [model.spec.gate_site(layer) == "trunk" for layer in range(model.spec.depth)]
    gates = [last for _, last in model.gate_factors()]
    factors = [f.abs() if on and f is not None else torch.ones(()) for f, on in zip(gates, trunk, strict=True)]
    variance = [y.var(-1, correction=0).mean() for y in outputs]
    rms = [y.square().mean(-1).sqrt().mean() for y in outputs]
    return {
        "activation_variance": variance,
        "activation_variance_before_gate": [v / f**2 for v, f in zip(variance, factors, strict=True)],
        "activation_rms": rms,
        "activation_rms_before_gate": [r / f for r, f in zip(rms, factors, strict=True)],
        "activation_norm": [y.norm(dim=-1).mean() for y in outputs],
        "angular_distance": [angle(x.float(), y.float()) for x, y in seen.layers],
    }


def angle(x: Tensor, y: Tensor) -> Tensor:
    """Return the mean over tokens of arccos(cos(x, y)) / pi."""
    return F.cosine_similarity(x, y, dim=-1).clamp(-1, 1).arccos().mean() / math.pi


def body_values(model: Transformer, seen: Watch) -> dict[str, list[Tensor]]:
    """Describe attention and MLP by what they read, what they return and what they are added to."""
    values = {}
    for name in SUBLAYERS:
        pairs = [(x.float(), h.float()) for x, h in seen.bodies[name]]
        values[f"norm_ratio_{name}"] = [x.norm(dim=-1).mean() / h.norm(dim=-1).mean() for x, h in pairs]
        values[f"cosine_{name}"] = [
            F.cosine_similarity(stream.float(), h, dim=-1).mean()
            for stream, (_, h) in zip(seen.streams[name], pairs, strict=True)
        ]
    return values


def parameter_values(model: Transformer) -> dict[str, list[Tensor]]:
    """Return norms of weights and gradients by layer."""
    layers = [list(block.parameters()) for block in model.blocks]
    return {
        "weight_norm": [_total_norm(layer) for layer in layers],
        "gradient_norm": [_total_norm([p.grad for p in layer if p.grad is not None]) for layer in layers],
    }


def _total_norm(tensors: list[Tensor]) -> Tensor:
    return torch.stack([tensor.float().norm() for tensor in tensors]).norm()


def gate_values(model: Transformer) -> dict[str, list[Tensor]]:
    """Return gates and step sizes by layer, where the model has them."""
    values: dict[str, list[Tensor]] = {}
    if model.gates is not None:
        factors = model.gates.factors()
        values["gate_alpha"] = list(model.gates.alpha[:, 0])
        values["gate_factor_attention"], values["gate_factor_mlp"] = (list(f) for f in zip(*factors, strict=True))
    if model.lerps is not None:
        steps = model.lerps.steps().mean(-1)
        values["step_attention"], values["step_mlp"] = list(steps[0::2]), list(steps[1::2])
    return values
