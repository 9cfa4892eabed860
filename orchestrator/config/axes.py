"""The grid part of an experiments.yaml: groups of axes, crossed or zipped, and selectors of points."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from scalewright.orchestrator.config.recipes import PRECISIONS
from scalewright.orchestrator.config.section import Section, Text, Truth, describe_kind, read_list, read_many, read_text
from scalewright.orchestrator.config.training import override_reader
from scalewright.orchestrator.config.values import choose, read_count, read_positive, read_positive_count, suggest

AXES: dict[str, Callable[[Any], Any]] = {
    "size": read_text,
    "budget": read_text,
    "method": read_text,
    "seed": read_count,
    "batch": read_positive_count,
    "context": read_positive_count,
    "precision": lambda value: choose(value, PRECISIONS, "precision"),
    "lr": read_positive,
    "lr_factor": read_positive,
}
OVERRIDES = ("optimizer.", "schedule.", "options.", "gate_options.", "init_options.")


def read_axes(value: Any) -> dict[str, tuple[Any, ...]]:
    """Read axis: value or list of values; `all` (like an axis left out) stands for everything declared."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping of axes such as size: [a, b], got {describe_kind(value)}")
    for key in value:
        if not _is_axis(key):
            shown = [*AXES, *(f"{start}KEY" for start in OVERRIDES)]
            raise PydanticCustomError("unknown_key", f"unknown axis{suggest(key, shown)}", {"key": key})
    return {key: _read_axis(key, item) for key, item in value.items() if item != "all"}


def _read_axis(axis: str, value: Any) -> tuple[Any, ...]:
    reader = AXES.get(axis) or override_reader(axis)
    try:
        return tuple(_hashable(reader(item)) for item in read_many(value))
    except ValueError as error:
        raise PydanticCustomError("bad_value", "{message}", {"key": axis, "message": str(error)}) from None


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _is_axis(key: str) -> bool:
    return key in AXES or any(key.startswith(start) and len(key) > len(start) for start in OVERRIDES)


Axes = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(read_axes)]


Conditions = Annotated[tuple[Text, ...], BeforeValidator(read_list)]


class Selector(Section):
    """Points whose axes all have one of the values given, or that meet a condition: an item of `exclude`, `holdout`."""

    axes: Axes = {}
    condition: Text | None = None

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Tell whether the axes have these values; a condition is asked of many points at once."""
        return self.condition is None and all(values.get(axis) in wanted for axis, wanted in self.axes.items())


def read_selectors(value: Any) -> tuple[Any, ...]:
    """Read selectors: a text is a condition, a mapping names axes."""
    return tuple({"condition" if isinstance(item, str) else "axes": item} for item in read_list(value))


Selectors = Annotated[tuple[Selector, ...], BeforeValidator(read_selectors)]


class Group(Section):
    """A part of the grid: the product of its axes, of which those under `zip` advance together."""

    name: Text | None = None
    axes: Axes = {}
    zip: Axes = {}
    when: Conditions = ()
    exclude: Selectors = ()
    holdout: Truth = False


def read_groups(value: Any) -> tuple[Any, ...]:
    """Read groups of the grid, or one."""
    return tuple(read_group(item) for item in read_many(value))


def read_group(value: Any) -> Any:
    """Gather the axes, which are written beside the group's own keys."""
    if not isinstance(value, dict):
        return value
    own = {key: item for key, item in value.items() if key in ("name", "zip", "when", "exclude", "holdout")}
    return own | {"axes": {key: item for key, item in value.items() if key not in own}}


Groups = Annotated[tuple[Group, ...], BeforeValidator(read_groups)]
