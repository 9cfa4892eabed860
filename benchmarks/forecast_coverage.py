"""Do 95% intervals of forecasts hold what was measured? Public ladders and learning curves, cut and predicted.

    python benchmarks/forecast_coverage.py DATA

DATA has the tables gadre/models.csv, porian/isoflop_points.csv, olmo_ladder/{final_losses,c4_curves}.csv and
datablations/fit_182.csv. Each ladder or curve is cut at half and at seven tenths of its computes; the runs up to there
predict all dearer ones. `one law` is the interval of the richest law that the runs identify, as if it went on holding.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from scalewright.fitting.averaging import average_laws
from scalewright.fitting.errors import FittingError
from scalewright.fitting.forecast import best_law
from scalewright.fitting.frame import Points, check_points
from scalewright.fitting.optimum import flop_levels

SHARES = (0.5, 0.7)
LEAST_TRAIN = 4
LEAST_CURVE = 6
Curve = tuple[str, pd.DataFrame]


def table(n: "pd.Series", d: "pd.Series", loss: "pd.Series", flops: "pd.Series | None" = None) -> pd.DataFrame:
    columns = {"n_params": n.astype(float), "n_tokens": d.astype(float), "loss_nats": loss}
    frame = pd.DataFrame(columns | {"flops": 6.0 * n * d if flops is None else flops.astype(float)})
    return frame.dropna().sort_values("flops", kind="stable").reset_index(drop=True)


def gadre_ladders(data: Path) -> Iterator[Curve]:
    """Three training sets x eight validation sets, six sizes (arXiv:2403.08540)."""
    rows = pd.read_csv(data / "gadre" / "models.csv")
    for trained_on, own in rows.groupby("dataset"):
        for loss in [name for name in rows if name.startswith("loss__")]:
            yield f"{trained_on} {loss}", table(own["params_no_embed"], own["tokens"], own[loss])


def gadre_curves(data: Path) -> Iterator[Curve]:
    """The same, each size by itself: final loss against tokens."""
    for name, ladder in gadre_ladders(data):
        for size, own in ladder.groupby("n_params"):
            if len(own) >= LEAST_CURVE:
                yield f"{name} {size:.3g}", own.reset_index(drop=True)


def porian(data: Path) -> Iterator[Curve]:
    """IsoFLOP grids under fifteen settings (arXiv:2406.19146)."""
    rows = pd.read_csv(data / "porian" / "isoflop_points.csv")
    for key, own in rows.groupby(["file", "dataset", "hparams", "warmup", "decay", "param_count", "val"]):
        yield " ".join(map(str, key)), table(own["n"], own["t"], own["loss"], own["flops"])


def olmo_ladder(data: Path) -> Iterator[Curve]:
    """Five sizes x four budgets and two far targets, eleven validation sets (arXiv:2412.04403)."""
    rows = pd.read_csv(data / "olmo_ladder" / "final_losses.csv")
    for loss in rows.columns[6:-2]:
        yield loss, table(rows["params_nonemb"], rows["tokens"], rows[loss], rows["flops_per_token"] * rows["tokens"])


def olmo_curves(data: Path) -> Iterator[Curve]:
    """Loss during training, not annealed, without the first evaluation."""
    rows = pd.read_csv(data / "olmo_ladder" / "c4_curves.csv")
    for key, own in rows.groupby(["size", "xC", "rerun"]):
        curve = table(own["params_nonemb"], own["tokens"], own["c4_en"]).iloc[1:]
        if len(curve) >= LEAST_CURVE:
            yield " ".join(map(str, key)), curve.reset_index(drop=True)


def datablations(data: Path) -> Iterator[Curve]:
    """Runs that saw each token once (arXiv:2305.16264)."""
    rows = pd.read_csv(data / "datablations" / "fit_182.csv")
    once = rows[rows["tokens"] <= 1.01 * rows["unique_tokens"]]
    yield "once", table(once["params"], once["tokens"], once["val_loss"])


FAMILIES: dict[str, Callable[[Path], Iterator[Curve]]] = {
    "gadre ladders": gadre_ladders,
    "gadre curves": gadre_curves,
    "porian isoflop": porian,
    "olmo ladder": olmo_ladder,
    "olmo curves": olmo_curves,
    "datablations": datablations,
}


def averaged(train: Points, test: pd.DataFrame) -> pd.DataFrame:
    return average_laws(train).predict(test)


def one_law(train: Points, test: pd.DataFrame) -> pd.DataFrame:
    told = best_law(train).predict(test["n_params"], test["n_tokens"], flops=test["flops"], new_run=True).frame()
    return told.rename(columns={"loss_nats": "predicted"})


PREDICTORS = {"averaged": averaged, "one law": one_law}


def cuts(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield cheaper and dearer runs at each share of the computes."""
    levels = flop_levels(frame["flops"].to_numpy(dtype=np.float64))
    computes = np.unique(levels)
    for share in SHARES:
        last = max(round(share * len(computes)), 3)
        if last < len(computes) and (levels <= computes[last - 1]).sum() >= LEAST_TRAIN:
            yield frame[levels <= computes[last - 1]], frame[levels > computes[last - 1]]


def score(curves: list[Curve], predict: Callable[[Points, pd.DataFrame], pd.DataFrame]) -> dict[str, float]:
    """Return the share of runs inside their interval, each cut counting once; half-width and error of log loss."""
    rows = []
    for _, frame in curves:
        for train, test in cuts(frame):
            try:
                told = predict(check_points(train), test)
            except FittingError:
                continue
            low, middle, high = (told[name].to_numpy() for name in ("low", "predicted", "high"))
            loss = test["loss_nats"].to_numpy()
            inside = (low <= loss) & (loss <= high)
            error = np.sqrt(np.mean(np.log(middle / loss) ** 2))
            rows.append((inside.mean(), np.median(np.log(high / low)) / 2, error))
    covers, half, error = np.array(rows).T
    return {"cuts": len(rows), "covers": covers.mean(), "half-width": np.median(half), "error": np.median(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="the folder of the public tables")
    parser.add_argument("--every", type=int, default=1, help="take every so many curves")
    parser.add_argument("--predictor", choices=list(PREDICTORS), default="averaged")
    asked = parser.parse_args()
    if asked.data is None:
        print("forecast_coverage: needs the folder of the public tables")
        return
    predict = PREDICTORS[asked.predictor]
    found = {name: score(list(make(asked.data))[:: asked.every], predict) for name, make in FAMILIES.items()}
    print(pd.DataFrame(found).T.to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
