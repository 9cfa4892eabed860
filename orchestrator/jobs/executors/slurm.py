"""Jobs on a SLURM cluster: arrays in turn, as many as the site takes, and their end in the queue."""

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from scalewright.db.engine import Database
from scalewright.db.store import set_run_states
from scalewright.fitting.words import counted
from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.jobs import slurm_arrays, slurm_commands, slurm_states
from scalewright.orchestrator.jobs.executors.executor import Ended, Executor, Handover, new_chunk, record_jobs
from scalewright.orchestrator.jobs.judge import Looked
from scalewright.orchestrator.jobs.packing import NamedPack, Turn, Work, group, take_turns
from scalewright.orchestrator.jobs.records import Chunk, Job
from scalewright.orchestrator.jobs.slurm_commands import Limits
from scalewright.orchestrator.study import Study

AUTO_PACK_S = 1800.0
CANCEL_WAIT_S = 5.0


class Slurm(Executor):
    """One array per resource class, cut at the site's limits; each array's record is written before sbatch."""

    name = "slurm"
    lanes = True

    def check(self) -> None:
        """Raise UserError where the cluster does not answer."""
        slurm_arrays.check_reachable()

    def cut(
        self, study: Study, work: Sequence[Work], profile: Profile, max_parallel: int | None
    ) -> Sequence[Sequence[Work]]:
        """Put as many runs into a job as the profile says, or as many as fill about half an hour."""
        return group(work, (profile.pack or auto_pack(work)) * profile.at_once)

    def submit(self, handover: Handover) -> int:
        """Submit arrays. Runs that the site does not take now are free again: raises Partial where that is so."""
        limits = slurm_arrays.read_limits()
        parts = slurm_arrays.arrays(handover.packs[: slurm_arrays.n_jobs_allowed(limits)], limits)
        line = Line(handover, limits)
        try:
            with in_turn(handover.study):
                n_places, line.before = places_left(handover)
                for part, turn in zip(parts, take_turns(parts, n_places), strict=True):
                    line.hand_over(part, turn)
        except UserError as refusal:
            free(handover.database, line.left(), str(refusal))
            if not line.n_arrays:
                raise
            raise Partial(f"{counted(line.n_arrays, 'array')} submitted, then: {refusal}") from None
        say_full(handover.database, len(line.taken), line.left())
        return len(line.taken)

    def look(self, jobs_dir: Path, chunks: Sequence[Chunk]) -> Looked:
        """Ask squeue and sacct; a job that neither knows is not called dead."""
        return slurm_states.look(jobs_dir, chunks)

    def end(self, jobs_dir: Path, jobs: Sequence[Job], *, now: bool) -> Ended:
        """Take jobs out of the queue and say which are; jobs without an id yet are not touched."""
        named = {job.name: job for job in jobs if job.name is not None}
        if not named:
            return Ended()
        out, trouble = take_out_of_queue(set(named), now=now)
        return Ended([named[name] for name in out], trouble)


EXECUTOR = Slurm()


def auto_pack(work: Sequence[Work]) -> int:
    """Choose how many runs share a job when nobody said: short ones together, so that starting up costs little."""
    longest = max((one.wall_s for one in work if one.wall_s is not None), default=None)
    return 1 if not longest else max(1, min(64, int(AUTO_PACK_S / longest)))


@contextmanager
def in_turn(study: Study) -> Iterator[None]:
    """Wait for other submissions of the study: `max_parallel` counts their jobs too. The lock ends with its process."""
    with (study.jobs_dir / "submitting").open("a") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass
class Line:
    """The arrays of one submission as they are handed over, and whom the next of each lane waits for."""

    handover: Handover
    limits: Limits
    before: list[str] = field(default_factory=list)
    after: dict[int, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    n_arrays: int = 0

    def hand_over(self, part: Sequence[NamedPack], turn: Turn) -> None:
        """Submit an array; where the site calls it too long, as much of it as it takes, in shorter ones.

        Limits of a QOS or an account cannot all be asked for. A class that met one is left for another time.
        """
        start, size = 0, len(part)
        while part[0].profile_name not in self.full and start < len(part):
            piece = part[start : start + size]
            try:
                self.launch(piece, turn)
            except slurm_arrays.SiteIsFull:
                size = len(piece) // 2
                self.full |= {part[0].profile_name} if size == 0 else set()
            else:
                start, size = start + size, (size + 1) // 2

    def launch(self, part: Sequence[NamedPack], turn: Turn) -> None:
        """Submit one array after those of its lane; SiteIsFull where the site does not take so many."""
        chunk = new_chunk(self.handover, EXECUTOR, part, part[0].profile_name)
        if turn.throttle is not None:
            waits = self.after.get(turn.lane, self.before)
            chunk = replace(chunk, throttle=min(turn.throttle, len(part)), after=waits)
        chunk = slurm_arrays.launch(self.handover.study.jobs_dir, chunk, part, self.limits)
        record_jobs(self.handover, chunk, part)
        self.after[turn.lane] = [chunk.job_id] if chunk.job_id else chunk.after
        self.taken |= {pack.name for pack in part}
        self.n_arrays += 1

    def left(self) -> list[NamedPack]:
        """Return the packs that no array holds yet."""
        return [pack for pack in self.handover.packs if pack.name not in self.taken]


def say_full(database: Database, n_jobs: int, rest: Sequence[NamedPack]) -> None:
    """Free the runs that the site did not take; raises Partial where there are such."""
    if not rest:
        return
    free(database, rest, "the site takes no more jobs of this user now")
    runs = sum(len(pack.work) for pack in rest)
    raise Partial(
        f"{counted(n_jobs, 'job')} submitted, as many as the site lets you have; "
        f"submit again later for {counted(runs, 'run')}"
    )


def places_left(handover: Handover) -> tuple[int | None, list[str]]:
    """Return how many jobs of this study may run besides those submitted before, and the arrays to wait for.

    Where those have all the places, the new ones have them all when those are over.
    """
    max_parallel = handover.max_parallel
    if max_parallel is None:
        return None, []
    there = [chunk for chunk in EXECUTOR.chunks(handover.study.jobs_dir) if chunk.job_id]
    known = {chunk.job_id: chunk for chunk in there}
    first = [chunk for chunk in there if not known.keys() & set(chunk.after)]
    left = max_parallel - sum(chunk.throttle or len(chunk.packs) for chunk in first)
    return (left, []) if left > 0 else (max_parallel, sorted(job for job in known if job))


def free(database: Database, packs: Sequence[NamedPack], why: str) -> None:
    """Give claimed runs back, to be submitted another time."""
    set_run_states(database, [(one.run_id, "planned", why, {}) for pack in packs for one in pack.work])


def take_out_of_queue(jobs: set[str], *, now: bool) -> tuple[set[str], str]:
    """Cancel the jobs that wait, with `now` those that run too; return those out of the queue, and why others are not.

    Each is named by itself: `scancel --state=PENDING ARRAY_i` takes every waiting element of the array with it (22.05).
    """
    reply, queue = slurm_commands.squeue()
    if not reply.ok:
        return set(), f"the cluster was not asked to cancel anything, it does not answer ({reply.error})"
    chosen = {one.job for one in queue if one.job in jobs and (now or one.state == "PENDING")}
    if not chosen:
        return set(), ""
    refused = slurm_commands.scancel(sorted(chosen))
    deadline = time.monotonic() + CANCEL_WAIT_S
    while time.monotonic() < deadline:
        reply, queue = slurm_commands.squeue()
        left = {one.job for one in queue if one.job in chosen and one.state in ("PENDING", "RUNNING", "COMPLETING")}
        if not reply.ok:
            left = chosen
        if not left:
            return chosen, ""
        time.sleep(0.2)
    why = refused or reply.error or f"still there {CANCEL_WAIT_S:.0f} s after scancel"
    return chosen - left, f"not cancelled: {counted(len(left), 'job')} ({why})"
