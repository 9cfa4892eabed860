"""From an analysis to its report: in which order a page tells it. FIGURES says which figures stand in a section."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import Analysis, analyze, is_one_cell, seeds_in_words
from scalewright.orchestrator.report.comparison_tables import (
    losses_table,
    multipliers_table,
    scale_tables,
    sentence,
    speed_ups_table,
)
from scalewright.orchestrator.report.figures import section_pictures, variants
from scalewright.orchestrator.report.forecast_tables import forecast_table, held_out_table, held_out_words, reasons
from scalewright.orchestrator.report.format import short_count, span
from scalewright.orchestrator.report.html import Picture, Report, Section, Table, file_label, make_folder, write_report
from scalewright.orchestrator.report.law_tables import (
    excluded_words,
    exclusions_table,
    fits_table,
    fitted_labels,
    laws_table,
    runs_table,
)
from scalewright.orchestrator.report.loss_tables import ablation_words, corpora_table, final_losses, finals_table
from scalewright.orchestrator.report.page_store import Page, page_key, read_page, write_page
from scalewright.orchestrator.report.paper_tables import write_tables
from scalewright.orchestrator.report.warnings import cautions
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    from scalewright.fitting.figures.entry import Place


def report_experiment(study: Study, experiment: str, *, compare: tuple[tuple[str, str], ...] = ()) -> Page:
    """Analyse a synced experiment, draw its figures, write its table for papers and figures/<experiment>/index.html.

    Safe to repeat: where neither the runs nor the code have changed since, the page that is there is returned.
    """
    key = page_key(study, experiment, compare)
    folder = figures_dir(study, experiment)
    stored = read_page(study.figures_dir / folder.name, key) or read_page(folder, key)
    if stored is not None:
        return stored
    make_folder(folder)  # before the fits, which take their time
    analysis = analyze(study, experiment, compare=compare)
    report = build_report(analysis)
    path = write_report(report, folder)
    pasted = write_tables(final_losses(analysis), folder)
    files = (*(folder / f"{picture.name}.png" for picture in _pictures_of(report)), *pasted, path)
    page = Page(headline_tables(analysis), headline_lines(analysis), files, path)
    write_page(page, key)
    return page


def headline_tables(analysis: Analysis) -> tuple[Table, ...]:
    """Return what a terminal shows first: speed-ups, the loss itself, laws."""
    if variants(analysis):
        return (finals_table(analysis),)
    pairs = analysis.comparisons
    first = () if any(pair.ratio("tokens") for pair in pairs) else (multipliers_table(pairs),)
    found = (*first, _pairs_table(analysis), losses_table(pairs), laws_table(analysis))
    return tuple(table for table in found if table.rows or table.notes)


def headline_lines(analysis: Analysis) -> tuple[str, ...]:
    """Return the findings in sentences, what did not enter, and every caution."""
    return (*lead(analysis), *excluded_words(analysis), *cautions(analysis))


def _pairs_table(analysis: Analysis) -> Table:
    return speed_ups_table(analysis.comparisons, analysis.refusals)


def figures_dir(study: Study, experiment: str) -> Path:
    """The folder of an experiment's figures, named as files of labels are: no two experiments share one.

    It lies in the study; in the current folder where the study can only be read.
    """
    place = study.figures_dir if os.access(study.root, os.W_OK) else Path.cwd() / study.figures_dir.name
    return place / (file_label(experiment) or "-")


def _pictures_of(report: Report) -> list[Picture]:
    return [picture for section in report.sections for picture in section.pictures]


def build_report(analysis: Analysis) -> Report:
    """Lay out the page: what the method gives first, then laws, then every run and every exclusion.

    A section without content is left out, and so is a table without rows or notes.
    """
    sections = (
        *answer_sections(analysis),
        section(analysis, "fits", "How the laws were fitted", (fits_table(analysis),)),
        *forecast_sections(analysis),
        section(analysis, "layers", "What each layer does"),
        section(analysis, "runs", "Every run", _run_tables(analysis), text=excluded_words(analysis)),
    )
    return Report(
        f"Scaling laws of {analysis.experiment}" if fitted_labels(analysis) else analysis.experiment,
        facts=_facts(analysis),
        lead=lead(analysis),
        warnings=tuple(cautions(analysis)),
        sections=tuple(one for one in sections if not one.is_empty),
    )


def answer_sections(analysis: Analysis) -> tuple[Section, ...]:
    """Answer the two questions of a comparison; an ablation at one size and budget has one."""
    pairs = analysis.comparisons
    if variants(analysis):
        title = "Which variant ends lower, and by how much?"
        return (section(analysis, "ablation", title, all_losses(analysis)),)
    scale = (*scale_tables(pairs), laws_table(analysis))
    # without a speed-up at equal size, as on isoFLOP grids, the multiplier of compute is the answer
    first = () if any(pair.ratio("tokens") for pair in pairs) else (multipliers_table(pairs),)
    return (
        section(
            analysis,
            "speed-ups",
            "Does the method help, and by how much?" if pairs else "How low does each method end?",
            (*first, _pairs_table(analysis), losses_table(pairs)),
        ),
        section(
            analysis,
            "laws",
            "Does the gain hold as models and data grow?" if pairs else "How does the loss fall with compute?",
            scale if first else (*scale[:-1], multipliers_table(pairs), scale[-1]),
        ),
        section(analysis, "finals", "Every final loss", all_losses(analysis)),
    )


def all_losses(analysis: Analysis) -> tuple[Table, ...]:
    """Return the final losses, and those on other texts where some were measured."""
    others = corpora_table(analysis)
    return (finals_table(analysis),) if others is None else (finals_table(analysis), others)


def lead(analysis: Analysis) -> tuple[str, ...]:
    """Return the answer in sentences: a comparison has one, an ablation two for all its variants."""
    pairs = analysis.comparisons
    if len(pairs) > 1 and is_one_cell(analysis.points.frame):
        return ablation_words(pairs)
    return tuple(map(sentence, pairs))


def section(
    analysis: Analysis, name: "Place", title: str, tables: tuple[Table, ...] = (), *, text: Sequence[str] = ()
) -> Section:
    """Make a section of its tables that have rows or notes, and of the figures that FIGURES places there."""
    shown = tuple(table for table in tables if table.rows or table.notes)
    return Section(name, title, tuple(text), shown, section_pictures(analysis, name))


def forecast_sections(analysis: Analysis) -> tuple[Section, ...]:
    """Tell of runs to come and of runs held out, where there are any."""
    made, checked = analysis.to_come, analysis.held_out
    if made is None and checked is None:
        return ()
    tables = [forecast_table(made.rows, reasons(made))] if made is not None else []
    tables += [held_out_table(checked)] if checked is not None else []
    text = held_out_words(checked) if checked is not None else ()
    return (section(analysis, "forecast", "What larger runs are expected to give", tuple(tables), text=text),)


def _run_tables(analysis: Analysis) -> tuple[Table, ...]:
    excluded = exclusions_table(analysis)
    return (excluded, runs_table(analysis)) if excluded.rows else (runs_table(analysis),)


def _facts(analysis: Analysis) -> tuple[str, ...]:
    points, runs = analysis.points.frame, analysis.runs
    tokens = (short_count(float(end)) for end in (points["n_tokens"].min(), points["n_tokens"].max()))
    return (
        f"{len(points)} of {counted(len(runs), 'run')} entered",
        counted(points["label"].nunique(), "method"),
        counted(points["size"].nunique(), "size"),
        seeds_in_words(points),
        f"{span(*tokens)} tokens a run",
    )
