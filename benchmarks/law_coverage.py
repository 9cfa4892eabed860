"""Coverage and width of the default intervals of law chinchilla under known truth and five kinds of noise.

Width is beside that of an oracle: the range that holds 95% of the estimates of the same studies, which is what an
interval of one width would need. Run: python benchmarks/law_coverage.py --studies 120 --jobs 2
"""

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit

Array = NDArray[np.float64]
PUBLIC = Path(__file__).parent.parent / "tests" / "fitting" / "data" / "porian_refinedweb.csv"
PUBLIC_SETTING = "tuned-short-const-standard"  # isoFLOP curves of arXiv:2406.19146
TRUTH = {"E": 1.8, "A": 480.0, "alpha": 0.35, "B": 2080.0, "beta": 0.37}  # about that of arXiv:2203.15556
TOLD = ("E", "alpha", "beta")
NOISE = 0.003  # standard deviation of log loss
SHAPES = {12: (4, 3), 35: (7, 5), 72: (9, 8), 240: (16, 15)}  # runs: sizes, budgets a size
Study = tuple[dict[str, float], pd.DataFrame]


def loss(truth: dict[str, float], runs: pd.DataFrame) -> Array:
    n, d = runs["n_params"].to_numpy(), runs["n_tokens"].to_numpy()
    return np.asarray(truth["E"] + truth["A"] * n ** -truth["alpha"] + truth["B"] * d ** -truth["beta"])


def grid(n_runs: int) -> pd.DataFrame:
    """Sizes from 3e7 to 6e9 parameters at 2 to 200 tokens a parameter."""
    n_sizes, n_ratios = SHAPES[n_runs]
    n = np.repeat(np.geomspace(3e7, 6e9, n_sizes), n_ratios)
    ratio = np.tile(np.geomspace(2, 200, n_ratios), n_sizes)
    return pd.DataFrame({"n_params": n, "n_tokens": n * ratio, "ratio": ratio})


def normal(rng: np.random.Generator, runs: pd.DataFrame) -> Array:
    return NOISE * rng.normal(size=len(runs))


def student_t3(rng: np.random.Generator, runs: pd.DataFrame) -> Array:
    return NOISE * rng.standard_t(3, size=len(runs)) / math.sqrt(3)


def unequal(rng: np.random.Generator, runs: pd.DataFrame) -> Array:
    """Two and a half times the scatter at the smallest budget of each size."""
    small = runs["ratio"] == runs["ratio"].min()
    return NOISE * np.where(small, 2.0, 0.8) * rng.normal(size=len(runs))


def clustered(rng: np.random.Generator, runs: pd.DataFrame) -> Array:
    """Runs of one size share an effect of .4% of the loss, beside .3% of their own."""
    size = pd.factorize(runs["n_params"])[0]
    return NOISE * rng.normal(size=len(runs)) + 0.004 * rng.normal(size=size.max() + 1)[size]


NOISES: dict[str, Callable[[np.random.Generator, pd.DataFrame], Array]] = {
    "normal": normal,
    "t3": student_t3,
    "unequal": unequal,
    "clustered": clustered,
}


def simulated(noise: str, n_runs: int, rng: np.random.Generator) -> Study:
    runs = grid(n_runs)
    return TRUTH, runs.assign(loss_nats=loss(TRUTH, runs) * np.exp(NOISES[noise](rng, runs)))


@cache
def public_set() -> tuple[dict[str, float], pd.DataFrame]:
    """Return the law fitted to the public runs, taken for true, and these runs with their log residuals."""
    runs = pd.read_csv(PUBLIC).query("setting == @PUBLIC_SETTING")
    runs = runs.rename(columns={"n": "n_params", "t": "n_tokens", "loss": "loss_nats"})[
        ["n_params", "n_tokens", "flops", "loss_nats"]
    ].reset_index(drop=True)
    truth = {name: one.value for name, one in fit(runs, profile="never").params.items()}
    return truth, runs.assign(residual=np.log(runs["loss_nats"] / loss(truth, runs)))


def resigned(n_runs: int, rng: np.random.Generator) -> Study:
    """Public runs, each with its own residual under a random sign; drawn without return, or twice where too few."""
    truth, runs = public_set()
    pool = np.tile(np.arange(len(runs)), math.ceil(n_runs / len(runs)))
    drawn = runs.iloc[rng.permutation(pool)[:n_runs]].reset_index(drop=True)
    signs = rng.choice([-1.0, 1.0], size=n_runs)
    return truth, drawn.assign(loss_nats=loss(truth, drawn) * np.exp(signs * drawn["residual"]))


def study(noise: str, n_runs: int, seed: int) -> list[tuple[float, float, float, float]] | None:
    """Return truth, estimate, low and high of each parameter told; None where the design is refused."""
    rng = np.random.default_rng([seed, n_runs, *noise.encode()])
    truth, runs = resigned(n_runs, rng) if noise == "public" else simulated(noise, n_runs, rng)
    try:
        params = fit(runs).params
    except FittingError:
        return None
    return [(truth[name], params[name].value, params[name].low, params[name].high) for name in TOLD]


def measure(noise: str, n_runs: int, found: Array) -> str:
    """Word one row; `found` is (n_studies, n_told, 4)."""
    truth, value, low, high = np.moveaxis(found, 2, 0)
    covers = ((low <= truth) & (truth <= high)).mean(axis=0)
    oracle = np.diff(np.quantile(value, [0.025, 0.975], axis=0), axis=0)[0]
    with np.errstate(invalid="ignore"):
        width = np.median(high - low, axis=0)
    cells = [f"{share:.2f}" for share in covers] + [
        f"{one:.3g} ({one / best:.2f})" for one, best in zip(width, oracle, strict=True)
    ]
    return f"| {n_runs} | {noise} | {len(found)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    heads = ["runs", "noise", "studies", *(f"{p} covers" for p in TOLD), *(f"{p} width (over oracle)" for p in TOLD)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    with ProcessPoolExecutor(asked.jobs) as pool:
        for n_runs in SHAPES:
            for noise in (*NOISES, "public"):
                studies = pool.map(partial(study, noise, n_runs), range(asked.studies), chunksize=5)
                found = np.array([one for one in studies if one is not None])
                print(measure(noise, n_runs, found), flush=True)


if __name__ == "__main__":
    main()
