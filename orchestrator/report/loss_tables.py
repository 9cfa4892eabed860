"""Final loss and perplexity by method, size and budget, each with its difference from the baseline. Knows analyses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import Analysis
from scalewright.orchestrator.analysis.comparisons import PairReading
from scalewright.orchestrator.report.format import listed, number, short_count, signed
from scalewright.orchestrator.report.html import Table

if TYPE_CHECKING:
    from scalewright.fitting.difference import LossDifference

FINAL_NOTE = (
    "Loss: mean over seeds, nats per token; perplexity: its exponential. Difference: loss minus that of the baseline "
    "at the same size and budget, with its 95% interval; one interval at a time, so of twenty without a true "
    "difference about one leaves 0 out."
)


@dataclass(frozen=True)
class FinalLoss:
    """One method at one size and budget: mean loss over its runs, and its difference from the baseline there."""

    size: str
    budget: str
    label: str
    n_params: float
    n_tokens: float
    n_runs: int
    loss_nats: float
    difference: "LossDifference | None"
    baseline: str | None

    @property
    def perplexity(self) -> float:
        """exp(loss in nats a token)."""
        return math.exp(self.loss_nats)

    @property
    def name(self) -> str:
        """The method as figures and tables write it."""
        from scalewright.fitting.figures.style import name_of

        return name_of(self.label)


def final_losses(analysis: Analysis) -> list[FinalLoss]:
    """One row a method, size and budget, smallest first; within a cell the methods in the order of all figures."""
    from scalewright.fitting.curve import budget_keys, size_keys
    from scalewright.fitting.figures.style import name_of

    points = analysis.points.frame
    points = points.assign(_size=size_keys(points), _budget=budget_keys(points))
    ranks = {label: rank for rank, label in enumerate(analysis.labels)}
    # methods of one size differ a little in parameters, and so in the tokens of `20x`
    places = {"_n": points.groupby("_size")["n_params"].transform("min"), "_rank": points["label"].map(ranks)}
    points = points.assign(**places, _d=points.groupby(["_size", "_budget"])["n_tokens"].transform("min"))
    pairs = {pair.method: pair for pair in reversed(analysis.comparisons)}
    ordered = points.sort_values(["_n", "_d", "_rank"], kind="stable")
    rows = []
    for (size, budget, label), runs in ordered.groupby(["_size", "_budget", "label"], sort=False):
        n_tokens = float(runs["n_tokens"].median())
        pair = pairs.get(str(label))
        found = _difference_of(pair, f"cell {size} {budget}")
        base = name_of(pair.baseline) if pair is not None and found is not None else None
        words = budget_words(str(budget), n_tokens)
        n_params, loss = float(runs["n_params"].median()), float(runs["loss_nats"].mean())
        rows.append(FinalLoss(str(size), words, str(label), n_params, n_tokens, len(runs), loss, found, base))
    return rows


def _difference_of(pair: PairReading | None, scope: str) -> "LossDifference | None":
    return None if pair is None else next((d for d in pair.comparison.differences if d.scope == scope), None)


def finals_table(analysis: Analysis) -> Table:
    """Word the final losses; what is the same in all rows stands in the title."""
    from scalewright.fitting.figures.style import name_of

    rows = [
        {
            "size": row.size,
            "budget": row.budget,
            "method": row.name,
            "runs": row.n_runs,
            "loss": number(row.loss_nats, 4),
            "perplexity": number(row.perplexity, 4),
            "difference": "-" if row.difference is None else nats_words(row.difference),
            "baseline": row.baseline or "-",
        }
        for row in final_losses(analysis)
    ]
    alike = [name for name in ("size", "budget") if len({row[name] for row in rows}) == 1]
    bases = {name_of(pair.baseline) for pair in analysis.comparisons}
    alike += ["baseline"] if len(bases) < 2 else []
    alike += ["difference"] if not bases else []
    where = [f"{name} {rows[0][name]}" for name in alike if name in ("size", "budget")]
    title = f"Final loss and perplexity{' at ' * bool(where)}{', '.join(where)}"
    named = [f"Baseline: {one}." for one in bases] if len(bases) == 1 else []
    shown = tuple({name: value for name, value in row.items() if name not in alike} for row in rows)
    return Table(title, shown, (*named, FINAL_NOTE) if bases else ())


def corpora_table(analysis: Analysis) -> Table | None:
    """Word the final losses on other texts, means over seeds; None where none was measured."""
    from scalewright.fitting.curve import budget_keys, size_keys
    from scalewright.fitting.figures.style import name_of

    found, points = analysis.evaluations, analysis.points.frame
    if found is None or not (found["split"] != "validation").any():
        return None
    others = found[(found["split"] != "validation") & found["final"].astype(bool)]
    points = points.assign(_size=size_keys(points), _budget=budget_keys(points))
    joined = points.merge(others[["run_id", "split", "loss_nats", "bits_per_byte"]], on="run_id", suffixes=("_own", ""))
    ranks = {label: rank for rank, label in enumerate(analysis.labels)}
    joined = joined.assign(_rank=joined["label"].map(ranks))
    keys = ["split", "_size", "_budget", "label"]
    ordered = joined.sort_values(["split", "n_params", "n_tokens", "_rank"], kind="stable")
    rows = [
        {
            "text": str(text),
            "size": str(size),
            "budget": budget_words(str(budget), float(runs["n_tokens"].median())),
            "method": name_of(str(label)),
            "runs": len(runs),
            "loss": number(float(runs["loss_nats"].mean()), 4),
            "bits a byte": number(float(runs["bits_per_byte"].mean()), 4),
        }
        for (text, size, budget, label), runs in ordered.groupby(keys, sort=False)
    ]
    return Table(
        "Final loss on other texts", tuple(rows), ("Nats per token, mean over seeds; no law is fitted to them.",)
    )


def budget_words(budget: str, n_tokens: float) -> str:
    """Write a budget as it was asked for; one without a name by its tokens."""
    return short_count(n_tokens) if budget.replace(".", "").replace("e+", "").isdigit() else budget


def nats_words(one: "LossDifference") -> str:
    """Write a difference in nats with its interval, to three decimals."""
    if not math.isfinite(one.low):
        return f"{signed(one.nats)} (no interval)"
    return f"{signed(one.nats)} [{signed(one.low)}, {signed(one.high)}]"


def ablation_words(pairs: Sequence[PairReading]) -> tuple[str, ...]:
    """Say which variant is best, how many differ from the base, and which."""
    from scalewright.fitting.figures.style import name_of

    ordered = sorted(pairs, key=lambda pair: pair.comparison.difference.nats)
    best, base = ordered[0], name_of(ordered[0].baseline)
    better = [name_of(pair.method) for pair in ordered if pair.comparison.difference.high < 0]
    worse = [name_of(pair.method) for pair in ordered if pair.comparison.difference.low > 0]
    rest = len(ordered) - len(better) - len(worse)
    lowest = f"{name_of(best.method)} ends lowest: {nats_words(best.comparison.difference)} nats from {base}."
    if best.comparison.difference.nats >= 0:
        lowest = f"No variant ends below {base}."
    told = [f"{listed(better)} {'ends' if len(better) == 1 else 'end'} below {base}"] if better else []
    told += [f"{listed(worse)} {'ends' if len(worse) == 1 else 'end'} above it"] if worse else []
    shown = f"Beyond their intervals: {'; '.join(told)}. " if told else ""
    same = f"{counted(rest, 'variant')} of {len(ordered)}: no difference shown." if rest else ""
    return (lowest, f"{shown}{same}".strip())
