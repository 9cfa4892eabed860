"""The table of verbs by module. A module is imported when one of its verbs runs; lists of verbs need its docstrings."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from keyword import iskeyword
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import typer.core
import typer.main

from scalewright.orchestrator.cli.names import NamingCommand

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

VERBS = {
    "planning": ("init", "plan", "schema", "version"),
    "running": ("submit", "status", "logs", "cancel", "hold", "release", "resume", "retry", "doctor", "demo"),
    "reading": ("sync", "runs", "show", "curve", "diff", "query", "export", "tag", "note", "import"),
    "serving": ("serve",),
    "analysing": ("fit", "compare", "hyper", "design", "forecast", "advise", "figures", "report", "papers"),
    "inspecting": ("inspect", "export-checkpoint"),
}


class Group(NamedTuple):
    """Verbs of two words: `db check`."""

    help: str
    verbs: Mapping[str, tuple[str, ...]]


GROUPS = {
    "data": Group("Token shards.", {"planning": ("prepare",)}),
    "db": Group(
        "Maintain the runs database.", {"maintaining": ("upgrade", "backup", "check", "stats", "rebuild", "copy")}
    ),
    "experiment": Group(
        "List, rename, archive and remove experiments.", {"experiments": ("ls", "rename", "archive", "rm", "tidy")}
    ),
}


class Commands(Mapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self, verbs: Mapping[str, tuple[str, ...]], groups: Mapping[str, Group]) -> None:
        self.module_of = {verb: module for module, names in verbs.items() for verb in names}
        self.groups = groups

    def __iter__(self) -> Iterator[str]:
        yield from self.module_of
        yield from self.groups

    def __len__(self) -> int:
        return len(self.module_of) + len(self.groups)

    def __getitem__(self, name: str) -> Any:
        """Return the command: a verb's from its function's signature and docstring; raises KeyError."""
        if name in self.groups:
            group = self.groups[name]
            return Verbs(name=name, help=group.help, no_args_is_help=True).over(group.verbs, {})
        module = import_module(_path(self.module_of[name]))
        verb = typer.Typer(add_completion=False, rich_markup_mode=None)
        verb.command(name, cls=NamingCommand)(getattr(module, _function(name)))
        return typer.main.get_command(verb)

    def help_of(self, name: str) -> str:
        """Return the help of a command without importing it."""
        return self.groups[name].help if name in self.groups else docstrings(self.module_of[name])[_function(name)]


class Verbs(typer.core.TyperGroup):
    """A command of verbs; by itself the whole table's."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"rich_markup_mode": None})
        self.over(VERBS, GROUPS)

    def over(self, verbs: Mapping[str, tuple[str, ...]], groups: Mapping[str, Group]) -> "Verbs":
        """Take these verbs and groups, and return itself."""
        self.lazy = Commands(verbs, groups)
        self.commands: Any = self.lazy
        return self

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands in the order of the table."""
        return list(self.lazy)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands as their docstrings say it, and import no module of theirs."""
        described: Any = {name: typer.core.TyperCommand(name, help=self.lazy.help_of(name)) for name in self.lazy}
        typer.core.TyperGroup(name=self.name, commands=described).format_commands(ctx, formatter)


def _path(module: str) -> str:
    return f"scalewright.orchestrator.cli.{module}"


def _function(verb: str) -> str:
    return verb.replace("-", "_") + "_" * iskeyword(verb)


@cache
def docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a module's functions from its compiled code, which is not run."""
    spec = find_spec(_path(module))
    assert spec is not None, module
    code = cast("InspectLoader", spec.loader).get_code(spec.name)
    assert code is not None, module
    functions = [const for const in code.co_consts if isinstance(const, CodeType) and const.co_consts]
    return {function.co_name: function.co_consts[0] for function in functions}
