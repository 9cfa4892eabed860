"""Which windows a step trains on: a pure function of (seed, step), so a run resumes anywhere at once. No torch.

Each epoch visits every window once, in an order of its own: a keyed bijection, computed, never stored.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scalewright.orchestrator.data import manifest as manifests
from scalewright.orchestrator.data.manifest import Manifest
from scalewright.orchestrator.errors import UserError

N_ROUNDS = 6  # four do with perfect round functions (Luby and Rackoff 1988); two more as ours are not


def mix(values: np.ndarray) -> np.ndarray:
    """Scramble 64-bit integers: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def permute(indices: np.ndarray, keys: np.ndarray, n: int) -> np.ndarray:
    """Map indices in 0..n-1 to 0..n-1, one to one for each key.

    An unbalanced Feistel network over Z_a x Z_b with a*b >= n; what falls outside goes round again
    (Black and Rogaway 2002, generalised Feistel and cycle walking).
    """
    a = int(np.ceil(np.sqrt(n)))
    b = -(-n // a)
    result = _feistel(indices.astype(np.uint64), keys.astype(np.uint64), a, b)
    while (outside := result >= n).any():
        result[outside] = _feistel(result[outside], keys.astype(np.uint64)[outside], a, b)
    return result.astype(np.int64)


def _feistel(values: np.ndarray, keys: np.ndarray, a: int, b: int) -> np.ndarray:
    size_a, size_b = np.uint64(a), np.uint64(b)
    left: Any = values % size_a  # numpy 1 and 2 type the sum of an array and a scalar differently
    right: Any = values // size_a
    for number in range(0, 2 * N_ROUNDS, 2):
        left = (left + mix(mix(right + keys) + np.uint64(number)) % size_a) % size_a
        right = (right + mix(mix(left + keys) + np.uint64(number + 1)) % size_b) % size_b
    return left + size_a * right


@dataclass(frozen=True)
class Windows:
    """The whole windows of one split: `context` tokens and the next one; none reaches over a shard's end."""

    shards: list[np.ndarray]
    context: int
    ends: np.ndarray = field(init=False)  # windows up to the end of each shard

    def __post_init__(self) -> None:
        counts = [max(len(shard) - 1, 0) // self.context for shard in self.shards]
        object.__setattr__(self, "ends", np.cumsum(counts))

    def __len__(self) -> int:
        return int(self.ends[-1])

    @cached_property
    def offsets(self) -> np.ndarray:
        """0 to context, shape (context + 1,)."""
        return np.arange(self.context + 1)  # (context+1,)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Return the windows at `indices` as int64: (*indices.shape, context+1)."""
        shard_of = np.searchsorted(self.ends, indices, side="right")
        windows = np.empty((*indices.shape, self.context + 1), dtype=np.int64)
        for number in np.unique(shard_of):
            here = shard_of == number
            first = indices[here] - (self.ends[number - 1] if number else 0)
            windows[here] = self.shards[number][first[:, None] * self.context + self.offsets]
        return windows


@dataclass(frozen=True)
class TrainSampler:
    """The training windows in the order of one seed, whatever the method, the device or the number of workers."""

    windows: Windows
    seed: int
    batch_sequences: int

    def read(self, step: int, n_steps: int = 1) -> np.ndarray:
        """Return what steps step..step+n_steps-1 train on: (n_steps, batch_sequences, context+1) int64."""
        return self.windows.read(self.indices(step, n_steps))

    def indices(self, step: int, n_steps: int = 1) -> np.ndarray:
        """Return the window of each sequence: (n_steps, batch_sequences)."""
        shape = (n_steps, self.batch_sequences)
        drawn = np.arange(step * self.batch_sequences, (step + n_steps) * self.batch_sequences)
        epochs, indices = np.divmod(drawn, len(self.windows))
        keys = mix(mix(np.full(len(drawn), self.seed, dtype=np.uint64)) + epochs.astype(np.uint64))
        return permute(indices, keys, len(self.windows)).reshape(shape)


def open_train(data_dir: str | Path, manifest: Manifest, context: int, seed: int, batch_sequences: int) -> TrainSampler:
    """Open the training split; raises UserError when it has no whole window."""
    windows = Windows(manifests.open_split(manifest, data_dir, "train"), context)
    if len(windows) == 0:
        raise UserError(f"{data_dir}: no window of {context} tokens in {manifest.train.n_tokens} training tokens")
    return TrainSampler(windows, seed, batch_sequences)


def read_corpus(data_dir: str | Path, manifest: Manifest, context: int, n_windows: int) -> np.ndarray:
    """Return at most `n_windows` whole windows of a text that is not trained on, spread evenly over all of it.

    (n_windows, context+1) int64. Raises UserError where it has none.
    """
    shards = [shard for name in ("train", "validation") for shard in manifests.open_split(manifest, data_dir, name)]
    windows = Windows(shards, context)
    if len(windows) == 0:
        raise UserError(f"{data_dir}: no window of {context} tokens")
    n_read = min(n_windows, len(windows))
    return windows.read(np.arange(n_read) * len(windows) // n_read)


def read_validation(data_dir: str | Path, manifest: Manifest, context: int, n_windows: int) -> np.ndarray:
    """Return the fixed validation set: `n_windows` whole windows, spread evenly; (n_windows, context+1) int64.

    Raises UserError when the split has fewer.
    """
    windows = Windows(manifests.open_split(manifest, data_dir, "validation"), context)
    if len(windows) < n_windows:
        raise UserError(
            f"{data_dir}: {n_windows} validation windows of {context} tokens asked for, the split has {len(windows)}; "
            "give more text, a larger validation fraction or fewer windows"
        )
    return windows.read(np.arange(n_windows) * len(windows) // n_windows)
