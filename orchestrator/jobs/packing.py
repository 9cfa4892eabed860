"""Which runs share a job, and in which order jobs start. Pure: no file, no clock, no cluster."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from scalewright.orchestrator.config.resources import Profile


@dataclass(frozen=True)
class Work:
    """A run to be done: its planned seconds (None: unknown) and the resource profile it goes with."""

    run_id: str
    run_dir: str
    wall_s: float | None = None
    profile: str = ""
    flops: float = 0.0
    trunk: str = ""  # runs of one trunk go one after another, the longest first: the others begin where it was

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


@dataclass(frozen=True)
class Turn:
    """How an array takes part in `max_parallel`: its jobs at once, and in whose lane it waits for its turn."""

    throttle: int | None
    lane: int


def cheap_first(work: Sequence[Work]) -> list[Work]:
    """Sort by cost; equal ones by id, so that every submission sorts alike."""
    return sorted(work, key=lambda one: (one.cost, one.run_id))


def bundles(work: Sequence[Work]) -> list[list[Work]]:
    """Put runs of one trunk together, the dearest first, and every other run alone; cheap bundles first."""
    found: dict[str, list[Work]] = {}
    for one in reversed(cheap_first(work)):
        found.setdefault(one.trunk or one.run_id, []).append(one)
    return sorted(found.values(), key=lambda bundle: (_cost(bundle), bundle[0].run_id))


def in_order(work: Sequence[Work]) -> list[Work]:
    """Sort the runs of one job: cheap first, and each trunk before what grows on it."""
    return [one for bundle in bundles(work) for one in bundle]


def _cost(work: Sequence[Work]) -> float:
    return sum(one.cost for one in work)


def balance(work: Sequence[Work], n_packs: int) -> list[list[Work]]:
    """Deal runs to at most `n_packs` packs of about equal cost (longest first to the emptiest), each cheap first."""
    whole = bundles(work)
    heap = [(0.0, index) for index in range(min(n_packs, len(whole)))]
    packs: list[list[Work]] = [[] for _ in heap]
    for bundle in reversed(whole):
        total, index = heapq.heappop(heap)
        packs[index] += bundle
        heapq.heappush(heap, (total + _cost(bundle), index))
    return [in_order(pack) for pack in packs]


def group(work: Sequence[Work], n_runs: int) -> list[list[Work]]:
    """Put every `n_runs` consecutive runs, cheap first, into one pack: packs as alike as their runs; trunks whole."""
    packs: list[list[Work]] = []
    for bundle in bundles(work):
        if packs and len(packs[-1]) + len(bundle) <= n_runs:
            packs[-1] += bundle
        else:
            packs.append(list(bundle))
    return packs


def by_profile(work: Sequence[Work]) -> dict[str, list[Work]]:
    """Sort runs into resource classes, the class with the cheapest run first."""
    classes: dict[str, list[Work]] = {}
    for one in cheap_first(work):
        classes.setdefault(one.profile, []).append(one)
    return classes


def chunks(n_jobs: int, largest: int) -> list[range]:
    """Cut `n_jobs` array elements into arrays of at most `largest`."""
    return [range(start, min(start + largest, n_jobs)) for start in range(0, n_jobs, largest)]


def take_turns(arrays: Sequence[Sequence[NamedPack]], n_places: int | None) -> list[Turn]:
    """Deal `n_places` to arrays so that never more jobs run at once, however many arrays there are.

    Arrays of a resource class share a lane, and so do classes where there are fewer places than classes; the arrays of
    a lane run one after another. Each lane has a place; the others go where the most work is for each.
    """
    classes = list(dict.fromkeys(array[0].profile_name for array in arrays))
    if n_places is None:
        return [Turn(None, classes.index(array[0].profile_name)) for array in arrays]
    n_lanes = min(len(classes), n_places)
    lanes = [classes.index(array[0].profile_name) % n_lanes for array in arrays]
    places = deal_places(arrays, lanes, n_places)
    return [Turn(min(places[lane], len(array)), lane) for array, lane in zip(arrays, lanes, strict=True)]


def deal_places(arrays: Sequence[Sequence[NamedPack]], lanes: Sequence[int], n_places: int) -> dict[int, int]:
    """Return the places of each lane, no more than it has jobs at once."""
    places = dict.fromkeys(lanes, 1)
    cost, widest = dict.fromkeys(lanes, 0.0), dict.fromkeys(lanes, 0)
    for array, lane in zip(arrays, lanes, strict=True):
        cost[lane] += sum(one.cost for pack in array for one in pack.work)
        widest[lane] = max(widest[lane], len(array))
    while sum(places.values()) < n_places and (open_ := [lane for lane in places if places[lane] < widest[lane]]):
        places[max(open_, key=lambda lane: cost[lane] / places[lane])] += 1
    return places
