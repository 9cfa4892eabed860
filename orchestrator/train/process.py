"""What a process that trains sets for itself, once. Knows torch and the C library, nothing of runs."""

import ctypes

import torch

MALLOPT = {"M_TRIM_THRESHOLD": -1, "M_MMAP_THRESHOLD": -3}  # glibc, malloc.h
KEPT_BYTES = 1 << 30


def set_up(threads: int) -> None:
    """Compute on `threads` CPU threads, and keep freed memory for the next step."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Let the allocator reuse the memory of large tensors; return False where the C library has no such setting.

    As it comes, glibc gives a large block back to the system when it is freed and has every page of the next one
    filled with zeros by the kernel: 2 to 5% of a training step on the CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, KEPT_BYTES) for option in MALLOPT.values())
