"""What Lightning iterates over: chunks of several optimiser steps, so that its cost a batch is paid once a chunk."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from scalewright.orchestrator.train.sampler import TrainSampler

LONGEST_CHUNK = 32  # steps; longer gains nothing, and stopping waits for no more than a step anyway
CHUNK_S = 0.25  # a chunk should not take longer: journal and heartbeat are written between chunks
ASSUMED_FLOPS = {"cpu": 2e10, "cuda": 1e14}  # FLOP/s, of the order of what small models reach


def longest_chunk(flops_per_step: float, device: str) -> int:
    """Return how many steps fit into CHUNK_S by a rough estimate, at least one; no result depends on it."""
    seconds = flops_per_step / ASSUMED_FLOPS.get(device, ASSUMED_FLOPS["cpu"])
    return max(1, min(LONGEST_CHUNK, int(CHUNK_S / max(seconds, 1e-9))))


def chunk_lengths(first_step: int, n_steps: int, boundaries: Iterable[int], longest: int) -> list[int]:
    """Cut steps first_step..n_steps-1 into chunks of at most `longest` that end at every boundary."""
    ends = sorted({step for step in boundaries if first_step < step < n_steps} | {n_steps})
    lengths = []
    for end in ends:
        while first_step < end:
            lengths.append(min(longest, end - first_step))
            first_step += lengths[-1]
    return lengths


@dataclass(frozen=True)
class Chunks:
    """The training data from `first_step` on: (steps, sequences, context+1) int64 tensors; nothing is replayed."""

    sampler: TrainSampler
    first_step: int
    lengths: list[int]
    pin: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[torch.Tensor]:
        step = self.first_step
        for length in self.lengths:
            tokens = torch.from_numpy(self.sampler.read(step, length))
            yield tokens.pin_memory() if self.pin else tokens
            step += length
