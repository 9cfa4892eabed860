"""What became of each run, judged from evidence: its files, its job, the clock. Doubt is unknown, never repeated.

`judge` is pure. Evidence in order of weight: DONE.json, the attempt's own last word, what the executor says of the job,
the last sign of life. One kind of silence proves nothing: a job absent from the queue is only over when a second source
agrees or the grace has passed without a sign of life.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scalewright.orchestrator.jobs.records import Chunk
from scalewright.orchestrator.runs.run_files import RunFacts, last_line

GRACE_S = 120.0
QUIET_S = 300.0
ALIVE = ("pending", "running")
STOPPED_STATES = {"cancel": "cancelled", "hold": "held", "pause": "interrupted"}


@dataclass(frozen=True)
class JobFacts:
    """What the executor says of one job.

    state: pending, running, ended, absent (nobody lists it) or unreachable (the executor could not be asked);
    code and reason: in the executor's words (TIMEOUT, NODE_FAIL, PartitionTimeLimit ...); ended_at: seconds since 1970.
    """

    state: str
    code: str = ""
    reason: str = ""
    ended_at: float | None = None
    by_user: bool = False
    contradiction: str = ""


@dataclass(frozen=True)
class Looked:
    """Facts by (chunk uuid, pack), the chunks as they are now, and what a person should be told."""

    facts: dict[tuple[str, str], JobFacts]
    chunks: list[Chunk]
    talk: list[str]


@dataclass(frozen=True)
class Claim:
    """Which job a run was given to, and when. raised: the error that ended the job itself, outside of any run."""

    submission_id: str
    pack: str
    cluster: str | None
    job_id: str | None
    created: float
    batch_stopped: str | None = None
    started: bool = False
    raised: str | None = None


@dataclass(frozen=True)
class Verdict:
    """A run's state, with the reason a person wants and the evidence it rests on."""

    run_id: str
    state: str
    reason: str
    evidence: dict[str, Any]


def judge(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Verdict | None:
    """Give the state of a claimed run, or None when nothing can be said now and the last state stands."""
    if run.done is not None:
        verdict = str(run.done.outcome), ""
    elif run.lost_outcome is not None:
        verdict = "unknown", run.lost_words
    elif job.state not in ALIVE and run.is_asked_again(claim.created):
        verdict = "interrupted", "asked for again by its user"
    elif job.contradiction:
        verdict = "unknown", job.contradiction
    else:
        found = JUDGES[job.state](run, job, claim, now)
        if found is None:
            return None
        verdict = found
    evidence = {"job": claim.job_id, "job_state": job.state, "code": job.code, "attempts": len(run.attempts)}
    return Verdict(run.run_id, verdict[0], verdict[1], evidence | {"last_sign": run.last_sign or None})


Judged = tuple[str, str] | None


def judge_unreachable(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Judged:
    """Nobody answers: a fresh sign of life is still one."""
    if run.newest and run.newest.outcome is None and now - run.last_sign < GRACE_S:
        return "running", ""
    return None


def judge_pending(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Judged:
    """The job waits: a new one, or one that was requeued."""
    if run.stop and not claim.started:
        return stopped(run)
    if run.newest and run.newest.is_of(claim.cluster, claim.job_id):
        return "queued", f"requeued after {run.newest.outcome or job.code.lower()}: {job.reason}".rstrip(": ")
    return "queued", job.reason


def judge_running(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Judged:
    """The job runs: this run may be the one it trains, or wait for its turn, or be over without a result."""
    newest = run.newest
    if newest is None or not newest.is_of(claim.cluster, claim.job_id):
        return stopped(run) if run.stop else ("queued", "waits in its job for the runs before it")
    if newest.outcome is None:
        silent_s = now - newest.last_sign
        return "running", f"no sign of life for {silent_s / 60:.0f} min" if silent_s > QUIET_S else ""
    if newest.outcome == "stopped":
        return stopped(run)
    if why := run.why_failed():
        return "failed", why
    return "queued", f"to be continued after {newest.outcome}"


def judge_ended(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Judged:
    """The job is over and this run has no outcome."""
    newest = run.newest if run.newest and run.newest.is_of(claim.cluster, claim.job_id) else None
    if newest and newest.outcome is None and job.ended_at and newest.last_sign > job.ended_at + GRACE_S:
        return "unknown", f"its job is over ({job.code}) but its journal still grows"
    if run.stop:  # before the next: a hold takes jobs out of the queue as a cancel does
        return stopped(run)
    if job.by_user:
        return "cancelled", job.reason or "cancelled by its user"
    if newest is None:
        return _judge_never_started(run, job, claim)
    if why := run.why_failed(blamed=_died(job) if newest.outcome is None and job.code in DEADLY else ""):
        return "failed", why
    if newest.outcome == "failed":
        return "interrupted", last_line(newest.error)
    return "interrupted", _died(job) if newest.outcome is None else f"{newest.outcome}; {_died(job)}"


def _judge_never_started(run: RunFacts, job: JobFacts, claim: Claim) -> Judged:
    if claim.batch_stopped:
        return "held", claim.batch_stopped
    if claim.raised:
        return "failed", f"its job failed: {last_line(claim.raised)}"
    if job.code in DEADLY and not claim.started:
        return "failed", f"its job failed before it started: {_died(job)}"
    return "interrupted", f"its job ended before it started: {_died(job)}"


def judge_absent(run: RunFacts, job: JobFacts, claim: Claim, now: float) -> Judged:
    """Nobody lists the job. Over, if its files say so or were silent for long; else unknown."""
    newest = run.newest if run.newest and run.newest.is_of(claim.cluster, claim.job_id) else None
    if newest and newest.outcome is not None:
        return judge_ended(run, job, claim, now)
    if now - max(run.last_sign, claim.created) < GRACE_S:
        return None
    if newest or claim.started:
        return judge_ended(run, JobFacts("ended", "", "the job is gone and its runs are silent"), claim, now)
    return "unknown", "the cluster does not know its job and it left no sign; `retry` when you know that it is gone"


JUDGES: dict[str, Callable[[RunFacts, JobFacts, Claim, float], Judged]] = {
    "pending": judge_pending,
    "running": judge_running,
    "ended": judge_ended,
    "absent": judge_absent,
    "unreachable": judge_unreachable,
}

# Ends that blame the run; any other (time limit, lost node, preemption) blames the place and costs no retry.
DEADLY = {"FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "EXITED"}


def stopped(run: RunFacts) -> tuple[str, str]:
    """Give the state of a run that somebody asked to stop."""
    why = run.stop.why if run.stop else "pause"
    return STOPPED_STATES.get(why, "cancelled"), {"cancel": "cancelled by its user", "hold": "held by its user"}.get(
        why, "paused"
    )


def _died(job: JobFacts) -> str:
    code = job.code.lower().replace("_", " ")
    parts = [job.reason] if code and job.reason.startswith(code) else [code, job.reason]
    return ": ".join(filter(None, parts)) or "its process is gone"
