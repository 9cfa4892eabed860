"""Signals of a job: a handler only sets a flag, which the training loop asks at its batch boundaries.

No heavy import.
"""

import signal
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
_state: dict[str, Any] = {"signal": None, "saved": {}}


def install() -> None:
    """Take over the signals that ask a job to end; the handlers found there (submitit's) are kept for `saved`."""
    for signum in (*STOP_SIGNALS, signal.SIGCONT):
        previous = signal.getsignal(signum)
        if previous is not _remember and previous is not _ignore:
            _state["saved"][signum] = previous
            signal.signal(signum, _ignore if signum == signal.SIGCONT else _remember)


def uninstall() -> None:
    """Give the signals back to whoever had them and forget what was asked."""
    for signum, handler in _state["saved"].items():
        signal.signal(signum, handler)
    _state.update(signal=None, saved={})


def requested() -> str | None:
    """Tell whether the job is asked to end: None, or "preempted" (time limit, preemption, termination, Ctrl-C)."""
    return None if _state["signal"] is None else "preempted"


def received() -> signal.Signals | None:
    """Name the first signal that asked the job to end."""
    return _state["signal"]  # type: ignore[no-any-return]


def saved(signum: signal.Signals) -> Any:
    """Return the handler that was installed before ours, submitit's in a job of submitit."""
    return _state["saved"].get(signum)


def _remember(signum: int, frame: FrameType | None) -> None:
    if _state["signal"] is None:
        _state["signal"] = signal.Signals(signum)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """SLURM sends CONT along with other signals; it means nothing to a job that was not stopped."""
