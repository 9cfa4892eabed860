"""Tables and sentences of comparisons. Knows pair readings; computes nothing but words."""

from collections.abc import Sequence
from typing import Any

from orchestrator.pairs import DIRECTIONS, LossGap, PairReading, PooledRatio, pooled_by
from orchestrator.report import Table
from orchestrator.wording import counted, interval, number, percent, times

UNIT_WORDS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}
FASTER, SLOWER, UNCLEAR = "faster", "slower", "no difference shown"


def speed_ups_table(pairs: Sequence[PairReading], refusals: Sequence[str] = ()) -> Table:
    """One row a comparison and unit: the pooled speed-up in both directions with intervals, and how to read it."""
    rows = [ratio_row(pair, unit) for pair in pairs for unit in UNIT_WORDS if pair.ratio(unit)]
    notes = SPEED_UP_NOTES if rows else ()
    return Table("Convergence speed-ups", tuple(rows), (*notes, *[f"Not compared: {line}" for line in refusals]))


SPEED_UP_NOTES = (
    "Above 1: the method needs less. First direction: what the baseline needs to reach the method's final loss, over "
    "what the method used. Second: what the baseline used, over what the method needs to reach the baseline's final "
    "loss. They differ because each uses the slope of another curve.",
    "Every loss is that of a run trained to the end of its schedule. A curve is the straight line in log-log through "
    "the final losses of one method at one size; an answer past the budgets that were run is extrapolated.",
    "Ratios are averaged (geometric mean) over budgets, then over sizes. 95% intervals: the wider of Student's t over "
    "sizes and the scatter of single runs carried through; the cells (size x budget) of one size count as one.",
    "FLOPs: each method's own count, extra work included. Seconds: each method's throughput as measured here, with "
    "this code at these sizes: it says nothing about other hardware.",
)


def ratio_row(pair: PairReading, unit: str) -> dict[str, Any]:
    needs, uses = (pair.ratio(unit, direction) for direction in DIRECTIONS)
    return {
        **named(pair),
        "measured in": UNIT_WORDS[unit],
        "baseline needs ÷ method used": ratio_words(needs),
        "baseline used ÷ method needs": ratio_words(uses),
        "cells": cell_words(needs),
        "reading": verdict(pair, unit),
    }


def named(pair: PairReading) -> dict[str, str]:
    from fitting.figures.style import name_of

    return {"method": name_of(pair.method), "baseline": name_of(pair.baseline)}


def ratio_words(pooled: PooledRatio | None) -> str:
    return "-" if pooled is None else f"{times(pooled.ratio)} {interval(pooled.low or None, pooled.high)}"


def cell_words(pooled: PooledRatio | None) -> str:
    if pooled is None:
        return "-"
    past = f", {pooled.n_extrapolated} extrapolated" if pooled.n_extrapolated else ""
    return f"{counted(pooled.n_cells, 'cell')} at {counted(pooled.n_sizes, 'size')}{past}"


def verdict(pair: PairReading, unit: str) -> str:
    """Say faster or slower only where both directions exclude 1 on the same side."""
    both = [pooled for direction in DIRECTIONS if (pooled := pair.ratio(unit, direction))]
    if both and all(pooled.low > 1 for pooled in both):
        return FASTER
    return SLOWER if both and all(pooled.high < 1 for pooled in both) else UNCLEAR


def losses_table(pairs: Sequence[PairReading]) -> Table:
    """One row a comparison: how much lower the method's final loss is, beside the scatter of a single run."""
    rows = [
        {
            **named(pair),
            "change of the final loss": f"{percent(pair.gap.ratio - 1)} {gap_interval(pair.gap)}",
            "scatter of one run": f"{number(100 * pair.gap.noise, 2)}%",
            "scatter from": "repeated seeds" if pair.gap.from_seeds else "curves (one seed)",
            "cells": f"{pair.gap.n_cells} at {counted(pair.gap.n_sizes, 'size')}",
        }
        for pair in pairs
    ]
    return Table("Final loss at the same size and budget", tuple(rows))


def gap_interval(gap: LossGap) -> str:
    return f"[{percent(gap.low - 1)}, {percent(gap.high - 1)}]"


def scale_tables(pairs: Sequence[PairReading]) -> tuple[Table, ...]:
    """Two tables of tokens-to-loss: by size (does the gain hold as models grow?) and by budget (as data grow?)."""
    by_size = [{**named(pair), **words(pooled_by(pair, lambda cell: cell.size))} for pair in pairs]
    by_budget = [{**named(pair), **words(pooled_by(pair, lambda cell: short_tokens(cell.n_tokens)))} for pair in pairs]
    note = "Tokens the baseline needs to reach the method's final loss, over the tokens the method used."
    past = "The largest budgets rest on curves drawn past their last point where the method is faster."
    return (
        Table("Speed-up in tokens by size", aligned(by_size), (note,)),
        Table("Speed-up in tokens by budget", aligned(by_budget), (past,)),
    )


def words(pooled: dict[str, PooledRatio]) -> dict[str, str]:
    return {name: ratio_words(one) for name, one in pooled.items()}


def aligned(rows: list[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """Give every row the same columns, in the order in which they first appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return tuple({column: row.get(column, "-") for column in columns} for row in rows)


def short_tokens(n_tokens: float) -> str:
    from fitting.figures.style import short

    return f"{short(n_tokens)} tokens"


def sentence(pair: PairReading) -> str:
    """Write what a paper could print of a comparison, with what it rests on."""
    names = named(pair)
    method, baseline = names["method"], names["baseline"]
    tokens, seconds = pair.ratio("tokens"), pair.ratio("seconds")
    assert tokens is not None, "a pair is read in tokens or not at all"
    base = f"{cell_words(tokens)}, 95% interval"
    change = f"final loss {percent(pair.gap.ratio - 1)} {gap_interval(pair.gap)}"
    if verdict(pair, "tokens") == UNCLEAR:
        return (
            f"{method} over {baseline}: no difference shown. {baseline} needs {ratio_words(tokens)} the tokens "
            f"({base}); {change}."
        )
    told = f"{method} over {baseline}: {baseline} needs {ratio_words(tokens)} the tokens for {method}'s loss ({base})"
    if seconds is not None:
        told += f", {ratio_words(seconds)} the seconds at the throughput measured here"
    return f"{told}; {change}."
