"""SLURM's own commands, called and parsed: one squeue and one sacct a look, whatever the number of jobs.

Knows the text those commands print (SLURM 20.11 and newer); nothing of runs. A command that fails says so in its Reply:
"the cluster did not answer" must never look like "the cluster has no such job".
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scalewright.orchestrator.talk import say

COMMENT = "scalewright:"
TIMEOUT_S = 60.0
LOOK_TIMEOUT_S = 15.0  # of a question whose answer a person waits for
SAID_AFTER_S = 3.0
CANCELLED_AT_ONCE = 500
SQUEUE_FIELDS = ("%i", "%T", "%r", "%N", "%k")
SACCT_FIELDS = ("JobID", "State", "ExitCode", "End", "NodeList", "Cluster", "Comment")


@dataclass(frozen=True)
class Reply:
    """What a command printed, or why it did not work."""

    ok: bool
    text: str
    error: str = ""


def call(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Reply:
    """Run one of SLURM's commands; a missing program, a timeout and a refusal are replies that are not ok."""
    env = os.environ | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    words = f"scalewright: asked {command[0]}, no answer yet; waiting {timeout_s:.0f} s at most"
    patience = threading.Timer(SAID_AFTER_S, say, [words])
    patience.daemon = True
    patience.start()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False, env=env
        )
    except FileNotFoundError:
        return Reply(False, "", f"{command[0]}: not found on this machine")
    except subprocess.TimeoutExpired:
        return Reply(False, "", f"{command[0]}: no answer in {timeout_s:.0f} s")
    finally:
        patience.cancel()
    error = " ".join(done.stderr.split())
    return Reply(
        done.returncode == 0, done.stdout, error or f"{command[0]}: exit {done.returncode}" * (done.returncode != 0)
    )


def is_late(reply: Reply) -> bool:
    """Tell a command that gave no answer in time from one that failed."""
    return not reply.ok and "no answer in" in reply.error


def has_slurm() -> bool:
    """Tell whether this machine has sbatch."""
    return shutil.which("sbatch") is not None


@dataclass(frozen=True)
class Queued:
    """One array element (or job) as squeue shows it."""

    job: str
    state: str
    reason: str
    nodes: str
    comment: str


@dataclass(frozen=True)
class Accounted:
    """One incarnation of an array element (or job) as sacct -D shows it; ended_at: seconds since 1970."""

    job: str
    state: str
    exit_code: str
    ended_at: float | None
    nodes: str
    cluster: str
    comment: str
    by: str = ""


def squeue() -> tuple[Reply, list[Queued]]:
    """List this user's jobs in one call, those that ended a short while ago too (as long as SLURM keeps them)."""
    reply = call(
        ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={'|'.join(SQUEUE_FIELDS)}"],
        LOOK_TIMEOUT_S,
    )
    return reply, list(parse_squeue(reply.text)) if reply.ok else []


def parse_squeue(text: str) -> Iterator[Queued]:
    """Yield the jobs of squeue's lines in SQUEUE_FIELDS, one for each array element; other lines are skipped."""
    for line in text.splitlines():
        fields = line.split("|", len(SQUEUE_FIELDS) - 1)
        if len(fields) == len(SQUEUE_FIELDS):
            job, state, reason, nodes, comment = (field.strip() for field in fields)
            for element in expand(job):
                yield Queued(element, state, reason, nodes, comment)


def sacct(job_ids: Iterable[str]) -> tuple[Reply, list[Accounted]]:
    """List every incarnation of the jobs (array ids, without elements) in one call; not ok without accounting."""
    ids = ",".join(sorted(set(job_ids), key=int))
    if not ids:
        return Reply(True, ""), []
    reply = call(
        [
            "sacct",
            "--duplicates",
            "--allocations",
            "--noheader",
            "--parsable2",
            f"--format={','.join(SACCT_FIELDS)}",
            f"--jobs={ids}",
        ],
        LOOK_TIMEOUT_S,
    )
    return reply, list(parse_sacct(reply.text)) if reply.ok else []


def parse_sacct(text: str) -> Iterator[Accounted]:
    """Yield the jobs of sacct's lines in SACCT_FIELDS, one for each array element, without steps."""
    for line in text.splitlines():
        fields = line.split("|", len(SACCT_FIELDS) - 1)
        if len(fields) != len(SACCT_FIELDS) or "." in fields[0]:
            continue
        job, state, exit_code, end, nodes, cluster, comment = fields
        word, _, by = state.partition(" by ")
        ended_at = float(end) if end.isdigit() else None
        for element in expand(job):
            yield Accounted(element, word.strip(), exit_code, ended_at, nodes, cluster, comment, by)


def expand(job: str) -> Iterator[str]:
    """Name every element of a pending array's line: `7_[1-3,5%2]` is 7_1, 7_2, 7_3 and 7_5."""
    array, bracket, rest = job.partition("_[")
    if not bracket:
        yield job
        return
    for part in rest.rstrip("]").partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdigit():
            for index in range(int(first), int(last or first) + 1, int(step or 1)):
                yield f"{array}_{index}"


def comment_uuid(comment: str) -> str | None:
    """Return the uuid of the chunk that a job's comment names, if this project submitted it."""
    found = re.search(rf"{COMMENT}([0-9a-f]+)", comment)
    return found[1] if found else None


def array_id(job: str) -> str:
    """Return the id that all elements of an array share."""
    return job.partition("_")[0]


@dataclass(frozen=True)
class Limits:
    """What a site allows: elements of an array, jobs of a user at once (None: no limit known)."""

    max_array_size: int = 1001
    max_submit_jobs: int | None = None
    accounting: bool = False
    cluster: str = "slurm"
    version: str = ""
    min_job_age_s: int = 300


def read_limits() -> Limits:
    """Ask the controller for its limits and sacctmgr for this user's.

    What cannot be learnt keeps its cautious default.
    """
    config = dict(_parse_config(call(["scontrol", "show", "config"]).text))
    accounting = config.get("AccountingStorageType", "").endswith("slurmdbd")
    return Limits(
        max_array_size=int(config.get("MaxArraySize") or 1001),
        max_submit_jobs=read_max_submit() if accounting else None,
        accounting=accounting,
        cluster=config.get("ClusterName", "slurm"),
        version=config.get("SLURM_VERSION", ""),
        min_job_age_s=int(re.match(r"\d+", config.get("MinJobAge") or "300")[0]),  # type: ignore[index]
    )


def _parse_config(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            yield key.strip(), value.strip()


def read_max_submit() -> int | None:
    """Return the smallest MaxSubmitJobs of this user's associations, None where none is set."""
    reply = call(
        [
            "sacctmgr",
            "--noheader",
            "--parsable2",
            "show",
            "association",
            f"user={_user_name()}",
            "format=MaxSubmitJobs",
        ],
        20.0,
    )
    limits = [int(line) for line in reply.text.split() if line.isdigit()]
    return min(limits, default=None)


def _user_name() -> str:
    import getpass

    return getpass.getuser()


def scancel(jobs: Sequence[str]) -> str:
    """Cancel jobs and array elements, those that are over already are no error; return what went wrong, or nothing."""
    parts = (jobs[start : start + CANCELLED_AT_ONCE] for start in range(0, len(jobs), CANCELLED_AT_ONCE))
    replies = [call(["scancel", *part]) for part in parts]
    return next((reply.error or "scancel failed" for reply in replies if not reply.ok), "")


def scontrol(*arguments: str) -> Reply:
    """Call scontrol within the usual time limit."""
    return call(["scontrol", *arguments])


def is_cancelled(job: str, restart: int) -> bool:
    """Tell whether a person cancelled a job that still runs its last seconds as its `restart`-th restart.

    The controller calls it COMPLETING, as it does a job that it preempts (then there is a PreemptTime), that ran out of
    time (then there is a reason) or that it has requeued already (then there is another restart). No answer: False.
    """
    said = dict(re.findall(r"(\S+?)=(\S*)", scontrol("--oneliner", "show", "job", job).text))
    ends = re.search(r"CANCELLED|COMPLETING", said.get("JobState", "")) is not None
    other = (said.get("PreemptTime", "None"), said.get("Reason", "None")) != ("None", "None")
    return ends and not other and said.get("Restarts", "0") == str(restart)
