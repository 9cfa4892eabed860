"""Coverage of the 95% interval of a (N* = G C^a) by isoFLOP curves of a law that is known.

Seven sizes at each compute, 1e18 to 1e20 FLOPs. Drift: the middle of the grid moves by exp(.2) a compute away from N*.
"""

import argparse

import numpy as np
import pandas as pd

from scalewright.fitting.errors import FittingError
from scalewright.fitting.optimum import OptimumFit, fit_optimum, power_law

# name: alpha, beta, decades on each side, drift of the middle a compute, noise of a run, computes
CASES = {
    "centred": (0.35, 0.37, 0.8, 0.0, 0.003, 5),
    "drifting": (0.35, 0.37, 0.8, 0.2, 0.001, 5),
    "drifting, wide": (0.5, 0.25, 1.3, 0.2, 0.0002, 5),
    "wide, alpha > beta": (0.5, 0.28, 1.2, 0.0, 0.0005, 5),
    "wide, alpha < beta": (0.28, 0.5, 1.2, 0.0, 0.0005, 5),
    "narrow, noisy": (0.35, 0.37, 0.5, 0.0, 0.003, 5),
    "three computes": (0.35, 0.37, 0.8, 0.2, 0.001, 3),
    "four computes, wide": (0.5, 0.28, 1.2, 0.2, 0.0005, 4),
}
N_SIZES = 7


def study(rng: np.random.Generator, case: str) -> tuple[float, pd.DataFrame]:
    """Return the true a and the runs of one simulated study."""
    alpha, beta, decades, drift, noise, n_computes = CASES[case]
    a_coefficient, b_coefficient = 480 * 1e8 ** (alpha - 0.35), 2080 * 2e9 ** (beta - 0.37)
    exponent = beta / (alpha + beta)
    log_g = np.log(alpha * a_coefficient / (beta * b_coefficient)) / (alpha + beta)
    log_c = np.repeat(np.log(10) * np.linspace(18, 20, n_computes), N_SIZES)
    place = np.repeat(np.arange(n_computes) - (n_computes - 1) / 2, N_SIZES)
    side = np.tile(np.log(10) * np.linspace(-decades, decades, N_SIZES), n_computes)
    n = np.exp(log_g + exponent * (log_c - np.log(6)) + drift * place + side)
    c = np.exp(log_c)
    d = c / 6 / n
    loss = (1.8 + a_coefficient * n**-alpha + b_coefficient * d**-beta) * np.exp(noise * rng.standard_normal(len(n)))
    return exponent, pd.DataFrame({"n_params": n, "n_tokens": d, "flops": c, "loss_nats": loss})


def parabolas_alone(found: OptimumFit) -> tuple[float, float]:
    """Return the interval of a from the scatter of the minima about their line, as if parabolas were exact."""
    from scipy import stats

    used = [one for one in found.valleys if not one.refused]
    x, y = (np.log([getattr(one, name) for one in used]) for name in ("flops_budget", "n_star"))
    slope, _, covariance = power_law(x - x.mean(), y)
    half = stats.t.ppf(0.975, len(x) - 2) * np.sqrt(covariance[0, 0])
    return slope - half, slope + half


def coverage(case: str, n_studies: int, seed: int = 0) -> dict[str, float]:
    """Return the shares of intervals that hold the true a, and the median width of ours."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_studies):
        truth, runs = study(rng, case)
        try:
            found = fit_optimum(runs, "isoflop")
        except FittingError:
            continue
        one, (low, high) = found.params["a"], parabolas_alone(found)
        rows.append((one.low < truth < one.high, low < truth < high, one.high - one.low))
    ours, alone, width = np.array(rows, dtype=float).T
    return {"n": len(rows), "covers": ours.mean(), "scatter alone": alone.mean(), "width": float(np.median(width))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=400)
    table = pd.DataFrame({case: coverage(case, parser.parse_args().studies) for case in CASES}).T
    print(table.to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
