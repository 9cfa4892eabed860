"""What the verb fit prints: the two tables of an analysis, or the parameters of one law."""

import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.fits import LOSSES, PAST, FitRequest, Fitted, fit_as_asked, optima, together_json
from scalewright.orchestrator.answers.answer import Answer, show_table
from scalewright.orchestrator.answers.optimum import at_table
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.format import number
from scalewright.orchestrator.report.html import Table
from scalewright.orchestrator.report.page_store import Page
from scalewright.orchestrator.report.tables import print_json, print_rows
from scalewright.orchestrator.study import Asked


def print_analysis(asked: Asked) -> None:
    """Fit the usual laws, store them, and print what they say."""
    from scalewright.orchestrator.analysis.analyze import analyze
    from scalewright.orchestrator.report.page import headline_lines, headline_tables

    analysis = analyze(asked.study, asked.experiment, compare=asked.compare)
    _show_findings(headline_tables(analysis), headline_lines(analysis))


def print_page(page: Page) -> None:
    """Print the tables and findings of a report, and where the page is."""
    _show_findings(page.tables, page.lines)
    print(page.path)


def _show_findings(tables: Sequence[Table], lines: Sequence[str]) -> None:
    for table in tables:
        show_table(table)
    for line in lines:
        print(f"- {line}")


def print_fits(asked: Asked, request: FitRequest, *, as_json: bool) -> None:
    """Fit one law as asked, store it, and print its parameters or its JSON object."""
    from scalewright.fitting.choices import APPROACHES
    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.frame import unknown
    from scalewright.fitting.laws import LAWS

    if request.law in APPROACHES:
        print_optimum(asked, request, as_json=as_json)
        return
    if request.law not in LAWS:
        raise FittingError(unknown("law", request.law, [*LAWS, *APPROACHES]))
    fits = fit_as_asked(asked.study, asked.experiment, request)
    if as_json:
        print_json(together_json(fits, request))
        return
    for fitted in fits:
        _show_fit(fitted, request)
    show_frontiers(asked, fits)


def print_optimum(asked: Asked, request: FitRequest, *, as_json: bool) -> None:
    """Find compute-optimal sizes as asked, store them, and print them or their JSON object."""
    from scalewright.db.engine import open_database
    from scalewright.orchestrator.analysis.fits import read_runs
    from scalewright.orchestrator.answers.answer import show
    from scalewright.orchestrator.answers.optimum import optimum_answer
    from scalewright.orchestrator.report.page import figures_dir

    runs = read_runs(asked.study, asked.experiment, request.holdout, request.loss)
    database = open_database(asked.study.database, create=False)
    answer = optimum_answer(database, asked.experiment, runs, request)
    show(answer, figures_dir(asked.study, asked.experiment), as_json=as_json)


def print_trust(
    asked: Asked, request: FitRequest, wanted: Sequence[str], profile: str | None, *, as_json: bool
) -> None:
    """Print the fit, then each part of the trust section asked for; with --json one object by `fit` and the flags.

    Laws that are read off isoFLOP curves have no such fit to show.
    """
    from scalewright.fitting.choices import APPROACHES
    from scalewright.fitting.laws import LAWS
    from scalewright.orchestrator.analysis.fits import read_runs
    from scalewright.orchestrator.answers.answer import merge, show
    from scalewright.orchestrator.answers.trust import TRUST, profile_answer
    from scalewright.orchestrator.report.page import figures_dir

    asks_of_law = ["profile"] * bool(profile) + [name for name in wanted if name != "approaches"]
    if request.law in APPROACHES and asks_of_law:
        raise UserError(
            f"--{asks_of_law[0]}: {request.law} is no law; valid with --{asks_of_law[0]}: {', '.join(LAWS)}"
        )
    runs = read_runs(asked.study, asked.experiment, request.holdout, request.loss)
    fits = fit_as_asked(asked.study, asked.experiment, request) if request.law in LAWS else ()
    answers = {name: TRUST[name](runs, request) for name in wanted}
    if profile:
        answers["profile"] = profile_answer(runs, request, profile)
    if fits and as_json:
        answers = {"fit": Answer(value=together_json(fits, request)), **answers}
    elif fits:
        for fitted in fits:
            _show_fit(fitted, request)
    show(merge(answers), figures_dir(asked.study, asked.experiment), as_json=as_json)


def _show_fit(fitted: Fitted, request: FitRequest) -> None:
    result = fitted.result
    print_rows(_parameter_rows(fitted), title=f"{fitted.label}: {result.law.name}")
    print(f"  {result.law.equation}; {counted(result.n, 'run')}, fit {fitted.fit_id}")
    if request.loss != "loss_nats":
        print(f"  L in {LOSSES[request.loss]}")
    for table in optimum_tables(fitted, request):
        show_table(table)
    for line in certificate_lines(fitted):
        print(f"  {line}")
    print()


def _parameter_rows(fitted: Fitted) -> list[dict[str, Any]]:
    from scalewright.fitting.result import interval_text

    return [
        {
            "parameter": name,
            "value": number(one.value, 4) if one.identified else "-",
            "se": number(one.se, 2) if one.identified else "-",
            f"{100 * fitted.result.level:g}% interval": interval_text(one),
            "interval by": one.interval,
        }
        for name, one in fitted.result.params.items()
    ]


def optimum_tables(fitted: Fitted, request: FitRequest) -> list[Table]:
    """Put N*, D* and L* at the computes asked for, else at the fit's largest and past it; none without an optimum."""
    found = optima(fitted, request)
    unknown = ("These runs do not identify this law: read no optimum from this table.",)
    note = () if all(one.identified for one in found) else unknown
    return [at_table(found, "Compute-optimal by this law, C = 6 N D", note)] if found else []


def has_frontier(fitted: Fitted) -> bool:
    """Tell whether the law has optimal parameters and tokens that its runs identify."""
    params = fitted.result.params
    return {"A", "alpha", "B", "beta"} <= set(params) and all(params[n].identified for n in ("alpha", "beta"))


def show_frontiers(asked: Asked, fits: Sequence[Fitted]) -> None:
    """Draw optimal parameters and tokens of the labels whose runs identify them; where it is goes to stderr."""
    from scalewright.orchestrator.report.figures import frontier_picture
    from scalewright.orchestrator.report.html import write_picture
    from scalewright.orchestrator.report.page import figures_dir

    known = {one.label: (one.result, one.flops) for one in fits if has_frontier(one) and one.flops}
    if known:
        picture = frontier_picture(known, PAST[-1])
        folder = figures_dir(asked.study, asked.experiment)
        print(write_picture(picture, folder)[0], file=sys.stderr)


def certificate_lines(fitted: Fitted) -> Sequence[str]:
    """Say how the optimum was found, what scatter is left, who was left out, and what must be kept in mind."""
    result, certificate = fitted.result, fitted.result.certificate
    state = "converged" if certificate.converged else "NOT converged"
    share = f"{certificate.share_of_seeds:.0%} of {counted(certificate.n_seeds, 'start')} ended there"
    lines = [
        f"{result.objective} objective {number(result.objective_value, 6)}, {state}, {share}",
        f"scatter of a run about the law: {number(100 * result.estimate.noise.sigma, 2)}% of its loss",
    ]
    lines += [f"intervals: {note}" for note in result.notes]
    lines += [f"left out {exclusion.run_id}: {exclusion.reason}" for exclusion in result.excluded]
    lines += [_held_out_line(row) for row in fitted.held_out.to_dict("records")]
    lines += [f"advice: {fitted.advice}"] if fitted.advice else []
    return lines + [f"note: {warning}" for warning in result.warnings]


def _held_out_line(row: Mapping[Hashable, Any]) -> str:
    predicted = f"{row['predicted']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
    return f"held out {row['run_id']}: predicted {predicted}, measured {row['measured']:.4f} ({row['error']:+.2f}%)"
