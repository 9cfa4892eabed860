"""One answer for each label that a fit takes apart, put into one answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.analysis.fits import FitRequest, groups
from scalewright.orchestrator.answers.answer import Answer, merge
from scalewright.orchestrator.report.html import Picture, file_label

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.frame import Points


@dataclass(frozen=True)
class Group:
    """One label's runs as a fit would take them: `raw` before any rule, `points` after."""

    label: str
    raw: "pd.DataFrame"
    points: "Points"

    @property
    def suffix(self) -> str:
        """What a figure's file name carries."""
        return file_label(self.label)


def grouped(runs: "pd.DataFrame", request: FitRequest) -> Iterator[Group]:
    """Yield the labels' runs, in the order of the labels; raises FittingError for runs that cannot be fitted."""
    from scalewright.fitting.frame import check_points

    for label, points in groups(check_points(runs, request.rules()), request):
        raw = runs if label == "all" or request.by == "none" else runs[runs[request.by].astype(str) == label]
        yield Group(label, raw, points)


def each_group(runs: "pd.DataFrame", request: FitRequest, answer_of: Callable[[Group, FitRequest], Answer]) -> Answer:
    """Answer for each group of runs, one after another; the JSON holds each under its label."""
    return merge({group.label: answer_of(group, request) for group in grouped(runs, request)})


def named(label: str) -> str:
    """Return the name of a label that tables and figures show."""
    from scalewright.fitting.figures.style import name_of

    return name_of(label)


def draw(name: str, group: Group, caption: str, *frames: Any, **options: Any) -> Picture:
    """Draw a figure of the gallery for one group; its file name ends in the label."""
    from scalewright.fitting.figures.gallery import FIGURES

    drawing = partial(FIGURES[name], *frames, **options)
    return Picture(f"{name}-{group.suffix}", drawing, f"{named(group.label)}: {caption}")
