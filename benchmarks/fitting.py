"""Fitting beside scipy's L-BFGS-B from 500 starts, on the same objective and the same points, in one run.

The 240 points are simulated: sizes, tokens and scatter like those of Hoffmann et al. 2022 (arXiv:2203.15556) as read
off by Besiroglu et al. 2024 (arXiv:2404.10102), whose points are not shipped here. CPU seconds on one thread, medians.
Run: python benchmarks/fitting.py [--quick]
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

from scalewright.fitting.bootstrap import bootstrap  # noqa: E402
from scalewright.fitting.choices import ASSUMED  # noqa: E402
from scalewright.fitting.compare import compare  # noqa: E402
from scalewright.fitting.fit import fit  # noqa: E402
from scalewright.fitting.frame import check_points  # noqa: E402
from scalewright.fitting.specification import specification_curve  # noqa: E402

N_POINTS, N_STARTS, DELTA = 240, 500, 1e-3
LIMITS = {"global robust fit": 0.05, "4000 bootstraps": 1.0, "specification curve, 24 fits": 1.0}


def simulated_points(seed: int = 0) -> pd.DataFrame:
    """240 runs: 44M to 16B parameters, 4B to 250B tokens, on nine isoFLOP levels, scatter 0.5% with a few worse."""
    rng = np.random.default_rng(seed)
    flops = rng.choice(np.geomspace(6e18, 3e21, 9), N_POINTS)
    n = np.exp(rng.uniform(np.log(4.4e7), np.log(1.6e10), N_POINTS))
    d = np.clip(flops / 6 / n, 2e8, 5e11)
    loss = ASSUMED["E"] + ASSUMED["A"] * n ** -ASSUMED["alpha"] + ASSUMED["B"] * d ** -ASSUMED["beta"]
    scatter = 0.005 * rng.standard_t(4, size=N_POINTS)
    frame = pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": loss * np.exp(scatter)})
    return frame.assign(n_params_head=0.1 * n + 1e7, n_params_total=1.15 * n + 2e7)


def cpu(function: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds of one call, after one call that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        before = time.process_time()
        function()
        times.append(time.process_time() - before)
    return statistics.median(times)


def scipy_from_grid(frame: pd.DataFrame, n_starts: int) -> tuple[float, float]:
    """L-BFGS-B with an analytic gradient from a grid of starts: CPU seconds, and the best objective found.

    The starts are those of Hoffmann et al. 2022, section D.2 (a grid over a, b, e, alpha, beta), thinned to
    `n_starts`.
    """
    x, y = np.log(frame["n_params"].to_numpy()), np.log(frame["n_tokens"].to_numpy())
    log_loss = np.log(frame["loss_nats"].to_numpy())

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        e, a, alpha, b, beta = theta
        logs = np.stack([np.full_like(x, e), a - alpha * x, b - beta * y])
        top = logs.max(axis=0)
        parts = np.exp(logs - top)
        total = parts.sum(axis=0)
        share, residual = parts / total, top + np.log(total) - log_loss
        psi = np.clip(residual, -DELTA, DELTA)
        slopes = np.stack([share[0], share[1], -x * share[1], share[2], -y * share[2]])
        return float((psi * (residual - 0.5 * psi)).sum()), slopes @ psi

    axes = [np.arange(-1, 1.5, 0.5), *[np.arange(0, 30, 5), np.arange(0, 2.5, 0.5)] * 2]  # e; a, alpha; b, beta
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    starts = grid[np.random.default_rng(0).permutation(len(grid))[:n_starts]]
    before = time.process_time()
    values = [minimize(objective, start, jac=True, method="L-BFGS-B").fun for start in starts]
    return time.process_time() - before, float(min(values))


def study() -> pd.DataFrame:
    """A demo-sized study: two methods, three sizes, three budgets, three seeds."""
    rng = np.random.default_rng(1)
    rows = [
        (label, size, n, d, seed, (0.5 + 3 / n**0.1 + 40 / (d * speed) ** 0.3) * np.exp(0.004 * rng.normal()))
        for label, speed in (("base", 1.0), ("fast", 1.4))
        for size, n in (("s", 27e3), ("m", 55e3), ("l", 141e3))
        for d in (2.6e5, 5.2e5, 1.04e6)
        for seed in range(3)
    ]
    return pd.DataFrame(rows, columns=["label", "size", "n_params", "n_tokens", "seed", "loss_nats"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and 50 starts for scipy")
    quick = parser.parse_args().quick
    repeats, n_starts = (3, 50) if quick else (9, N_STARTS)
    frame = simulated_points()
    points = check_points(frame)
    result = fit(points)
    times = {
        "global robust fit": cpu(lambda: fit(points), repeats),
        "4000 bootstraps": cpu(lambda: bootstrap(points, result, 4000), max(repeats // 3, 1)),
        "specification curve, 24 fits": cpu(lambda: specification_curve(frame), max(repeats // 3, 1)),
        "comparison of two methods": cpu(lambda: compare(study(), "fast", "base"), max(repeats // 3, 1)),
    }
    theirs, best = scipy_from_grid(frame, n_starts)
    print(f"{N_POINTS} simulated points, Huber delta {DELTA:g}; CPU seconds on one thread")
    for name, seconds in times.items():
        limit = f"  (limit {LIMITS[name]:g})" if name in LIMITS else ""
        print(f"  {name:34} {seconds:8.3f}{limit}")
    print(f"  {f'scipy L-BFGS-B, {n_starts} starts':34} {theirs:8.3f}")
    print(f"objective: ours {result.objective_value:.9g}, scipy's best {best:.9g}")
    slow = [name for name, limit in LIMITS.items() if times[name] > limit]
    worse = result.objective_value > best * (1 + 1e-9)
    for line in [f"too slow: {name}" for name in slow] + (["scipy found a better optimum"] if worse else []):
        print(line)
    return 1 if slow or worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
