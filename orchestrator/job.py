"""What a job executes: a pack of run directories in, an outcome a run out. Torch is imported once for all of them."""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.executors import signals
from orchestrator.executors.records import Pack

ROOMS = ("models", "orchestrator")

BeforeRun = Callable[[Path], str | None]
AfterRun = Callable[[Path, str, str | None], None]


def run_pack(
    job_dir: str | Path, *, before_run: BeforeRun | None = None, after_run: AfterRun | None = None
) -> dict[str, str]:
    """Train the runs of `job_dir/pack.json` one after another; return run id -> outcome.

    A run's error makes it `failed` and the next one begins; what leaves is KeyboardInterrupt, never SystemExit.
    After a `preempted` run the pack returns at once. before_run says why a run is `skipped`, or None; after_run
    hears the outcome and the text of the error.
    """
    pack = Pack.read(Path(job_dir))
    check_rooms(Path(pack.root))
    signals.install()
    outcomes: dict[str, str] = {}
    for run_dir in map(Path, pack.runs):
        if before_run is not None and before_run(run_dir) is not None:
            outcomes[run_dir.name] = "skipped"
            continue
        outcome, error = train_one(run_dir, pack)
        outcomes[run_dir.name] = outcome
        if after_run is not None:
            after_run(run_dir, outcome, error)
        if outcome == "preempted":
            break
    return outcomes


def train_one(run_dir: Path, pack: Pack) -> tuple[str, str | None]:
    """Train one run; return its outcome and the text of its error. An exit asked for inside it counts as an error."""
    try:
        from orchestrator.train.run import train

        return train(run_dir, code=code_of(pack)), None
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, the other runs of the pack go on
        return "failed", "".join(traceback.format_exception(error))


def code_of(pack: Pack) -> dict[str, Any]:
    return {"commit": pack.commit, "dirty": pack.dirty, "snapshot": pack.snapshot}


def check_rooms(root: Path) -> None:
    """Refuse to train with code from elsewhere than the pack's root; raises UserError that names the place."""
    for room in ROOMS:
        found = Path(str(importlib.import_module(room).__file__)).resolve()
        if not found.is_relative_to(root.resolve()):
            raise UserError(f"{room} was imported from {found.parent}, this job was submitted with the code in {root}")
