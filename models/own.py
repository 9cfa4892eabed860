"""A method or a gate from the text of a user's own Python file. Knows neither the file nor torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from types import ModuleType
from typing import TypeVar

from scalewright.models.errors import ModelError

Record = TypeVar("Record")
MARK = ".py:"  # `mine.py:MINE`: the file and the constant in it


def is_own(name: str) -> bool:
    """Say whether a name means a constant of a user's file."""
    return MARK in name


def own_record(name: str, code: Mapping[str, str], kind: type[Record]) -> Record:
    """Return the constant that `name` means, of the type `kind`; `code` holds the text of each file by its name.

    Runs the text, once a process. Raises ModelError in one line where it has an error or lacks the constant.
    """
    file, _, constant = name.rpartition(":")
    if file not in code:
        raise ModelError(f"{name}: the text of {file} is missing")
    content = vars(_run(file, code[file]))
    record = content.get(constant)
    if isinstance(record, kind):
        return record
    there = ", ".join(key for key, value in content.items() if isinstance(value, kind)) or "none"
    raise ModelError(f"{name}: {file} has no {kind.__name__} of the name {constant!r} (it has: {there})")


@lru_cache(maxsize=64)
def _run(file: str, text: str) -> ModuleType:
    module = ModuleType(f"scalewright_own_{sha256(text.encode()).hexdigest()[:16]}")
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        exec(compile(text, file, "exec"), vars(module))
    except SyntaxError as error:
        raise ModelError(f"{file}:{error.lineno}: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        raise ModelError(f"{file}: {type(error).__name__}: {' '.join(str(error).split())}") from None
    return module
