"""What the sweep before a grid (`tune:`) says: the peak learning rate of each method and size, and what it cost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewright.orchestrator.study import sweep_name

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database
    from scalewright.fitting.hyper import HyperResult, Optimum

DIGITS = 3  # of a rate: more than a sweep tells, so that a run that comes late seldom changes the grid's runs


@dataclass(frozen=True)
class Tuned:
    """A sweep of `lr_peak` that has ended. flops: of all its runs; rates_tried, seeds: what each method was given;
    places: (label, size) of its runs."""

    experiment: str
    result: "HyperResult"
    n_runs: int
    flops: float
    rates_tried: tuple[float, ...]
    seeds: tuple[int, ...]
    places: frozenset[tuple[str, str]]

    @property
    def edges(self) -> "tuple[Optimum, ...]":
        """Optima at the first or last rate of the sweep: a better rate may lie beyond."""
        return tuple(optimum for optimum in self.result.optima if optimum.edge)

    def rate(self, label: str, size: str, n_params: float) -> float:
        """Return the best rate of a label at a size; where the size was not swept, that of a power law in N through
        the label's best rates, those inside their sweep if there are two.

        Raises FittingError where the size was swept in vain, or no size has a best rate.
        """
        from scalewright.fitting.errors import FittingError

        optima = [one for one in self.result.optima if one.label == label]
        for one in optima:
            if one.size == size:
                return _rounded(one.best)
        if not optima or (label, size) in self.places:
            raise FittingError(f"{self.experiment}: fewer than 3 rates of {label} at {size} have a loss; try others")
        inside = [one for one in optima if one.usable]
        return _rounded(_power_law(inside if len(inside) > 1 else optima, n_params))


def _power_law(optima: "list[Optimum]", n_params: float) -> float:
    import numpy as np

    sizes = np.log([one.n_params for one in optima])
    line = np.polyfit(sizes, np.log([one.best for one in optima]), 1 if np.ptp(sizes) > 0 else 0)
    return float(np.exp(np.polyval(line, np.log(n_params))))


def read_sweep(runs: "pd.DataFrame", experiment: str) -> Tuned:
    """Read the sweep from its runs (the columns of final_losses); raises FittingError where it has no optimum."""
    from scalewright.fitting.hyper import fit_hyper

    return Tuned(
        experiment,
        fit_hyper(runs, "lr_peak"),
        len(runs),
        float(runs["flops"].sum()),
        tuple(sorted(map(float, runs["lr_peak"].unique()))),
        tuple(sorted(map(int, runs["seed"].unique()))),
        frozenset(zip(runs["label"], runs["size"], strict=True)),
    )


def sweep_behind(database: "Database", experiment: str, runs: "pd.DataFrame") -> Tuned | None:
    """Return the sweep whose rates the runs of an experiment were trained at, or None where that is not so."""
    from scalewright.db.frames import experiments, final_losses
    from scalewright.fitting.errors import FittingError

    name = sweep_name(experiment)
    if name not in set(experiments(database)["name"]):
        return None
    try:
        tuned = read_sweep(final_losses(database, name), name)
    except FittingError:
        return None
    at_these = {(one.label, one.size): _rounded(one.best) for one in tuned.result.optima}
    used = runs[[place in at_these for place in zip(runs["label"], runs["size"], strict=True)]]
    wanted = [at_these[place] for place in zip(used["label"], used["size"], strict=True)]
    return tuned if len(used) and (used["lr_peak"].astype(float) == wanted).all() else None


def _rounded(rate: float) -> float:
    return float(f"{rate:.{DIGITS}g}")
