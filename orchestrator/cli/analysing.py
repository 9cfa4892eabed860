"""Verbs that analyse finished runs. No heavy import at the top."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalewright.orchestrator.cli.reading import PLACE

if TYPE_CHECKING:
    from scalewright.orchestrator.answers.answer import Answer
    from scalewright.orchestrator.study import Asked

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
LEVEL = Annotated[float, typer.Option(help="Level of the intervals.", min=0.5, max=0.999)]


def fit(
    place: PLACE = None,
    law: Annotated[str | None, typer.Option(help="Fit this law alone: {laws}; or ./mine.py:LAW.")] = None,
    objective: Annotated[str, typer.Option(help="What is least at the fit, summed over runs: {objectives}.")] = "huber",
    delta: Annotated[float | None, typer.Option(help="Width of the Huber objective, in log loss.")] = None,
    n_convention: Annotated[str, typer.Option(help="What counts as parameters: {n_conventions}.")] = "non-embedding",
    flop_convention: Annotated[
        str, typer.Option(help="What counts as compute: {flop_conventions}; 6nd takes the N convention's parameters.")
    ] = "stored",
    by: Annotated[
        str, typer.Option(help="Fit apart by this column (label, method, size ...); none: all runs together.")
    ] = "label",
    holdout: Annotated[
        str, typer.Option(help='Runs marked holdout: {held_out}; or a condition that marks more: "n_tokens > 4e5".')
    ] = "exclude",
    exclude_worst: Annotated[int, typer.Option(help="Leave out this many of the largest losses.", min=0)] = 0,
    level: LEVEL = 0.95,
    fix: Annotated[list[str] | None, typer.Option(help="Hold a parameter: E=1.6. May be given again.")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Keep a parameter between two values: E=1.5:1.8. May be given again.")
    ] = None,
    at: Annotated[
        list[float] | None, typer.Option(help="Tell the optimum at this compute, in FLOP: 3.8e25. May be given again.")
    ] = None,
    asymmetry: Annotated[
        float, typer.Option(help="Weight of runs above the law; below 1 the law leans on the lower envelope.")
    ] = 1.0,
    loss: Annotated[str, typer.Option(help="What is fitted: {losses}.")] = "loss_nats",
    bootstrap: Annotated[int, typer.Option(help="Resample the runs so many times, for second intervals.", min=0)] = 0,
    specification_curve: Annotated[
        bool, typer.Option("--specification-curve", help="Fit under every objective, N convention and exclusion.")
    ] = False,
    rolling_origin: Annotated[
        bool, typer.Option("--rolling-origin", help="Predict dearer runs from cheaper ones, at every cut.")
    ] = False,
    profile: Annotated[str | None, typer.Option(help="Show how much worse the fit gets along this parameter.")] = None,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="Residuals, leverage, and the influence of each run.")
    ] = False,
    approaches: Annotated[
        bool, typer.Option("--approaches", help="Optimal parameters by envelope, isoFLOP and law, side by side.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Fit laws with intervals, store them, and say what the runs identify. Example: scalewright fit experiments.yaml"""
    from scalewright.orchestrator.analysis.fits import FitRequest, read_bounds, read_fixed
    from scalewright.orchestrator.analysis.own_law import known_law
    from scalewright.orchestrator.answers.fit import print_analysis, print_fits, print_trust
    from scalewright.orchestrator.cli.selection import ask

    asked = ask(place)
    request = FitRequest(
        law=known_law(law or "chinchilla"),
        objective=objective,
        delta=delta,
        n_convention=n_convention,
        flop_convention=flop_convention,
        by=by,
        holdout=holdout,
        exclude_worst=exclude_worst,
        n_bootstrap=bootstrap,
        level=level,
        fixed=read_fixed(fix or ()),
        bounds=read_bounds(bounds or ()),
        above=asymmetry,
        at=tuple(at or ()),
        loss=loss,
    )
    flags = {
        "bootstrap": bootstrap > 0,
        "specification-curve": specification_curve,
        "rolling-origin": rolling_origin,
        "diagnostics": diagnostics,
        "approaches": approaches,
    }
    wanted = [name for name, given in flags.items() if given]
    if wanted or profile:
        print_trust(asked, request, wanted, profile, as_json=as_json)
    elif law is None and not as_json and request == FitRequest():
        print_analysis(asked)
    else:
        print_fits(asked, request, as_json=as_json)


def _show_for(asked: "Asked", answer: "Answer", *, as_json: bool) -> None:
    from scalewright.orchestrator.answers.answer import show
    from scalewright.orchestrator.report.page import figures_dir

    show(answer, figures_dir(asked.study, asked.experiment), as_json=as_json)


def compare(
    method: Annotated[str, typer.Argument(help="The label of the method, as figures show it.")],
    baseline: Annotated[str, typer.Argument(help="The label that it is compared with.")],
    place: PLACE = None,
    curve: Annotated[
        str, typer.Option(help="A size's curve over budgets: {curves}; fitted is one line through all of them.")
    ] = "fitted",
    level: LEVEL = 0.95,
    as_json: JSON = False,
) -> None:
    """Compare a method with its baseline, with what must be admitted. Example: scalewright compare angpt gpt+"""
    from scalewright.orchestrator.answers.comparison import compare_as_asked
    from scalewright.orchestrator.cli.selection import ask

    asked = ask(place)
    _show_for(asked, compare_as_asked(asked, method, baseline, curve=curve, level=level), as_json=as_json)


def hyper(
    place: PLACE = None,
    setting: Annotated[str, typer.Option(help="What the runs sweep: {settings}.")] = "lr_peak",
    as_json: JSON = False,
) -> None:
    """Find the best learning rate or batch and its law, and store it. Example: scalewright hyper sweep.yaml"""
    from scalewright.db.engine import open_database
    from scalewright.orchestrator.analysis.fits import read_runs
    from scalewright.orchestrator.answers.hyper import hyper_answer
    from scalewright.orchestrator.cli.selection import ask

    asked = ask(place)
    runs = read_runs(asked.study, asked.experiment)
    database = open_database(asked.study.database, create=False)
    _show_for(asked, hyper_answer(database, asked.experiment, runs, setting), as_json=as_json)


def design(
    place: PLACE = None,
    assume: Annotated[str, typer.Option(help="Supposed values of {assumed}, for example alpha=0.3,E=1.7.")] = "",
    scatter: Annotated[float | None, typer.Option(help="Share of its loss by which a run varies.", min=0.0)] = None,
    as_json: JSON = False,
) -> None:
    """Say what a planned grid can tell, before it is run. Example: scalewright design experiments.yaml"""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import runs as list_runs
    from scalewright.orchestrator.answers.design import design_answer, planned_points, points_of_runs, read_assumed
    from scalewright.orchestrator.cli.selection import find, meant_one

    named, assumed = meant_one(place), read_assumed(assume)
    asked = find(named)
    if Path(named).is_file():
        points = planned_points(Path(named))
    else:
        points = points_of_runs(list_runs(open_database(asked.study.database, create=False), asked.experiment))
    _show_for(asked, design_answer(points, assumed, scatter), as_json=as_json)


def forecast(place: PLACE = None, as_json: JSON = False) -> None:
    """Predict runs that have not ended, and score earlier forecasts. Example: scalewright forecast experiments.yaml"""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import runs as list_runs
    from scalewright.orchestrator.analysis.fits import read_runs
    from scalewright.orchestrator.answers.forecast import forecast_answer
    from scalewright.orchestrator.cli.selection import ask

    asked = ask(place)
    runs = read_runs(asked.study, asked.experiment)
    database = open_database(asked.study.database, create=False)
    planned = list_runs(database, asked.experiment)
    _show_for(asked, forecast_answer(database, asked.experiment, runs, planned), as_json=as_json)


def advise(
    place: PLACE = None,
    question: Annotated[
        str, typer.Option(help='"compare: angpt over gpt+", "loss of gpt+ at N=1e9, D=2e10" or "exponent alpha".')
    ] = "",
    to_within: Annotated[
        float | None, typer.Option(help="Choose no more than it takes: half-width of the interval of a log.", min=1e-9)
    ] = None,
    budget: Annotated[str | None, typer.Option(help="The most to spend, FLOP (1e18) or GPU hours (20h).")] = None,
    batch: Annotated[int, typer.Option(help="How many runs to choose at once.", min=1)] = 4,
    level: LEVEL = 0.95,
    seed: Annotated[int, typer.Option(help="Of the fits that a choice begins with.", min=0)] = 0,
    submit: Annotated[bool, typer.Option("--submit", help="Start exactly these runs.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Submit, wait, choose again, until narrow enough or the budget is spent.")
    ] = False,
    executor: Annotated[str | None, typer.Option(help="With --submit: {executors}; by default the file's.")] = None,
    payload: Annotated[str, typer.Option(hidden=True)] = "train",
    replay: Annotated[Path | None, typer.Option(help="Do a choice again from its file in advice/.")] = None,
    as_json: JSON = False,
) -> None:
    """Choose planned runs that tell most for their cost. Example: scalewright advise --question "angpt over gpt+" """
    from scalewright.orchestrator.cli.advising import follow_advice, print_advice, print_replay

    if replay is not None:
        print_replay(replay, as_json=as_json)
        return
    start = {"executor": executor, "payload": payload} if submit else None
    options: dict[str, Any] = {"budget": budget, "n_batch": batch, "to_within": to_within, "level": level, "seed": seed}
    if follow:
        follow_advice(place, question, options, start={"executor": executor, "payload": payload})
        return
    print_advice(place, question, options, start=start, as_json=as_json)


def figures(
    place: PLACE = None,
    names: Annotated[list[str] | None, typer.Argument(help="Only these, by the names of the page's figures.")] = None,
    formats: Annotated[
        str | None,
        typer.Option("--format", help="Formats, with commas: {figure_formats}; by default all but the last."),
    ] = None,
    width: Annotated[
        str | None, typer.Option(help="For what width they are laid out: {figure_widths}; by default page.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Draw nothing; say which files no longer match the database.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Redraw figures from the database, all with their page. Example: scalewright figures experiments.yaml"""
    from scalewright.orchestrator.analysis.analyze import analyze
    from scalewright.orchestrator.cli.selection import ask
    from scalewright.orchestrator.report.figure_files import Wanted, check_figures, draw_figures, require_current
    from scalewright.orchestrator.report.page import figures_dir, report_experiment
    from scalewright.orchestrator.report.tables import print_json, print_rows

    wanted = Wanted.read(names or (), formats, width)
    asked = ask(place)
    folder = figures_dir(asked.study, asked.experiment)
    if check:
        rows = check_figures(asked, wanted.names, folder)
        print_rows(rows, as_json=as_json)
        require_current(rows)
        return
    if wanted == Wanted():
        page = report_experiment(asked.study, asked.experiment, compare=asked.compare)
        drawn = [path for path in page.files if path.suffix in (".png", ".html")]
    else:
        drawn = list(draw_figures(analyze(asked.study, asked.experiment, compare=asked.compare), wanted, folder))
    print_json(list(map(str, drawn))) if as_json else print("\n".join(map(str, drawn)))


def report(
    place: PLACE = None,
    tables: Annotated[
        str | None,
        typer.Option(help="Name the files of the table of final losses, to paste; with commas: {table_formats}."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Write the page of an experiment: findings, tables, figures. Example: scalewright report experiments.yaml"""
    from scalewright.orchestrator.cli.selection import ask
    from scalewright.orchestrator.report.page import report_experiment
    from scalewright.orchestrator.report.paper_tables import paths_of, read_formats
    from scalewright.orchestrator.report.tables import print_json

    formats = read_formats(tables) if tables is not None else ()
    asked = ask(place)
    page = report_experiment(asked.study, asked.experiment, compare=asked.compare)
    pasted = paths_of(page.path.parent, formats)
    if as_json:
        shown = {table.title: list(table.rows) for table in page.tables}
        named = dict(zip(formats, map(str, pasted), strict=True))
        print_json({"path": str(page.path), "findings": page.lines, "tables": shown, "files": named})
        return
    for path in (page.path, *pasted):
        print(path)
    print("open it in a browser; its pictures are in the page itself", file=sys.stderr)


def papers(
    paper: Annotated[str | None, typer.Argument(help="Only this one, by its name: anGPT.")] = None,
    as_json: JSON = False,
) -> None:
    """Show what the papers report of these methods, with its source. Example: scalewright papers GPAS"""
    from scalewright.orchestrator.errors import UserError
    from scalewright.orchestrator.report.papers import DIFFERENCES, NOTE, paper_results
    from scalewright.orchestrator.report.tables import print_json, print_rows

    chosen = [name for name in DIFFERENCES if paper is None or name.lower() == paper.lower()]
    if not chosen:
        raise UserError(f"no results of {paper!r}; recorded: {', '.join(DIFFERENCES)}")
    of_paper = {name: [row for row in paper_results() if row["paper"].startswith(f"{name},")] for name in chosen}
    if as_json:
        print_json([row for rows in of_paper.values() for row in rows])
        return
    print(f"{NOTE}\n")
    for name, rows in of_paper.items():
        shown = [{key: value for key, value in row.items() if key != "paper"} for row in rows]
        print_rows(shown, title=rows[0]["paper"])
        print(f"  {DIFFERENCES[name]}\n")
