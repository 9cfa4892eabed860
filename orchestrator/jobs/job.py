"""What a job executes: a pack of run directories in, an outcome a run out. Torch is imported once for all of them."""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.runs import signals

if TYPE_CHECKING:
    from scalewright.orchestrator.train.ranks import Ranks

ROOMS = ("scalewright.models", "scalewright.orchestrator")

BeforeRun = Callable[[Path], str | None]
AfterRun = Callable[[Path, str, str | None], None]


def run_pack(
    job_dir: str | Path, *, before_run: BeforeRun | None = None, after_run: AfterRun | None = None
) -> dict[str, str]:
    """Train the runs of `job_dir/pack.json` one after another; return run id -> outcome.

    A run's error makes it `failed` and the next one begins; what leaves is KeyboardInterrupt, never SystemExit.
    After a `preempted` run the pack returns at once. before_run says why a run is `skipped`, or None; after_run
    hears the outcome and the text of the error. A task of the job besides the first trains along and returns nothing.
    """
    pack = Pack.read(Path(job_dir))
    check_rooms(Path(pack.root))
    signals.install()
    from scalewright.orchestrator.train.follow import follow
    from scalewright.orchestrator.train.ranks import open_ranks

    ranks = open_ranks(pack.devices, Path(job_dir))
    if ranks.rank > 0:
        follow(ranks)
        return {}
    try:
        return run_each(pack, ranks, before_run, after_run)
    finally:
        ranks.close()


def run_each(pack: Pack, ranks: "Ranks", before_run: BeforeRun | None, after_run: AfterRun | None) -> dict[str, str]:
    """Train the runs in turn; after an error several ranks no longer know where they are, so that is the end too."""
    outcomes: dict[str, str] = {}
    for run_dir in map(Path, pack.runs):
        if signals.requested():  # came as the run before was at its last step
            break
        if before_run is not None and before_run(run_dir) is not None:
            outcomes[run_dir.name] = "skipped"
            continue
        outcome, error = train_one(run_dir, pack, ranks)
        outcomes[run_dir.name] = outcome
        if after_run is not None:
            after_run(run_dir, outcome, error)
        if outcome == "failed" and ranks.size > 1:
            return outcomes
        if outcome == "preempted":
            break
    ranks.send(None)
    return outcomes


def train_one(run_dir: Path, pack: Pack, ranks: "Ranks") -> tuple[str, str | None]:
    """Train one run; return its outcome and the text of its error. An exit asked for inside it counts as an error."""
    from scalewright.orchestrator.train.run import train

    try:
        return train(run_dir, code=_code_of(pack), threads=pack.threads, ranks=ranks), None
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, the other runs of the pack go on
        return "failed", "".join(traceback.format_exception(error))


def _code_of(pack: Pack) -> dict[str, Any]:
    return {"commit": pack.commit, "dirty": pack.dirty, "snapshot": pack.snapshot}


def check_rooms(root: Path) -> None:
    """Refuse to train with code from elsewhere than the pack's root; raises UserError that names the place."""
    for room in ROOMS:
        found = Path(str(importlib.import_module(room).__file__)).resolve()
        if not found.is_relative_to(root.resolve()):
            raise UserError(f"{room} was imported from {found.parent}, this job was submitted with the code in {root}")
