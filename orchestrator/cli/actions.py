"""The verbs that run things, as functions: each brings the database up to date, does one thing and says what it did."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.talk import say

NAMED_RUNS = 8

if TYPE_CHECKING:
    from scalewright.orchestrator.jobs.submit import Order, Receipt
    from scalewright.orchestrator.plan.bill import Plan
    from scalewright.orchestrator.runs.records import Why


def order_of(plan: "Plan", *, executor: str | None, max_parallel: int | None, payload: str) -> "Order":
    """Take how to run from the experiment; what the command line says wins."""
    from scalewright.orchestrator.jobs.submit import Order

    experiment = plan.experiment
    return Order(
        executor=executor or experiment.executor,
        resources=experiment.resources,
        max_parallel=max_parallel or experiment.max_parallel,
        retry=experiment.retry,
        notify=experiment.notify,
        payload=payload,
    )


def plan_now(file: Path, *, timed: bool = False) -> tuple["Plan", Study]:
    """Plan the file as things stand: results of a sweep that no command has brought into the database are, first.

    timed: time a few steps of each shape whose speed is not known.
    """
    from scalewright.orchestrator.config.load import load_experiment
    from scalewright.orchestrator.plan.earlier_runs import open_existing
    from scalewright.orchestrator.plan.make import plan_file, study_of
    from scalewright.orchestrator.report.bill import show_documents, show_shapes

    experiment = load_experiment(file)
    if experiment.tune:
        study = study_of(experiment)
        with open_existing(study) as database:
            known = database is not None
        if known:
            list(say_talk(study))
    return plan_file(file, progress=show_documents, timing=show_shapes if timed else None)


def submit_file(
    file: Path,
    *,
    executor: str | None = None,
    dry_run: bool = False,
    max_parallel: int | None = None,
    payload: str = "train",
    only: Sequence[str] | None = None,
    max_gpu_hours: float | None = None,
) -> Iterator[str]:
    """Plan the file, record it, and submit what is to be done; yields what happened, line by line.

    only: ids of the runs to submit, instead of all; raises UserError for one that the file does not plan.
    """
    from scalewright.orchestrator.jobs.executors.executor import find_executor
    from scalewright.orchestrator.plan.make import record
    from scalewright.orchestrator.report.bill import print_plan

    plan, study = plan_now(file)
    plan.check_limit(max_gpu_hours)
    order = order_of(plan, executor=executor, max_parallel=max_parallel, payload=payload)
    if dry_run:
        print_plan(plan, study, None, as_json=False)
        yield from preview(plan, study, order)
        return
    if only is not None and (gone := set(only) - set(plan.run_ids)):
        raise UserError(f"{file}: run {min(gone)} is no longer planned by it; run: scalewright plan {file}")
    record(plan, study)
    yield from say_talk(study)
    chosen = plan if only is None else replace(plan, runs=tuple(run for run in plan.runs if run.run_id in only))
    receipt = submit_plan(chosen, study, order)
    yield describe(receipt, order.executor)
    yield from plan.notes
    if find_executor(order.executor).in_process:  # its jobs are over
        yield from say_talk(study)
    yield _state_line(study, plan.experiment.name)
    if receipt.submission_id is None:
        yield from next_steps(study, plan.experiment.name)


def submit_plan(plan: "Plan", study: Study, order: "Order") -> "Receipt":
    """Submit the runs of a plan that nobody works on, and return what came of it."""
    from scalewright.db.engine import open_database
    from scalewright.orchestrator.jobs.submit import submit

    database = open_database(study.database)
    try:
        return submit(study, database, plan.runs, order)
    finally:
        database.close()


def preview(plan: "Plan", study: Study, order: "Order") -> Iterator[str]:
    """Say which jobs a submission would make, as far as the database knows now."""
    from scalewright.fitting.words import counted
    from scalewright.orchestrator.jobs.submit import make_packs
    from scalewright.orchestrator.report.format import duration

    runs = [run for run in plan.runs if plan.states.get(run.run_id, "planned") in ("planned", "interrupted")]
    packs = make_packs(study, runs, order)
    where = f"would go into {counted(len(packs), f'{order.executor} job')}"
    yield f"{len(runs)} of {counted(len(plan.runs), 'run')} {where}; nothing was submitted"
    for profile in dict.fromkeys(pack.profile_name for pack in packs):
        mine = [pack for pack in packs if pack.profile_name == profile]
        longest = duration(max(pack.wall_s for pack in mine))
        most = max(len(pack.work) for pack in mine)
        yield f"  {profile}: {counted(len(mine), 'job')}, {counted(most, 'run')} at most, the longest {longest}"


def describe(receipt: "Receipt", executor: str) -> str:
    """Say what was submitted, how and from which code, in one line."""
    from scalewright.fitting.words import counted

    if receipt.submission_id is None or receipt.snapshot is None:
        return "nothing to submit"
    runs, jobs = counted(receipt.n_claimed, "run"), counted(receipt.n_jobs, f"{executor} job")
    what = f"submitted {runs} in {jobs} ({receipt.submission_id})"
    return f"{what}; {receipt.snapshot.describe()}"


def _state_line(study: Study, experiment: str | None) -> str:
    from scalewright.orchestrator.report.progress import headline, measure

    return headline(measure(read_progress(study, experiment)))


def next_steps(study: Study, experiment: str) -> list[str]:
    """Say what to do about the runs of an experiment that `submit` leaves as they are."""
    from scalewright.orchestrator.report.progress import advice, measure

    return advice(measure(read_progress(study, experiment)), submits=True)


def read_progress(study: Study, experiment: str | None) -> Any:
    """Return the frame of `db.frames.progress`; UserError where the study has no database."""
    from scalewright.db import frames
    from scalewright.db.engine import open_database

    database = open_database(study.database, create=False)
    try:
        return frames.progress(database, experiment)
    finally:
        database.close()


def say_talk(study: Study) -> Iterator[str]:
    """Bring the database up to date; what a person should know goes to stderr."""
    from scalewright.orchestrator.jobs.observe import refresh

    for line in [*refresh(study), *runs_of_no_plan(study)]:
        say(f"scalewright: {line}")
    yield from ()


def runs_of_no_plan(study: Study) -> list[str]:
    """Say which runs have a job though no plan has them any more: an edited YAML leaves them behind."""
    from scalewright.db import frames
    from scalewright.db.engine import open_database
    from scalewright.db.run_states import IN_A_JOB
    from scalewright.fitting.words import counted

    database = open_database(study.database, create=False)
    try:
        in_jobs = [run_id for run_id, state, _ in frames.claims(database) if state in IN_A_JOB]
        left = sorted(set(in_jobs) - set(frames.progress(database)["run_id"])) if in_jobs else []
    finally:
        database.close()
    ids = " ".join(run_id[:8] for run_id in left[:NAMED_RUNS]) + (" ..." if len(left) > NAMED_RUNS else "")
    what = f"{counted(len(left), 'run')} in no plan any more, and still in a job"
    return [f"{what}; to stop: scalewright cancel {ids}"] if left else []


def show_status(targets: Sequence[str], *, watch: bool, each: bool, as_json: bool) -> None:
    """Print the table of runs, each run once, or show it live until nothing runs any more."""
    from scalewright.orchestrator.cli.selection import resolve
    from scalewright.orchestrator.jobs.observe import refresh
    from scalewright.orchestrator.jobs.whereabouts import whereabouts
    from scalewright.orchestrator.report.progress import advice, follow, headline, measure
    from scalewright.orchestrator.report.tables import print_json, print_rows

    list(say_talk(_find(targets)))
    target = resolve(targets)

    def read() -> Any:
        frame = read_progress(target.study, target.experiment).drop_duplicates("run_id")
        return frame if target.run_ids is None else frame[frame["run_id"].isin(target.run_ids)]

    if watch:
        follow(read, live=sys.stderr.isatty(), refresh=lambda: refresh(target.study))
    frame = read()
    progress = measure(frame)
    if as_json:
        rows = _json_rows(frame, whereabouts(target.study)) if each else progress.groups
        print_json({"headline": headline(progress), "states": progress.states, "left_s": progress.left_s, "rows": rows})
        return
    rows = run_rows(frame, whereabouts(target.study)) if each else progress.groups
    print_rows(rows, empty="no runs; plan some with: scalewright plan")
    print(headline(progress))
    for line in advice(progress):
        say(f"scalewright: {line}")


def _find(targets: Sequence[str]) -> Study:
    from scalewright.orchestrator.cli.selection import find_study

    return find_study(targets)[0]


def _json_rows(frame: Any, places: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{**row, "where": places.get(row["run_id"])} for row in frame.to_dict("records")]


def run_rows(frame: Any, places: Mapping[str, str]) -> list[dict[str, Any]]:
    """Make one row a run for the table."""
    from scalewright.orchestrator.report.format import duration, short_count
    from scalewright.orchestrator.report.progress import newest_loss, reason_of

    return [
        {
            "run": row["run_id"][:8],
            "method": row["label"],
            "size": row["size"],
            "budget": row["budget"],
            "state": row["state"],
            "where": places.get(row["run_id"], "") if row["state"] in ("queued", "running", "unknown") else "",
            "tokens": f"{short_count(row['n_tokens'])}/{short_count(row['n_tokens_planned'])}",
            "loss": newest_loss([row]),
            "tokens/s": row["tokens_per_s"],
            "left": duration(row["left_s"]) if row["state"] in ("running", "queued") else "",
            "attempts": int(row["n_attempts"]),
            "why": reason_of(row, time.time()),
        }
        for row in frame.to_dict("records")
    ]


def stop_runs(targets: Sequence[str], why: "Why", *, now: bool = False) -> str:
    """Cancel or hold runs and say what became of them; `now` does not wait for a checkpoint."""
    from scalewright.fitting.words import counted
    from scalewright.orchestrator.cli.selection import resolve
    from scalewright.orchestrator.jobs.control import stop

    list(say_talk(_find(targets)))
    done = stop(resolve(targets), why, now=now)
    word = {"cancel": "cancelled", "hold": "held"}[why]
    parts = [f"{counted(done.n_now, 'run')} {word}"]
    if done.n_asked:
        parts.append(f"{done.n_asked} asked to stop at their next checkpoint")
    if done.n_over:
        parts.append(f"{done.n_over} were over already")
    if done.trouble:
        raise Partial(f"{', '.join(parts)}; {done.trouble}: repeat the command when the cluster answers")
    return ", ".join(parts)


def take_back_runs(targets: Sequence[str], states: Sequence[str]) -> str:
    """Let cancelled or held runs be submitted again, and say how many."""
    from scalewright.fitting.words import counted
    from scalewright.orchestrator.cli.selection import resolve
    from scalewright.orchestrator.jobs.control import take_back

    list(say_talk(_find(targets)))
    n = take_back(resolve(targets), states)
    return (
        f"{counted(n, 'run')} will go on with the next: scalewright submit" if n else f"no run is {' or '.join(states)}"
    )
