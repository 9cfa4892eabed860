"""The resource part of an experiments.yaml: profiles, the rules that pick one, retries. Knows no cluster."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from scalewright.orchestrator.config.section import (
    Count,
    Duration,
    Positive,
    Section,
    Text,
    Texts,
    Whole,
    read_list,
    read_options,
)
from scalewright.orchestrator.config.values import choose, read_duration_s, read_positive_count, show
from scalewright.orchestrator.runs.run_files import ERRORS_ALLOWED, HANG_S, SAME_ERROR_RUNS


@dataclass(frozen=True)
class ExecutorFacts:
    """What plans and their bill know of an executor.

    on_this_machine: its jobs run here; shares_cores: side by side.
    """

    on_this_machine: bool = False
    shares_cores: bool = False


# What each does lies in the module of its name in orchestrator/jobs/executors.
EXECUTORS: dict[str, ExecutorFacts] = {
    "local": ExecutorFacts(on_this_machine=True, shares_cores=True),
    "slurm": ExecutorFacts(),
    "debug": ExecutorFacts(on_this_machine=True),
}
DEFAULT_EXECUTOR = "local"


def read_time(value: Any) -> float | None:
    """Read a wall time in seconds; `auto` is None: from measured throughput."""
    return None if value is None or value == "auto" else read_duration_s(value)


MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
# Options of sbatch that jobs depend on, and what sets them instead.
OWN_OPTIONS: dict[str, str] = {
    "array": "the runs of the grid make the array",
    "comment": "a job whose reply was lost is found by it",
    "output": "logs lie in jobs/SUBMISSION/logs",
    "error": "logs lie in jobs/SUBMISSION/logs",
    "open-mode": "logs are appended to",
    "signal": "a run saves a checkpoint on it",
    "requeue": "a preempted run goes on by it; how often an error is tried again: `retry:`",
    "no-requeue": "a preempted run goes on by being requeued; how often an error is tried again: `retry:`",
    "job-name": "jobs are found by it",
    "wrap": "the job's program is scalewright's",
    "test-only": "see what would be submitted with: scalewright plan",
    "wait": "follow jobs with: scalewright status --watch",
    "nodes": "a job runs on one node; several devices: `devices:`",
    "ntasks": "`devices:` and `at_once:` decide it",
    "ntasks-per-node": "`devices:` and `at_once:` decide it",
    "time": "write `time:` beside `sbatch:`",
    "partition": "write `partition:` beside `sbatch:`",
    "account": "write `account:` beside `sbatch:`",
    "qos": "write `qos:` beside `sbatch:`",
    "constraint": "write `constraint:` beside `sbatch:`",
    "mem": "write `mem:` beside `sbatch:`",
    "gpus-per-node": "write `gpus:` beside `sbatch:`",
    "cpus-per-task": "write `cpus:` beside `sbatch:`",
}


def read_memory(value: Any) -> str | None:
    """Read memory with its unit, as sbatch takes it: `8G`, `8 GiB`, `512M`; a bare number is refused, 0 means all."""
    if value is None:
        return None
    text = str(value).strip()
    match = MEMORY.fullmatch(text)
    if match and float(match[1]) > 0:
        number = float(match[1])
        kib = number * 1024 ** "KMGT".index(match[2].upper())
        return f"{number:.0f}{match[2].upper()}" if number == int(number) else f"{math.ceil(kib)}K"
    if text == "0":
        return text
    hint = f"; sbatch would take {text} for megabytes" if text.isdigit() else ""
    raise ValueError(f"{show(value)} is no amount of memory; write for example 8G or 512M{hint}")


def read_sbatch(value: Any) -> dict[str, Any]:
    """Read options of sbatch by name, except those that jobs depend on."""
    options = read_options(value)
    for key in options:
        why = OWN_OPTIONS.get(key.lower().replace("_", "-"))
        if why:
            raise PydanticCustomError("own_option", "{message}", {"key": key, "message": f"set by scalewright: {why}"})
    return options


def read_pack(value: Any) -> int | None:
    """Read how many runs one job trains; `auto` is None: the executor balances by planned time."""
    return None if value is None or value == "auto" else read_positive_count(value)


class Profile(Section):
    """What one job asks of the site. None means: not asked, the site's default.

    pack: runs a job trains one after another; at_once: how many of them at a time. micro_batch: sequences that a device
    holds at once, the rest of the batch is accumulated. flops_per_s: assumed speed of a device, until one is measured.
    price: of a GPU hour, in any currency.
    """

    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    gpus: Whole = 0
    cpus: Count = 1
    mem: Annotated[str | None, BeforeValidator(read_memory)] = None
    time_s: Annotated[float | None, BeforeValidator(read_time)] = Field(default=None, alias="time")
    setup: Texts = ()
    sbatch: Annotated[dict[str, Any], BeforeValidator(read_sbatch)] = {}
    pack: Annotated[int | None, BeforeValidator(read_pack)] = None
    at_once: Count = 1
    devices: Count = 1
    threads: Count = 1
    micro_batch: Count | None = None
    flops_per_s: Positive | None = None
    price: Positive | None = None


DEFAULT_PROFILE = Profile()


class ProfileRule(Section):
    """Runs that meet every condition given use the profile named; the first rule that fits wins."""

    use: Text
    sizes: Texts | None = None
    methods: Texts | None = None
    min_params: Whole | None = None
    max_params: Whole | None = None

    def fits(self, *, size: str, label: str, n_params: int) -> bool:
        """Tell whether the rule holds for a run; a condition that is not given holds for all."""
        return (
            (self.sizes is None or size in self.sizes)
            and (self.methods is None or label in self.methods)
            and (self.min_params is None or n_params >= self.min_params)
            and (self.max_params is None or n_params <= self.max_params)
        )


class Resources(Section):
    """Named profiles and the rules that pick one; without rules the first profile serves every run."""

    profiles: dict[str, Profile] = {}
    rules: Annotated[tuple[ProfileRule, ...], BeforeValidator(read_list)] = ()

    def pick(self, *, size: str, label: str, n_params: int) -> str:
        """Return the name of the profile for a run; `default` where none is declared."""
        for rule in self.rules:
            if rule.fits(size=size, label=label, n_params=n_params):
                return rule.use
        return next(iter(self.profiles), "default")

    def profile(self, name: str) -> Profile:
        """Return a declared profile, or the plain one of a name that nobody declared."""
        return self.profiles.get(name, DEFAULT_PROFILE)


class Retry(Section):
    """How often a run is tried again. Attempts that advanced tokens are free; `errors` counts those that did not."""

    errors: Whole = ERRORS_ALLOWED
    same_error: Count = SAME_ERROR_RUNS
    hang_s: Duration = Field(default=HANG_S, alias="hang")


def read_executor(value: Any) -> str:
    """Read the name of an executor."""
    return choose(value, list(EXECUTORS), "executor")


Executor = Annotated[str, BeforeValidator(read_executor)]
