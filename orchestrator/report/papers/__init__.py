"""What the papers report of these methods, as recorded in results.csv, and where their set-ups differ from ours."""

import csv
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.csv")
DIFFERENCES = {
    "anGPT": "SlimPajama or OpenWebText, vocabulary of 50k, context 2048. No absolute loss is known, nor batch, betas, "
    "clipping, and the baseline's weight decay and warm-up; how the speed-up was computed is not known.",
    "GPAS": "C4, vocabulary of 32k, context 256; the published code trains in bf16 throughout (here `bf16-pure`) and "
    "lets the norms of LNS start at 1/sqrt(l) and learn. No seeds are reported. 350M Pre-LN stands as 20.71 in Table 2 "
    "and as 21.35 elsewhere: compare within one table.",
    "Mix-LN": "Context 256. DeepNorm in its published code has the residual constant of 32 layers at every depth, and "
    "an init gain with the exponent's sign turned.",
    "LNS": "Context 256; the published code starts embeddings at a standard deviation of 0.02. DeepNorm as in Mix-LN's "
    "code.",
}
NOTE = (
    "Numbers of the papers, not measured here. A perplexity belongs to its tokenizer, text and context: differences "
    "within one table can be compared with yours, the values cannot."
)


def paper_results() -> list[dict[str, Any]]:
    """Return every recorded number, in the order of the file.

    Keys: paper, where (the table or figure), known_from (the paper's table, its authors' rebuttal, or a summary by
    others), quantity, unit, size, tokens, method, baseline (empty: none) and value. Methods are named as in METHODS
    where there is one.
    """
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return [row | {"value": float(row["value"])} for row in csv.DictReader(file)]
