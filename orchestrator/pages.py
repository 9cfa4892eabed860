"""From an analysis to its report: which figures are drawn of it, and in which order a page tells it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analyze import COMPUTE_LAW, Analysis, analyze
from orchestrator.findings import (
    UNIT_WORDS,
    excluded_words,
    exclusions_table,
    laws_table,
    runs_table,
    speed_ups_table,
)
from orchestrator.report import Picture, Report, Section, Table, write_picture, write_report
from orchestrator.study import Study
from orchestrator.wording import counted, interval, number

if TYPE_CHECKING:
    import pandas as pd

    from fitting.figures.losses import Band

N_CURVE_POINTS = 80


@dataclass(frozen=True)
class Page:
    """A report as written: the analysis behind it, its two tables, and where it is."""

    analysis: Analysis
    laws: Table
    speed_ups: Table
    path: Path


def report_experiment(study: Study, experiment: str, *, compare: tuple[tuple[str, str], ...] = ()) -> Page:
    """Analyse a synced experiment, draw its figures and write figures/<experiment>/index.html; safe to repeat."""
    analysis = analyze(study, experiment, compare=compare)
    report = build_report(analysis)
    path = write_report(report, figures_dir(study, experiment))
    record_pictures(study, analysis, report, path.parent)
    return Page(analysis, laws_table(analysis), speed_ups_table(analysis), path)


def figures_dir(study: Study, experiment: str) -> Path:
    """The folder of an experiment's figures; characters that a file name cannot hold become dashes."""
    return study.figures_dir / "".join(c if c.isalnum() or c in "-_. " else "-" for c in experiment)


def record_pictures(study: Study, analysis: Analysis, report: Report, folder: Path) -> None:
    """Store what each figure was drawn from."""
    import hashlib

    from db.engine import open_database
    from db.store import record_figure

    database = open_database(study.database, create=False)
    inputs = [("frame", "final_losses"), *[("fit", fit.fit_id) for fit in analysis.fits if fit.fit_id]]
    for picture in pictures_of(report):
        png = folder / f"{picture.name}.png"
        content = hashlib.sha256(png.read_bytes()).hexdigest()
        record_figure(database, picture.name, str(png), inputs, experiment=analysis.experiment, content_hash=content)


def pictures_of(report: Report) -> list[Picture]:
    return [picture for section in report.sections for picture in section.pictures]


def build_report(analysis: Analysis) -> Report:
    """Lay out the page: speed-ups first, then laws, then every run and every exclusion."""
    sections = [
        Section("speed-ups", "Does the method help, and by how much?", tables=(speed_ups_table(analysis),),
                pictures=speed_up_pictures(analysis)),
        Section("laws", "Does the gain hold with scale?", tables=(laws_table(analysis),),
                pictures=(compute_picture(analysis), tokens_picture(analysis))),
        Section("runs", "Every run", text=tuple(excluded_words(analysis)), tables=run_tables(analysis),
                pictures=curve_pictures(analysis)),
    ]  # fmt: skip
    return Report(f"Scaling laws of {analysis.experiment}", facts=facts(analysis), sections=tuple(sections))


def run_tables(analysis: Analysis) -> tuple[Table, ...]:
    excluded = exclusions_table(analysis)
    return (excluded, runs_table(analysis)) if excluded.rows else (runs_table(analysis),)


def facts(analysis: Analysis) -> tuple[str, ...]:
    points, runs = analysis.points.frame, analysis.runs
    return (
        f"{len(points)} of {counted(len(runs), 'run')} entered",
        counted(points["label"].nunique(), "method"),
        counted(points["size"].nunique(), "size"),
        counted(points["seed"].nunique(), "seed"),
        f"{number(points['n_tokens'].min())} to {number(points['n_tokens'].max())} tokens a run",
    )


def compute_picture(analysis: Analysis) -> Picture:
    from fitting.figures.gallery import FIGURES

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

    from fitting.figures.losses import Band
    from fitting.figures.style import name_of

    bands = {}
    for label in analysis.labels:
        result = analysis.fit(COMPUTE_LAW, label).result
        if result is None:
            continue
        flops = analysis.points.of(label).column("flops")
        x = np.geomspace(flops.min(), flops.max(), N_CURVE_POINTS)
        band, gamma = result.predict(flops=x), result.params["alpha"]
        words = f"{name_of(label)}: γ = {number(gamma.value, 2)} {interval(gamma.low, gamma.high, 2)}, n = {result.n}"
        bands[label] = Band(x, band.value, band.low, band.high, words)
    return bands


def seed_words(analysis: Analysis) -> str:
    seeds = analysis.points.frame["seed"].nunique()
    return "One seed a run." if seeds == 1 else f"{seeds} seeds."


def tokens_picture(analysis: Analysis) -> Picture:
    from fitting.figures.gallery import FIGURES

    single = analysis.points.frame["seed"].nunique() == 1
    note = "One seed a run: no spread to show." if single else "Points: means over seeds. Bars: their whole range."
    caption = (
        "Final loss against training tokens at each size; every point is a run trained to the end of its schedule."
    )
    return Picture("loss-against-tokens", FIGURES["loss-against-tokens"](analysis.points.frame, note=note), caption)


def speed_up_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    from fitting.figures.gallery import FIGURES

    if not analysis.comparisons:
        return ()
    note = (
        "Large: pooled, with 95% interval over sizes. Small: single sizes and budgets; arrows: known on one side only."
    )
    figure = FIGURES["speed-ups"](*speed_up_frames(analysis), note=note)
    caption = "What the baseline needs to reach the method's final loss, over what the method used."
    return (Picture("speed-ups", figure, caption),)


def speed_up_frames(analysis: Analysis) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Put comparisons into the frames that the figure takes."""
    import pandas as pd

    pooled: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for pair in analysis.comparisons:
        names = {"method": pair.method, "baseline": pair.baseline}
        pooled += [
            names
            | {"unit": UNIT_WORDS[one.unit], "ratio": one.ratio, "low": one.low, "high": one.high, "n": one.n_cells}
            for one in pair.pooled
        ]
        bounds = {None: "", "lower": ">", "upper": "<"}
        cells += [
            names | {"unit": UNIT_WORDS[one.unit], "ratio": one.ratio, "bound": bounds[one.censored]}
            for one in pair.cells
            if one.censored in bounds
        ]
    return pd.DataFrame(pooled), pd.DataFrame(cells, columns=["method", "baseline", "unit", "ratio", "bound"])


def curve_pictures(analysis: Analysis) -> tuple[Picture, ...]:
    """Draw validation loss along training where runs were evaluated more than once."""
    from fitting.figures.gallery import FIGURES

    frame = curves_frame(analysis)
    if frame is None or frame.groupby("run_id").size().max() < 2:
        return ()
    note = (
        "Filled ends: learning rate fully decayed. Along a curve the rate is still high: do not read it as final loss."
    )
    caption = "Validation loss along training."
    return (Picture("training-curves", FIGURES["training-curves"](frame, note=note), caption),)


def curves_frame(analysis: Analysis) -> "pd.DataFrame | None":
    if analysis.evaluations is None or not len(analysis.evaluations):
        return None
    named = analysis.runs[["run_id", "label", "size", "n_params"]]
    kept = analysis.evaluations[analysis.evaluations["split"] == "validation"]
    return kept.merge(named, on="run_id").dropna(subset=["loss_nats"])


def draw(study: Study, analysis: Analysis) -> list[Path]:
    """Write every figure of an analysis as PNG and SVG; return the PNG paths."""
    folder = figures_dir(study, analysis.experiment)
    return [write_picture(picture.figure, folder, picture.name)[0] for picture in pictures_of(build_report(analysis))]
