"""What an analysis reads of an experiment, which runs enter, and a hash of each part: whether a figure still holds."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from scalewright.db.run_states import ENDED
from scalewright.orchestrator.analysis.settings import with_settings
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.frame import Points

LAYER_METRICS = ("activation_variance", "gradient_norm", "weight_norm")


@dataclass(frozen=True)
class Inputs:
    """The frames of one experiment as the database holds them now.

    runs: final losses with settings, ended or not; planned: the same runs as planned; evaluations, curves and layers:
    what was measured along training; compare: pairs (label, baseline) that were asked for.
    """

    runs: "pd.DataFrame"
    planned: "pd.DataFrame"
    evaluations: "pd.DataFrame"
    curves: "pd.DataFrame | None"
    layers: "pd.DataFrame"
    compare: tuple[tuple[str, str], ...] = ()

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each part that a line of FIGURES may read."""
        ended = self.runs["state"].isin(ENDED)
        waiting = self.runs.loc[~ended, ["run_id", "label", "size", "budget", "state"]]
        still = self.planned[["run_id", "n_tokens_planned", "flops_planned"]]
        found = {
            "finished": self.runs[ended].to_csv(index=False),
            "waiting": waiting.merge(still, on="run_id").to_csv(index=False),
            "evaluations": self.evaluations.to_csv(index=False),
            "curves": "" if self.curves is None else self.curves.to_csv(index=False),
            "layers": self.layers.to_csv(index=False),
            "compare": json.dumps(self.compare),
        }
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()}

    def stamp(self, figure: str, reads: Sequence[str]) -> str:
        """Return the SHA-256 of what a figure is drawn from: its name and the parts that it reads."""
        parts = [figure, *(f"{name} {self.hashes[name]}" for name in reads)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read_inputs(study: Study, experiment: str, compare: Sequence[tuple[str, str]] = ()) -> Inputs:
    """Read what an analysis of a synced experiment starts from; raises UserError where no run has ended."""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import evaluations, final_losses
    from scalewright.db.frames import runs as list_runs

    database = open_database(study.database, create=False)
    try:
        runs = with_settings(database, experiment, final_losses(database, experiment))
        points = entering(runs, experiment).frame
        return Inputs(
            runs,
            planned=list_runs(database, experiment),
            evaluations=evaluations(database, experiment=experiment),
            curves=_logged_curves(database, points["run_id"].tolist()),
            layers=_logged_layers(database, points),
            compare=tuple(compare),
        )
    finally:
        database.close()


def entering(runs: "pd.DataFrame", experiment: str) -> "Points":
    """Return the runs that enter, of each sweep the best, with their size's name and on_frontier."""
    from scalewright.fitting.frame import PointRules, check_points
    from scalewright.fitting.hyper import best_of_sweeps

    require_ended(runs, experiment)
    return mark_frontier(_name_sizes(best_of_sweeps(check_points(runs, PointRules()))))


def _logged_curves(database: "Database", run_ids: Sequence[str]) -> "pd.DataFrame | None":
    """Return the training loss of runs, or None where none was logged (imported points, for one)."""
    from scalewright.db.errors import DbError
    from scalewright.db.frames import curves

    try:
        return curves(database, run_ids)
    except DbError:
        return None


def _logged_layers(database: "Database", points: "pd.DataFrame") -> "pd.DataFrame":
    """Return LAYER_METRICS of one run a label: of those where they were logged the largest, longest trained."""
    from scalewright.db.frames import layer_values

    values = layer_values(database, points["run_id"], LAYER_METRICS)
    seen = points[points["run_id"].isin(values["run_id"])]
    last = seen.sort_values(["n_params", "n_tokens"], kind="stable").groupby("label").tail(1)
    return last[["run_id", "label", "size", "budget"]].merge(values, on="run_id")


def require_ended(runs: "pd.DataFrame", experiment: str) -> None:
    """Raise UserError that says what to do next where no run has a final loss yet."""
    ended = runs["loss_nats"].notna()
    if not len(runs):
        raise UserError(f"experiment {experiment!r} has no runs; plan them with: scalewright plan experiments.yaml")
    if not ended.any():
        states = ", ".join(f"{n} {state}" for state, n in runs["state"].value_counts().items())
        raise UserError(f"experiment {experiment!r}: no run has ended yet ({states}); see: scalewright status")


def _name_sizes(points: "Points") -> "Points":
    """Name the sizes of points that came without names (imported ones) by their parameters."""
    from scalewright.fitting.curve import size_keys
    from scalewright.fitting.figures.axes import short

    if "size" in points.frame and points.frame["size"].notna().all():
        return points
    if points.frame["n_params"].isna().any():
        return replace(points, frame=points.frame.assign(size="all"))
    return replace(points, frame=points.frame.assign(size=[short(float(key)) for key in size_keys(points.frame)]))


def mark_frontier(points: "Points") -> "Points":
    """Say of each run whether it is on its label's frontier: no run of the label with as little compute did as well."""
    from scalewright.fitting.optimum import pareto

    best = pareto(points).frame["run_id"]
    return replace(points, frame=points.frame.assign(on_frontier=points.frame["run_id"].isin(best)))
