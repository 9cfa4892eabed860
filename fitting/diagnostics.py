"""What a fit rests on: residuals, leverage, and what leaving out each run would do. Knows fits.

Influence is exact: every leave-one-out fit is re-solved, all in one batch.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.errors import FittingError
from fitting.fit import FitSettings, lay_out
from fitting.frame import Points
from fitting.problem import held_at_bound, resolve
from fitting.result import FitResult
from fitting.threads import single_threaded

Array = NDArray[np.float64]

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
    if points.data_hash() != result.provenance.data_hash:
        raise FittingError("diagnostics need the points of the fit: their data hashes differ")
    problem = lay_out(points, result.law)
    objective = FitSettings(result.objective, result.delta if result.objective == "huber" else None).resolve()
    theta = np.asarray(np.linalg.solve(problem.to_raw, result.estimate.theta), dtype=np.float64)
    without = resolve(problem, objective, theta, 1.0 - np.eye(len(points)))
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
