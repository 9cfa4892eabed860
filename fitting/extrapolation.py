"""Rolling origin: fit the cheapest runs, predict the dearer ones, and see how the error grows with the distance.

Knows fits. Beside the law stand two baselines that any law must beat: the last value, and a pure power law in compute.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import PointRules, Points, check_points
from scalewright.fitting.optimum import flop_levels, pareto

Array = NDArray[np.float64]

LAST_VALUE = "last value"
PURE_POWER = "pure-power"


@dataclass(frozen=True)
class RollingOrigin:
    """`rows` has one row a prediction: law, label, n_train, decades, run_id, measured, predicted, error, identified.

    identified: whether the runs that entered identify every parameter of the law.
    decades: of compute past the dearest run that entered; error: predicted over measured loss, minus 1.
    """

    rows: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Return the RMS error of each law by whole decades of extrapolation, with the number of predictions."""
        table = self.rows.assign(within=np.ceil(self.rows["decades"].clip(lower=1e-9)).astype(int))
        squares = table.assign(square=table["error"] ** 2).groupby(["law", "within"])["square"]
        out = pd.DataFrame({"rms_error": np.sqrt(squares.mean()), "n": squares.size()})
        return out.reset_index()


def rolling_origin(
    points: Points | pd.DataFrame, law: str = "chinchilla", *, rules: PointRules | None = None
) -> RollingOrigin:
    """Fit on the k lowest levels of compute of each method, for every k that can be fitted, and predict the rest.

    Raises FittingError when no split can be fitted.
    """
    checked = check_points(points, rules)
    rows: list[pd.DataFrame] = []
    reasons = []
    for method in checked.methods:
        own = checked.of(method)
        levels = flop_levels(own.column("flops"))
        for ceiling in np.unique(levels)[:-1]:
            train, test = own.where(pd.Series(levels <= ceiling)), own.frame[levels > ceiling]
            try:
                rows += [_predict(law, train, test), _predict(PURE_POWER, train, test), _last(train, test)]
            except FittingError as error:
                reasons.append(str(error))
    if not rows:
        raise FittingError(
            f"no split of these runs can be fitted: {reasons[-1] if reasons else 'one level of compute'}"
        )
    return RollingOrigin(pd.concat(rows, ignore_index=True))


def _predict(law: str, train: Points, test: pd.DataFrame) -> pd.DataFrame:
    result = fit(pareto(train) if law == PURE_POWER else train, law, profile="never")
    told = result.predict(test["n_params"], test["n_tokens"], flops=test["flops"], method=train.methods[0]).value
    return _rows(law, train, test, told).assign(identified=result.identified and not result.certificate.at_bound)


def _last(train: Points, test: pd.DataFrame) -> pd.DataFrame:
    """Predict that nothing gets better: the lowest loss seen so far."""
    return _rows(LAST_VALUE, train, test, np.full(len(test), train.column("loss_nats").min())).assign(identified=True)


def _rows(law: str, train: Points, test: pd.DataFrame, told: Array) -> pd.DataFrame:
    measured = test["loss_nats"].to_numpy(dtype=np.float64)
    decades = np.log10(test["flops"].to_numpy(dtype=np.float64) / train.column("flops").max())
    return pd.DataFrame(
        {
            "law": law,
            "label": train.methods[0],
            "n_train": len(train),
            "decades": decades,
            "run_id": test["run_id"].to_numpy(),
            "measured": measured,
            "predicted": told,
            "error": told / measured - 1,
        }
    )
