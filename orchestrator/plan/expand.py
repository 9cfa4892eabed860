"""Experiment -> points: the product of each group's axes, its zipped axes in step, without what is excluded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from scalewright.orchestrator.config.axes import AXES, Group
from scalewright.orchestrator.config.experiment import Experiment

MAX_POINTS = 100_000  # more than a day of writing their folders


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


def expand(experiment: Experiment) -> list[Point]:
    """Return the points in the order of the groups, each once; raise UserError when nothing is left."""
    defaults = _declared_axes(experiment)
    points: dict[tuple[Any, ...], Point] = {}
    for place, group in enumerate(experiment.grid):
        _check_zip(experiment, group, place)
        for values in _group_values(experiment, group, defaults, place):
            keep_point(experiment, group, points, _point_of(values, group, place))
    if not points:
        raise experiment.source.error(("exclude",), "leaves no point of the grid")
    return list(points.values())


def unused_selectors(experiment: Experiment) -> list[str]:
    """Return the key paths of the selectors that match no point, where a mistake is likely."""
    defaults = _declared_axes(experiment)
    groups = [list(_group_values(experiment, group, defaults, n)) for n, group in enumerate(experiment.grid)]
    everywhere = [values for group in groups for values in group]
    selectors = [
        (f"{key}[{n}]", selector, everywhere)
        for key in ("exclude", "holdout")
        for n, selector in enumerate(getattr(experiment, key))
    ]
    for place, group in enumerate(experiment.grid):
        selectors += [(f"grid[{place}].exclude[{n}]", one, groups[place]) for n, one in enumerate(group.exclude)]
    return [name for name, selector, values in selectors if not any(map(selector.matches, values))]


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
            yield {**dict(zip(crossed, row, strict=True)), **together}


def _point_of(values: Mapping[str, Any], group: Group, place: int) -> Point:
    axes = {axis: values[axis] for axis in AXES}
    overrides = tuple(sorted((key, value) for key, value in values.items() if key not in AXES))
    return Point(**axes, overrides=overrides, group=group.name or f"group {place + 1}", holdout=group.holdout)


def keep_point(experiment: Experiment, group: Group, points: dict[tuple[Any, ...], Point], point: Point) -> None:
    """Add the point unless a selector excludes it; mark it as held out where any group or selector says so."""
    values = point.values()
    if any(selector.matches(values) for selector in (*experiment.exclude, *group.exclude)):
        return
    earlier = points.get(point.place(), point)
    holdout = earlier.holdout or point.holdout or any(selector.matches(values) for selector in experiment.holdout)
    points[point.place()] = replace(earlier, holdout=holdout)
