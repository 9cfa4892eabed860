"""The figures of an analysis, as the table FIGURES places them on the page.

One that is drawn from an analysis alone says so in its line there; the others are read, drawn and worded here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import (
    COMPUTE_LAW,
    FLOOR_LAW,
    FULL_LAW,
    Analysis,
    is_one_cell,
    seeds_in_words,
)
from scalewright.orchestrator.analysis.comparisons import DIRECTIONS, PairReading
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.comparison_tables import UNIT_WORDS
from scalewright.orchestrator.report.forecast_tables import forecast_picture
from scalewright.orchestrator.report.format import interval, number
from scalewright.orchestrator.report.html import Picture, file_label
from scalewright.orchestrator.report.law_tables import fitted_labels, limits_in_words

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.figures.entry import Place
    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.result import FitResult, Parameter

STAMP_WORDS = "scalewright figure={} inputs={}"
N_CURVE_POINTS = 80  # of a fitted line
MARGIN = 1.5  # by which a map of a law reaches past its runs
N_CURVE_PARTS = 20  # of a run, over which its training loss is averaged


def section_pictures(analysis: Analysis, section: "Place") -> tuple[Picture, ...]:
    """Return the figures of one section of the page, in the order of the table."""
    from scalewright.fitting.figures.gallery import FIGURES

    names = [name for name, entry in FIGURES.items() if entry.section == section]
    return tuple(picture for name in names for picture in _entry_pictures(name, analysis))


def _entry_pictures(name: str, analysis: Analysis) -> tuple[Picture, ...]:
    """Return the pictures that one line of the table gives for an analysis; none where there is nothing to draw."""
    from scalewright.fitting.figures.gallery import FIGURES

    found = READERS.get(name, partial(plain_picture, name))(analysis)
    if analysis.inputs is None:
        return found
    stamp = STAMP_WORDS.format(name, analysis.inputs.stamp(name, FIGURES[name].reads))
    return tuple(replace(one, stamp=stamp) for one in found)


def page_pictures(analysis: Analysis, names: Sequence[str] = ()) -> tuple[Picture, ...]:
    """Return the pictures of the page, in its order; with names (of the table, or of a picture) these alone.

    Raises UserError for a name that draws nothing here.
    """
    from scalewright.fitting.figures.gallery import FIGURES

    found = [(name, one) for name, entry in FIGURES.items() if entry.section for one in _entry_pictures(name, analysis)]
    there = list(dict.fromkeys(known for name, one in found for known in (name, one.name)))
    for name in names:
        if name not in there:
            raise UserError(f"no figure {name!r} of {analysis.experiment}; these can be drawn: {', '.join(there)}")
    return tuple(one for name, one in found if not names or {name, one.name} & set(names))


def plain_picture(name: str, analysis: Analysis) -> tuple[Picture, ...]:
    """Return a figure of what its line of the table takes out of an analysis."""
    from scalewright.fitting.figures.gallery import FIGURES

    entry = FIGURES[name]
    assert entry.inputs is not None, name
    given = entry.inputs(analysis)
    return () if given is None else (Picture(name, partial(entry, **given), entry.caption),)


def compute_picture(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw loss against compute; nothing where all runs have one compute."""
    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.losses import MOST_BANDS
    from scalewright.fitting.optimum import FLOP_LEVEL, flop_levels

    points = analysis.points.frame
    if len(set(flop_levels(points["flops"].to_numpy(float)))) < 2:
        return ()
    bands, minima = compute_bands(analysis), analysis.minima
    by_parabola = minima is not None and len(minima) > 0
    if minima is not None:
        points = points.assign(on_frontier=points["on_frontier"] & ~points["label"].isin(minima["label"]))
    drawn = "Bands: 95% interval of a single run." if len(bands) <= MOST_BANDS else "Bands are left out."
    note = f"{_seed_words(analysis)} {drawn}" if bands else _seed_words(analysis)
    diverged = analysis.runs[analysis.runs["diverged"].fillna(False).astype(bool)].dropna(subset=["flops"])
    figure = partial(FIGURES["loss-against-compute"], points, bands, minima=minima, diverged=diverged, note=note)
    fitted_to = (
        "the crosses, the minima of the isoFLOP parabolas"
        if by_parabola
        else f"the filled runs: at each compute (runs within {100 * FLOP_LEVEL:.0f}% of one another) the lowest, where "
        "no cheaper run is lower"
    )
    caption = "Final loss of every run against its training compute."
    if bands:
        law = "L = E + K·C^−γ" if compute_law(analysis) == FLOOR_LAW else "L = K·C^−γ"
        caption += f" Lines: {law}, fitted by least squares to {fitted_to}; they end where these runs end."
    return (Picture("loss-against-compute", figure, caption),)


def compute_bands(analysis: Analysis) -> "dict[str, Band]":
    """Evaluate each label's law in compute over the compute of the runs that it is fitted to."""
    import numpy as np

    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.figures.style import name_of

    bands = {}
    law = compute_law(analysis)
    for label in analysis.labels:
        result = analysis.fit(law, label).result
        if result is None:
            continue
        x = np.geomspace(*result.range["flops"], N_CURVE_POINTS)
        band, gamma = result.predict(flops=x, new_run=True), result.params["alpha"]
        floor = f"E {_parameter_in_legend(result.params['E'], 3)}, " if law == FLOOR_LAW else ""
        words = f"{name_of(label)}: {floor}γ {_parameter_in_legend(gamma, 2)}, n = {result.n}"
        bands[label] = Band(x, band.value, band.low, band.high, words)
    return bands


def compute_law(analysis: Analysis) -> str:
    """Choose the law that all curves of loss against compute follow: with a floor where all labels' runs bound it."""
    fits = [analysis.fit(FLOOR_LAW, label).result for label in fitted_labels(analysis)]
    bounded = [fit is not None and fit.params["E"].identified for fit in fits]
    return FLOOR_LAW if bounded and all(bounded) else COMPUTE_LAW


def _parameter_in_legend(one: "Parameter", digits: int) -> str:
    low = None if one.one_sided in ("upper", "none") else one.low
    high = None if one.one_sided in ("lower", "none") else one.high
    value = f"= {number(one.value, digits)} " if one.one_sided is None else ""
    return f"{value}{interval(low, high, digits)}{one.limit_words}"


def frontier_picture(fits: "Mapping[str, tuple[FitResult, float]]", past: float) -> Picture:
    """Draw N* and D* of fitted laws from a hundredth of each largest compute to `past` times it."""
    import numpy as np

    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.losses import Band
    from scalewright.fitting.figures.style import name_of
    from scalewright.fitting.frontier import exponents, frontier

    level = 100 * next(iter(fits.values()))[0].level
    params: dict[str, Band] = {}
    tokens: dict[str, Band] = {}
    for label, (result, flops) in fits.items():
        found, powers = frontier(result, np.geomspace(flops / 100, flops * past, N_CURVE_POINTS)), exponents(result)
        told = ", ".join(f"{name} = {number(powers[name].value)} {_interval_of(powers[name])}" for name in "ab")
        words = f"{name_of(label)}: {told}{limits_in_words(result)}"
        for drawn, band in ((params, found.n_params), (tokens, found.n_tokens)):
            drawn[label] = Band(found.flops, band.value, band.low, band.high, words, flops)
    note = (
        f"N* grows as C^a, D* as C^b. Bands: {level:.4g}% intervals; wide ones run out of the panel. "
        f"Dashed: past the largest compute that was run, up to {past:g} times it."
    )
    caption = "Compute-optimal parameters and tokens of the fitted laws."
    return Picture("compute-optimal", partial(FIGURES["compute-optimal"], params, tokens, note=note), caption)


def _interval_of(parameter: "Parameter") -> str:
    return interval(parameter.low, parameter.high) if parameter.one_sided is None else ""


def _seed_words(analysis: Analysis) -> str:
    return f"{seeds_in_words(analysis.points.frame).capitalize()}."


def tokens_picture(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw loss against tokens at each size; nothing where no size has two budgets."""
    from scalewright.fitting.curve import level_of
    from scalewright.fitting.figures.gallery import FIGURES

    points = analysis.points.frame
    level = level_of(points["n_tokens"].to_numpy(float))
    if points.assign(level=level).groupby(["label", "size"])["level"].nunique().max() < 2:
        return ()
    words = _seed_words(analysis)
    if " to " in words or "seeds a" in words:
        words = f"{words} Points: means over seeds. Bars: their whole range."
    caption = (
        "Final loss against training tokens at each size; every point is a run trained to the end of its schedule."
    )
    return (Picture("loss-against-tokens", partial(FIGURES["loss-against-tokens"], points, note=words), caption),)


def isoflop_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw the isoFLOP curves of each label that has them."""
    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.style import name_of
    from scalewright.fitting.optimum import fit_optimum, flop_levels

    labels = [] if analysis.minima is None else [one for one in analysis.labels if one in set(analysis.minima["label"])]
    pictures = []
    for label in labels:
        own = analysis.points.of(label)
        points = own.frame.assign(flops_budget=flop_levels(own.column("flops")))
        figure = partial(
            FIGURES["isoflop-profiles"],
            points,
            fit_optimum(own, "isoflop").parabolas(),
            note=f"{name_of(label)}, {counted(len(points), 'run')}.",
        )
        caption = f"{name_of(label)}: loss at equal compute, and the parabola whose minimum is the optimal size."
        pictures.append(Picture(f"isoflop-profiles-{file_label(label)}", figure, caption))
    return tuple(pictures)


def contour_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw the law of parameters and tokens of each label whose runs tell it, over the range of these runs."""
    import numpy as np

    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.style import name_of
    from scalewright.fitting.frontier import frontier

    pictures = []
    for label in analysis.labels:
        result = analysis.fit(FULL_LAW, label).result
        if result is None or not result.identified:
            continue
        points = analysis.points.of(label).frame
        ranges = [points[axis].agg(["min", "max"]).to_numpy(float) for axis in ("n_params", "n_tokens")]
        wide, long = (np.geomspace(low / MARGIN, high * MARGIN, N_CURVE_POINTS) for low, high in ranges)
        mesh = np.meshgrid(wide, long)
        loss = result.predict(n_params=mesh[0].ravel(), n_tokens=mesh[1].ravel()).value.reshape(mesh[0].shape)
        best = frontier(result, np.geomspace(6 * wide[0] * long[0], 6 * wide[-1] * long[-1], N_CURVE_POINTS))
        draw = partial(
            FIGURES["contours"],
            points,
            (wide, long, loss),
            (best.n_params.value, best.n_tokens.value),
            note=f"{counted(len(points), 'run')}. Lines of equal loss, nats per token.",
        )
        law = "L(N, D) = E + A·N^−α + B·D^−β"
        caption = f"{name_of(label)}: {law}, the runs that it is fitted to, and its N*, D* at C = 6ND."
        pictures.append(Picture(f"contours-{file_label(label)}", draw, caption))
    return tuple(pictures)


def _speed_up_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    if not any(is_drawn(pair) for pair in analysis.comparisons):
        return ()
    return (_draw_pairs(analysis.comparisons, "speed-ups", _seed_words(analysis)),)


def variants(analysis: Analysis) -> list[PairReading]:
    """Return the comparisons of an ablation, all with one base; none for other grids, or for one variant."""
    pairs = [pair for pair in analysis.comparisons if pair.baseline == analysis.comparisons[0].baseline]
    return pairs if len(pairs) > 1 and is_one_cell(analysis.points.frame) else []


def ablation_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw the variants of an ablation against their base."""
    import pandas as pd

    from scalewright.fitting.figures.gallery import FIGURES
    from scalewright.fitting.figures.style import name_of

    pairs = variants(analysis)
    if not pairs:
        return ()
    counts = analysis.points.frame["label"].value_counts()
    found = [(pair.method, pair.comparison.difference, int(counts[pair.method])) for pair in pairs]
    rows = pd.DataFrame(
        [{"label": label, "nats": one.nats, "low": one.low, "high": one.high, "n": n} for label, one, n in found]
    )
    note = f"{_seed_words(analysis)} Bars: 95% interval of the difference from the base, one variant at a time."
    figure = partial(FIGURES["ablation"], rows, base=pairs[0].baseline, note=note)
    caption = f"Final loss of each variant minus that of {name_of(pairs[0].baseline)}; below 0 the variant is better."
    return (Picture("ablation", figure, caption),)


def is_drawn(pair: PairReading) -> bool:
    """Whether a comparison has a number for the figure of speed-ups."""
    return pair.ratio("tokens") is not None or bool(pair.compute)


def pair_picture(pair: PairReading) -> Picture:
    """Draw one comparison alone; its name carries the labels."""
    name = f"compare-{file_label(pair.method)}.over.{file_label(pair.baseline)}"
    return _draw_pairs([pair], name, "")


def _draw_pairs(pairs: Sequence[PairReading], name: str, words: str) -> Picture:
    from scalewright.fitting.figures.gallery import FIGURES

    note = (
        f"Large: all sizes and budgets, bar: {pairs[0].level} interval. Small: one size at one budget; "
        f"hollow: extrapolated. By laws: the multiplier of compute.\nA ratio of 1 means no difference. {words}"
    )
    figure = partial(FIGURES["speed-ups"], *speed_up_frames(pairs), note=note.strip())
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
            pooled.append(
                named | {"ratio": one.ratio, "low": one.low, "high": one.high, "n": one.n_cells, "past": None}
            )
            for cell in pair.cells_of(unit):
                past = (DIRECTIONS[0], cell.size, cell.budget) in pair.extrapolated
                cells.append(named | {"ratio": cell.ratio, "extrapolated": past})
        pooled += _law_rows(pair)
    named_columns = ["method", "baseline", "unit", "ratio"]  # there also where no comparison has a ratio
    return (
        pd.DataFrame(pooled, columns=[*named_columns, "low", "high", "n", "past"]),
        pd.DataFrame(cells, columns=[*named_columns, "extrapolated"]),
    )


def _law_rows(pair: PairReading) -> "Iterator[dict[str, Any]]":
    """Yield the rows of the compute multiplier, which is read off laws and may lie outside the baseline's runs."""
    for one in pair.compute:
        named = {"method": pair.method, "baseline": pair.baseline, "unit": f"compute by laws, {one.at}"}
        past = one.past if one.is_extrapolated else None
        yield named | {"ratio": one.value, "low": one.low, "high": one.high, "n": pair.comparison.n, "past": past}


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
    figure = partial(FIGURES["training-curves"], frame, what=what, note=note)
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


def _forecast_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    import pandas as pd

    told = [one.rows for one in (analysis.held_out, analysis.to_come) if one is not None]
    return (forecast_picture(pd.concat(told, ignore_index=True)),) if told else ()


READERS: dict[str, Callable[[Analysis], tuple[Picture, ...]]] = {
    "speed-ups": _speed_up_pictures,
    "loss-against-tokens": tokens_picture,
    "loss-against-compute": compute_picture,
    "isoflop-profiles": isoflop_pictures,
    "contours": contour_pictures,
    "ablation": ablation_pictures,
    "forecast": _forecast_pictures,
    "training-curves": curve_pictures,
}
