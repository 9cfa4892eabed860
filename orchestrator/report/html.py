"""Writes pictures and index.html of an experiment. Knows tables, figures and folders; computes no number."""

import base64
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 150
WORD = re.compile(r"[a-df-zA-DF-Z]{2}")
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Table:
    """Rows for people: every cell is words or a number ready to print; notes are whole sentences."""

    title: str
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The keys of the first row, which all rows share."""
        return list(self.rows[0]) if self.rows else []

    @property
    def numeric(self) -> set[str]:
        """The columns whose every cell starts like a number: set flush right."""
        return {column for column in self.columns if all(looks_numeric(row[column]) for row in self.rows)}


@dataclass(frozen=True)
class Picture:
    """A figure, drawn when it is looked at, with the words that stand under it.

    stamp: what its files carry to say what they were drawn from; empty where that is not recorded.
    """

    name: str
    draw: "Callable[[], Figure]"
    caption: str
    stamp: str = ""

    @cached_property
    def figure(self) -> "Figure":
        """The drawn figure."""
        return self.draw()


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show, so that the section is left out."""
        return not (self.text or self.tables or self.pictures)


@dataclass(frozen=True)
class Report:
    """A page: what was found in a few sentences, what must be kept in mind, then tables and pictures."""

    title: str
    facts: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = field(default_factory=tuple)


def looks_numeric(value: Any) -> bool:
    """Tell numbers, and numbers with an interval or a unit sign, from words that begin with a count."""
    if isinstance(value, bool):
        return False
    text = str(value)
    return value is None or isinstance(value, int | float) or (text[:1] in "0123456789-+−" and not WORD.search(text))


def write_report(report: Report, folder: Path) -> Path:
    """Write each picture as PNG and SVG and the page that shows them; return the path of index.html.

    The page holds its pictures, so that it can be sent on its own. Each file is written whole or not at all.
    """
    make_folder(folder)
    encoded: dict[str, str] = {}
    for picture in [picture for section in report.sections for picture in section.pictures]:
        write_picture(picture, folder)
        encoded[picture.name] = base64.b64encode((folder / f"{picture.name}.png").read_bytes()).decode()
    page = folder / "index.html"
    write_bytes(page, _render(report, encoded).encode(), durable=False)
    return page


def make_folder(folder: Path) -> None:
    """Make a folder for figures; raises UserError where nothing can be written there."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.W_OK):
        instead = "ask from a folder that can be written: scalewright report PATH/experiments.yaml"
        raise UserError(f"{folder}: no figure can be written there; {instead}")
    folder.mkdir(parents=True, exist_ok=True)


CHARACTER_WORDS = {"+": "plus", "_": "", "/": "slash", " ": "space", ".": "dot", "=": "is", ",": "and", "%": "percent"}


def file_label(label: str) -> str:
    """Write a label so that it can stand in a file name: `gpt+` as gpt_plus, `pre-ln+gpas` as pre-ln_plus_gpas.

    Letters, digits and dashes stay; any other character becomes its word (else its code) between underscores, of which
    the last of a name is left out. No two labels become the same name.
    """
    words = (c if c.isascii() and (c.isalnum() or c == "-") else f"_{_character_word(c)}_" for c in label)
    return "".join(words).removesuffix("_")


def _character_word(character: str) -> str:
    return CHARACTER_WORDS.get(character, f"u{ord(character):x}")


def write_picture(picture: Picture, folder: Path) -> tuple[Path, Path]:
    """Write one figure as PNG and SVG, the same bytes each time, and return both paths."""
    make_folder(folder)
    png, svg = folder / f"{picture.name}.png", folder / f"{picture.name}.svg"
    for path, kind in ((png, "png"), (svg, "svg")):
        write_bytes(path, file_of(picture.figure, kind, picture.stamp), durable=False)
    return png, svg


# Formats of a figure: what their metadata calls a description, and what is left out so that the same figure is the
# same bytes.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "png": ("Description", ("Software",)),
    "svg": ("Description", ("Date", "Creator")),
    "pdf": ("Subject", ("Creator", "Producer", "CreationDate")),
}


def file_of(figure: "Figure", kind: str, stamp: str = "", *, dpi: int = PNG_DPI) -> bytes:
    """Return a figure as a file of one of FORMATS, the same bytes each time, with its stamp in the metadata."""
    import matplotlib as mpl

    described, left_out = FORMATS[kind]
    metadata = dict.fromkeys(left_out) | ({described: stamp} if stamp else {})
    buffer = io.BytesIO()
    # letters of a PDF stay letters, as venues ask
    with mpl.rc_context({"svg.hashsalt": "scalewright", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def _render(report: Report, encoded: Mapping[str, str]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from scalewright.orchestrator.report.tables import cell

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["cell"] = lambda value: cell(value).replace(r"\[", "[")
    return environment.get_template("report.html.j2").render(report=report, pictures=encoded)
