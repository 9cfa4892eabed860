"""What the table of figures holds: how a figure is drawn and, for those of the report page, where it stands there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pandas as pd
from matplotlib.figure import Figure

from scalewright.fitting.frame import Points

Place = Literal["speed-ups", "laws", "ablation", "finals", "fits", "forecast", "layers", "runs"]


class Analysed(Protocol):
    """What a figure may read of an analysis (`Analysis` of orchestrator/analysis/analyze.py says what each holds)."""

    @property
    def runs(self) -> pd.DataFrame:
        """Every run of the experiment, ended or not."""

    @property
    def points(self) -> Points:
        """The runs that entered, with why the others did not."""

    @property
    def minima(self) -> pd.DataFrame | None:
        """The minima of isoFLOP curves, None where the grid has none."""

    @property
    def evaluations(self) -> pd.DataFrame | None:
        """Validation losses on the way, None where none were kept."""

    @property
    def curves(self) -> pd.DataFrame | None:
        """Training losses by step, None where none were kept."""

    @property
    def layers(self) -> pd.DataFrame | None:
        """Values of each layer by step, None where none were kept."""


@dataclass(frozen=True)
class FigureEntry:
    """A figure of the table, called as the function that draws it.

    section: of the report page, where figures stand in the order of the table; None for figures of single verbs.
    caption: the sentence under it there. inputs: the arguments of `draw` by name from an analysis, None where it has
    nothing to draw; reads: the parts of the database that it changes with, by their names in Inputs.hashes of
    orchestrator/analysis/inputs.py. Figures whose captions or number depend on the fits are read in
    orchestrator/report/figures.py.
    """

    draw: Callable[..., Figure]
    section: Place | None = None
    caption: str = ""
    inputs: Callable[[Analysed], Mapping[str, Any] | None] | None = None
    reads: tuple[str, ...] = ("finished",)

    def __call__(self, *frames: Any, **options: Any) -> Figure:
        """Draw it, so that an entry can stand where its function would."""
        return self.draw(*frames, **options)
