"""Which runs of an experiment can be forecast, and the forecast itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from scalewright.db.run_states import ENDED
from scalewright.fitting.words import counted

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.forecast import Forecast


def pending_runs(runs: "pd.DataFrame", planned: "pd.DataFrame") -> "pd.DataFrame":
    """Return the runs still to end, with the tokens and FLOPs that they were planned with."""
    waiting = runs[~runs["state"].isin([*ENDED, "cancelled"])].drop(columns=["n_tokens", "flops", "loss_nats"])
    named = planned[["run_id", "n_tokens_planned", "flops_planned"]]
    return waiting.merge(named, on="run_id").rename(columns={"n_tokens_planned": "n_tokens", "flops_planned": "flops"})


def held_out(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Return finished runs that are marked holdout, of each sweep the best: no law is fitted to them."""
    from scalewright.fitting.frame import check_points
    from scalewright.fitting.hyper import best_of_sweeps

    marked = runs["holdout"].fillna(False).astype(bool)
    done = runs[marked & (runs["state"] == "completed") & runs["loss_nats"].notna()]
    return best_of_sweeps(check_points(done.assign(holdout=False))).frame if len(done) else done


def predict(runs: "pd.DataFrame", wanted: "pd.DataFrame") -> "Forecast":
    """Forecast runs from the others; where these sweep a learning rate, from the best of each cell."""
    from scalewright.fitting.forecast import forecast
    from scalewright.fitting.frame import check_points
    from scalewright.fitting.hyper import best_of_sweeps

    others = check_points(runs[~runs["run_id"].isin(wanted["run_id"])])
    best = best_of_sweeps(others)
    made = forecast(best, wanted)
    if len(best) == len(others):
        return made
    swept = (
        f"{counted(len(others) - len(best), 'run')} not at the best lr_peak of their sweep left out: forecasts are of "
    )
    return replace(made, warnings=(*made.warnings, swept + "runs at the best rate"))


def expected(runs: "pd.DataFrame", planned: "pd.DataFrame") -> tuple["Forecast | None", "Forecast | None"]:
    """Forecast the runs to come, and the runs held out; None where there are none or no method has enough others."""
    return _if_possible(runs, lambda: pending_runs(runs, planned)), _if_possible(runs, lambda: held_out(runs))


def _if_possible(runs: "pd.DataFrame", select: Callable[[], "pd.DataFrame"]) -> "Forecast | None":
    from scalewright.fitting.errors import FittingError

    try:
        wanted = select()
        return predict(runs, wanted) if len(wanted) else None
    except FittingError:
        return None
