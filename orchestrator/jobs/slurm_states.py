"""What a SLURM cluster says of our jobs: one squeue and one sacct, put together. Knows no run and no database.

squeue is the present, sacct -D the past with every incarnation of a requeued job; they lag and can disagree.
"""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from scalewright.fitting.words import counted
from scalewright.orchestrator.files import is_there, read_text
from scalewright.orchestrator.jobs import slurm_commands as commands
from scalewright.orchestrator.jobs.judge import GRACE_S, JobFacts, Looked
from scalewright.orchestrator.jobs.records import Chunk
from scalewright.orchestrator.jobs.slurm_arrays import NEVER_SUBMITTED_S, adopt

WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
AT_WORK = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
OVER = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
) | {"REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"}
HELD = re.compile(r"held", re.IGNORECASE)
NAMED_JOBS = 5
ANSWERED = "answered"  # its time is that of the last complete answer
KILLED = ("0:9", "9:0", "137:0")
TOLD_TO_END = ("0:12", "0:15", "140:0", "143:0")  # USR2 or TERM while the libraries were still being imported
LOG_CHARACTERS = 20_000
OUT_OF_MEMORY = re.compile(r"exceeded memory limit|oom[-_ ]kill|out of memory", re.IGNORECASE)
# Ends after which SLURM may start the job again: final only when the queue no longer has it.
BEFORE_A_RESTART = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED"})


def look(jobs_dir: Path, chunks: Sequence[Chunk], now: float | None = None) -> Looked:
    """Ask the cluster once for all chunks; adopt those whose job id is not known."""
    queue_reply, queue = commands.squeue()
    known = [chunk.job_id for chunk in chunks if chunk.job_id]
    account_reply, accounted = commands.sacct(known)
    kept = [chunk if chunk.job_id else adopt(jobs_dir, chunk, queue, accounted) or chunk for chunk in chunks]
    seen = Seen(queue_reply.ok, {job.job: job for job in queue}, _by_job(accounted), now or time.time())
    facts = {
        (chunk.uuid, pack): explained(_facts_of(chunk, pack, seen, jobs_dir), jobs_dir, chunk, pack)
        for chunk in kept
        for pack in chunk.packs
    }
    late = [reply for reply in (queue_reply, account_reply) if commands.is_late(reply)]
    silent = queue_reply if not queue_reply.ok else next(iter(late), None)
    talk = [f"the cluster does not answer ({silent.error}); states are {_last_known(jobs_dir)}"] if silent else []
    if silent is None:
        note_answer(jobs_dir)
    talk += held_jobs(kept, queue)
    return Looked(facts, kept, talk)


def note_answer(jobs_dir: Path) -> None:
    """Remember when the cluster last said everything; where that cannot be written, its next silence has no age."""
    with suppress(OSError):
        (jobs_dir / ANSWERED).touch()


def _last_known(jobs_dir: Path) -> str:
    try:
        age_s = time.time() - (jobs_dir / ANSWERED).stat().st_mtime
    except OSError:
        return "the last known"
    return f"the last known, of {age_s / 60:.0f} min ago" if age_s >= 60 else f"the last known, of {age_s:.0f} s ago"


def held_jobs(chunks: Sequence[Chunk], queue: Sequence[commands.Queued]) -> list[str]:
    """Say which of our jobs SLURM holds: they wait until somebody releases them."""
    ours = {chunk.job_id for chunk in chunks}
    held = [one for one in queue if commands.array_id(one.job) in ours and HELD.search(one.reason)]
    reasons = sorted({one.reason for one in held if one.state == "PENDING"})
    names = " ".join(one.job for one in held[:NAMED_JOBS]) + (" ..." if len(held) > NAMED_JOBS else "")
    return (
        [f"SLURM holds {counted(len(held), 'job')} ({', '.join(reasons)}); let them go with: scontrol release {names}"]
        if reasons
        else []
    )


@dataclass(frozen=True)
class Seen:
    """What one squeue and one sacct showed, by job."""

    queue_answers: bool
    queued: dict[str, commands.Queued]
    past: dict[str, list[commands.Accounted]]
    now: float


def _by_job(accounted: Sequence[commands.Accounted]) -> dict[str, list[commands.Accounted]]:
    incarnations: dict[str, list[commands.Accounted]] = {}
    for record in accounted:
        incarnations.setdefault(record.job, []).append(record)
    return incarnations


def _facts_of(chunk: Chunk, pack: str, seen: Seen, jobs_dir: Path) -> JobFacts:
    job = chunk.job_of(pack)
    if job is None:
        return facts_of_unsubmitted(chunk, seen.queue_answers, seen.now)
    if job in seen.queued or job in seen.past:
        return combine(seen.queued.get(job), seen.past.get(job, []), seen.queue_answers, seen.now)
    started = is_there(jobs_dir / chunk.submission_id / pack / "started.json")
    if seen.queue_answers and not started and left_the_queue(chunk, job, seen):
        return JobFacts("ended", "CANCELLED", "taken out of the queue while it waited", by_user=True)
    return JobFacts("absent" if seen.queue_answers else "unreachable")


def left_the_queue(chunk: Chunk, job: str, seen: Seen) -> bool:
    """Tell whether an unlisted element was cancelled while it waited: SLURM keeps no record of such a one.

    Its array is then still listed with the others that wait; or, were all cancelled, under the array's bare id.
    """
    array = commands.array_id(job)
    siblings = (f"{array}_{index}" for index in range(len(chunk.packs)))
    if any(one in seen.queued and seen.queued[one].state == "PENDING" for one in siblings):
        return True
    whole = seen.queued.get(array) or next(iter(seen.past.get(array, [])), None)
    return whole is not None and whole.state == "CANCELLED"


def facts_of_unsubmitted(chunk: Chunk, queue_answers: bool, now: float) -> JobFacts:
    """Nobody knows a job of this chunk: it waits for its submitter, or sbatch never happened."""
    if not queue_answers:
        return JobFacts("unreachable")
    if (chunk.submitter and chunk.submitter.is_alive()) or now - chunk.created < NEVER_SUBMITTED_S:
        return JobFacts("pending", reason="being submitted")
    return JobFacts("ended", "", "the cluster never got it")


def combine(
    queued: commands.Queued | None, past: Sequence[commands.Accounted], queue_answers: bool, now: float
) -> JobFacts:
    """Put the present and the past of one job together."""
    last = past[-1] if past else None
    over = last if last and last.state not in WAITING | AT_WORK else None
    if queued is not None:
        return _of_queue(queued, past, over, now)
    if over is None:
        return JobFacts("absent" if queue_answers else "unreachable", last.state if last else "")
    restarts = over.state in BEFORE_A_RESTART and (not queue_answers or now - (over.ended_at or now) < GRACE_S)
    return JobFacts("absent" if queue_answers else "unreachable", over.state) if restarts else _ended(over)


def _of_queue(
    queued: commands.Queued, past: Sequence[commands.Accounted], over: commands.Accounted | None, now: float
) -> JobFacts:
    earlier = [record.state for record in past if record.state not in WAITING | AT_WORK]
    code, reason = earlier[-1] if earlier else "", "" if queued.reason in ("None", "") else queued.reason
    if queued.state in WAITING:
        return JobFacts("pending", code, reason)
    if queued.state in AT_WORK:
        final = over is not None and over.state not in BEFORE_A_RESTART and now - (over.ended_at or now) > GRACE_S
        words = f"squeue says {queued.state}, sacct says {over.state}" if final and over else ""
        return JobFacts("running", code, reason, contradiction=words)
    if over is not None and over.state == queued.state:
        return _ended(over)
    if queued.state not in OVER:  # a word that nobody knows is no end
        return JobFacts("unreachable", code, reason)
    return JobFacts("ended", queued.state, reason, by_user=queued.state == "CANCELLED")


def _ended(record: commands.Accounted) -> JobFacts:
    by_user = record.state == "CANCELLED"
    code = "" if record.exit_code in ("0:0", "") else f"exit code {record.exit_code}"
    if record.state == "FAILED" and record.exit_code in KILLED:
        code = f"killed, as a job is that takes too much memory ({code})"
    words = f"cancelled by {_user_name(record.by)}" if by_user and record.by else code
    if record.state == "FAILED" and record.exit_code in TOLD_TO_END:
        return JobFacts("ended", "SIGNALED", f"stopped while it was still starting ({code})", record.ended_at)
    return JobFacts("ended", record.state, words, record.ended_at, by_user)


def explained(facts: JobFacts, jobs_dir: Path, chunk: Chunk, pack: str) -> JobFacts:
    """Add to a job that died what only its log says: that it took more memory than it may."""
    if facts.state != "ended" or facts.code not in ("FAILED", "OUT_OF_MEMORY"):
        return facts
    log = jobs_dir / chunk.submission_id / "logs" / f"{chunk.job_of(pack)}_0_log.err"
    text = read_text(log)[-LOG_CHARACTERS:]
    if facts.code == "OUT_OF_MEMORY" or OUT_OF_MEMORY.search(text):
        return replace(facts, reason=f"out of memory ({facts.reason})" if facts.reason else "out of memory")
    return facts


def _user_name(uid: str) -> str:
    import pwd

    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError):
        return f"uid {uid}"
