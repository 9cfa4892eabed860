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
    def runs(self) -> pd.DataFrame: ...
    @property
    def points(self) -> Points: ...
    @property
    def minima(self) -> pd.DataFrame | None: ...
    @property
    def evaluations(self) -> pd.DataFrame | None: ...
    @property
    def curves(self) -> pd.DataFrame | None: ...
    @property
    def layers(self) -> pd.DataFrame | None: ...


@dataclass(frozen=True)
class FigureEntry:
    """A figure of the table, called as the function that draws it.

    section: of the report page, where figures stand in the order of the table; None for figures of single verbs.
    caption: the sentence under it there. inputs: the arguments of `draw` by name from an analysis, None where it has
    nothing to draw; figures whose captions or number depend on the fits are read in orchestrator/report/figures.py.
    """

    draw: Callable[..., Figure]
    section: Place | None = None
    caption: str = ""
    inputs: Callable[[Analysed], Mapping[str, Any] | None] | None = None

    def __call__(self, *frames: Any, **options: Any) -> Figure:
        return self.draw(*frames, **options)
