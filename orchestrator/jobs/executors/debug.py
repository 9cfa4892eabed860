"""Jobs in this very process, one after another: what `--executor debug` means."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.jobs.carrier import INLINE, run_job
from scalewright.orchestrator.jobs.executors.executor import Handover, new_chunk, record_jobs
from scalewright.orchestrator.jobs.executors.here import OnThisMachine
from scalewright.orchestrator.jobs.packing import Work, in_order
from scalewright.orchestrator.jobs.records import Chunk
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.study import Study


class Debug(OnThisMachine):
    """One pack a resource class, run after run, for a debugger or a look at a traceback."""

    name = "debug"
    in_process = True

    def cut(
        self, study: Study, work: Sequence[Work], profile: Profile, max_parallel: int | None
    ) -> Sequence[Sequence[Work]]:
        """Make one pack of all, cheapest first: there is only this process."""
        return [in_order(work)]

    def submit(self, handover: Handover) -> int:
        """Run everything here and now; return when it is over."""
        chunk = as_jobs(handover.study.jobs_dir, new_chunk(handover, self, handover.packs))
        record_jobs(handover, chunk, handover.packs)
        run(handover.study.jobs_dir, chunk)
        return len(handover.packs)


EXECUTOR = Debug()


def as_jobs(jobs_dir: Path, chunk: Chunk) -> Chunk:
    """Record this process as the job of every pack of the chunk."""
    started = replace(chunk, jobs=dict.fromkeys(chunk.packs, Process.this()))
    started.write(jobs_dir)
    return started


def run(jobs_dir: Path, chunk: Chunk) -> None:
    """Run the packs.

    Ctrl-C asks the run in progress to stop at a checkpoint, and then raises KeyboardInterrupt here.
    """
    os.environ[INLINE] = "1"
    try:
        for name in chunk.packs:
            run_job(jobs_dir / chunk.submission_id / name)
            if signals.requested():
                raise KeyboardInterrupt
    finally:
        del os.environ[INLINE]
        signals.uninstall()
