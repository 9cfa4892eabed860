"""Names in help texts. Knows which table owns which names; reads it only when the help of its verb is printed."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import typer.core


def laws() -> Iterable[str]:
    """List the laws, and the approaches that `fit --law` takes beside them."""
    from scalewright.fitting.choices import APPROACHES
    from scalewright.fitting.laws import LAWS

    return (*LAWS, *APPROACHES)


def from_table(module: str, table: str) -> Callable[[], Iterable[str]]:
    """Make the reader of a table's names: `module` below scalewright, imported at the first reading."""

    def read() -> Iterable[str]:
        from importlib import import_module

        names: Iterable[str] = getattr(import_module(f"scalewright.{module}"), table)
        return names

    return read


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "laws": laws,
    "objectives": from_table("fitting.objectives", "OBJECTIVES"),
    "n_conventions": from_table("fitting.choices", "N_CONVENTIONS"),
    "flop_conventions": from_table("fitting.choices", "FLOP_CONVENTIONS"),
    "curves": from_table("fitting.choices", "CURVES"),
    "settings": from_table("fitting.choices", "SETTINGS"),
    "assumed": from_table("fitting.choices", "ASSUMED"),
    "losses": from_table("orchestrator.analysis.fits", "LOSSES"),
    "held_out": from_table("orchestrator.analysis.fits", "HELD_OUT"),
    "executors": from_table("orchestrator.config.resources", "EXECUTORS"),
    "states": from_table("db.run_states", "STATES"),
    "figure_formats": from_table("orchestrator.report.html", "FORMATS"),
    "figure_widths": from_table("fitting.figures.widths", "WIDTHS"),
    "table_formats": from_table("orchestrator.report.paper_tables", "FORMATS"),
    "tables": from_table("orchestrator.sync.table_files", "WRITERS"),
    "points": from_table("orchestrator.sync.point_columns", "NAMES"),
    "token_rules": from_table("orchestrator.sync.point_columns", "TOKEN_RULES"),
}


class NamingCommand(typer.core.TyperCommand):
    """A verb in whose help `{laws}` stands for the names of the laws, and so on for every key of NAMES."""

    def get_help(self, ctx: Any) -> str:
        """Return the help as printed, with the names filled in."""
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text:
                parameter.help = fill(text)  # type: ignore[attr-defined]
        return super().get_help(ctx)


def fill(text: str) -> str:
    """Put names in the place of each `{key}` of NAMES: "a, b or c"."""
    return re.sub(r"\{(\w+)\}", lambda found: _alternatives(list(NAMES[found[1]]())), text)


def _alternatives(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
