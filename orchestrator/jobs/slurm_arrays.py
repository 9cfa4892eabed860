"""Jobs on a SLURM cluster through submitit: arrays, throttled and cut at the site's limits, and their adoption.

Knows submitit and SLURM's commands; nothing of runs. What a job needs is on disk before sbatch is called, so that a job
whose submitter died in that very moment still runs, and is adopted by the uuid in its comment.
"""

import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import read_text
from scalewright.orchestrator.jobs import slurm_commands as commands
from scalewright.orchestrator.jobs.carrier import Carrier
from scalewright.orchestrator.jobs.packing import NamedPack, chunks
from scalewright.orchestrator.jobs.records import Chunk, Pack, chunk_path
from scalewright.orchestrator.jobs.slurm_commands import Limits, read_limits
from scalewright.orchestrator.runs.job_environment import goes_along

__all__ = ["adopt", "arrays", "check_reachable", "launch", "read_limits"]

UNLIMITED = 1_000_000_000
DEFAULT_TIME_S = 3600.0
TIME_MARGIN = 2.0
START_UP_S = 120.0
SIGNAL_BEFORE_END_S = 90
NEVER_SUBMITTED_S = 120.0
# What sbatch says when the site takes no more jobs of this user now, by whichever of its limits.
FULL = re.compile(r"(Assoc|QOS)\w*SubmitJobs?\w*Limit")
# What sbatch says when it cannot know whether the controller took the job; anything else is a refusal.
REPLY_LOST = re.compile(
    r"timed? ?out|unable to contact|transport|zero bytes|connection|socket|no answer", re.IGNORECASE
)


class SiteIsFull(UserError):
    """The site takes no array of this length from this user now; a shorter one it may take."""


def check_reachable() -> None:
    """Raise UserError where there is no SLURM, or it does not answer."""
    if not commands.has_slurm():
        raise UserError("sbatch: not found on this machine (use --executor local, or a login node of the cluster)")
    reply = commands.scontrol("ping")
    if not reply.ok:
        said = " ".join(reply.text.replace("*", " ").split()) or reply.error
        raise UserError(f"the SLURM controller does not answer: {said}; nothing was submitted")


def arrays(packs: Sequence[NamedPack], limits: Limits) -> list[list[NamedPack]]:
    """Cut packs into arrays: one a resource class, none longer than the site's MaxArraySize."""
    classes: dict[str, list[NamedPack]] = {}
    for pack in packs:
        classes.setdefault(pack.profile_name, []).append(pack)
    return [
        [members[i] for i in part]
        for members in classes.values()
        for part in chunks(len(members), limits.max_array_size)
    ]


def n_jobs_allowed(limits: Limits) -> int:
    """Return how many more jobs the site takes from this user; every element of an array counts as one."""
    if limits.max_submit_jobs is None:
        return UNLIMITED
    _, queue = commands.squeue()
    return max(0, limits.max_submit_jobs - sum(one.state in ("PENDING", "RUNNING") for one in queue))


def launch(jobs_dir: Path, chunk: Chunk, packs: Sequence[NamedPack], limits: Limits) -> Chunk:
    """Submit one array and return its chunk with the job id.

    Raises UserError when the cluster refuses, SiteIsFull when it does not take so many jobs now; a chunk whose reply
    was lost comes back without a job id, to be adopted.
    """
    submission_dir = jobs_dir / chunk.submission_id
    chunk = replace(chunk, cluster=limits.cluster)
    carry(submission_dir, chunk, wall_minutes(packs))
    chunk.write(jobs_dir)
    executor = make_executor(submission_dir, chunk, packs)
    try:
        with environment_for_jobs(), redirect_stderr(StringIO()):  # submitit prints what it raises
            jobs = executor.submit_array([Carrier(str(submission_dir / name)) for name in chunk.packs])
    except Exception as trouble:  # noqa: BLE001  submitit wraps whatever sbatch said; the message tells them apart
        return after_trouble(jobs_dir, chunk, " ".join(str(trouble).split()))
    launched = chunk.with_job_id(commands.array_id(str(jobs[0].job_id)), limits.cluster)
    launched.write(jobs_dir)
    return launched


def after_trouble(jobs_dir: Path, chunk: Chunk, message: str) -> Chunk:
    """Adopt a job whose reply was lost; forget the chunk when sbatch refused it: nobody is to wait for its job."""
    adopted = adopt(jobs_dir, chunk, commands.squeue()[1])
    if adopted is not None and adopted.job_id is not None:
        return adopted
    if REPLY_LOST.search(message):
        return chunk
    chunk_path(jobs_dir, chunk.submission_id, chunk.uuid).unlink()
    said = re.search(r"(sbatch: error: .*)", message)
    kind = SiteIsFull if FULL.search(message) else UserError
    raise kind(f"the cluster refused the jobs of profile {chunk.profile}: {said[1] if said else message[:400]}")


@contextmanager
def environment_for_jobs() -> Iterator[None]:
    """Hide what must not go along with jobs, for sbatch hands on all it sees; SLURM_CONF must stay."""
    hidden = {key: os.environ.pop(key) for key in list(os.environ) if not goes_along(key) and key != "SLURM_CONF"}
    try:
        yield
    finally:
        os.environ.update(hidden)


# --- what a job asks for and starts with -----------------------------------------------------------------------------


def make_executor(submission_dir: Path, chunk: Chunk, packs: Sequence[NamedPack]) -> Any:
    from submitit import SlurmExecutor

    pack = Pack.read(submission_dir / chunk.packs[0])
    executor = SlurmExecutor(submission_dir / "logs", max_num_timeout=UNLIMITED, python=shlex.quote(sys.executable))
    executor.update_parameters(
        **asked(packs[0].profile),
        job_name="scalewright",
        comment=f"{commands.COMMENT}{chunk.uuid}",
        time=wall_minutes(packs),
        signal_delay_s=SIGNAL_BEFORE_END_S,
        wckey=None,
        array_parallelism=chunk.throttle or len(packs),
        setup=setup_lines(submission_dir, chunk, pack, packs[0].profile),
        additional_parameters={"requeue": True} | dict(packs[0].profile.sbatch) | dependency(chunk, packs[0].profile),
    )
    return executor


def dependency(chunk: Chunk, profile: Profile) -> dict[str, str]:
    """Make a chunk wait for those whose turn is before its own, besides what the profile itself waits for."""
    turns = [f"afterany:{':'.join(chunk.after)}"] if chunk.after else []
    wanted = [str(profile.sbatch["dependency"])] if "dependency" in profile.sbatch else []
    return {"dependency": ",".join(wanted + turns)} if turns else {}


def asked(profile: Profile) -> dict[str, Any]:
    """Translate a profile into submitit's parameters; what the profile does not say is left to the site."""
    options = {
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
        "mem": profile.mem,
        "gpus_per_node": profile.gpus or None,
        "cpus_per_task": profile.cpus,
        "ntasks_per_node": max(1, profile.devices * profile.at_once),
        "srun_args": [f"--cpus-per-task={profile.cpus}"],  # since 22.05 srun does not take it over from sbatch
    }
    return {key: value for key, value in options.items() if value is not None}


def wall_minutes(packs: Sequence[NamedPack]) -> int:
    """Return the array's time limit: the profile's, else twice the longest pack's planned time and a start-up."""
    if packs[0].profile.time_s is not None:
        return max(1, math.ceil(packs[0].profile.time_s / 60))
    longest = max(pack.wall_s for pack in packs)
    return max(1, math.ceil((TIME_MARGIN * longest + START_UP_S) / 60)) if longest else math.ceil(DEFAULT_TIME_S / 60)


def setup_lines(submission_dir: Path, chunk: Chunk, pack: Pack, profile: Profile) -> list[str]:
    """Write the shell lines before the job's program.

    The code's path, and the job's own pickle should nobody move it.
    """
    logs, carried = (shlex.quote(str(path)) for path in (submission_dir / "logs", carried_dir(submission_dir, chunk)))
    job = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
    own = f"{logs}/{job}_submitted.pkl"
    return [
        *profile.setup,
        f"export PYTHONPATH={shlex.quote(pack.root)}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1",
        f"export OMP_NUM_THREADS={pack.threads} MKL_NUM_THREADS={pack.threads} OPENBLAS_NUM_THREADS={pack.threads}",
        f'echo "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}" > {carried}/job_id',
        f"test -e {own} || cp {carried}/${{SLURM_ARRAY_TASK_ID:-0}}.pkl {own}",
    ]


def carried_dir(submission_dir: Path, chunk: Chunk) -> Path:
    return submission_dir / f"carried-{chunk.uuid}"


def carry(submission_dir: Path, chunk: Chunk, timeout_min: int) -> None:
    """Write the pickles of a chunk's jobs before sbatch is called, by their place in the array."""
    from submitit.core.utils import DelayedSubmission

    folder = carried_dir(submission_dir, chunk)
    folder.mkdir(parents=True, exist_ok=True)
    (submission_dir / "logs").mkdir(exist_ok=True)
    for index, name in enumerate(chunk.packs):
        delayed = DelayedSubmission(Carrier(str(submission_dir / name)))
        delayed.set_timeout(timeout_min, UNLIMITED)
        delayed.dump(folder / f"{index}.pkl")


# --- adoption --------------------------------------------------------------------------------------------------------


def adopt(
    jobs_dir: Path, chunk: Chunk, queue: Iterable[commands.Queued], accounted: Iterable[commands.Accounted] = ()
) -> Chunk | None:
    """Find the job of a chunk that has no job id: by the uuid in its comment, or by what the job itself wrote.

    Returns the chunk with its job id, or None where nobody knows such a job.
    """
    wrote = carried_dir(jobs_dir / chunk.submission_id, chunk) / "job_id"
    jobs: list[commands.Queued | commands.Accounted] = [*queue, *accounted]
    found = next(
        (commands.array_id(job.job) for job in jobs if commands.comment_uuid(job.comment) == chunk.uuid),
        None,
    )
    found = found or read_text(wrote).strip() or None
    if found is None:
        return None
    adopted = chunk.with_job_id(found, chunk.cluster)
    adopted.write(jobs_dir)
    return adopted
