"""Coverage, width and power of the joint comparison against an oracle, over designs, noises and surfaces.

Each study is simulated from a known surface, compared with `scalewright.fitting.joint`, and with an oracle: the
additive law with its exponents known. Run: python benchmarks/coverage.py --studies 400 --jobs 2
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import check_points
from scalewright.fitting.joint.answer import joint_comparison
from scalewright.fitting.joint.shift import Interval

Array = NDArray[np.float64]
E, A, ALPHA, B, BETA = 1.8, 480.0, 0.35, 2080.0, 0.37  # about the published law of Hoffmann et al. (arXiv:2203.15556)
NOISE = 0.005  # of log loss
LAST = ("loss coverage", "not 1", "bias", "open")
SIGNS = {"method": 0.5, "baseline": -0.5}


@dataclass(frozen=True)
class Design:
    """Sizes in parameters, budgets in tokens a parameter, seeds a cell, and the share of variance that seeds share."""

    name: str
    sizes: tuple[float, ...]
    ratios: tuple[float, ...]
    n_seeds: int = 1
    paired: float = 0.0


DESIGNS = (
    Design("2x3", (2e7, 2e8), (5, 20, 80)),
    Design("3x3", (2e7, 6e7, 2e8), (5, 20, 80)),
    Design("3x3, 3 seeds", (2e7, 6e7, 2e8), (5, 20, 80), 3),
    Design("3x3, 3 seeds, paired .8", (2e7, 6e7, 2e8), (5, 20, 80), 3, 0.8),
    Design("6x5", tuple(np.geomspace(1e7, 3e9, 6)), tuple(np.geomspace(4, 400, 5))),
)


def normal(rng: np.random.Generator, table: pd.DataFrame) -> Array:
    return NOISE * rng.normal(size=len(table))


def student_t3(rng: np.random.Generator, table: pd.DataFrame) -> Array:
    return NOISE * rng.standard_t(3, size=len(table)) / math.sqrt(3)


def unequal(rng: np.random.Generator, table: pd.DataFrame) -> Array:
    """Two and a half times the scatter at the smallest budget of each size."""
    small = table["ratio"] == table["ratio"].min()
    return NOISE * np.where(small, 2.0, 0.8) * rng.normal(size=len(table))


def clustered(rng: np.random.Generator, table: pd.DataFrame) -> Array:
    """Runs of one method and size share an effect: 0.64 of the variance."""
    groups = pd.factorize(table["label"] + table["n_params"].astype(str))[0]
    return NOISE * (0.6 * rng.normal(size=len(table)) + 0.8 * rng.normal(size=groups.max() + 1)[groups])


NOISES: dict[str, Callable[[np.random.Generator, pd.DataFrame], Array]] = {
    "normal": normal,
    "t3": student_t3,
    "unequal": unequal,
    "clustered": clustered,
}


def additive(n: Array, d: Array) -> Array:
    return np.asarray(E + A * n**-ALPHA + B * d**-BETA)


def coupled(n: Array, d: Array) -> Array:
    """A surface that no additive law is: the exponent of tokens falls with size (after Li et al. 2025)."""
    exponent = BETA * (n / 6e7) ** -0.05
    return np.asarray(E + A * n**-ALPHA + B * 1e9 ** (exponent - BETA) * d**-exponent)


SURFACES = {"additive": additive, "coupled": coupled}


@dataclass(frozen=True)
class Row:
    design: Design
    noise: str
    surface: str
    ratio: float


def simulate(row: Row, seed: int) -> pd.DataFrame:
    """Return the runs of one study: the method is the baseline at `ratio` times the tokens."""
    rng = np.random.default_rng([seed, 5])
    cells = list(itertools.product(row.design.sizes, row.design.ratios, range(row.design.n_seeds)))
    one = pd.DataFrame(cells, columns=["n_params", "ratio", "seed"])
    one["n_tokens"] = one["n_params"] * one["ratio"]
    both = pd.concat([one.assign(label=label) for label in SIGNS], ignore_index=True)
    speed = np.where(both["label"] == "method", row.ratio, 1.0)
    own, share = NOISES[row.noise](rng, both), row.design.paired
    common = np.tile(NOISES[row.noise](rng, one.assign(label="")), 2)
    log_loss = np.log(SURFACES[row.surface](both["n_params"].to_numpy(), both["n_tokens"].to_numpy() * speed))
    both["loss_nats"] = np.exp(log_loss + math.sqrt(1 - share) * own + math.sqrt(share) * common)
    return both


def oracle(table: pd.DataFrame, row: Row) -> Interval:
    """The additive law with known exponents, and pairs taken off where seeds share their noise."""
    n, d = table["n_params"].to_numpy(), table["n_tokens"].to_numpy()
    side = table["label"].map(SIGNS).to_numpy()
    y = np.log(table["loss_nats"].to_numpy())
    p = np.array([E, A, B, math.log(row.ratio)])
    pair = pd.factorize(table["n_params"].astype(str) + table["n_tokens"].astype(str) + table["seed"].astype(str))[0]
    same = np.equal.outer(pair, pair)
    v = (1 - row.design.paired) * np.eye(len(y)) + row.design.paired * same
    whiten = np.linalg.inv(np.linalg.cholesky(v))
    for _ in range(8):
        tokens = d * np.exp(p[3] * side)
        model = p[0] + p[1] * n**-ALPHA + p[2] * tokens**-BETA
        slope = -BETA * p[2] * tokens**-BETA * side
        x = whiten @ (np.column_stack([np.ones(len(y)), n**-ALPHA, tokens**-BETA, slope]) / model[:, None])
        r = whiten @ (y - np.log(model))
        scale = np.linalg.norm(x, axis=0)
        p = p + np.linalg.lstsq(x / scale, r, rcond=None)[0] / scale
    df = len(y) - 4
    se = math.sqrt(np.linalg.inv((x / scale).T @ (x / scale))[3, 3] * float(r @ r) / df) / scale[3]
    reach = stats.t.ppf(0.975, df) * se
    return Interval(float(p[3]), float(p[3] - reach), float(p[3] + reach))


def study(row: Row, seed: int) -> tuple[float, ...] | None:
    """Return ln speed-up, low, high, the oracle's width and whether the loss difference is covered; None if refused."""
    table = simulate(row, seed)
    try:
        found = joint_comparison(check_points(table), "method", "baseline", scales=False)
    except FittingError:
        return None
    one = found.speedups[0]
    known = oracle(table, row) if row.surface == "additive" else Interval(math.nan, math.nan, math.nan)
    n, d = table["n_params"].to_numpy(), table["n_tokens"].to_numpy()
    true_gap = np.log(SURFACES[row.surface](n, d * row.ratio) / SURFACES[row.surface](n, d)).mean()
    gap = found.log_ratio(found.runs.shared_cells)
    logs = [math.log(v) if v > 0 else -math.inf for v in (one.ratio, one.low, one.high)]
    return *logs, known.high - known.low, float(gap.low <= true_gap <= gap.high)


def measure(row: Row, n_studies: int, run: Callable[..., object]) -> dict[str, object]:
    found = [one for one in run(partial(study, row), range(n_studies)) if one is not None]  # type: ignore[attr-defined]
    value, low, high, width, gap = np.array(found).T
    truth = math.log(row.ratio)
    closed = np.isfinite(high - low)
    return {
        "design": row.design.name,
        "noise": row.noise,
        "surface": row.surface,
        "ratio": row.ratio,
        "studies": len(found),
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
        "width": float(np.median(high - low)),
        "over oracle": float(np.median(high - low) / np.median(width)),
        "loss coverage": float(gap.mean()),
        "not 1": float(((low > 0) | (high < 0)).mean()),
        "bias": float(np.median(value) - truth),
        "open": float(1 - closed.mean()),
    }


def rows() -> list[Row]:
    cases = itertools.product(DESIGNS, NOISES, SURFACES, (1.0, 1.3))
    return [Row(*case) for case in cases if not (case[1] != "normal" and case[2] != "additive")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose design, noise or surface is this word")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    columns = ("design", "noise", "surface", "speed-up", "studies", "coverage", "width", "over oracle", *LAST)
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with ProcessPoolExecutor(asked.jobs) as pool:
        for row in rows():
            if asked.only and asked.only not in (row.design.name, row.noise, row.surface):
                continue
            found = measure(row, asked.studies, partial(pool.map, chunksize=10))
            shown = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in found.values()]
            print(json.dumps(found) if asked.json else f"| {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
