"""Look at every job that may still run and write what became of its runs: the step after journals were synced.

One squeue and one sacct a look, for everything. Works from jobs/ and the run directories; the database gets the
verdicts.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalewright.db.engine import Database
from scalewright.db.errors import CannotWrite
from scalewright.db.frames import claims, strays
from scalewright.db.run_states import MAYBE_IN_A_JOB
from scalewright.db.store import claim_runs, set_run_states
from scalewright.orchestrator.files import Broken, is_there, read, usable
from scalewright.orchestrator.jobs.carrier import say_finished
from scalewright.orchestrator.jobs.executors.executor import find_executor
from scalewright.orchestrator.jobs.judge import Claim, JobFacts, Looked, Verdict, judge
from scalewright.orchestrator.jobs.records import (
    BatchStopped,
    Chunk,
    Failed,
    Pack,
    Submission,
    broken_files,
    copied_submissions,
    read_chunks,
    read_pack,
    runs_in,
)
from scalewright.orchestrator.runs.run_files import RunFacts, job_name, read_run
from scalewright.orchestrator.study import Study

LOST_STATES = ("planned", "interrupted", "running", "unknown")
ABANDONED_S = 600.0


@dataclass(frozen=True)
class Look:
    """What one look found: verdicts by run, and what a person should be told."""

    verdicts: list[Verdict]
    talk: list[str]


def refresh(study: Study) -> list[str]:
    """Bring the database up to date: read the journals, then look at the jobs. Returns what a person should be told.

    Where the database cannot be written (a full disk, an archive) that is said, and what is known can still be read.
    """
    from scalewright.orchestrator.sync.sync import sync

    try:
        receipt = sync(study)
        return [line for line in (receipt.notice, *look_at_jobs(study)) if line]
    except CannotWrite as why:
        return [str(why)]


def look_at_jobs(study: Study) -> list[str]:
    """Do the second half of `refresh` alone."""
    from scalewright.db.engine import open_database

    database = open_database(study.database)
    try:
        return observe(study, database).talk
    finally:
        database.close()


def observe(study: Study, database: Database) -> Look:
    """Judge every run whose job may still be there, write the changes, and close the chunks that are over."""
    lonely = take_in(study, database)
    claimed = {run_id: (state, submission) for run_id, state, submission in claims(database)}
    claimed |= {run_id: (state, "") for run_id, state in lonely.items()}
    if not claimed:
        return Look([], [])
    looked = ask_executors(study, chunks_to_look_at(study, claimed))
    verdicts: list[Verdict] = []
    for chunk in looked.chunks:
        found, n_open = judge_chunk(study, chunk, looked.facts, claimed)
        verdicts += found
        if n_open == 0 and not chunk.closed:
            close(study, chunk)
    left, copies = abandoned(study, claimed, looked.chunks)
    verdicts += left
    set_run_states(database, [(one.run_id, one.state, one.reason, one.evidence) for one in verdicts])
    return Look(verdicts, looked.talk + copies + _batch_messages(study, looked.chunks))


def take_in(study: Study, database: Database) -> dict[str, str]:
    """Give runs that a lost database no longer knows as submitted back to the submissions that still have them.

    Returns the states of runs that seem to be at work for nobody.
    """
    states = dict(strays(database))
    if not states:
        return {}
    for chunk in read_chunks(study.jobs_dir):
        mine = [run.name for name in chunk.packs for run in runs_in(study.jobs_dir, chunk.submission_id, name)]
        wanted = [run_id for run_id in mine if states.get(run_id) in LOST_STATES]
        if wanted:
            who = chunk.submission_id
            claim_runs(database, wanted, who, executor=chunk.executor, snapshot=None, states=LOST_STATES)
            states = {run_id: state for run_id, state in states.items() if run_id not in wanted}
    return {run_id: state for run_id, state in states.items() if state in MAYBE_IN_A_JOB}


def close(study: Study, chunk: Chunk) -> None:
    """Close a chunk that is over; with the last one of its submission, tell who asked to be told.

    Usually the last job has done that; this is for jobs that were killed and could not.
    """
    replace(chunk, closed=True).write(study.jobs_dir)
    mine = [other for other in read_chunks(study.jobs_dir) if other.submission_id == chunk.submission_id]
    pack = read_pack(study.jobs_dir, chunk.submission_id, chunk.packs[0])
    if not mine and isinstance(pack, Pack):
        say_finished(study.jobs_dir / chunk.submission_id, pack)


def chunks_to_look_at(study: Study, claimed: Mapping[str, tuple[str, str]]) -> list[Chunk]:
    """Choose the chunks that are not closed, and closed ones with a run that the database still takes for alive.

    That happens when the last lines of a journal came in only after its job was seen to be over.
    """
    alive = {submission for state, submission in claimed.values() if state in MAYBE_IN_A_JOB}
    chunks = read_chunks(study.jobs_dir, closed=True)
    return [chunk for chunk in chunks if not chunk.closed or chunk.submission_id in alive]


def ask_executors(study: Study, chunks: Sequence[Chunk]) -> Looked:
    """Ask each executor once; chunks whose job was found in the meantime come back with it."""
    whole = Looked({}, [], [])
    for name in dict.fromkeys(chunk.executor for chunk in chunks):
        mine = [chunk for chunk in chunks if chunk.executor == name]
        one = find_executor(name).look(study.jobs_dir, mine)
        whole = Looked(whole.facts | one.facts, whole.chunks + one.chunks, whole.talk + one.talk)
    return whole


def judge_chunk(
    study: Study,
    chunk: Chunk,
    facts: Mapping[tuple[str, str], JobFacts],
    claimed: Mapping[str, tuple[str, str]],
) -> tuple[list[Verdict], int]:
    """Judge the runs of a chunk that are still claimed by its submission; count those that may yet change."""
    verdicts: list[Verdict] = []
    n_open = 0
    for name in chunk.packs:
        job = facts.get((chunk.uuid, name), JobFacts("unreachable"))
        for run_dir, claim in _claims_of_pack(study, chunk, name):
            if claimed.get(run_dir.name, ("", ""))[1] != chunk.submission_id:
                continue
            verdict = judge(read_run(run_dir), job, claim, time.time())
            verdicts += [verdict] if verdict else []
            n_open += verdict is None or verdict.state in MAYBE_IN_A_JOB
        n_open += job.state in ("pending", "running")
    return verdicts, n_open


def _claims_of_pack(study: Study, chunk: Chunk, name: str) -> Iterator[tuple[Path, Claim]]:
    submission_dir = study.jobs_dir / chunk.submission_id
    stopped = usable(submission_dir / "batch_stopped.json", BatchStopped)
    failed = usable(submission_dir / name / "failed.json", Failed)
    claim = Claim(
        submission_id=chunk.submission_id,
        pack=name,
        cluster=chunk.cluster,
        job_id=chunk.job_of(name),
        created=chunk.created,
        batch_stopped=stopped.message if stopped else None,
        raised=failed.error if failed else None,
        started=is_there(submission_dir / name / "started.json"),
    )
    for run_dir in runs_in(study.jobs_dir, chunk.submission_id, name):
        yield run_dir, claim


def abandoned(
    study: Study,
    claimed: Mapping[str, tuple[str, str]],
    chunks: Sequence[Chunk],
) -> tuple[list[Verdict], list[str]]:
    """Judge the runs that are in no job that is known here; say where this study is a copy.

    Those whose submission died before it made a job are free, and so are those whose jobs are another study's; where a
    record of jobs cannot be used they may have one still. Of the others only their own files can tell.
    """
    in_chunks = {
        run.name
        for chunk in chunks
        for name in chunk.packs
        for run in runs_in(study.jobs_dir, chunk.submission_id, name)
    }
    left = {run: at for run, at in claimed.items() if at[0] in MAYBE_IN_A_JOB and run not in in_chunks}
    if not left:
        return [], []
    broken = broken_files(study.jobs_dir)
    copied = copied_submissions(study.jobs_dir, {submission for _, submission in left.values() if submission})
    found: list[Verdict | None] = []
    for run_id, (state, submission) in left.items():
        run = read_run(study.run_dir(run_id))
        if submission in copied:
            found.append(
                judge_alone(run, JobFacts("ended", "", f"submitted in {copied[submission]}, not in this copy"))
            )
        elif submission in broken:
            found.append(judge_unseen(run, broken[submission].within(study.root)))
        elif is_dead(study, submission) and state == "claimed" and run.done is None:
            found.append(Verdict(run_id, "interrupted", "its submission ended before the job was made", {}))
        elif is_dead(study, submission):
            found.append(judge_alone(run, JobFacts("absent")))
    places = sorted(set(copied.values()))
    there = "jobs submitted there are neither followed nor ended here"
    talk = [f"this study is a copy of {place}: {there}" for place in places]
    return [verdict for verdict in found if verdict is not None], talk


def judge_unseen(run: RunFacts, trouble: str) -> Verdict | None:
    """Judge a run whose job nobody can ask for, because its record is broken: what it does itself still counts."""
    seen = judge_alone(run, JobFacts("unreachable"))
    why = f"{trouble}; it may have a job still: `retry` when you know that it has none"
    return seen or Verdict(run.run_id, "unknown", why, {})


def judge_alone(run: RunFacts, facts: JobFacts) -> Verdict | None:
    """Judge a run of whose job no record is left, or none that counts here."""
    job = (run.newest.job if run.newest else None) or {}
    claim = Claim("", "", job.get("cluster"), job_name(job), 0.0, started=run.newest is not None)
    return judge(run, facts, claim, time.time())


def is_dead(study: Study, submission_id: str) -> bool:
    """Tell whether whoever made a submission is gone; of another machine, after a while without a job."""
    record = read(study.jobs_dir / submission_id / "submission.json", Submission)
    if record is None or isinstance(record, Broken):  # of one whose record broke: its chunks would tell
        return True
    alive = record.submitter.is_alive()
    return time.time() - record.created > ABANDONED_S if alive is None else not alive


def _batch_messages(study: Study, chunks: Sequence[Chunk]) -> list[str]:
    folders = {study.jobs_dir / chunk.submission_id for chunk in chunks}
    records = (usable(folder / "batch_stopped.json", BatchStopped) for folder in folders)
    return sorted({record.message for record in records if record})
