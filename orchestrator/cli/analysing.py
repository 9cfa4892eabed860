"""Verbs that analyse: fit, figures, report, compare, hyper, design, forecast."""

import sys
from typing import Annotated

import typer

PLACE = Annotated[str, typer.Argument(help="A YAML file, or the name of an experiment in this folder's database.")]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DEFAULT_PLACE = "experiments.yaml"


def register(app: typer.Typer) -> None:
    """Add this family's verbs to the command."""
    for verb in (fit, figures, report):
        app.command(verb.__name__)(verb)


def fit(
    place: PLACE = DEFAULT_PLACE,
    law: Annotated[str | None, typer.Option(help="Fit this law alone: chinchilla, power, pure-power, ...")] = None,
    objective: Annotated[str, typer.Option(help="huber, lad, log-l2 or raw-l2 (a sum over runs).")] = "huber",
    delta: Annotated[float | None, typer.Option(help="Width of the Huber objective, in log loss.")] = None,
    n_convention: Annotated[
        str, typer.Option(help="What counts as parameters: non-embedding, non-embedding+head or total.")
    ] = "non-embedding",
    flop_convention: Annotated[str, typer.Option(help="stored, or 6nd under the N convention.")] = "stored",
    by: Annotated[
        str, typer.Option(help="Fit apart by this column (label, method, size ...); none: together.")
    ] = "label",
    holdout: Annotated[
        str, typer.Option(help='Runs marked holdout: exclude, include; or hold out more: "n_tokens > 4e5".')
    ] = "exclude",
    exclude_worst: Annotated[int, typer.Option(help="Leave out this many of the largest losses.", min=0)] = 0,
    level: Annotated[float, typer.Option(help="Level of the intervals.", min=0.5, max=0.999)] = 0.95,
    as_json: JSON = False,
) -> None:
    """Fit laws with intervals, store them, and say what the runs identify. Example: scalewright fit experiments.yaml"""
    from orchestrator.asked import ask
    from orchestrator.fit_text import print_analysis, print_fits
    from orchestrator.law_fits import FitRequest

    asked = ask(place)
    request = FitRequest(
        law=law or "chinchilla",
        objective=objective,
        delta=delta,
        n_convention=n_convention,
        flop_convention=flop_convention,
        by=by,
        holdout=holdout,
        exclude_worst=exclude_worst,
        level=level,
    )
    if law is None and not as_json and request == FitRequest():
        print_analysis(asked)
    else:
        print_fits(asked, request, as_json=as_json)


def figures(
    place: PLACE = DEFAULT_PLACE,
    as_json: JSON = False,
) -> None:
    """Redraw the figures of an experiment and their page. Example: scalewright figures experiments.yaml"""
    from orchestrator.asked import ask
    from orchestrator.cli.tables import print_json
    from orchestrator.pages import report_experiment

    asked = ask(place)
    page = report_experiment(asked.study, asked.experiment, compare=asked.compare)
    written = sorted(str(path) for path in page.path.parent.iterdir() if path.suffix in (".png", ".html"))
    if as_json:
        print_json(written)
    else:
        print("\n".join(written))


def report(place: PLACE = DEFAULT_PLACE) -> None:
    """Write the page of an experiment: findings, tables, figures. Example: scalewright report experiments.yaml"""
    from orchestrator.asked import ask
    from orchestrator.pages import report_experiment

    asked = ask(place)
    print(report_experiment(asked.study, asked.experiment, compare=asked.compare).path)
    print("open it in a browser; its pictures are in the page itself", file=sys.stderr)
