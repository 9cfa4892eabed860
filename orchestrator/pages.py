"""From an analysis to its report: which figures are drawn of it, and in which order a page tells it."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.analyze import Analysis, analyze
from orchestrator.cautions import cautions
from orchestrator.findings import (
    excluded_words,
    exclusions_table,
    laws_table,
    runs_table,
)
from orchestrator.pair_text import losses_table, scale_tables, sentence, speed_ups_table
from orchestrator.pictures import compute_picture, curve_pictures, speed_up_pictures, tokens_picture
from orchestrator.report import Picture, Report, Section, Table, write_report
from orchestrator.study import Study
from orchestrator.wording import counted, number


@dataclass(frozen=True)
class Page:
    """A report as written: the analysis behind it, its two tables, and where it is."""

    analysis: Analysis
    report: Report
    laws: Table
    speed_ups: Table
    path: Path

    @property
    def files(self) -> list[Path]:
        """Every picture (PNG) and the page, as written."""
        names = [picture.name for picture in pictures_of(self.report)]
        return [*(self.path.parent / f"{name}.png" for name in names), self.path]


def report_experiment(study: Study, experiment: str, *, compare: tuple[tuple[str, str], ...] = ()) -> Page:
    """Analyse a synced experiment, draw its figures and write figures/<experiment>/index.html; safe to repeat."""
    analysis = analyze(study, experiment, compare=compare)
    report = build_report(analysis)
    path = write_report(report, figures_dir(study, experiment))
    record_pictures(study, analysis, report, path.parent)
    return Page(analysis, report, laws_table(analysis), pairs_table(analysis), path)


def pairs_table(analysis: Analysis) -> Table:
    return speed_ups_table(analysis.comparisons, analysis.refusals)


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
    pairs = analysis.comparisons
    sections = (
        Section(
            "speed-ups",
            "Does the method help, and by how much?",
            tables=(pairs_table(analysis), losses_table(pairs)),
            pictures=(*speed_up_pictures(analysis), tokens_picture(analysis)),
        ),
        Section(
            "laws",
            "Does the gain hold as models and data grow?",
            tables=(*scale_tables(pairs), laws_table(analysis)),
            pictures=(compute_picture(analysis),),
        ),
        Section(
            "runs",
            "Every run",
            text=tuple(excluded_words(analysis)),
            tables=run_tables(analysis),
            pictures=curve_pictures(analysis),
        ),
    )
    return Report(
        f"Scaling laws of {analysis.experiment}",
        facts=facts(analysis),
        lead=tuple(sentence(pair) for pair in analysis.comparisons),
        warnings=tuple(cautions(analysis)),
        sections=sections,
    )


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
