"""What a fit can be asked for, by name. Data alone: the help of a verb reads it without numpy."""

N_CONVENTIONS: dict[str, str] = {
    "non-embedding": "n_params",
    "non-embedding+head": "n_params + n_params_head",
    "total": "n_params_total",
}
FLOP_CONVENTIONS: dict[str, str] = {
    "stored": "the column flops, else 6 N D",
    "6nd": "6 times parameters (under the N convention) times tokens",
}
CURVES: dict[str, str] = {
    "interpolated": "straight lines in log-log between neighbouring budgets; beyond the ends the answer is a bound",
    "fitted": "one straight line in log-log through all budgets, which extrapolates",
}
APPROACHES: dict[str, str] = {
    "isoflop": "the minimum of a parabola of log loss in log N at each compute (approach 2)",
    "isoflop-akima": "the minimum of an Akima spline of log loss in log N at each compute",
    "envelope": "the size of the lowest loss at each compute (approach 1); of an isoFLOP curve its minimum",
}
SETTINGS: dict[str, str] = {"lr_peak": "peak learning rate", "batch_tokens": "tokens a batch"}
# Besiroglu et al. 2024, arXiv:2404.10102, table 1: a corrected fit of Hoffmann et al.'s points.
ASSUMED: dict[str, float] = {"E": 1.8172, "A": 482.01, "alpha": 0.3478, "B": 2085.43, "beta": 0.3658}
