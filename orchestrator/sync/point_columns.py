"""The columns that a table of points may have. No import, so that help can name them."""

AMOUNTS = ("n_params", "n_params_total", "n_tokens", "unique_tokens", "batch_tokens")
NUMBERS = ("flops", "loss", "bits_per_byte", "lr_peak")
WHOLE = ("step", "seed", "width", "depth")
WORDS = ("method", "gate", "label", "size", "budget", "run")
NAMES = (*AMOUNTS, *NUMBERS, *WHOLE, *WORDS, "holdout")
REQUIRED = ("n_params", "loss")
POSITIVE = (*AMOUNTS, *NUMBERS, "width", "depth")
MOVING = ("step", "n_tokens", "flops", "loss", "bits_per_byte")  # what changes while a run goes on
TOKEN_RULES = {"6ND": lambda values: values["flops"] / (6 * values["n_params"])}
