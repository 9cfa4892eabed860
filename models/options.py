"""Tables of options: a default, the allowed values, one line of doc and a source each. Knows only errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite

from scalewright.models.errors import ModelError

Value = bool | int | float | str | None | list[float]
Options = dict[str, Value]


@dataclass(frozen=True)
class Option:
    """One named choice of a method, gate or init; `choices` empty means any value of the default's type."""

    default: Value
    doc: str
    source: str
    choices: tuple[bool | float | str, ...] = ()
    low: float | None = None
    high: float | None = None
    optional: bool = False  # None is allowed and means: left to the surrounding rule
    per_layer: bool = False  # a list with one number a layer is allowed beside one number
    added: bool = False  # came after runs were trained: not written at its default, so that their identity stays


def pick(name: str, table: Mapping[str, object], what: str) -> str:
    """Return `name` if the table has it; raise ModelError with the valid names otherwise."""
    if name in table:
        return name
    near = get_close_matches(str(name), list(table), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelError(f"unknown {what} {name!r}{hint} (valid: {', '.join(table) or 'none'})")


def resolve_options(table: Mapping[str, Option], given: Mapping[str, Value], where: str) -> Options:
    """Return every option of the table, given values checked and in canonical type, defaults filled in."""
    for name in given:
        pick(name, table, f"option of {where}")
    return {
        name: check_value(given.get(name, option.default), option, f"{where}: {name}") for name, option in table.items()
    }


def written(table: Mapping[str, Option], options: Options) -> Options:
    """Return the options that a record holds: all but those `added` later that are at their default."""
    return {name: value for name, value in options.items() if not table[name].added or value != table[name].default}


def check_value(value: Value, option: Option, where: str) -> Value:
    """Return the value in the type of the option (1 becomes 1.0 where a float is meant), or raise ModelError."""
    if option.choices:
        return _chosen(value, option, where)
    if value is None and option.optional:
        return None
    if option.per_layer and isinstance(value, list | tuple):
        return [_number(item, option, where) for item in value]
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise ModelError(f"{where} = {value!r}: expected true or false")
        return value
    return _number(value, option, where)


def _chosen(value: Value, option: Option, where: str) -> Value:
    for choice in option.choices:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return choice
    valid = ", ".join(str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in option.choices)
    raise ModelError(f"{where} = {value!r}: expected one of {valid}")


def _number(value: object, option: Option, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"{where} = {value!r}: expected a number")
    low, high = option.low, option.high
    if not isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        limits = f" from {low}" * (low is not None) + f" up to {high}" * (high is not None)
        raise ModelError(f"{where} = {value!r}: expected a finite number{limits}")
    return float(value)


def number(options: Options, name: str) -> float:
    """Read an option that is known to hold one number."""
    value = options[name]
    assert isinstance(value, int | float) and not isinstance(value, bool), (name, value)
    return float(value)
