"""Experiment -> points: the product of each group's axes, its zipped axes in step, without what is excluded."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from scalewright.orchestrator.config.axes import AXES, Group, Selector
from scalewright.orchestrator.config.check import condition_kinds
from scalewright.orchestrator.config.experiment import Experiment

MAX_POINTS = 100_000  # more than a day of writing their folders
SCALARS = (int, float, str, type(None))


@dataclass(frozen=True)
class Point:
    """One cell of the grid by the names of the YAML; `lr` None means: by the rule. `overrides` is sorted by key."""

    size: str
    budget: str
    method: str
    seed: int
    batch: int
    context: int
    precision: str
    lr: float | None
    lr_factor: float
    overrides: tuple[tuple[str, Any], ...] = ()
    group: str = ""
    holdout: bool = False

    def values(self) -> dict[str, Any]:
        """Return the value of each axis, which is what selectors look at."""
        return {axis: getattr(self, axis) for axis in AXES} | dict(self.overrides)

    def place(self) -> tuple[Any, ...]:
        """Return what makes two points the same one, whatever group they come from."""
        return (*(getattr(self, axis) for axis in AXES), self.overrides)


Facts = Callable[[Point, Collection[str]], Mapping[str, Any]]  # numbers of a point by their names in conditions


def no_facts(point: Point, names: Collection[str]) -> Mapping[str, Any]:
    """Know no number of a point: enough where no condition speaks of one."""
    return {}


def expand(experiment: Experiment, facts: Facts = no_facts) -> list[Point]:
    """Return the points in the order of the groups, each once; raise UserError when nothing is left."""
    defaults = _declared_axes(experiment)
    points: dict[tuple[Any, ...], Point] = {}
    for place, group in enumerate(experiment.grid):
        _check_zip(experiment, group, place)
        candidates = [_point_of(values, group, place) for values in _group_values(experiment, group, defaults, place)]
        for point in _kept_points(experiment, group, candidates, facts):
            earlier = points.get(point.place(), point)
            points[point.place()] = replace(earlier, holdout=True) if point.holdout else earlier
    if not points:
        key = "exclude" if experiment.exclude or not experiment.when else "when"
        raise experiment.source.error((key,), "leaves no point of the grid")
    return list(points.values())


def _kept_points(experiment: Experiment, group: Group, candidates: list[Point], facts: Facts) -> Iterator[Point]:
    """Yield the points that meet every `when` and no `exclude`, marked as held out where a selector says so."""
    exclude, holdout = (*experiment.exclude, *group.exclude), experiment.holdout
    when = (*experiment.when, *group.when)
    left = [(point, point.values()) for point in candidates]
    left = [(point, values) for point, values in left if not any(one.matches(values) for one in exclude)]
    asked = [_conditions_of(exclude), _conditions_of(holdout), when]
    met = _which_hold([one for each in asked for one in each], [point for point, _ in left], experiment, facts)
    n_out, n_held = len(asked[0]), len(asked[0]) + len(asked[1])
    for (point, values), holds in zip(left, met, strict=True):
        if any(holds[:n_out]) or not all(holds[n_held:]):
            continue
        held = point.holdout or any(holds[n_out:n_held]) or any(one.matches(values) for one in holdout)
        yield replace(point, holdout=True) if held and not point.holdout else point


def _conditions_of(selectors: Iterable[Selector]) -> list[str]:
    return [one.condition for one in selectors if one.condition is not None]


def _which_hold(
    conditions: Sequence[str], points: Sequence[Point], experiment: Experiment, facts: Facts
) -> list[tuple[bool, ...]]:
    """Tell of each point which conditions it meets."""
    if not conditions:
        return [()] * len(points)
    from scalewright.db.where import names_in, which_meet

    kinds = condition_kinds(experiment)
    names = names_in(conditions, kinds)
    return which_meet(
        conditions, (_named_values(point, names, facts) for point in points), {n: kinds[n] for n in names}
    )


def _named_values(point: Point, names: Collection[str], facts: Facts) -> dict[str, Any]:
    """Return a point's values by name, None where it has none; what is no number, truth or text as its text."""
    values = {**point.values(), **facts(point, names)}
    found = {name: values.get(name) for name in names}
    return {name: value if isinstance(value, SCALARS) else str(value) for name, value in found.items()}


def unused_selectors(experiment: Experiment, facts: Facts | None = None) -> list[str]:
    """Return the key paths of the selectors that match no point, where a mistake is likely.

    Those that are conditions where `facts` tells what they speak of, else the others.
    """
    defaults = _declared_axes(experiment)
    selectors = [
        (f"{key}[{n}]", selector, list(enumerate(experiment.grid)))
        for key in ("exclude", "holdout")
        for n, selector in enumerate(getattr(experiment, key))
    ]
    for place, group in enumerate(experiment.grid):
        selectors += [(f"grid[{place}].exclude[{n}]", one, [(place, group)]) for n, one in enumerate(group.exclude)]
    selectors = [one for one in selectors if (one[1].condition is None) == (facts is None)]
    unused = []
    for name, selector, groups in selectors:
        grid = (_point_of(v, group, n) for n, group in groups for v in _group_values(experiment, group, defaults, n))
        if selector.condition is None:
            used = any(selector.matches(point.values()) for point in grid)
        else:
            used = any(one for (one,) in _which_hold([selector.condition], list(grid), experiment, facts or no_facts))
        unused += [name] * (not used)
    return unused


def _declared_axes(experiment: Experiment) -> dict[str, tuple[Any, ...]]:
    return {
        "method": experiment.labels,
        "size": tuple(experiment.sizes),
        "budget": tuple(experiment.budgets),
        "context": experiment.context,
        "batch": experiment.batch,
        "precision": experiment.precision,
        "lr": (None,),
        "lr_factor": experiment.lr_factor,
        "seed": experiment.seeds,
    }


def _check_zip(experiment: Experiment, group: Group, place: int) -> None:
    lengths = {axis: len(values) for axis, values in group.zip.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{axis} has {length}" for axis, length in lengths.items())
        raise experiment.source.error(("grid", place, "zip"), f"zipped axes must be of equal length: {shown}")
    both = sorted(set(group.zip) & set(group.axes))
    if both:
        raise experiment.source.error(("grid", place, "zip", both[0]), "this axis is given twice, zipped and crossed")


def _group_values(
    experiment: Experiment, group: Group, defaults: Mapping[str, tuple[Any, ...]], place: int
) -> Iterator[dict[str, Any]]:
    crossed = {axis: values for axis, values in {**defaults, **group.axes}.items() if axis not in group.zip}
    zipped = [dict(zip(group.zip, row, strict=True)) for row in zip(*group.zip.values(), strict=True)] or [{}]
    n_points = len(zipped)
    for values in crossed.values():
        n_points *= len(values)
    if n_points > MAX_POINTS:
        raise experiment.source.error(("grid", place), f"{n_points:,} points; at most {MAX_POINTS:,} in one group")
    for together in zipped:
        for row in product(*crossed.values()):
            point = {**dict(zip(crossed, row, strict=True)), **together}
            if experiment.places is None or (point["size"], point["budget"]) in experiment.places:
                yield point


def _point_of(values: Mapping[str, Any], group: Group, place: int) -> Point:
    axes = {axis: values[axis] for axis in AXES}
    overrides = tuple(sorted((key, value) for key, value in values.items() if key not in AXES))
    return Point(**axes, overrides=overrides, group=group.name or f"group {place + 1}", holdout=group.holdout)
