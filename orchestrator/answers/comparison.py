"""The answer of `compare METHOD BASELINE`: the sentence, every number behind it, and what it must admit."""

from typing import TYPE_CHECKING

from orchestrator.answers.answer import Answer
from orchestrator.pair_text import (
    losses_table,
    multipliers_table,
    scale_tables,
    sentence,
    sharing_words,
    speed_ups_table,
)
from orchestrator.pairs import CURVE, read_pair
from orchestrator.pictures import pair_picture

if TYPE_CHECKING:
    import pandas as pd


def comparison_answer(
    runs: "pd.DataFrame", method: str, baseline: str, *, curve: str = CURVE, level: float = 0.95
) -> Answer:
    """Compare two labels over the sizes and budgets they share; raises FittingError where there are none."""
    from fitting.curve import CURVES
    from fitting.errors import FittingError
    from fitting.frame import PointRules, check_points, unknown

    if curve not in CURVES:
        raise FittingError(unknown("curve", curve, list(CURVES)))
    pair = read_pair(check_points(runs, PointRules()), method, baseline, curve=curve, level=level)
    tables = (losses_table([pair]), speed_ups_table([pair]), *scale_tables([pair]), multipliers_table([pair]))
    lines = (*sharing_words(pair), *pair.comparison.warnings)
    value = {
        **pair.comparison.to_record(),
        "extrapolated": [list(cell) for cell in sorted(pair.extrapolated)],
        "curve": curve,
    }
    return Answer(tables, (sentence(pair), ""), lines, (pair_picture(pair),), value)
