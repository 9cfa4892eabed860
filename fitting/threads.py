"""Run numerical work on one BLAS thread: small matrices gain nothing from more, and the order of their sums changes.

Results are then the same bits whatever OMP_NUM_THREADS says. Knows only the OpenBLAS that numpy's and scipy's wheels
carry; with another BLAS this does nothing.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import scipy

P = ParamSpec("P")
R = TypeVar("R")

_SYMBOLS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
)


@lru_cache(maxsize=1)
def _controls() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """Find (get, set) of the number of threads in each OpenBLAS that is loaded."""
    found = []
    for package in (np, scipy):
        folder = Path(str(package.__file__)).parents[1] / f"{package.__name__}.libs"
        for path in sorted(folder.glob("libscipy_openblas*")):
            library = ctypes.CDLL(str(path))
            found += [(getattr(library, g), getattr(library, s)) for g, s in _SYMBOLS if hasattr(library, g)]
    return tuple(found)


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to one thread inside the block; the number before is restored after it."""
    before = [get() for get, _ in _controls()]
    for _, put in _controls():
        put(1)
    try:
        yield
    finally:
        for (_, put), count in zip(_controls(), before, strict=True):
            put(count)


def single_threaded(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its linear algebra runs on one thread."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with one_thread():
            return function(*args, **kwargs)

    return inner
