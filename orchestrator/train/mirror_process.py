"""The process beside a run that feeds Lightning's loggers: TensorBoard, MLflow, W&B. Reads lines, knows no run.

Each logger has a thread of its own behind a queue of limited length, so that one that is missing, raises, hangs or is
slow takes nothing from the others. The process ends when its standard input does, at most LAST_WAIT_S later.
"""

import contextlib
import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.talk import say

MOST_WAITING = 10_000  # records; more are dropped, never waited for
MOST_AT_ONCE = 100  # records
MOST_METRICS = 1000  # in a call, MLflow's own limit
LAST_WAIT_S = 10.0
LONGEST_COMPLAINT = 300
SQLITE = "sqlite:///"
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _tensorboard(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import TensorBoardLogger

    defaults = {"save_dir": str(run_dir / "mirrors"), "name": "tensorboard", "version": ""}
    return TensorBoardLogger(**(defaults | dict(options)))


def _mlflow(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import MLFlowLogger

    place = run_dir.parent.parent.resolve()
    names = {"experiment_name": "scalewright", "run_name": run_id}
    defaults = {"tracking_uri": f"sqlite:///{place}/mlflow.db", "artifact_location": f"{place}/mlartifacts"}
    if "tracking_uri" in options:
        del defaults["artifact_location"]  # a server knows its own
    chosen = names | defaults | dict(options)
    with alone(str(chosen["tracking_uri"])):
        logger = MLFlowLogger(**chosen)
        if str(chosen["tracking_uri"]).startswith(SQLITE):
            _ = logger.experiment  # made at the first look
    return logger


@contextlib.contextmanager
def alone(tracking_uri: str) -> Iterator[None]:
    """Keep other runs from a SQLite file meanwhile: two that make MLflow's tables at once break each other."""
    if not tracking_uri.startswith(SQLITE):
        yield
        return
    with Path(tracking_uri.removeprefix(SQLITE) + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wandb(run_dir: Path, run_id: str, options: Mapping[str, Any]) -> Any:
    from lightning.pytorch.loggers import WandbLogger

    defaults = {"project": "scalewright", "id": run_id, "save_dir": str(run_dir), "offline": True}
    return WandbLogger(**(defaults | dict(options)))


LOGGERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Any]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}

Record = tuple[int, dict[str, float]]


def _write_each(logger: Any, records: Sequence[Record]) -> None:
    for step, values in records:
        logger.log_metrics(values, step=step)


def write_mlflow(logger: Any, records: Sequence[Record]) -> None:
    """Write many steps in one call: one at a time MLflow takes 100 steps a second, and any server more time."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, step) for step, values in records for name, value in values.items()]
    for start in range(0, len(metrics), MOST_METRICS):
        logger.experiment.log_batch(logger.run_id, metrics=metrics[start : start + MOST_METRICS])


WRITERS = {"mlflow": write_mlflow}


class Mirror:
    """One logger in its own thread; nothing that it does reaches the caller."""

    def __init__(self, name: str, run_dir: Path, options: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self.name, self.run_dir, self.options, self.parameters = name, run_dir, options, parameters
        self.n_given = self.n_written = 0  # records
        self.made = threading.Event()
        self._is_over = self._has_complained = False
        self._waiting: queue.Queue[Record | str] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"mirror {name}", daemon=True)
        self._thread.start()

    def log(self, record: Record) -> None:
        """Hand over the values of a step; where too many wait they are dropped."""
        self.n_given += 1
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(record)

    def end(self, status: str) -> None:
        """Say how the run ended, behind the last record; where there is no room the oldest makes place for it."""
        while True:
            with contextlib.suppress(queue.Full):
                return self._waiting.put_nowait(status)
            with contextlib.suppress(queue.Empty):
                self._waiting.get_nowait()

    def close(self, deadline: float) -> None:
        """Let it finish until `deadline` (monotonic, s); say what it did not get."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        n_lost = self.n_given - self.n_written
        if not self._is_over:
            self._complain(f"did not finish in time ({n_lost:,} of {counted(self.n_given, 'record')} missing)")
        elif n_lost and not self._has_complained:
            self._complain(f"was too slow: {n_lost:,} of {counted(self.n_given, 'record')} missing")

    def _work(self) -> None:
        try:
            logger = LOGGERS[self.name](self.run_dir, self.run_dir.name, self.options)
            self.made.set()
            logger.log_hyperparams(dict(self.parameters))
            write, status = WRITERS.get(self.name, _write_each), ""
            while not status:
                records, status = self._take()
                write(logger, records)
                self.n_written += len(records)
            logger.finalize(status)
            if self.name == "wandb":
                logger.experiment.finish()  # Lightning leaves that to the end of the interpreter
        except BaseException as trouble:  # noqa: BLE001 - whatever a logger raises must not end a run
            cause = trouble.__cause__ or trouble  # Lightning calls whatever happens in TensorBoard a wrong value
            self._complain(f"{type(cause).__name__}: {cause}")
        self._is_over = True
        self.made.set()

    def _take(self) -> tuple[list[Record], str]:
        """Wait for a record and take those behind it too; with the last ones comes how the run ended."""
        records: list[Record] = []
        while not records or (len(records) < MOST_AT_ONCE and not self._waiting.empty()):
            found = self._waiting.get()
            if isinstance(found, str):
                return records, found
            records.append(found)
        return records, ""

    def _complain(self, what: str) -> None:
        self._has_complained = True
        words = " ".join(what.split())
        short = words if len(words) <= LONGEST_COMPLAINT else f"{words[:LONGEST_COMPLAINT]} ..."
        say(f"scalewright: mirror {self.name}: {short}; the run goes on without it")


def serve(lines: Iterable[bytes], say_ready: Callable[[], object]) -> None:
    """Feed the mirrors that the first line asks for with what the others hold, until the lines end.

    say_ready is called once everything that has to be imported is. A line of {"status": ...} says how the run ended.
    """
    stream = iter(lines)
    asked = json.loads(next(stream))
    run_dir, parameters = Path(asked["run_dir"]), asked["parameters"]
    mirrors = [Mirror(one["name"], run_dir, one.get("options") or {}, parameters) for one in asked["mirrors"]]

    def say_when_made() -> None:
        for mirror in mirrors:
            mirror.made.wait()
        say_ready()

    threading.Thread(target=say_when_made, daemon=True).start()
    status = "failed"  # where the process that trains was killed
    for line in stream:
        record = json.loads(line)
        status = record.get("status", status)
        if "values" in record:
            for mirror in mirrors:
                mirror.log((record["step"], record["values"]))
    deadline = time.monotonic() + LAST_WAIT_S
    for mirror in mirrors:
        mirror.end(status)
    for mirror in mirrors:
        mirror.close(deadline)


def main() -> None:
    """Serve what arrives at standard input; what loggers print goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    for number in IGNORED:  # they are meant for the process that trains; when it ends so does this one
        signal.signal(number, signal.SIG_IGN)
    serve(sys.stdin.buffer, lambda: os.write(answers, b"ready\n"))
    os._exit(0)  # nothing that a logger left behind may hold it up


if __name__ == "__main__":
    main()
