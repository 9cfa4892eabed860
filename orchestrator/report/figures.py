"""The figures of an analysis: each takes frames and fits out of it, calls FIGURES, and words the caption."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.analysis.analyze import COMPUTE_LAW, Analysis, seeds_in_words
from scalewright.orchestrator.analysis.comparisons import DIRECTIONS, PairReading
from scalewright.orchestrator.report.comparison_tables import UNIT_WORDS
from scalewright.orchestrator.report.format import interval, number
from scalewright.orchestrator.report.html import Picture, file_label

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.result import FitResult, Parameter

N_CURVE_POINTS = 80  # of a fitted line
N_CURVE_PARTS = 20  # of a run, over which its training loss is averaged


def compute_picture(analysis: Analysis) -> Picture:
    from scalewright.fitting.figures.gallery import FIGURES

    note = f"{seed_words(analysis)} Bands: 95% interval of the fitted line."
    figure = FIGURES["loss-against-compute"](analysis.points.frame, compute_bands(analysis), note=note)
    caption = (
        "Final loss of every run against its training compute. Filled: runs on a method's frontier, which its line "
        "L = K·C^−γ is fitted to; hollow: the others."
    )
    return Picture("loss-against-compute", figure, caption)


def compute_bands(analysis: Analysis) -> "dict[str, Band]":
    """Evaluate each label's power law over the compute of its runs."""
    import numpy as np

    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.figures.style import name_of

    bands = {}
    for label in analysis.labels:
        result = analysis.fit(COMPUTE_LAW, label).result
        if result is None:
            continue
        flops = analysis.points.of(label).column("flops")
        x = np.geomspace(flops.min(), flops.max(), N_CURVE_POINTS)
        band, gamma = result.predict(flops=x), result.params["alpha"]
        words = f"{name_of(label)}: γ {gamma_words(gamma)}, n = {result.n}"
        bands[label] = Band(x, band.value, band.low, band.high, words)
    return bands


def gamma_words(gamma: "Parameter") -> str:
    low = None if gamma.one_sided in ("upper", "none") else gamma.low
    high = None if gamma.one_sided in ("lower", "none") else gamma.high
    value = f"= {number(gamma.value, 2)} " if gamma.one_sided is None else ""
    return f"{value}{interval(low, high, 2)}"


def frontier_picture(fits: "Mapping[str, tuple[FitResult, float]]", past: float) -> Picture:
    """Draw N* and D* of fitted laws from a hundredth of each largest compute to `past` times it."""
    import numpy as np

    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.figures.style import name_of
    from scalewright.fitting.frontier import exponents, frontier

    params: dict[str, Band] = {}
    tokens: dict[str, Band] = {}
    for label, (result, flops) in fits.items():
        found, powers = frontier(result, np.geomspace(flops / 100, flops * past, N_CURVE_POINTS)), exponents(result)
        for drawn, band, name in ((params, found.n_params, "a"), (tokens, found.n_tokens, "b")):
            words = f"{name_of(label)}: {name} = {number(powers[name].value)} {interval_of(powers[name])}"
            drawn[label] = Band(found.flops, band.value, band.low, band.high, words)
    note = f"Bands: 95% intervals. Up to {past:g} times the largest compute that was run: an extrapolation."
    caption = "Compute-optimal parameters and tokens of the fitted laws."
    return Picture("compute-optimal", FIGURES["compute-optimal"](params, tokens, note=note), caption)


def interval_of(parameter: "Parameter") -> str:
    return interval(parameter.low, parameter.high) if parameter.one_sided is None else ""


def seed_words(analysis: Analysis) -> str:
    return f"{seeds_in_words(analysis.points.frame).capitalize()}."


def tokens_picture(analysis: Analysis) -> Picture:
    from scalewright.fitting.figures.gallery import FIGURES

    words = seed_words(analysis)
    note = (
        f"{words} Points: means over seeds. Bars: their whole range."
        if " to " in words or "seeds a" in words
        else words
    )
    caption = (
        "Final loss against training tokens at each size; every point is a run trained to the end of its schedule."
    )
    return Picture("loss-against-tokens", FIGURES["loss-against-tokens"](analysis.points.frame, note=note), caption)


def speed_up_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    if not any(pair.comparison.pooled for pair in analysis.comparisons):
        return ()
    return (draw_pairs(analysis.comparisons, "speed-ups", seed_words(analysis)),)


def pair_picture(pair: PairReading) -> Picture:
    """Draw one comparison alone; its name carries the labels."""
    name = f"compare-{file_label(pair.method)}.over.{file_label(pair.baseline)}"
    return draw_pairs([pair], name, "")


def draw_pairs(pairs: Sequence[PairReading], name: str, words: str) -> Picture:
    from scalewright.fitting.figures.gallery import FIGURES

    note = (
        "Large: pooled over sizes and budgets, bar: 95% interval. Small: single cells; hollow: extrapolated.\n"
        f"A ratio of 1 means no difference. {words}"
    )
    figure = FIGURES["speed-ups"](*speed_up_frames(pairs), note=note.strip())
    caption = "What the baseline needs to reach the method's final loss, over what the method used to reach it."
    return Picture(name, figure, caption)


def speed_up_frames(pairs: Sequence[PairReading]) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Put comparisons into the two frames that the figure takes: pooled ratios, and the cells behind them."""
    import pandas as pd

    pooled: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for pair in pairs:
        for unit, words in UNIT_WORDS.items():
            named = {"method": pair.method, "baseline": pair.baseline, "unit": words}
            one = pair.ratio(unit)
            if one is None:
                continue
            pooled.append(named | {"ratio": one.ratio, "low": one.low, "high": one.high, "n": one.n_cells})
            for cell in pair.cells_of(unit):
                past = (DIRECTIONS[0], cell.size, cell.budget) in pair.extrapolated
                cells.append(named | {"ratio": cell.ratio, "extrapolated": past})
    named_columns = ["method", "baseline", "unit", "ratio"]  # there also where no comparison has a ratio
    return (
        pd.DataFrame(pooled, columns=[*named_columns, "low", "high", "n"]),
        pd.DataFrame(cells, columns=[*named_columns, "extrapolated"]),
    )


def curve_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw validation loss along training where runs were evaluated on the way, else the logged training loss."""
    from scalewright.fitting.figures.gallery import FIGURES

    note = "Filled ends: learning rate decayed to its end. On the way it is still high: no point there is a final loss."
    frame, what = evaluated(analysis), "validation loss"
    if frame is None:
        frame, what = logged(analysis), "training loss"
        note = f"Means over twentieths of each run. {note}"
    if frame is None:
        return ()
    figure = FIGURES["training-curves"](frame, what=what, note=note)
    return (Picture("training-curves", figure, f"{what.capitalize()} along training, one line a run."),)


def evaluated(analysis: Analysis) -> "pd.DataFrame | None":
    """Return the evaluations on the way, with the runs' names, or None where there were only final ones."""
    if analysis.evaluations is None or not len(analysis.evaluations):
        return None
    kept = analysis.evaluations[analysis.evaluations["split"] == "validation"].dropna(subset=["loss_nats"])
    if kept.groupby("run_id").size().max() < 2:
        return None
    return kept.merge(analysis.points.frame[["run_id", "label", "size", "n_params"]], on="run_id")


def logged(analysis: Analysis) -> "pd.DataFrame | None":
    """Return the training loss averaged over twentieths of each run, the last one marked final."""
    if analysis.curves is None or not len(analysis.curves):
        return None
    columns = ["run_id", "label", "size", "n_params", "annealed"]
    steps = analysis.curves.merge(analysis.points.frame[columns], on="run_id")
    share = steps["n_tokens"] / steps.groupby("run_id")["n_tokens"].transform("max")
    steps = steps.assign(part=(share * N_CURVE_PARTS).round().clip(lower=1), loss_nats=steps["value"])
    means = steps.groupby([*columns, "part"], as_index=False)[["n_tokens", "loss_nats"]].mean()
    return means[means["part"] > 1].assign(final=means["part"] == N_CURVE_PARTS)
