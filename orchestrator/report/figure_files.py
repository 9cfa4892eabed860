"""Figures as files: formats, widths, and in each file what it was drawn from, so that a file proves itself.

A figure's stamp is a hash of the frames that its line of FIGURES reads. It stands in the metadata of the file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewright.orchestrator.analysis.analyze import Analysis
from scalewright.orchestrator.analysis.inputs import read_inputs
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.files import write_bytes
from scalewright.orchestrator.report.figures import STAMP_WORDS, page_pictures
from scalewright.orchestrator.report.html import FORMATS, file_of, make_folder
from scalewright.orchestrator.study import Asked

STAMP = re.compile(STAMP_WORDS.format(r"([\w-]+)", "([0-9a-f]{64})").encode())
CURRENT, STALE = "current", "stale"


@dataclass(frozen=True)
class Wanted:
    """Which figures, and how: names of FIGURES or of single pictures (none: all), formats, and one of WIDTHS."""

    names: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("png", "svg")
    width: str = "page"

    @classmethod
    def read(cls, names: Sequence[str], formats: str | None, width: str | None) -> "Wanted":
        """Read what a person asked for; raises UserError for a format or width that is not there."""
        from scalewright.fitting.figures.widths import WIDTHS

        given = tuple(one.strip() for one in formats.split(",")) if formats is not None else cls.formats
        wrong = [one for one in given if one not in FORMATS]
        if wrong:
            raise UserError(f"--format: {wrong[0]!r} is no format of a figure; expected some of {', '.join(FORMATS)}")
        if width is not None and width not in WIDTHS:
            raise UserError(f"--width: {width!r} is no width of a figure; expected one of {', '.join(WIDTHS)}")
        return cls(tuple(names), given, width or cls.width)


def draw_figures(analysis: Analysis, wanted: Wanted, folder: Path) -> tuple[Path, ...]:
    """Draw figures of an analysis into a folder, `NAME.png` at the page's width and `NAME-WIDTH.png` at another."""
    from scalewright.fitting.figures.style import drawn_at

    make_folder(folder)
    paths = []
    for picture in page_pictures(analysis, wanted.names):
        with drawn_at(wanted.width) as at:
            figure = picture.draw()
        name = picture.name if wanted.width == Wanted.width else f"{picture.name}-{wanted.width}"
        for kind in wanted.formats:
            path = folder / f"{name}.{kind}"
            write_bytes(path, file_of(figure, kind, picture.stamp, dpi=at.dpi), durable=False)
            paths.append(path)
    return tuple(paths)


def check_figures(asked: Asked, names: Sequence[str], folder: Path) -> list[dict[str, str]]:
    """Say of each stamped file of a folder whether the database still gives what it was drawn from.

    Returns rows of file, figure and state. names: of these figures alone. Raises UserError where none is there.
    """
    from scalewright.fitting.figures.gallery import FIGURES

    inputs = read_inputs(asked.study, asked.experiment, asked.compare)
    now = {name: inputs.stamp(name, entry.reads) for name, entry in FIGURES.items() if entry.section}
    stamped = [(path, found) for path in sorted(folder.glob("*.*")) if (found := _stamp_in(path))]
    for name in names:
        if not any(name in (figure, path.stem) for path, (figure, _) in stamped):
            raise UserError(f"{folder}: no file of figure {name!r} that says what it was drawn from; draw it first")
    rows = [
        {"file": path.name, "figure": figure, "state": CURRENT if now.get(figure) == stamp else STALE}
        for path, (figure, stamp) in stamped
        if not names or {figure, path.stem} & set(names)
    ]
    if not rows:
        raise UserError(f"{folder}: no figure there says what it was drawn from; draw them: scalewright figures")
    return rows


def require_current(rows: Sequence[Mapping[str, str]]) -> None:
    """Raise Partial with the figures whose files do not match the database."""
    stale = list(dict.fromkeys(row["figure"] for row in rows if row["state"] == STALE))
    if stale:
        raise Partial(f"not what the database gives now: {', '.join(stale)}; redraw: scalewright figures")


def _stamp_in(path: Path) -> tuple[str, str] | None:
    if path.suffix.removeprefix(".") not in FORMATS:
        return None
    found = STAMP.search(path.read_bytes())
    return None if found is None else (found[1].decode(), found[2].decode())
