"""Tables and sentences of comparisons. Knows pair readings; computes nothing but words."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.comparisons import PairReading
from scalewright.orchestrator.report.format import interval, number, percent, times
from scalewright.orchestrator.report.html import Table

if TYPE_CHECKING:
    from scalewright.fitting.difference import LossDifference
    from scalewright.fitting.joint.units import Pooled
    from scalewright.fitting.multiplier import Multiplier
    from scalewright.fitting.speedup import SpeedUp

UNIT_WORDS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}
FASTER, SLOWER, UNCLEAR = "faster", "slower", "no difference shown"
MOST_COLUMNS = 6  # sizes or budgets that still fit side by side on a page
BELOW_NOISE = "but within the noise of single runs"

TREND_NOTE = (
    "A factor below 1 for ten times the parameters or tokens means that the gain shrinks as models or data grow. At a "
    "new size: the interval in which the speed-up of one more size is expected, from how much the sizes differ."
)
MULTIPLIER_NOTE = (
    "The multiplier of compute compares fitted laws, each method at its best size for the compute; the speed-up in "
    "FLOPs compares runs of equal size. Where a method moves the best size, or a law misses its runs, the two differ: "
    "the speed-up is nearer to what was measured."
)
SPEED_UP_NOTES = (
    "Above 1: the method needs less to the same final loss, by this factor. One model is fitted to all runs of both: a "
    "smooth curve of loss against tokens for each size, on which the method is worth so many times the tokens. So the "
    "factor is the same read from either method.",
    "Every loss is that of a run trained to the end of its schedule. {level} intervals: by the likelihood of that "
    "model, with what runs of one size and budget, one seed, or one method and size share.",
    "FLOPs: each method's own count, extra work included. Seconds: each method's throughput as measured here, with "
    "this code at these sizes: it says nothing about other hardware.",
)


def speed_ups_table(pairs: Sequence[PairReading], refusals: Sequence[str] = ()) -> Table:
    """One row a comparison and unit: the speed-up over all runs with its interval, and how to read it."""
    rows = [_ratio_row(pair, unit) for pair in pairs for unit in UNIT_WORDS if pair.ratio(unit)]
    notes = [note.format(level=pairs[0].level) for note in SPEED_UP_NOTES] if rows else []
    return Table("Convergence speed-ups", tuple(rows), (*notes, *[f"Not compared: {line}" for line in refusals]))


def _ratio_row(pair: PairReading, unit: str) -> dict[str, Any]:
    return {
        **_named(pair),
        "measured in": UNIT_WORDS[unit],
        "baseline needs ÷ method needs": ratio_words(pair.ratio(unit)),
        "rests on": _cell_words(pair),
        "reading": verdict(pair, unit),
    }


def _named(pair: PairReading) -> dict[str, str]:
    from scalewright.fitting.figures.style import name_of

    return {"method": name_of(pair.method), "baseline": name_of(pair.baseline)}


def ratio_words(pooled: "Pooled | None") -> str:
    """Write a ratio with its interval."""
    return "-" if pooled is None else f"{times(pooled.ratio)} {interval(pooled.low or None, pooled.high)}"


def _cell_words(pair: PairReading) -> str:
    pooled = pair.ratio("tokens")
    if pooled is None:
        return "-"
    n_past = pair.n_extrapolated()
    past = f", {n_past} extrapolated" if n_past else ""
    return f"{counted(pooled.n_cells, 'size-budget pair')} at {counted(pooled.n_sizes, 'size')}{past}"


def verdict(pair: PairReading, unit: str) -> str:
    """Say faster or slower only where the interval excludes 1."""
    pooled = pair.ratio(unit)
    if pooled is None:
        return UNCLEAR
    return FASTER if pooled.low > 1 else SLOWER if pooled.high < 1 else UNCLEAR


def losses_table(pairs: Sequence[PairReading]) -> Table:
    """One row a comparison: how much lower the method's final loss is, beside the scatter of a single run."""
    rows = [_loss_row(pair) for pair in pairs]
    note = (
        "The mean over the pairs of size and budget that both have. Interval: from the scatter of runs about one model "
        "of all of them; where there is no such model, Student's t over these pairs, or within a single one over its "
        "seeds (Welch's t where the seeds do not match). Scatter: of the log loss of a single run, from repeated seeds "
        "where there are any, else about each curve's log-log line."
    )
    return Table("Final loss at the same size and budget", tuple(rows), (note,) if rows else ())


def _loss_row(pair: PairReading) -> dict[str, Any]:
    pooled = pair.comparison.difference
    return {
        **_named(pair),
        "change of the final loss": f"{percent(pooled.ratio - 1)} {_gap_interval(pooled)}",
        "in nats per token": f"{number(pooled.nats)} {interval(pooled.low, pooled.high)}",
        "scatter of one run": _scatter_words(pair.comparison.noise),
        "rests on": pooled.rests_on,
        "reading": loss_reading(pair),
    }


def _scatter_words(noise: float) -> str:
    return "not known" if math.isnan(noise) else f"{number(100 * noise, 2)}%"


def loss_reading(pair: PairReading) -> str:
    """Say lower or higher where the interval leaves zero out, and whether single runs scatter by more than that."""
    pooled = pair.comparison.difference
    if not pooled.resolved:
        return UNCLEAR
    word = "lower" if pooled.nats < 0 else "higher"
    return f"{word}, {BELOW_NOISE}" if pair.comparison.is_below_noise else word


def _gap_interval(gap: "LossDifference") -> str:
    if not math.isfinite(gap.ratio_high):
        return "(one pair: no interval)"
    return f"[{percent(gap.ratio_low - 1)}, {percent(gap.ratio_high - 1)}]"


def scale_tables(pairs: Sequence[PairReading]) -> tuple[Table, ...]:
    """Three tables of the speed-up in tokens: by size, by budget, and whether it holds as models and data grow."""
    by_size, by_budget = (scale_rows(pairs, key) for key in ("size", "budget"))
    note = (
        "From the same model with a factor for each size, or for each budget, in place of one for all. The p value of "
        "an F test says how well one factor for all would do: below .05 the factors differ."
    )
    holds = tuple(row for pair in pairs if (row := trend_row(pair)))
    return (
        Table("Speed-up in tokens by size", by_size),
        Table("Speed-up in tokens by budget", by_budget, (note,) if by_budget else ()),
        Table("Does the speed-up hold?", holds, (TREND_NOTE,) if holds else ()),
    )


def trend_row(pair: PairReading) -> dict[str, str]:
    """Say by what factor the speed-up changes with scale, and what the runs say of a size that was not run."""
    joint = pair.comparison.joint
    if joint is None or pair.ratio("tokens") is None or not (joint.trends or joint.tests):
        return {}
    row = _named(pair)
    for trend in joint.trends:
        row[f"times, for 10x the {trend.along}"] = f"{times(trend.factor)} {interval(trend.low or None, trend.high)}"
    for test in joint.tests:
        row[f"same at every {test.against}: p"] = number(test.p_value, 2)
    unseen = pair.ratio("tokens", "new size")
    return row | ({"at a new size in this range": ratio_words(unseen)} if unseen else {})


def scale_rows(pairs: Sequence[PairReading], key: str) -> tuple[dict[str, str], ...]:
    """One row a comparison with a column for each size or budget; where these are many, a row for each instead."""
    found = [(pair, pair.by(key)) for pair in pairs]
    if max((len(by) for _, by in found), default=0) > MOST_COLUMNS:
        return tuple(
            {**_named(pair), key: name, "speed-up": ratio_words(one)} for pair, by in found for name, one in by.items()
        )
    return aligned([{**_named(pair), **_words(by)} for pair, by in found if by])


def _words(pooled: "dict[str, Pooled]") -> dict[str, str]:
    return {name: ratio_words(one) for name, one in pooled.items()}


def aligned(rows: list[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """Give every row the same columns, in the order in which they first appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return tuple({column: row.get(column, "-") for column in columns} for row in rows)


def multipliers_table(pairs: Sequence[PairReading]) -> Table:
    """One row a multiplier: how many times more of it the baseline needs, from fitted laws."""
    rows = [
        {
            **_named(pair),
            "of": one.kind,
            "at": one.at,
            "baseline needs": multiplier_words(one),
            "extrapolated": extrapolated_words(one) or "-",
            "from": one.basis,
        }
        for pair in pairs
        for one in pair.comparison.multipliers
    ]
    notes = multiplier_notes(pairs) if rows else ()
    return Table("Equal-loss multipliers", tuple(rows), notes)


def multiplier_notes(pairs: Sequence[PairReading]) -> tuple[str, ...]:
    """Say why a multiplier of compute and a speed-up in FLOPs of one comparison are two numbers."""
    for pair in pairs:
        speed_up = pair.ratio("flops")
        if speed_up is not None and pair.compute:
            return (MULTIPLIER_NOTE,)
    return ()


def multiplier_words(one: "Multiplier") -> str:
    """Write a multiplier with its interval, or why it has none."""
    if not math.isfinite(one.value):
        return one.reason
    return f"{times(one.value)} {'(no interval)' if math.isnan(one.low) else interval(one.low, one.high)}"


def extrapolated_words(one: "Multiplier") -> str:
    """Say how far outside the baseline's runs a multiplier is read; nothing where it is read inside."""
    return f"{number(one.past or 0, 2)}× outside the baseline's runs" if one.is_extrapolated else ""


def sentence(pair: PairReading) -> str:
    """Write what a paper could print of a comparison, with what it rests on."""
    names = _named(pair)
    method, baseline = names["method"], names["baseline"]
    tokens, seconds = pair.ratio("tokens"), pair.ratio("seconds")
    base = f"{_cell_words(pair)}, {pair.level} interval"
    gap = pair.comparison.difference
    change = f"final loss {percent(gap.ratio - 1)} {_gap_interval(gap)}"
    if gap.resolved and pair.comparison.is_below_noise:
        change += f", {BELOW_NOISE} ({number(100 * pair.comparison.noise, 2)}%)"
    if tokens is None:
        found = compute_words(pair)
        lead = f"{baseline} needs {found} the compute for {method}'s loss; " if found else ""
        return f"{method} over {baseline}: {lead}{change}."
    if verdict(pair, "tokens") == UNCLEAR:
        return f"{method} over {baseline}: no speed-up shown, {ratio_words(tokens)} in tokens ({base}); {change}."
    told = f"{method} over {baseline}: {baseline} needs {ratio_words(tokens)} the tokens for {method}'s loss ({base})"
    if seconds is not None:
        told += f", {ratio_words(seconds)} the seconds at the throughput measured here"
    return f"{told}; {change}."


def compute_words(pair: PairReading) -> str:
    """Write the compute multiplier with its interval, or nothing: one for any compute, else that of the dearest."""
    found = pair.compute
    if not found:
        return ""
    one = found[-1]
    where = [f"at {one.at}"] * (len(found) > 1) + [f"read {extrapolated_words(one)}"] * one.is_extrapolated
    return multiplier_words(one) + (f" ({', '.join(where)})" if where else "")


def along_table(found: "Sequence[SpeedUp]") -> Table:
    """One row a cell: the speed-up read along one training curve, which is kept apart from the others."""
    from scalewright.fitting.figures.style import name_of

    rows = [
        {
            "method": name_of(one.method),
            "baseline": name_of(one.baseline),
            "size": one.size,
            "budget": one.budget,
            "speed-up": _along_words(one),
        }
        for one in found
    ]
    note = (
        "Tokens of the baseline's whole run over the tokens at which the method's training curve first passes its "
        "final loss. Un-annealed: the learning rate was still high there. Not comparable with the tables above."
    )
    return Table("Along one training curve (un-annealed)", tuple(rows), (note,) if rows else ())


def _along_words(one: "SpeedUp") -> str:
    if one.censored == "upper":
        return f"at most {times(one.high)}"
    return times(one.ratio) if one.n_pairs < 2 else f"{times(one.ratio)} {interval(one.low or None, one.high)}"


def sharing_words(pair: PairReading) -> list[str]:
    """Say whether the exponents of both methods may be taken as equal, which decides the form of the multiplier."""
    test = pair.comparison.sharing
    if test is None:
        return []
    decided = "shared" if test.shared else "not shared: the multiplier depends on compute"
    return [
        f"exponents of {test.law} {decided} (F test p = {number(test.p_value, 2)}, "
        f"AICc {number(test.aicc_shared)} shared, {number(test.aicc_separate)} separate)"
    ]
