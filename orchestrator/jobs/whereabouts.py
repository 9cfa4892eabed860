"""Where runs are: the job that has a run and, while it trains, the host. Knows jobs/ and the owners' records."""

from pathlib import Path

from scalewright.orchestrator.files import usable
from scalewright.orchestrator.jobs.records import read_chunks, runs_in
from scalewright.orchestrator.runs.records import Owner
from scalewright.orchestrator.study import Study


def whereabouts(study: Study) -> dict[str, str]:
    """Return `JOB` or `JOB on HOST` of every run that a submission still has, by run id."""
    found: dict[str, str] = {}
    for chunk in read_chunks(study.jobs_dir):
        for pack in chunk.packs:
            job = chunk.job_of(pack)
            runs = runs_in(study.jobs_dir, chunk.submission_id, pack) if job else []
            found |= {run.name: place(run, job or "") for run in runs}
    return found


def place(run_dir: Path, job: str) -> str:
    """Add the host where this job's attempt trains, or trained last."""
    owner = usable(run_dir / "owner.json", Owner)
    return f"{job} on {owner.host}" if owner and owner.host else job
