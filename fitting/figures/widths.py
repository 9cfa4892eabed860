"""For what widths figures are laid out. No heavy import."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PageWidth:
    """How wide a figure is drawn with letters of 8 to 10 points; printed at the width of its place they get smaller.

    inches: None where each figure has its own; row_letters: of a row's words on one line; dpi: of its PNG.
    """

    inches: float | None
    row_letters: int
    dpi: int


WIDTHS: dict[str, PageWidth] = {
    "page": PageWidth(None, 36, 150),
    "column": PageWidth(4.4, 20, 300),  # in a column of 3.3 inches letters are 6 to 7.5 points
    "slide": PageWidth(7.4, 30, 260),  # on a slide of 13.3 inches letters are 14 to 18 points
}
