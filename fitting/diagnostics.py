"""What a fit rests on: residuals, leverage, and what leaving out each run would do. Knows fits.

Influence is exact for up to 500 runs, each left out and re-solved in one batch; beyond, for the runs that matter most.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import coordinates_of, hold_as, lay_out, problem_of
from scalewright.fitting.frame import Points, check_points
from scalewright.fitting.problem import Problem, held_at_bound, resolve
from scalewright.fitting.result import FitResult
from scalewright.fitting.robust import Scores, influence_steps
from scalewright.fitting.threads import single_threaded

Array = NDArray[np.float64]

ALL_EXACT, WORST_EXACT = 500, 32  # runs up to which each is left out exactly, and how many beyond that
OUTLIER = 4.0  # residuals beyond this many scales are flagged


@dataclass(frozen=True)
class Diagnostics:
    """`rows` has run_id, label, flops, n_params, n_tokens, residual, leverage, influence, moves, outlier.

    residual: log of fitted over measured loss; influence: the largest change of a parameter when the run is left out,
    in standard errors; moves: that parameter; outlier: a residual beyond chance.
    """

    rows: pd.DataFrame

    @property
    def outliers(self) -> tuple[str, ...]:
        """Runs whose residual is beyond chance."""
        return tuple(self.rows.loc[self.rows["outlier"], "run_id"])

    def most_influential(self, n: int = 5) -> pd.DataFrame:
        """Return the runs that move the fit most."""
        return self.rows.sort_values("influence", ascending=False, kind="stable").head(n).reset_index(drop=True)


@single_threaded
def diagnose(points: Points, result: FitResult) -> Diagnostics:
    """Return residuals, leverage and influence of every run of a fit (the points must be those of the fit).

    Raises FittingError for other points.
    """
    problem = problem_of(points, result)
    theta = coordinates_of(problem, result)
    without = _without_each(problem, result, theta)
    spread = np.sqrt(np.diag(result.estimate.covariance).clip(min=0))
    moved = np.abs((without - theta) @ problem.to_raw.T) / np.where(spread > 0, spread, np.inf)
    _, jacobian = problem.predict(theta)
    free = ~held_at_bound(problem, theta)
    q, _ = np.linalg.qr(jacobian[:, free])
    columns = [c for c in ("run_id", "label", "flops", "n_params", "n_tokens") if c in points.frame]
    sigma = result.estimate.noise.sigma
    rows = points.frame[columns].assign(
        residual=result.residuals,
        leverage=(q**2).sum(axis=1),
        influence=moved.max(axis=1),
        moves=[problem.names[j] for j in moved.argmax(axis=1)],
        outlier=np.abs(result.residuals) > OUTLIER * sigma if sigma > 0 else False,
    )
    return Diagnostics(rows)


def _without_each(problem: Problem, result: FitResult, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return theta with each run left out: re-solved for few runs, else by one robust step and re-solved for the worst.

    The step is theta - H^-1 (score without the run); among many runs it is off by little, and the runs that move the
    fit most, which are what is read, are solved exactly.
    """
    n, objective = len(problem.log_loss), result.settings.resolve()
    if n <= ALL_EXACT:
        return resolve(problem, objective, theta, 1.0 - np.eye(n))
    predicted, jacobian = problem.predict(theta)
    free = ~held_at_bound(problem, theta)
    factor = np.exp(2 * predicted) if objective.raw else np.ones(n)
    moves = influence_steps(Scores(jacobian[:, free], factor, result.residuals, objective), result.estimate.noise)
    without = np.repeat(theta[None], n, axis=0)
    without[:, free] += moves
    scale = np.sqrt((moves**2).mean(axis=0)) + 1e-300
    worst = np.sort(np.argsort(-(np.abs(moves) / scale).max(axis=1), kind="stable")[:WORST_EXACT])
    weights = np.ones((len(worst), n))
    weights[np.arange(len(worst)), worst] = 0.0
    without[worst] = resolve(problem, objective, theta, weights)
    return without


@single_threaded
def influence_of_excluded(frame: pd.DataFrame, result: FitResult) -> pd.DataFrame:
    """Return what each run that was left out would have done: run_id, reason, influence, moves; sorted by influence.

    `frame` is the raw table of the fit. A run enters alone beside the fitted ones; influence is the largest change of
    a parameter in standard errors, NaN where the run has no finite loss, N and D to enter with. Raises FittingError
    when the table does not give the points of the fit.
    """
    rules = result.provenance.rules
    points = check_points(frame, rules)
    if points.data_hash() != result.provenance.data_hash:
        raise FittingError("the influence of excluded runs needs the table of the fit: the data hashes differ")
    open_rules = replace(rules, holdout=True, unannealed=True, diverged=True, exclude_worst=0)
    settled = frame.drop(columns=[c for c in ("state",) if c in frame])
    every = {str(row["run_id"]): row for _, row in check_points(settled, open_rules).frame.iterrows()}
    rows = []
    for left_out in dict.fromkeys(result.excluded):
        moves, influence = "", float("nan")
        if left_out.run_id in every and left_out.run_id not in set(result.provenance.run_ids):
            added = pd.concat([points.frame, every[left_out.run_id].to_frame().T], ignore_index=True)
            moves, influence = _moved(Points(added, (), rules), result)
        rows.append((left_out.run_id, left_out.reason, influence, moves))
    table = pd.DataFrame(rows, columns=["run_id", "reason", "influence", "moves"])
    return table.sort_values("influence", ascending=False, kind="stable", na_position="last").reset_index(drop=True)


def _moved(points: Points, result: FitResult) -> tuple[str, float]:
    """Which parameter moves most when the fit is made on other points, and by how many standard errors."""
    problem = hold_as(lay_out(points, result.law), result)
    start = coordinates_of(problem, result)
    theta = resolve(problem, result.settings.resolve(), start, np.ones((1, len(points))))[0] @ problem.to_raw.T
    spread = np.sqrt(np.diag(result.estimate.covariance).clip(min=0))
    moved = np.abs(theta - result.estimate.theta) / np.where(spread > 0, spread, np.inf)
    return problem.names[int(moved.argmax())], float(moved.max())
