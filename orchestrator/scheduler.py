"""Which runs share a job, and in which order jobs start. Pure: no file, no clock, no cluster."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.config_resources import Profile


@dataclass(frozen=True)
class Work:
    """A run to be done: its planned seconds (None: unknown) and the resource profile it goes with."""

    run_id: str
    run_dir: str
    wall_s: float | None = None
    profile: str = ""
    flops: float = 0.0

    @property
    def cost(self) -> float:
        """Seconds where they are planned, else FLOPs: only the order and the proportions matter."""
        return self.wall_s if self.wall_s is not None else self.flops or 1.0


@dataclass(frozen=True)
class NamedPack:
    """One job to be: its name, its runs (cheap first) and the profile it asks for."""

    name: str
    work: tuple[Work, ...]
    profile_name: str
    profile: Profile

    @property
    def wall_s(self) -> float:
        """Planned seconds of the job; the lanes of a pack run side by side."""
        return sum(one.wall_s or 0.0 for one in self.work) / self.profile.at_once


def cheap_first(work: Sequence[Work]) -> list[Work]:
    return sorted(work, key=lambda one: (one.cost, one.run_id))


def balance(work: Sequence[Work], n_packs: int) -> list[list[Work]]:
    """Deal runs to at most `n_packs` packs of about equal cost (longest first to the emptiest), each cheap first."""
    heap = [(0.0, index) for index in range(min(n_packs, len(work)))]
    packs: list[list[Work]] = [[] for _ in heap]
    for one in reversed(cheap_first(work)):
        total, index = heapq.heappop(heap)
        packs[index].append(one)
        heapq.heappush(heap, (total + one.cost, index))
    return [cheap_first(pack) for pack in packs]


def group(work: Sequence[Work], n_runs: int) -> list[list[Work]]:
    """Put every `n_runs` consecutive runs, cheap first, into one pack: packs as alike as their runs."""
    ordered = cheap_first(work)
    return [ordered[start : start + n_runs] for start in range(0, len(ordered), n_runs)]


def by_profile(work: Sequence[Work]) -> dict[str, list[Work]]:
    """Sort runs into resource classes, the class with the cheapest run first."""
    classes: dict[str, list[Work]] = {}
    for one in cheap_first(work):
        classes.setdefault(one.profile, []).append(one)
    return classes


def chunks(n_jobs: int, largest: int) -> list[range]:
    """Cut `n_jobs` array elements into arrays of at most `largest`."""
    return [range(start, min(start + largest, n_jobs)) for start in range(0, n_jobs, largest)]
