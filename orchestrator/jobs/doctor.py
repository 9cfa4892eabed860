"""Is this machine, or its cluster, fit for runs? Each finding says what was looked at, what was found and what to do.

Knows SLURM's commands and the file system; starts at most one short job, and only when asked to.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from scalewright.fitting.words import counted
from scalewright.orchestrator.files import require
from scalewright.orchestrator.jobs import slurm_commands as commands
from scalewright.orchestrator.jobs.doctor_probe import Probe
from scalewright.orchestrator.jobs.executors import local

GOOD, NOTE, BAD = "ok", "note", "bad"
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun")
NEEDED_FREE_GB = 2.0
LARGEST_SKEW_S = 2.0
PROBE_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it stands (ok, note, bad), what was found, and what to do."""

    what: str
    level: str
    found: str
    do: str = ""


def examine(folder: Path, *, probe: bool = False) -> list[Finding]:
    """Look at this machine and, where SLURM is there, at its cluster; `probe` sends one short job through it."""
    findings = [*machine(), *storage(folder)]
    if not commands.has_slurm():
        return [*findings, Finding("SLURM", NOTE, "not on this machine", "runs go to this machine (--executor local)")]
    findings += cluster()
    if probe:
        findings += job_probe(folder)
    else:
        findings.append(
            Finding("a job", NOTE, "not tried", "scalewright doctor --probe sends one short job through the cluster")
        )
    return findings


def machine() -> Iterator[Finding]:
    """Python, cores and GPUs of this machine."""
    version = ".".join(map(str, sys.version_info[:3]))
    fit = sys.version_info >= (3, 11)
    yield Finding("Python", GOOD if fit else BAD, version, "" if fit else "use Python 3.11 or newer")
    yield Finding(
        "cores", GOOD, f"{_n_cores()} usable here", f"a local submission starts {counted(_n_cores(), 'job')} at once"
    )
    gpus = local.n_gpus()
    yield Finding("GPUs", GOOD if gpus else NOTE, f"{gpus} here", "" if gpus else "runs train on the CPU here")


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def storage(folder: Path) -> Iterator[Finding]:
    """The file system of the study: its kind, free space, atomic renames, locks, hard links, and its clock."""
    from scalewright.db.filesystem import filesystem_type, is_network

    kind = filesystem_type(folder) or "unknown"
    network = is_network(folder)
    words = "every node must see this folder under the same path" if commands.has_slurm() else ""
    yield Finding("file system", NOTE if network else GOOD, f"{kind}{' (network)' if network else ''}", words)
    free_gb = shutil.disk_usage(folder).free / 1e9
    enough = free_gb > NEEDED_FREE_GB
    yield Finding(
        "free space", GOOD if enough else BAD, f"{free_gb:.1f} GB", "" if enough else "make room before submitting"
    )
    for name, check in FILE_CHECKS.items():
        yield try_in_folder(folder, name, check)


def try_in_folder(folder: Path, name: str, check: Callable[[Path], str]) -> Finding:
    """Run a check in a scratch folder; what the system refuses is a finding, not an error."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as scratch:
            trouble = check(Path(scratch))
    except OSError as refused:
        trouble = refused.strerror or str(refused)
    return Finding(
        name, BAD if trouble else GOOD, trouble or "works", f"use another folder than {folder}" if trouble else ""
    )


def _renames(scratch: Path) -> str:
    (scratch / "a").write_text("new")
    (scratch / "b").write_text("old")
    (scratch / "a").replace(scratch / "b")
    return "" if (scratch / "b").read_text() == "new" else "a rename does not replace the old file"


def _locks(scratch: Path) -> str:
    import fcntl

    with (scratch / "lock").open("w") as one, (scratch / "lock").open("w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "two processes can hold one lock"


def _links(scratch: Path) -> str:
    (scratch / "a").write_text("x")
    os.link(scratch / "a", scratch / "b")
    try:
        os.link(scratch / "a", scratch / "b")
    except FileExistsError:
        return ""
    return "a hard link replaces an existing file"


def _clock(scratch: Path) -> str:
    (scratch / "now").write_text("")
    skew = (scratch / "now").stat().st_mtime - time.time()
    return f"the file server's clock is {skew:+.1f} s off" if abs(skew) > LARGEST_SKEW_S else ""


FILE_CHECKS: dict[str, Callable[[Path], str]] = {
    "atomic rename": _renames,
    "file locks": _locks,
    "hard links": _links,
    "file clock": _clock,
}


# --- the cluster -----------------------------------------------------------------------------------------------------


def cluster() -> Iterator[Finding]:
    """SLURM's commands from here, its limits, and what this project relies on."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    yield Finding(
        "SLURM's commands",
        BAD if missing else GOOD,
        f"missing: {', '.join(missing)}" if missing else "all here",
        "load the site's SLURM module" if missing else "",
    )
    ping = commands.scontrol("ping")
    yield Finding(
        "controller",
        GOOD if ping.ok else BAD,
        _first_line(ping.text) if ping.ok else last_words(ping.error),
        "" if ping.ok else "ask the site; submitting will fail",
    )
    if not ping.ok:
        return
    queue, _ = commands.squeue()
    yield Finding(
        "squeue",
        GOOD if queue.ok else BAD,
        "answers" if queue.ok else queue.error,
        "" if queue.ok else "states cannot be read",
    )
    limits = commands.read_limits()
    yield _accounting(limits)
    yield Finding("MaxArraySize", GOOD, f"{limits.max_array_size}", "larger submissions are cut into several arrays")
    most = limits.max_submit_jobs
    yield Finding(
        "jobs of yours at once",
        GOOD if most is None else NOTE,
        "no limit known" if most is None else f"{most}",
        "" if most is None else "what does not fit waits for the next submit; a larger `pack:` helps",
    )
    yield Finding("MinJobAge", *_min_job_age(limits))
    yield from partitions()
    yield Finding("SLURM_CONF", GOOD, os.environ.get("SLURM_CONF", "the default"), "jobs inherit it")


def _accounting(limits: commands.Limits) -> Finding:
    reply, _ = commands.sacct(["1"])
    if reply.ok:
        return Finding("sacct", GOOD, "answers")
    return Finding(
        "sacct",
        NOTE,
        reply.error,
        "works without: ends of jobs are then known from files and squeue; sync at least once in MinJobAge",
    )


def _min_job_age(limits: commands.Limits) -> tuple[str, str, str]:
    short = limits.min_job_age_s < 120 and not limits.accounting
    return (
        (NOTE if short else GOOD),
        f"{limits.min_job_age_s} s",
        "ask for 300 s: ended jobs vanish before they are seen" if short else "",
    )


def partitions() -> Iterator[Finding]:
    """One line a partition: nodes, time limit, GPUs, and how it preempts."""
    reply = commands.call(["sinfo", "--noheader", "--format=%P|%a|%D|%l|%G"])
    for line in reply.text.splitlines():
        name, available, nodes, limit, gres = [*line.split("|"), "", "", "", ""][:5]
        words = f"{nodes} nodes, limit {limit}" + (f", {gres}" if gres not in ("", "(null)") else "")
        yield Finding(
            f"partition {name}", GOOD if available == "up" else NOTE, words, "" if available == "up" else "it is not up"
        )
    modes = [line for line in commands.scontrol("show", "config").text.splitlines() if line.startswith("PreemptMode")]
    if modes:
        mode = modes[0].partition("=")[2].strip()
        yield Finding(
            "preemption", GOOD, mode, "a preempted job saves, requeues itself and goes on" if "REQUEUE" in mode else ""
        )


def last_words(error: str) -> str:
    """Keep what a command said last of the several complaints that it prints."""
    return re.split(r"(?:error|fatal): ", error)[-1].strip()


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


# --- a job through the cluster ---------------------------------------------------------------------------------------

PROBE = """#!/bin/bash
#SBATCH --job-name=scalewright-doctor
#SBATCH --output={folder}/log
#SBATCH --open-mode=append
#SBATCH --time=5
#SBATCH --signal=USR2@90
#SBATCH --requeue
export PYTHONPATH={root} PYTHONSAFEPATH=1
srun --output={folder}/log --open-mode=append {python} -m scalewright.orchestrator.jobs.doctor_probe {folder}
"""


def job_probe(folder: Path) -> Iterator[Finding]:
    """Send a job that signals itself, requeues itself and reports from its second life."""
    from scalewright.orchestrator.code import code_root

    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as scratch:
        script = Path(scratch) / "probe.sh"
        script.write_text(PROBE.format(folder=scratch, root=code_root(), python=sys.executable))
        sent = time.time()
        reply = commands.call(["sbatch", "--parsable", str(script)])
        if not reply.ok:
            yield Finding(
                "a job", BAD, reply.error, "a plain job is refused: give a profile with the partition and account"
            )
            return
        job = reply.text.strip().partition(";")[0]
        yield from _read_probe(Path(scratch), job, sent)
        commands.scancel([job])


def _read_probe(scratch: Path, job: str, sent: float) -> Iterator[Finding]:
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    report = scratch / "report.json"
    while not report.exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    if not report.exists():
        log = scratch / "log"
        said = log.read_text(errors="replace")[-200:] if log.exists() else "nothing"
        yield Finding(
            "a job", BAD, f"job {job} did not report in {PROBE_TIMEOUT_S:.0f} s; it said: {said!r}", "see: squeue --me"
        )
        return
    found = require(report, Probe)
    yield Finding("a job", GOOD, f"ran on {found.host}, back after a requeue in {time.time() - sent:.0f} s")
    yield Finding(
        "signal in a job",
        *_good_or("USR2 arrives", found.signal, "the site blocks signals: checkpoints are by time only"),
    )
    lost = [name for name, there in found.commands.items() if not there]
    yield Finding(
        "SLURM from a job",
        *_good_or("all commands answer", not lost, f"{', '.join(lost)} missing: requeue by the site only"),
    )
    skew = found.clock_skew_s
    yield Finding(
        "clock of the node",
        *_good_or(f"{skew:+.1f} s", abs(skew) < LARGEST_SKEW_S, f"{skew:+.1f} s off: ask the site for NTP"),
    )


def _good_or(words: str, good: bool, trouble: str) -> tuple[str, str, str]:
    return (GOOD, words, "") if good else (BAD, trouble.partition(":")[0], trouble.partition(":")[2].strip())


def print_findings(findings: Iterable[Finding], *, as_json: bool) -> None:
    """Print what was tried and how it went, as a table or JSON."""
    from scalewright.orchestrator.report.tables import print_rows

    print_rows([asdict(finding) for finding in findings], as_json=as_json)
