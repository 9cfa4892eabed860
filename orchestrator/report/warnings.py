"""What a reader must keep in mind about an analysis: each caution is checked on the runs, and is one sentence.

What was or was not done is asked of every run that has ended (`ended`): the points are what is left of them once the
best of each sweep was chosen. Only what is said about the points that entered is asked of the points.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from scalewright.db.run_states import ENDED
from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import Analysis
from scalewright.orchestrator.report.format import listed, number, short_count, span

if TYPE_CHECKING:
    import pandas as pd

FEWEST_STEPS = 512  # below this many optimiser steps, sizes were seen to swap places
UNEVEN = 1.3  # throughput ratio within one method and size from which the machine was not the runs' alone
INVERTED = 0.02  # of the loss; larger than what seeds do
CELL = ["label", "n_params", "n_tokens"]


def cautions(analysis: Analysis) -> list[str]:
    """Return every caution that applies, the gravest first."""
    found = [check(analysis) for check in CHECKS.values()]
    return [sentence for sentence in found if sentence]


def ended(analysis: Analysis) -> "pd.DataFrame":
    """Return every run that has completed or diverged, whether it entered or not."""
    return analysis.runs[analysis.runs["state"].isin(["completed", "diverged"])]


def _left_out(analysis: Analysis) -> str:
    diverged = int(analysis.runs["diverged"].fillna(False).astype(bool).sum())
    if not diverged:
        return ""
    return (
        f"{counted(diverged, 'run')} diverged and {'is' if diverged == 1 else 'are'} not in any fit: a method that "
        "diverges more often than its baseline looks better here than it is. They are listed below."
    )


def _not_finished(analysis: Analysis) -> str:
    waiting = analysis.runs[~analysis.runs["state"].isin(ENDED)]
    states = [f"{n} {state}" for state, n in waiting["state"].value_counts().items()]
    return f"Not every run has ended ({', '.join(states)}): what is missing may change the picture." if states else ""


def _single_seed(analysis: Analysis) -> str:
    seeds = analysis.points.frame.groupby(CELL)["seed"].nunique()
    alone = int((seeds == 1).sum())
    if (seeds == 0).all():
        return "Seeds are not known: whether points differ by more than the noise between seeds is unknown."
    if alone == 0:
        return ""
    if alone < len(seeds):
        return (
            f"{alone} of {len(seeds)} points are a single seed: the noise between seeds is known from the other "
            f"{len(seeds) - alone} alone, and taken to be the same everywhere."
        )
    return (
        "Every point is a single seed. The noise between seeds is not measured; intervals rest on the scatter about "
        "fitted curves, and differences of that order mean nothing."
    )


def _one_learning_rate(analysis: Analysis) -> str:
    from scalewright.fitting.curve import budget_keys, size_keys
    from scalewright.fitting.figures.style import in_order, name_of

    known = ended(analysis).dropna(subset=["lr_peak"])
    if analysis.tuned:
        known = known[~known["label"].isin([one.label for one in analysis.tuned.result.optima])]
    known = known.assign(size=size_keys(known), budget=budget_keys(known))
    swept = known.groupby(["label", "size", "budget"])["lr_peak"].nunique().groupby("label").max() > 1
    if swept.all():  # also where no rate is known
        return ""
    without = [name_of(label) for label in in_order(swept.index[~swept])]
    who = (
        "Each method was"
        if not (swept.any() or analysis.tuned)
        else f"{listed(without)} {'was' if len(without) == 1 else 'were'}"
    )
    return (
        f"{who} trained at one learning rate per size, none swept here: part of a difference may be a better tuned "
        "learning rate. A sweep over lr_factor would tell."
    )


def _tuning(analysis: Analysis) -> str:
    """How the sides were tuned: alike, on other seeds than these, and at which cost."""
    tuned = analysis.tuned
    if tuned is None:
        return ""
    from scalewright.fitting.figures.style import in_order, name_of

    labels = in_order({one.label: None for one in tuned.result.optima})
    share = tuned.flops / float(ended(analysis)["flops"].sum())
    edges = [f"{name_of(one.label)} at {one.size}" for one in tuned.edges]
    where = "at the first or last rate of its sweep, so that a better rate may lie beyond"
    beyond = f" The best rate of {listed(edges)} lies {where}." if edges else ""
    seeds = f"seed{'s' * (len(tuned.seeds) > 1)} {listed([str(seed) for seed in tuned.seeds])}"
    return (
        f"The learning rates of {listed([name_of(label) for label in labels])} were chosen alike, each by a sweep of "
        f"{counted(len(tuned.rates_tried), 'rate')} ({tuned.experiment}: {counted(tuned.n_runs, 'run')} on {seeds}, "
        f"{share:.0%} of the compute of these runs).{beyond}"
    )


def mixed_settings(analysis: Analysis) -> str:
    """Runs of one method, size and budget that differ in more than their seed, as where batch is an axis."""
    from scalewright.fitting.cells import SETTING, TRAINED_WITH
    from scalewright.fitting.curve import budget_keys, size_keys

    points = analysis.points.frame
    cells = points.groupby([points["label"], size_keys(points), budget_keys(points)])
    parting = {*TRAINED_WITH} - {"unique_tokens"}  # which a law of its own takes in
    known = [c for c in map(str, points) if c in parting or c.startswith(SETTING)]
    mixed = [c.removeprefix(SETTING) for c in known if (cells[c].nunique(dropna=False) > 1).any()]
    if not mixed:
        return ""
    return (
        f"Runs of one method, size and budget differ in {listed(mixed)}, and laws and comparisons take them for seeds "
        "of each other. Give each value a separate experiment."
    )


def _settings_between(analysis: Analysis) -> str:
    """What two methods of a comparison differ in besides themselves."""
    from scalewright.fitting.figures.style import name_of

    found = [
        f"{name_of(pair.method)} and {name_of(pair.baseline)} in {listed(words)}"
        for pair in analysis.comparisons
        if (words := [one.words for one in pair.comparison.settings if one.within is None])
    ]
    return f"Methods were also trained differently: {'; '.join(found)}." if found else ""


def _not_annealed(analysis: Analysis) -> str:
    n = sum(exclusion.reason == "not annealed" for exclusion in analysis.points.excluded)
    return f"{counted(n, 'run')} ended before the learning rate had decayed and did not enter." if n else ""


def _few_steps(analysis: Analysis) -> str:
    points = analysis.runs[analysis.runs["state"] == "completed"]
    if points["batch_tokens"].isna().all():
        return ""
    steps = points["n_tokens"] / points["batch_tokens"]
    if steps.min() >= FEWEST_STEPS:
        return ""
    return f"The shortest runs took {round(steps.min())} optimiser steps: below {FEWEST_STEPS}, sizes can swap places."


def _different_machines(analysis: Analysis) -> str:
    kinds = ended(analysis)[["device", "threads"]].dropna().drop_duplicates()
    if len(kinds) <= 1:
        return ""
    seen = sorted(f"{device} with {counted(int(threads), 'thread')}" for device, threads in kinds.to_numpy())
    return f"Throughput was measured on different machines ({listed(seen)}): do not read the rows in seconds."


def busy_machine(analysis: Analysis) -> str:
    """Throughput of runs of one method and size should agree; where it does not, something else ran beside them."""
    speeds = ended(analysis).dropna(subset=["tokens_per_s"]).groupby(["label", "n_params"])["tokens_per_s"]
    if not len(speeds):
        return ""
    worst = float((speeds.max() / speeds.min()).max())
    if worst < UNEVEN:
        return ""
    return (
        f"Throughput of runs of one method and size differs by up to {number(worst, 2)}×: the machine was busy with "
        "other work, so rows in seconds mean little."
    )


def sizes_inverted(analysis: Analysis) -> str:
    """A larger model should not end above a smaller one at equal tokens: its learning rate, not its size, is seen."""
    from scalewright.fitting.curve import level_of
    from scalewright.fitting.figures.axes import short
    from scalewright.fitting.figures.style import name_of

    points = analysis.points.frame
    points = points.assign(level=level_of(points["n_tokens"].to_numpy(float)))
    found = []
    for (label, level), runs in points.groupby(["label", "level"]):
        means = runs.groupby("n_params")["loss_nats"].mean().sort_index()
        excess = float((means / means.cummin() - 1).max())
        if excess > INVERTED:
            found.append(f"{name_of(str(label))} at {short(float(str(level)))} tokens by {100 * excess:.0f}%")
    if not found:
        return ""
    return (
        f"Larger models end above smaller ones at equal tokens ({listed(found, 4)}): a learning rate that does not "
        "suit a size looks like this. Do not read laws or speed-ups of these methods before their rates are tuned."
    )


def _small_scale(analysis: Analysis) -> str:
    points = analysis.points.frame
    ratio = points["n_tokens"] / points["n_params"]
    sizes = span(*(short_count(float(end)) for end in (points["n_params"].min(), points["n_params"].max())))
    tokens = span(number(ratio.min(), 2), number(ratio.max(), 2))
    return (
        f"These runs have {sizes} non-embedding parameters and {tokens} tokens for each: nothing here is evidence "
        "about larger models."
    )


CHECKS: dict[str, Callable[[Analysis], str]] = {
    "diverged": _left_out,
    "unfinished": _not_finished,
    "advised": lambda analysis: analysis.advised,
    "single seed": _single_seed,
    "tuning": _tuning,
    "learning rate": _one_learning_rate,
    "mixed settings": mixed_settings,
    "settings between": _settings_between,
    "un-annealed": _not_annealed,
    "few steps": _few_steps,
    "sizes inverted": sizes_inverted,
    "busy machine": busy_machine,
    "machines": _different_machines,
    "scale": _small_scale,
}
