"""The resource part of an experiments.yaml: profiles, the rules that pick one, retries. Knows no cluster."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scalewright.orchestrator.config.section import (
    Count,
    Duration,
    Options,
    Positive,
    Section,
    Text,
    Texts,
    Whole,
    read_list,
)
from scalewright.orchestrator.config.values import choose, read_duration_s, read_positive_count

EXECUTORS = ("local", "slurm", "debug")


def read_time(value: Any) -> float | None:
    """Read a wall time in seconds; `auto` is None: from measured throughput."""
    return None if value is None or value == "auto" else read_duration_s(value)


def read_pack(value: Any) -> int | None:
    """Read how many runs one job trains; `auto` is None: the executor balances by planned time."""
    return None if value is None or value == "auto" else read_positive_count(value)


class Profile(Section):
    """What one job asks of the site. None means: not asked, the site's default.

    pack: runs a job trains one after another; at_once: how many of them at a time. micro_batch: sequences that a device
    holds at once, the rest of the batch is accumulated. flops_per_s: assumed speed of a device, until one is measured.
    """

    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    gpus: Whole = 0
    cpus: Count = 1
    mem: Text | None = None
    time_s: Annotated[float | None, BeforeValidator(read_time)] = Field(default=None, alias="time")
    setup: Texts = ()
    sbatch: Options = {}
    pack: Annotated[int | None, BeforeValidator(read_pack)] = None
    at_once: Count = 1
    devices: Count = 1
    threads: Count = 1
    micro_batch: Count | None = None
    flops_per_s: Positive | None = None


class ProfileRule(Section):
    """Runs that meet every condition given use the profile named; the first rule that fits wins."""

    use: Text
    sizes: Texts | None = None
    methods: Texts | None = None
    min_params: Whole | None = None
    max_params: Whole | None = None

    def fits(self, *, size: str, label: str, n_params: int) -> bool:
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
        return self.profiles.get(name) or Profile()


class Retry(Section):
    """How often a run is tried again. Attempts that advanced tokens are free; `errors` counts those that did not."""

    errors: Whole = 1
    same_error: Count = 5
    hang_s: Duration = Field(default=1800.0, alias="hang")


def read_executor(value: Any) -> str:
    return choose(value, EXECUTORS, "executor")


Executor = Annotated[str, BeforeValidator(read_executor)]
