"""Plan -> claims -> run directories, code snapshot, packs -> jobs. Safe to repeat, and to kill at any step.

Order: the submission says on disk who makes it; one transaction claims runs; specs, snapshot and packs are written;
each chunk's record is written before its jobs are started. Whoever comes next finds from these what was not finished.
"""

import fcntl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from scalewright.db.engine import Database
from scalewright.db.store import SubmittedJob, claim_runs, record_submission, set_run_states
from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.config.resources import Profile, Resources, Retry
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.jobs import inline, local, slurm
from scalewright.orchestrator.jobs.lanes import write_lanes
from scalewright.orchestrator.jobs.packing import (
    NamedPack,
    Turn,
    Work,
    balance,
    by_profile,
    cheap_first,
    group,
    take_turns,
)
from scalewright.orchestrator.jobs.records import Chunk, Pack, Place, Submission, read_chunks
from scalewright.orchestrator.jobs.slurm_commands import Limits
from scalewright.orchestrator.jobs.snapshot import Snapshot, take_snapshot
from scalewright.orchestrator.plan.runs import PlannedRun
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Identity, SpecFile, Stop
from scalewright.orchestrator.runs.spec import SPEC_FORMAT
from scalewright.orchestrator.study import Study

AUTO_PACK_S = 1800.0
SIGNS_IN_LOG_PATHS = ("%", "\\")  # SLURM and submitit put the job's id and more in their place


@dataclass(frozen=True)
class Order:
    """How runs are to be carried out: the part of an experiments.yaml that is not part of any result."""

    executor: str = "local"
    resources: Resources = Resources()
    max_parallel: int | None = None
    retry: Retry = Retry()
    notify: str | None = None
    payload: str = "train"


@dataclass(frozen=True)
class Receipt:
    """What one submission did."""

    submission_id: str | None
    n_claimed: int
    n_jobs: int
    snapshot: Snapshot | None = None
    warnings: tuple[str, ...] = ()


def submit(study: Study, database: Database, runs: Sequence[PlannedRun], order: Order) -> Receipt:
    """Hand over every run of `runs` that is planned or interrupted; what is done, running or in doubt is left alone."""
    check_executor(order, study.root)
    began, submission_id = time.time(), new_submission_id()
    announce(study, submission_id, order)
    snapshot = take_snapshot(study.snapshots_dir)
    claimed = claim_runs(
        database, [run.run_id for run in runs], submission_id, executor=order.executor, snapshot=snapshot.content
    )
    if not claimed:
        return Receipt(None, 0, 0)
    wanted = set(claimed)
    mine = [run for run in runs if run.run_id in wanted]
    for run in mine:
        write_spec(study, run, order, began)
    packs = make_packs(study, mine, order, n_free_cores(study))
    write_packs(study, submission_id, packs, snapshot, order)
    n_jobs = EXECUTORS[order.executor](study, database, submission_id, packs, order)
    return Receipt(submission_id, len(claimed), n_jobs, snapshot)


def new_submission_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + uuid.uuid4().hex[:6]


def announce(study: Study, submission_id: str, order: Order) -> None:
    """Say on disk who is about to submit, so that a claim whose maker died can be told from one being made."""
    folder = study.jobs_dir / submission_id
    folder.mkdir(parents=True)
    record = Submission(Process.this(), order.executor, time.time(), order.payload, Place.of(study.root))
    write_json(folder / "submission.json", record)


def check_executor(order: Order, root: Path) -> None:
    if order.executor not in EXECUTORS:
        raise UserError(f"{order.executor}: not an executor (expected {', '.join(EXECUTORS)})")
    sign = next((sign for sign in SIGNS_IN_LOG_PATHS if sign in str(root)), None)
    if sign and order.executor != "debug":
        reads = f"where jobs write their logs, {sign} does not stand for itself; rename the folder"
        raise UserError(f"{root}: a study with {sign} in its path cannot be submitted: {reads}")
    if order.executor == "slurm":
        slurm.check_reachable()


def write_spec(study: Study, run: PlannedRun, order: Order, began: float) -> None:
    """Write the run directory's spec.json; a stop request of an earlier time is taken back by who submits again.

    One that came after this submission `began` (seconds since 1970) is meant for it.
    """
    profile = order.resources.profile(run.profile)
    place = {"threads": profile.threads, "devices": profile.devices, "errors_allowed": order.retry.errors}
    run_dir = study.run_dir(run.run_id)
    identity = Identity(**run.spec.to_dict())
    record = SpecFile(SPEC_FORMAT, run.run_id, identity, settings=place | run.settings, planned=dict(run.planned))
    write_json(run_dir / "spec.json", record, durable=False)  # made anew by each submission, before its jobs
    stop = usable(run_dir / "stop", Stop) or Stop()
    if stop.time < began:
        (run_dir / "stop").unlink(missing_ok=True)


# --- packs -----------------------------------------------------------------------------------------------------------


def make_packs(study: Study, runs: Sequence[PlannedRun], order: Order, n_cores: int) -> list[NamedPack]:
    """Sort runs into jobs: as many as there are free cores on this machine, as the profile says on a cluster."""
    work = [to_work(study, run) for run in runs]
    packs: list[NamedPack] = []
    for name, members in by_profile(work).items():
        profile = order.resources.profile(name)
        for pack in cut(members, profile, order, n_cores):
            packs.append(NamedPack(f"p{len(packs):04d}", tuple(pack), name, profile))
    return packs


def to_work(study: Study, run: PlannedRun) -> Work:
    wall_s = run.planned.get("wall_s")
    flops = float(run.planned.get("flops_total") or 0.0)
    return Work(run.run_id, str(study.run_dir(run.run_id)), wall_s, run.profile, flops)


def cut(work: Sequence[Work], profile: Profile, order: Order, n_cores: int) -> list[list[Work]]:
    """Cut a resource class into packs."""
    if order.executor == "debug":
        return [cheap_first(work)]
    if order.executor == "local":
        n_packs = min(order.max_parallel or n_cores, n_cores)
        return balance(work, max(1, n_packs // max(profile.threads, profile.devices)))
    return group(work, (profile.pack or auto_pack(work)) * profile.at_once)


def auto_pack(work: Sequence[Work]) -> int:
    """Choose how many runs share a job when nobody said: short ones together, so that starting up costs little."""
    longest = max((one.wall_s for one in work if one.wall_s is not None), default=None)
    return 1 if not longest else max(1, min(64, int(AUTO_PACK_S / longest)))


def n_free_cores(study: Study) -> int:
    """Count the cores (or GPUs) of this machine that no job of this study uses."""
    here = [chunk for chunk in read_chunks(study.jobs_dir) if chunk.executor == "local"]
    busy = sum(bool(local.is_alive(chunk, study.jobs_dir, pack)) for chunk in here for pack in chunk.packs)
    return max(1, local.n_places() - busy)


def write_packs(study: Study, submission_id: str, packs: Sequence[NamedPack], snapshot: Snapshot, order: Order) -> None:
    """Write what each job is to do, in a folder of its own."""
    for pack in packs:
        job_dir = study.jobs_dir / submission_id / pack.name
        record = pack_record(submission_id, pack, snapshot, order)
        record.write(job_dir)
        write_lanes(job_dir, record)


def pack_record(submission_id: str, pack: NamedPack, snapshot: Snapshot, order: Order) -> Pack:
    return Pack(
        submission_id=submission_id,
        name=pack.name,
        runs=[one.run_dir for one in pack.work],
        root=str(code_root()) if order.executor == "debug" else snapshot.root,
        snapshot=snapshot.content,
        commit=snapshot.commit,
        dirty=snapshot.dirty or bool(snapshot.untracked),
        payload=order.payload,
        threads=pack.profile.threads,
        devices=pack.profile.devices,
        lanes=pack.profile.at_once if order.executor == "slurm" else 1,
        retry={"errors": order.retry.errors, "same_error": order.retry.same_error},
        hang_s=order.retry.hang_s,
        notify=order.notify,
    )


# --- executors -------------------------------------------------------------------------------------------------------


def new_chunk(submission_id: str, executor: str, packs: Sequence[NamedPack], profile: str = "") -> Chunk:
    names = [pack.name for pack in packs]
    return Chunk(uuid.uuid4().hex, submission_id, executor, names, time.time(), profile, submitter=Process.this())


def submit_local(study: Study, database: Database, submission_id: str, packs: Sequence[NamedPack], order: Order) -> int:
    """Start every pack now, each as a process of its own that outlives this one."""
    chunk = local.launch(study.jobs_dir, new_chunk(submission_id, "local", packs))
    record_jobs(study, database, chunk, packs)
    return len(packs)


def submit_debug(study: Study, database: Database, submission_id: str, packs: Sequence[NamedPack], order: Order) -> int:
    """Run the pack in this very process, one run after another: for a debugger, or a look at a traceback."""
    chunk = inline.as_jobs(study.jobs_dir, new_chunk(submission_id, "debug", packs))
    record_jobs(study, database, chunk, packs)
    inline.run(study.jobs_dir, chunk)
    return len(packs)


def submit_slurm(study: Study, database: Database, submission_id: str, packs: Sequence[NamedPack], order: Order) -> int:
    """Submit one array per resource class, cut at the site's limits; each array's record is written before sbatch.

    Runs that the site does not take now are free again. Raises Partial where that is so, UserError for a refusal.
    """
    limits = slurm.read_limits()
    parts = slurm.arrays(packs[: slurm.n_jobs_allowed(limits)], limits)
    line = Line(study, database, submission_id, limits)
    try:
        with in_turn(study):
            n_places, line.before = places_left(study, order.max_parallel)
            for part, turn in zip(parts, take_turns(parts, n_places), strict=True):
                line.hand_over(part, turn)
    except UserError as refusal:
        free(database, line.left_of(packs), str(refusal))
        if not line.n_arrays:
            raise
        raise Partial(f"{line.n_arrays} arrays were submitted, then: {refusal}") from None
    say_full(database, len(line.taken), line.left_of(packs))
    return len(line.taken)


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

    study: Study
    database: Database
    submission_id: str
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
            except slurm.SiteIsFull:
                size = len(piece) // 2
                self.full |= {part[0].profile_name} if size == 0 else set()
            else:
                start, size = start + size, (size + 1) // 2

    def launch(self, part: Sequence[NamedPack], turn: Turn) -> None:
        chunk = new_chunk(self.submission_id, "slurm", part, part[0].profile_name)
        if turn.throttle is not None:
            waits = self.after.get(turn.lane, self.before)
            chunk = replace(chunk, throttle=min(turn.throttle, len(part)), after=waits)
        chunk = slurm.launch(self.study.jobs_dir, chunk, part, self.limits)
        record_jobs(self.study, self.database, chunk, part)
        self.after[turn.lane] = [chunk.job_id] if chunk.job_id else chunk.after
        self.taken |= {pack.name for pack in part}
        self.n_arrays += 1

    def left_of(self, packs: Sequence[NamedPack]) -> list[NamedPack]:
        return [pack for pack in packs if pack.name not in self.taken]


def say_full(database: Database, n_jobs: int, rest: Sequence[NamedPack]) -> None:
    """Free the runs that the site did not take; raises Partial where there are such."""
    if not rest:
        return
    free(database, rest, "the site takes no more jobs of this user now")
    runs = sum(len(pack.work) for pack in rest)
    raise Partial(
        f"{n_jobs} jobs were submitted, as many as the site lets you have; submit again later for {runs} runs"
    )


def places_left(study: Study, max_parallel: int | None) -> tuple[int | None, list[str]]:
    """Return how many jobs of this study may run besides those submitted before, and the arrays to wait for.

    Where those have all the places, the new ones have them all when those are over.
    """
    if max_parallel is None:
        return None, []
    there = [chunk for chunk in read_chunks(study.jobs_dir) if chunk.executor == "slurm" and chunk.job_id]
    known = {chunk.job_id: chunk for chunk in there}
    first = [chunk for chunk in there if not known.keys() & set(chunk.after)]
    left = max_parallel - sum(chunk.throttle or len(chunk.packs) for chunk in first)
    return (left, []) if left > 0 else (max_parallel, sorted(job for job in known if job))


def free(database: Database, packs: Sequence[NamedPack], why: str) -> None:
    """Give claimed runs back, to be submitted another time."""
    set_run_states(database, [(one.run_id, "planned", why, {}) for pack in packs for one in pack.work])


def record_jobs(study: Study, database: Database, chunk: Chunk, packs: Sequence[NamedPack]) -> None:
    jobs = [
        SubmittedJob(
            job, [one.run_id for one in pack.work], str(study.jobs_dir / chunk.submission_id / pack.name), chunk.cluster
        )
        for pack in packs
        if (job := chunk.job_of(pack.name)) is not None
    ]
    record_submission(database, chunk.submission_id, jobs)


EXECUTORS: Mapping[str, Callable[[Study, Database, str, Sequence[NamedPack], Order], int]] = {
    "local": submit_local,
    "slurm": submit_slurm,
    "debug": submit_debug,
}
