"""Which runs of an experiment can be forecast, and the forecast itself."""

from typing import TYPE_CHECKING

from scalewright.db.run_states import ENDED

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.forecast import Forecast


def pending_runs(runs: "pd.DataFrame", planned: "pd.DataFrame") -> "pd.DataFrame":
    """Return the runs still to end, with the tokens and FLOPs that they were planned with."""
    waiting = runs[~runs["state"].isin([*ENDED, "cancelled"])].drop(columns=["n_tokens", "flops", "loss_nats"])
    named = planned[["run_id", "n_tokens_planned", "flops_planned"]]
    return waiting.merge(named, on="run_id").rename(columns={"n_tokens_planned": "n_tokens", "flops_planned": "flops"})


def held_out(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Return finished runs that are marked holdout: no law is fitted to them."""
    marked = runs["holdout"].fillna(False).astype(bool)
    return runs[marked & (runs["state"] == "completed") & runs["loss_nats"].notna()]


def predict(runs: "pd.DataFrame", pending: "pd.DataFrame") -> "Forecast":
    from scalewright.fitting.forecast import forecast

    return forecast(runs[~runs["run_id"].isin(pending["run_id"])], pending)


def expected(runs: "pd.DataFrame", planned: "pd.DataFrame") -> tuple["Forecast | None", "Forecast | None"]:
    """Forecast the runs to come, and the runs held out; None where there are none or no method has enough others."""
    from scalewright.fitting.errors import FittingError

    found = []
    for wanted in (pending_runs(runs, planned), held_out(runs)):
        try:
            found.append(predict(runs, wanted) if len(wanted) else None)
        except FittingError:
            found.append(None)
    return found[0], found[1]
