"""How figures look: one table of names, colours and markers, and where legends and notes stand. Knows no data."""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import Any, ParamSpec
from zlib import crc32

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewright.fitting.figures.widths import WIDTHS, PageWidth

P = ParamSpec("P")
LABEL_COLUMNS = ("label", "method", "baseline")
Colour = Any  # what matplotlib takes as a colour: a name, or an array of red, green, blue and opacity

# Okabe and Ito's colours, chosen to stay apart for colour-blind readers; yellow is left out (unreadable on white).
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#222222", "#777777"
# Darker ones for the other half of the table.
NAVY, BROWN, TEAL, WINE, OLIVE = "#1B3A6B", "#8C510A", "#01665E", "#882255", "#808000"
INDIGO, RUST, VIOLET, SLATE = "#5E4FA2", "#993404", "#7B3294", "#4D6A79"
FAINT = "#DDDDDD"


@dataclass(frozen=True)
class LabelStyle:
    """How one label (a method, with its gate) is drawn: colour and marker differ together, lines are solid.

    A dashed line says one thing in all figures: it is drawn past the runs.
    """

    name: str
    colour: str
    marker: str


STYLES: dict[str, LabelStyle] = {
    "gpt+": LabelStyle("GPT+", BLUE, "o"),
    "angpt": LabelStyle("anGPT", VERMILION, "s"),
    "ngpt": LabelStyle("nGPT", GREEN, "D"),
    "gpt": LabelStyle("GPT", SLATE, "8"),
    "pre-ln": LabelStyle("Pre-LN", GREY, "^"),
    "post-ln": LabelStyle("Post-LN", SKY, "v"),
    "deepnorm": LabelStyle("DeepNorm", PURPLE, "P"),
    "sandwich-ln": LabelStyle("Sandwich-LN", ORANGE, "X"),
    "mix-ln": LabelStyle("Mix-LN", BLACK, "<"),
    "lns": LabelStyle("LNS", OLIVE, ">"),
    "scale-res": LabelStyle("ScaleRes", "#F4A582", "p"),
    "peri-ln": LabelStyle("Peri-LN", BROWN, "H"),
    "gpt+gpas": LabelStyle("GPT + GPAS", "#00A6D6", "3"),
    "gpt++gpas": LabelStyle("GPT+ + GPAS", NAVY, "4"),
    "pre-ln+gpas": LabelStyle("Pre-LN + GPAS", WINE, "d"),
    "post-ln+gpas": LabelStyle("Post-LN + GPAS", INDIGO, "1"),
    "deepnorm+gpas": LabelStyle("DeepNorm + GPAS", VIOLET, "*"),
    "sandwich-ln+gpas": LabelStyle("Sandwich-LN + GPAS", RUST, "x"),
    "mix-ln+gpas": LabelStyle("Mix-LN + GPAS", "#A6761D", "2"),
    "lns+gpas": LabelStyle("LNS + GPAS", TEAL, "h"),
    "scale-res+gpas": LabelStyle("ScaleRes + GPAS", "#E7298A", "+"),
}
SPARE_COLOURS = (ORANGE, SKY, GREEN, PURPLE, BLUE, VERMILION, BLACK, GREY)
SPARE_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")

# How the labels of the figure that is being drawn look, where the table does not know them.
LOOKS: ContextVar[Mapping[str, LabelStyle]] = ContextVar("LOOKS", default=MappingProxyType({}))


WIDTH: ContextVar[PageWidth] = ContextVar("WIDTH", default=WIDTHS["page"])

# The first draws all it can; the others are for letters it has not, where they are installed.
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Noto Emoji", "Noto Sans")

RC: dict[str, Any] = {
    "font.size": 10,
    "text.parse_math": False,  # what a user wrote is text, a dollar sign too
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.hashsalt": "scalewright",
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw under the style's settings and leave matplotlib's own as they were."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        token = LOOKS.set(looks_of(labels_in([*args, *kwargs.values()])))
        try:
            with mpl.rc_context(RC | {"font.family": fonts()}):  # type: ignore[arg-type]
                return _wrap_names(draw(*args, **kwargs))
        finally:
            LOOKS.reset(token)

    return drawn


def labels_in(inputs: Iterable[object]) -> set[str]:
    """Return the labels that a figure's inputs name: in frames, and as the keys of fitted curves."""
    found: set[str] = set()
    for one in inputs:
        if isinstance(one, Mapping):
            found |= set(map(str, one))
        elif isinstance(one, pd.DataFrame):
            found |= {str(label) for name in LABEL_COLUMNS if name in one for label in one[name]}
    return found


def looks_of(labels: Iterable[str]) -> dict[str, LabelStyle]:
    """Give each label that the table does not know a look: the one its spelling asks for, unless another has it."""
    named = sorted(set(labels))
    taken = [STYLES[label] for label in named if label in STYLES]
    found: dict[str, LabelStyle] = {}
    for label in (one for one in named if one not in STYLES):
        colour = rarest([one.colour for one in taken], SPARE_COLOURS, label)
        of_colour = [one.marker for one in taken if one.colour == colour]  # these count most: no two looks are one
        markers = [*(one.marker for one in taken), *of_colour * len(taken)]
        found[label] = LabelStyle(label, colour, rarest(markers, SPARE_MARKERS, label))
        taken.append(found[label])
    return found


def rarest(taken: Sequence[str], spare: Sequence[str], label: str) -> str:
    """Return the entry of `spare` that is taken least, the first of them from where the label's spelling points."""
    start = crc32(label.encode()) % len(spare)
    return min([*spare[start:], *spare[:start]], key=taken.count)


def style_of(label: str) -> LabelStyle:
    """Return the label's entry; an unknown one has the look that its figure gives it, else the one of its spelling."""
    return STYLES.get(label) or LOOKS.get().get(label) or looks_of([label])[label]


def name_of(label: str) -> str:
    """Return how a figure writes a label."""
    return drawable(style_of(label).name)


def drawable(text: str) -> str:
    """Return a user's text as a figure can show it: a letter that no font here has becomes its number, `‹65b9›`.

    A word joiner goes before a leading underscore, which matplotlib takes as a wish to stay out of the legend.
    """
    shown = "".join(one if one.isascii() or ord(one) in letters() else f"‹{ord(one):x}›" for one in text)
    return f"\N{WORD JOINER}{shown}" if shown.startswith("_") else shown


@lru_cache
def fonts() -> list[str]:
    """Return the families of FONTS that are installed."""
    from matplotlib import font_manager

    there = {entry.name for entry in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in there]


@lru_cache
def letters() -> frozenset[int]:
    """Return the characters that some installed font of FONTS can draw."""
    from matplotlib import font_manager

    found: set[int] = {ord("\N{WORD JOINER}")}
    for path in {entry.fname for entry in font_manager.fontManager.ttflist if entry.name in fonts()}:
        found |= set(font_manager.get_font(path).get_charmap())
    return frozenset(found)


def in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels as the table lists them, unknown ones after it by name."""
    ranks = {label: rank for rank, label in enumerate(STYLES)}
    return sorted(set(labels), key=lambda label: (ranks.get(label, len(ranks)), label))


@contextmanager
def drawn_at(width: str) -> Iterator[PageWidth]:
    """Let figures be drawn at one of WIDTHS."""
    token = WIDTH.set(WIDTHS[width])
    try:
        yield WIDTHS[width]
    finally:
        WIDTH.reset(token)


def new_figure(width: float = 6.8, height: float = 4.4) -> Figure:
    """Make an empty figure of that many inches whose parts keep clear of one another.

    At another width its height shrinks less than its width: letters keep their size.
    """
    inches = WIDTH.get().inches or width
    return Figure(figsize=(inches, height * min(math.sqrt(inches / width), 1.0)), layout="constrained")


def rows_figure(width: float, height: float) -> Figure:
    """Make a figure of rows, which keeps its height at any width."""
    return Figure(figsize=(WIDTH.get().inches or width, height), layout="constrained")


def panels(
    n_panels: int, *, width: float = 3.1, height: float = 3.2, n_columns: int = 3, share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """Make a figure of small panels that share x, and y where asked; panels past `n_panels` are not drawn."""
    inches = WIDTH.get().inches
    if inches is not None:
        n_columns = min(n_columns, max(int(inches / NARROWEST_PANEL), 1))
    columns = 2 if n_panels == 4 and n_columns > 1 else min(n_panels, n_columns)
    rows = math.ceil(n_panels / columns)
    each = width if inches is None else min(inches / columns, width)
    figure = rows_figure(max(width * columns, 4.6), height * math.sqrt(each / width) * rows + 0.6)
    grid = figure.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False)
    axes = list(grid.flat)
    for unused in axes[n_panels:]:
        unused.set_visible(False)
    return figure, axes[:n_panels]


LETTER = 0.54  # of the font size: how wide a letter is, on the wide side
NARROWEST_PANEL = 2.1  # inches
MANY_ENTRIES = 6  # of a legend, past which its letters are small
HANDLE = 44.0  # points that a legend's marker and the gaps about it take


def letters_in(width: float, font_size: float) -> int:
    """Return how many letters of a font size (points) stand side by side in `width` inches."""
    return max(int(72 * width / (LETTER * font_size)), 12)


def legend_above(figure: Figure, entries: Iterable[tuple[str, Artist]], *, title: str = "", size: float = 9) -> None:
    """Name what is drawn above the axes, in as many columns as fit; long names are wrapped and the page grows.

    entries: words and what stands for them; the first of equal words counts.
    """
    by_words: dict[str, Artist] = {}
    for words, artist in entries:
        by_words.setdefault(words, artist)
    if not by_words:
        return
    if len(by_words) > MANY_ENTRIES:
        size = min(size, 8)
    width = float(figure.get_figwidth())
    room = letters_in(width - HANDLE / 72, size)
    wrapped = [textwrap.fill(words, room) for words in by_words]
    longest = max(len(line) for words in wrapped for line in words.split("\n"))
    columns = max(min(int(72 * width / (LETTER * size * longest + HANDLE)), len(wrapped)), 1)
    n_lines = sum(words.count("\n") + 1 for words in wrapped)
    figure.set_figheight(float(figure.get_figheight()) + 1.45 * size / 72 * max(math.ceil(n_lines / columns) - 1, 0))
    figure.legend(
        list(by_words.values()), wrapped, loc="outside upper left", ncols=columns, fontsize=size, title=title or None,
        alignment="left",
    )  # fmt: skip


def name_panel(axes: Axes, words: str) -> None:
    """Write a panel's title above it, wrapped to its width."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.set_title(textwrap.fill(words, letters_in(_panel_width(figure, axes), RC["axes.titlesize"])))


def _wrap_names(figure: Figure) -> Figure:
    """Wrap the names of axes, and titles, to the width of their panel where it is not the figure's own."""
    for axes in figure.axes if WIDTH.get().inches else ():
        room = letters_in(_panel_width(figure, axes), RC["axes.labelsize"])
        axes.set_xlabel(textwrap.fill(axes.get_xlabel(), room))
        axes.set_title("\n".join(textwrap.fill(line, room) for line in axes.get_title("left").split("\n")))
    return figure


def _panel_width(figure: Figure, axes: Axes) -> float:
    grid = axes.get_gridspec()
    return float(figure.get_figwidth()) / (grid.ncols if grid else 1) - 0.5


def row_names(names: Iterable[str]) -> list[str]:
    """Wrap the names of rows, so that they leave the larger part of the page to the data."""
    return [textwrap.fill(name, WIDTH.get().row_letters) for name in names]


def rows_height(names: Iterable[str], others: Iterable[str] = (), *, gap: float = 0.1) -> float:
    """Return the inches that rows with these wrapped words at their left and right need, `gap` between them."""
    lines = [[name.count("\n") + 1 for name in side] for side in (names, others)]
    return sum(gap + 0.16 * most for most in (map(max, *lines) if lines[1] else lines[0]))


def named_artists(all_axes: Iterable[Axes]) -> list[tuple[str, Artist]]:
    """Return what the axes name for a legend, with its words."""
    return [
        (words, handle) for axes in all_axes for handle, words in zip(*axes.get_legend_handles_labels(), strict=True)
    ]


def mark(words: str, marker: str, *, face: str, colour: str = "#555555") -> tuple[str, Artist]:
    """Return a legend's entry for a kind of marker, whatever its colour in the figure."""
    line = Line2D([], [], color=colour, marker=marker, linestyle="none", markerfacecolor=face)
    return words, line


def footnote(figure: Figure, text: str) -> None:
    """Write small grey words below everything, wrapped: n, what an interval is, what was left out."""
    room = letters_in(float(figure.get_figwidth()) - 0.2, 8)
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, room)]
    figure.set_figheight(float(figure.get_figheight()) + 0.15 * max(len(lines) - 1, 0))
    figure.supxlabel("\n".join(lines), fontsize=8, color="#555555", x=0.01, ha="left")
