"""Copies of a run's metrics for TensorBoard, MLflow or W&B, through Lightning's loggers; never the source of truth.

A mirror lives in a thread of its own behind a queue of limited length: it may be missing, raise, hang or be slow, and
the run goes on as if it were not there. What it could not take is counted and said once.
"""

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.journal import Journal

MOST_WAITING = 10_000  # records; more are dropped, never waited for
LAST_WAIT_S = 10.0  # how long the end of a run waits for its mirrors


def tensorboard(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import TensorBoardLogger

    defaults = {"save_dir": str(run_dir / "mirrors"), "name": "tensorboard", "version": ""}
    return TensorBoardLogger(**(defaults | dict(options)))


def mlflow(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import MLFlowLogger

    place = {"tracking_uri": f"file:{run_dir.parent.parent}/mlruns"}
    defaults = {"experiment_name": "scalewright", "run_name": run_id, **place}
    return MLFlowLogger(**(defaults | dict(options)))


def wandb(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import WandbLogger

    defaults = {"project": "scalewright", "id": run_id, "save_dir": str(run_dir), "offline": True}
    return WandbLogger(**(defaults | dict(options)))


LOGGERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Any]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
}


class Mirror:
    """One logger in its own thread; nothing that it does reaches the caller."""

    def __init__(self, name: str, run_dir: Path, options: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self.name, self.run_dir, self.options, self.parameters = name, run_dir, options, parameters
        self.n_dropped = 0
        self._waiting: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"mirror {name}", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over the values of a step; where too many wait they are dropped."""
        try:
            self._waiting.put_nowait((step, dict(values)))
        except queue.Full:
            self.n_dropped += 1

    def close(self, wait_s: float = LAST_WAIT_S) -> None:
        """Let it finish, for at most `wait_s` seconds."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._say("did not finish in time")
        if self.n_dropped:
            self._say(f"{self.n_dropped} records were dropped")

    def _work(self) -> None:
        try:
            logger = LOGGERS[self.name](self.run_dir, self.run_dir.name, self.options)
            logger.log_hyperparams(dict(self.parameters))
            while (record := self._waiting.get()) is not None:
                logger.log_metrics(record[1], step=record[0])
            logger.finalize("success")
        except BaseException as trouble:  # noqa: BLE001 - whatever a logger raises must not end a run
            self._say(f"{type(trouble).__name__}: {trouble}")

    def _say(self, what: str) -> None:
        print(f"scalewright: mirror {self.name}: {' '.join(what.split())}; the run goes on without it", file=sys.stderr)


class MirroredJournal:
    """A journal whose metrics and evaluations also go to mirrors; everything else is the journal's own."""

    def __init__(self, journal: Journal, mirrors: Sequence[Mirror]) -> None:
        self._journal, self._mirrors = journal, mirrors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def metrics(self, step: int, tokens: int, values: Mapping[str, float]) -> None:
        self._journal.metrics(step, tokens, values)
        for mirror in self._mirrors:
            mirror.log(step, {**values, "tokens": tokens})

    def evaluation(self, step: int, tokens: int, values: Mapping[str, float], **details: Any) -> None:
        self._journal.evaluation(step, tokens, values, **details)
        split = details.get("split", "validation")
        for mirror in self._mirrors:
            mirror.log(step, {f"{split}/{name}": value for name, value in values.items()})


@contextlib.contextmanager
def mirrored(
    journal: Journal, mirrors: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> Iterator[Journal | MirroredJournal]:
    """Yield the journal, with mirrors where some are asked for: {"name": ..., "options": {...}} as in settings.

    parameters: what identifies the run, shown by the mirrors as hyperparameters.
    """
    if not mirrors:
        yield journal
        return
    run_dir = Path(journal.path).parent
    started = [Mirror(one["name"], run_dir, one.get("options") or {}, parameters) for one in mirrors]
    try:
        yield MirroredJournal(journal, started)
    finally:
        for mirror in started:
            mirror.close()
