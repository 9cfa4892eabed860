"""Runs with a planted law, for the tests of this folder."""

import numpy as np
import pandas as pd

TRUTH = {"E": 1.8, "A": 480.0, "alpha": 0.35, "B": 2080.0, "beta": 0.37}
TRUE_SPEEDUP = 1.4


def chinchilla(n_params, n_tokens, truth=TRUTH):
    """L = E + A N^-alpha + B D^-beta, straight from the equation."""
    return truth["E"] + truth["A"] * n_params ** -truth["alpha"] + truth["B"] * n_tokens ** -truth["beta"]


FARSEER = {"s": 40.0, "q": -0.22, "S": 0.3, "B": 88.0, "b": -0.1, "Q": -5.0, "A": -0.124, "a": 0.123, "E": 0.424}


def farseer(n_params, n_tokens, t=FARSEER):
    """L = exp(s N^q + S) + exp(B N^b + Q) D^(-exp(A N^a + E)), straight from the equation."""
    floor = np.exp(t["s"] * n_params ** t["q"] + t["S"])
    exponent = np.exp(t["A"] * n_params ** t["a"] + t["E"])
    return floor + np.exp(t["B"] * n_params ** t["b"] + t["Q"]) * n_tokens**-exponent


def farseer_grid(n_sizes=10, n_budgets=8, *, noise=0.0, seed=0):
    """Sizes and budgets whose losses follow Farseer's law, with log-normal noise."""
    n = np.repeat(np.geomspace(2e8, 6e9, n_sizes), n_budgets)
    d = np.tile(np.geomspace(2e9, 1e11, n_budgets), n_sizes)
    scatter = np.exp(noise * np.random.default_rng(seed).normal(size=len(n)))
    return pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": farseer(n, d) * scatter})


def grid(n_sizes=7, n_ratios=5, *, noise=0.0, seed=0, truth=TRUTH, **columns):
    """A full grid of sizes and tokens per parameter with log-normal noise."""
    n = np.repeat(np.geomspace(3e7, 6e9, n_sizes), n_ratios)
    d = n * np.tile(np.geomspace(2, 200, n_ratios), n_sizes)
    scatter = np.exp(noise * np.random.default_rng(seed).normal(size=len(n)))
    frame = pd.DataFrame({"n_params": n, "n_tokens": d, "loss_nats": chinchilla(n, d, truth) * scatter})
    return frame.assign(run_id=[f"run-{i:03d}" for i in range(len(n))], **columns)


def small_study(seeds=(0, 1, 2), *, noise=0.004, methods=(("base", 1.0), ("fast", TRUE_SPEEDUP), ("same", 1.0))):
    """Three sizes x three budgets as in a demo: a method's `speed` multiplies the tokens it has effectively seen."""
    rng = np.random.default_rng(7)
    rows = []
    for label, speed in methods:
        for size, n in (("s", 27e3), ("m", 55e3), ("l", 141e3)):
            for budget, d in (("1", 2.6e5), ("2", 5.2e5), ("4", 1.04e6)):
                for seed in seeds:
                    loss = (0.5 + 3 / n**0.1 + 40 / (d * speed) ** 0.3) * np.exp(noise * rng.normal())
                    rows.append(
                        (f"{label}-{size}-{budget}-{seed}", label, size, budget, n, d, loss, seed, 1000 / speed)
                    )
    names = ["run_id", "label", "size", "budget", "n_params", "n_tokens", "loss_nats", "seed", "tokens_per_s"]
    return pd.DataFrame(rows, columns=names).assign(lr_peak=0.02)
