"""Plan -> claims -> run directories, code snapshot, packs -> jobs. Safe to repeat, and to kill at any step.

Order: the submission says on disk who makes it; one transaction claims runs; specs, snapshot and packs are written;
each chunk's record is written before its jobs are started. Whoever comes next finds from these what was not finished.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewright.db.engine import Database
from scalewright.db.store import claim_runs
from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.config.resources import DEFAULT_EXECUTOR, Resources, Retry
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.jobs.executors.executor import Handover, find_executor
from scalewright.orchestrator.jobs.lanes import write_lanes
from scalewright.orchestrator.jobs.packing import NamedPack, Work, by_profile
from scalewright.orchestrator.jobs.records import Pack, Place, Submission
from scalewright.orchestrator.jobs.snapshot import Snapshot, take_snapshot
from scalewright.orchestrator.plan.runs import PlannedRun
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Identity, SpecFile, Stop
from scalewright.orchestrator.runs.spec import SPEC_FORMAT
from scalewright.orchestrator.study import Study

SIGNS_IN_LOG_PATHS = ("%", "\\")  # SLURM and submitit put the job's id and more in their place


@dataclass(frozen=True)
class Order:
    """How runs are to be carried out: the part of an experiments.yaml that is not part of any result."""

    executor: str = DEFAULT_EXECUTOR
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
    _check_executor(order, study.root)
    began, submission_id = time.time(), _new_submission_id()
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
    packs = make_packs(study, mine, order)
    write_packs(study, submission_id, packs, snapshot, order)
    n_jobs = find_executor(order.executor).submit(Handover(study, database, submission_id, packs, order.max_parallel))
    return Receipt(submission_id, len(claimed), n_jobs, snapshot)


def _new_submission_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + uuid.uuid4().hex[:6]


def announce(study: Study, submission_id: str, order: Order) -> None:
    """Say on disk who is about to submit, so that a claim whose maker died can be told from one being made."""
    folder = study.jobs_dir / submission_id
    folder.mkdir(parents=True)
    record = Submission(Process.this(), order.executor, time.time(), order.payload, Place.of(study.root))
    write_json(folder / "submission.json", record)


def _check_executor(order: Order, root: Path) -> None:
    executor = find_executor(order.executor)
    sign = next((sign for sign in SIGNS_IN_LOG_PATHS if sign in str(root)), None)
    if sign and not executor.in_process:
        reads = f"where jobs write their logs, {sign} does not stand for itself; rename the folder"
        raise UserError(f"{root}: a study with {sign} in its path cannot be submitted: {reads}")
    executor.check()


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


def make_packs(study: Study, runs: Sequence[PlannedRun], order: Order) -> list[NamedPack]:
    """Sort runs into jobs, each resource class as the executor does."""
    executor = find_executor(order.executor)
    packs: list[NamedPack] = []
    for name, members in by_profile([_to_work(study, run) for run in runs]).items():
        profile = order.resources.profile(name)
        for pack in executor.cut(study, members, profile, order.max_parallel):
            packs.append(NamedPack(f"p{len(packs):04d}", tuple(pack), name, profile))
    return packs


def _to_work(study: Study, run: PlannedRun) -> Work:
    wall_s = run.planned.get("wall_s")
    flops = float(run.planned.get("flops_total") or 0.0)
    trunk = str(run.settings.get("trunk") or "")
    return Work(run.run_id, str(study.run_dir(run.run_id)), wall_s, run.profile, flops, trunk)


def write_packs(study: Study, submission_id: str, packs: Sequence[NamedPack], snapshot: Snapshot, order: Order) -> None:
    """Write what each job is to do, in a folder of its own."""
    for pack in packs:
        job_dir = study.jobs_dir / submission_id / pack.name
        record = pack_record(submission_id, pack, snapshot, order)
        record.write(job_dir)
        write_lanes(job_dir, record)


def pack_record(submission_id: str, pack: NamedPack, snapshot: Snapshot, order: Order) -> Pack:
    """Make what pack.json holds; in-process executors run the code they were called from."""
    executor = find_executor(order.executor)
    return Pack(
        submission_id=submission_id,
        name=pack.name,
        runs=[one.run_dir for one in pack.work],
        root=str(code_root()) if executor.in_process else snapshot.root,
        snapshot=snapshot.content,
        commit=snapshot.commit,
        dirty=snapshot.dirty or bool(snapshot.untracked),
        payload=order.payload,
        threads=pack.profile.threads,
        devices=pack.profile.devices,
        lanes=pack.profile.at_once if executor.lanes else 1,
        retry={"errors": order.retry.errors, "same_error": order.retry.same_error},
        hang_s=order.retry.hang_s,
        notify=order.notify,
    )
