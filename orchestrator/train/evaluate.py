"""The validation loss: a mean over tokens, in nats per token and bits per byte."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

# B = sequences of a batch, T = context

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Evaluation:
    """n_tokens: predicted tokens, over which the mean is taken."""

    loss_nats: float
    bits_per_byte: float
    n_tokens: int


@torch.no_grad()
def evaluate(
    loss: Loss,
    batches: Iterable[torch.Tensor],
    *,
    bytes_per_token: float,
) -> Evaluation:
    """Return the mean loss over every token of `batches`, each (B, T+1) tokens on the device of the model.

    loss(tokens, targets) is a mean over a batch: each counts by its tokens. bits per byte =
    nats per token / (ln 2 * bytes per token).
    """
    total, n_tokens = 0.0, 0
    for batch in batches:
        tokens, targets = batch[:, :-1], batch[:, 1:]  # (B, T) each
        total += float(loss(tokens, targets)) * targets.numel()
        n_tokens += targets.numel()
    loss_nats = total / n_tokens
    return Evaluation(loss_nats, loss_nats / (math.log(2) * bytes_per_token), n_tokens)


@dataclass(frozen=True)
class Validation:
    """The fixed validation set: windows (n_windows, context+1) int64 on the CPU, read `batch_sequences` at a time."""

    windows: torch.Tensor
    bytes_per_token: float
    batch_sequences: int

    def first_batch(self, device: torch.device) -> torch.Tensor:
        """Return windows (batch, context + 1) on a device, always the same."""
        return self.windows[: self.batch_sequences].to(device)

    def evaluate(self, loss: Loss, device: torch.device) -> Evaluation:
        """Return the mean loss over all windows, in nats a token and bits a byte."""
        batches = (part.to(device) for part in self.windows.split(self.batch_sequences))
        return evaluate(loss, batches, bytes_per_token=self.bytes_per_token)
