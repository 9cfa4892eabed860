"""Jobs in this very process, one after another: what `--executor debug` means."""

import os
from dataclasses import replace
from pathlib import Path

from scalewright.orchestrator.jobs.carrier import INLINE, run_job
from scalewright.orchestrator.jobs.records import Chunk
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.processes import Process


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
