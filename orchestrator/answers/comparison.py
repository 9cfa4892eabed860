"""The answer of `compare METHOD BASELINE`: the sentence, every number behind it, and what it must admit."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from scalewright.orchestrator.analysis.comparisons import CURVE, read_pair
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.report.comparison_tables import (
    along_table,
    losses_table,
    multipliers_table,
    scale_tables,
    sentence,
    sharing_words,
    speed_ups_table,
)
from scalewright.orchestrator.report.figures import is_drawn, pair_picture
from scalewright.orchestrator.study import Asked

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.frame import Points
    from scalewright.fitting.speedup import SpeedUp


def compare_as_asked(asked: Asked, method: str, baseline: str, *, curve: str = CURVE, level: float = 0.95) -> Answer:
    """Compare two labels of a synced experiment; how runs were chosen is said too, where `advise` chose them."""
    from scalewright.orchestrator.analysis.advice import advised_words
    from scalewright.orchestrator.analysis.fits import read_evaluations, read_runs

    runs = read_runs(asked.study, asked.experiment)
    during = read_evaluations(asked.study, asked.experiment)
    answer = comparison_answer(runs, method, baseline, evaluations=during, curve=curve, level=level)
    chosen = advised_words(asked.study, asked.experiment, runs)
    if not chosen:
        return answer
    return replace(answer, lines=(*answer.lines, chosen), value=answer.value | {"chosen": chosen})


def comparison_answer(
    runs: "pd.DataFrame",
    method: str,
    baseline: str,
    *,
    evaluations: "pd.DataFrame | None" = None,
    curve: str = CURVE,
    level: float = 0.95,
) -> Answer:
    """Compare two labels over the sizes and budgets they share; raises FittingError where there are none.

    evaluations: run_id, n_tokens and loss_nats during training, for the speed-up along one curve.
    """
    from scalewright.fitting.choices import CURVES
    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.frame import PointRules, check_points, unknown

    if curve not in CURVES:
        raise FittingError(unknown("curve", curve, list(CURVES)))
    points = check_points(runs, PointRules())
    pair = read_pair(points, method, baseline, curve=curve, level=level)
    along = read_along(points, evaluations, method, baseline)
    multipliers, speed_ups = multipliers_table([pair]), speed_ups_table([pair])
    first = [speed_ups] if pair.ratio("tokens") else [multipliers]
    last = [multipliers] if pair.ratio("tokens") else []
    tables = [*first, losses_table([pair]), *scale_tables([pair]), *last, along_table(along)]
    lines = (*sharing_words(pair), *pair.comparison.warnings)
    value = {
        **pair.comparison.to_record(),
        "extrapolated": [list(cell) for cell in sorted(pair.extrapolated)],
        "along_curve": [asdict(one) for one in along],
        "curve": curve,
    }
    drawn = (pair_picture(pair),) if is_drawn(pair) else ()
    return Answer(tuple(table for table in tables if table.rows), (sentence(pair), ""), lines, drawn, value)


def read_along(
    points: "Points", evaluations: "pd.DataFrame | None", method: str, baseline: str
) -> "tuple[SpeedUp, ...]":
    """Read speed-ups along training curves where runs were evaluated on the way; nothing where they were not."""
    from scalewright.fitting.along import speedups_along

    if evaluations is None or not len(evaluations):
        return ()
    own = evaluations[(evaluations["split"] == "validation") & evaluations["run_id"].isin(points.frame["run_id"])]
    if not len(own) or own.groupby("run_id").size().max() < 2:
        return ()
    return speedups_along(points, own, method, baseline)
