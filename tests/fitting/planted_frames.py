"""A frame for each figure of FIGURES, with every case that it draws differently."""

import itertools

import numpy as np
import pandas as pd

from scalewright.fitting.figures.axes import short
from scalewright.fitting.figures.losses import Band

LABELS = ("gpt+", "angpt", "pre-ln", "pre-ln+gpas")
SIZES = {"27k": 27_000, "55k": 55_000, "141k": 141_000}
BUDGETS = (196_608, 393_216, 786_432)
CHOICES = ("objective", "parameters", "excluded")


def finals() -> pd.DataFrame:
    grid = ((i, label, size, n, d) for i, label in enumerate(LABELS) for size, n in SIZES.items() for d in BUDGETS)
    rows = [
        {"label": label, "size": size, "n_params": n, "n_tokens": d, "seed": 0, "on_frontier": d > 2 * n,
         "run_id": f"{i:02d}{n:06d}{d:08d}", "flops": 6.0 * n * d,
         "loss_nats": 1.2 + 6 * n**-0.4 + 60 * (d * (1 + i)) ** -0.4, "residual": 0.01 * np.sin(n + d + i),
         "influence": float((n + d) % 97)}
        for i, label, size, n, d in grid
    ]  # fmt: skip
    return pd.DataFrame(rows)


def band(words: str = "GPT+: exponent 0.07 [0.05, 0.09]") -> Band:
    x = np.geomspace(3e10, 7e11, 20)
    middle = 8 * x**-0.05
    return Band(x, middle, 0.98 * middle, 1.02 * middle, words)


def evaluations() -> pd.DataFrame:
    parts = [
        finals().assign(n_tokens=lambda f, s=share: f["n_tokens"] * s, final=share == 1.0) for share in (0.25, 0.5, 1.0)
    ]
    return pd.concat(parts).assign(annealed=lambda f: f["final"] & (f["label"] != "angpt"))


def comparisons() -> tuple[pd.DataFrame, pd.DataFrame]:
    names = [
        (m, b, u) for m, b in (("angpt", "gpt+"), ("pre-ln+gpas", "pre-ln")) for u in ("tokens", "FLOPs", "seconds")
    ]
    ratios = np.array([1.7, 1.6, 1.4, 1.0, 0.99, 0.9])
    pooled = pd.DataFrame(names, columns=["method", "baseline", "unit"]).assign(
        ratio=ratios, low=ratios * 0.9, high=[*(ratios[:5] * 1.1), np.inf], n=9
    )
    cells = pd.concat(
        [pooled[["method", "baseline", "unit", "ratio"]].assign(extrapolated=past) for past in (False, True)]
    )
    return pooled, cells


def specifications() -> pd.DataFrame:
    grid = itertools.product(("huber", "lad", "log-l2"), ("non-embedding", "total"), ("none", "2 worst"))
    frame = pd.DataFrame(grid, columns=list(CHOICES))
    value = 0.36 + 0.01 * np.arange(len(frame))
    return frame.assign(
        value=value, low=value - 0.03, high=np.where(np.arange(len(frame)) % 4 == 0, np.inf, value + 0.04)
    )


def law_map() -> tuple[object, ...]:
    n, d = np.geomspace(2e4, 2e5, 30), np.geomspace(1.5e5, 1e6, 30)
    loss = 1.2 + 6 * n[None, :] ** -0.4 + 60 * d[:, None] ** -0.4
    return finals().query("label == 'angpt'"), (n, d, loss), (n, 0.1 * n**1.3)


def optima() -> pd.DataFrame:
    cells = itertools.product(LABELS[:2], SIZES.values(), BUDGETS[:2])
    frame = pd.DataFrame(cells, columns=["label", "n_params", "n_tokens"])
    frame = frame.assign(size=frame["n_params"].map(short), budget=frame["n_tokens"].map(short))
    best = 0.02 * (frame["n_params"] / 55e3) ** -0.3
    return frame.assign(
        best=best,
        low=best / 1.3,
        high=best * 1.3,
        loss_best=2.0,
        curvature=0.03,
        usable=frame["n_params"] < 1e5,
        resolved=True,
    )


def sweep_points() -> pd.DataFrame:
    grid = optima().merge(pd.DataFrame({"lr_peak": [0.005, 0.01, 0.02, 0.04]}), how="cross")
    return grid.assign(loss_nats=2.0 * np.exp(0.03 * np.log(grid["lr_peak"] / grid["best"]) ** 2))


def isoflop() -> tuple[pd.DataFrame, pd.DataFrame]:
    parabolas = pd.DataFrame(
        {"flops_budget": [1e18, 1e19], "n_star": [1e8, 3e8], "loss_star": [3.0, 2.7], "curvature": [0.03, 0.03]}
    ).assign(refused=["", "unbracketed"])
    points = parabolas.merge(pd.DataFrame({"step": [-1.0, -0.5, 0.0, 0.5, 1.0]}), how="cross")
    points["n_params"] = points["n_star"] * np.exp(points["step"])
    return points.assign(loss_nats=points["loss_star"] * np.exp(0.03 * points["step"] ** 2)), parabolas


def layer_values() -> pd.DataFrame:
    grid = itertools.product(("pre-ln", "pre-ln+gpas"), ("activation_variance", "weight_norm"), (100, 2000), range(6))
    frame = pd.DataFrame(grid, columns=["label", "metric", "step", "layer"])
    return frame.assign(n_tokens=frame["step"] * 1000, value=2.0 ** frame["layer"] * frame["step"])


def inputs() -> dict[str, tuple[tuple[object, ...], dict[str, object]]]:
    residuals = finals()
    rise = pd.DataFrame({"value": np.linspace(0.1, 1.5, 50), "rise": 3 * np.log(np.linspace(0.1, 1.5, 50) / 0.4) ** 2})
    decades = np.linspace(0.1, 1, 10)
    forecasts = pd.DataFrame({"law": ["chinchilla", "last value"] * 5, "decades": decades, "error": decades / 20})
    rows = pd.DataFrame({"name": [f"55k {i}" for i in range(4)], "label": LABELS, "predicted": [2.0, 2.1, 2.2, 2.3],
                         "low": 1.9, "high": 2.4, "measured": [2.02, 2.1, np.nan, np.nan]})  # fmt: skip
    variants = pd.DataFrame({"label": LABELS, "nats": [-0.03, 0.01, -0.01, 0.0], "n": 3})
    variants = variants.assign(low=variants["nats"] - 0.01, high=variants["nats"] + 0.01)
    return {
        "ablation": ((variants,), {"base": "gpt+"}),
        "layers": ((layer_values(),), {}),
        "loss-against-compute": ((residuals, {"gpt+": band()}), {}),
        "loss-against-tokens": ((residuals,), {}),
        "speed-ups": (comparisons(), {}),
        "training-curves": ((evaluations(),), {}),
        "isoflop-profiles": (isoflop(), {}),
        "contours": (law_map(), {}),
        "compute-optimal": (({"gpt+": band("GPT+: a = 0.5")}, {"gpt+": band("GPT+: b = 0.5")}), {}),
        "sweeps": ((sweep_points(), optima()), {}),
        "best-settings": ((optima(), optima().assign(value=optima()["best"])), {}),
        "specification-curve": ((specifications(), list(CHOICES)), {"parameter": "beta", "headline": 0.4}),
        "rolling-origin": ((forecasts,), {}),
        "profile": ((rise,), {"parameter": "alpha", "estimate": 0.4, "low": 0.2, "high": np.inf, "threshold": 1.9}),
        "diagnostics": ((residuals,), {}),
        "forecast": ((rows,), {}),
        "design": ((residuals,), {}),
    }  # fmt: skip
