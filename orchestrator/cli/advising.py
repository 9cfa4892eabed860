"""`advise` as functions: choose, write the choice down, show it, and submit exactly the runs that were chosen."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.db.run_states import MAYBE_IN_A_JOB
from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.talk import say

if TYPE_CHECKING:
    from scalewright.orchestrator.analysis.advice import Advice
    from scalewright.orchestrator.study import Asked

POLL_S = 10.0
ENDS = {
    "narrow": "the interval is as narrow as asked",
    "spent": "the budget is spent: no run fits what is left",
    "none left": "no planned run is left",
}


def print_advice(
    place: str | None, question: str, options: dict[str, Any], *, start: dict[str, Any] | None, as_json: bool
) -> "Advice":
    """Choose runs, keep the choice in advice/ and print it; start: how to submit them, or None for not at all.

    Returns the choice. What is started is said on stderr. Raises UserError for what cannot be asked, or started
    without a file.
    """
    from scalewright.db.engine import open_database
    from scalewright.orchestrator.analysis.advice import keep_advice
    from scalewright.orchestrator.answers.advice import EXPECTED, advice_answer, advise_on
    from scalewright.orchestrator.answers.answer import show
    from scalewright.orchestrator.cli.actions import submit_file
    from scalewright.orchestrator.cli.selection import ask, meant_one

    if not question:
        raise UserError(f"advise needs --question: {EXPECTED}")
    named = meant_one(place)
    if start is not None and not Path(named).is_file():
        raise UserError(f"{named}: --submit needs the YAML file of the experiment, which says how its runs are started")
    asked = ask(named)
    database = open_database(asked.study.database, create=False)
    try:
        advice = advise_on(database, asked.experiment, question, **options)
    finally:
        database.close()
    advice = replace(advice, submitted=start is not None and bool(advice.chosen))
    path = keep_advice(asked.study, advice)
    show(advice_answer(advice), asked.study.figures_dir, as_json=as_json)
    say(f"scalewright: kept in {path}")
    if start is not None and advice.chosen:
        for line in submit_file(Path(named), only=advice.run_ids, **start):
            say(line)
    return advice


def follow_advice(
    place: str | None, question: str, options: dict[str, Any], *, start: dict[str, Any], poll_s: float = POLL_S
) -> None:
    """Choose, submit and wait, again and again, until the interval is as narrow as asked or the budget is spent.

    The budget is that of the question: what earlier choices for it submitted counts. So the same command goes on where
    another was stopped. Raises UserError without an end to reach, and where the runs chosen did not start.
    """
    from scalewright.orchestrator.answers.advice import read_budget
    from scalewright.orchestrator.cli.selection import find, meant_one

    unit, most = read_budget(options["budget"])
    if most is None and options["to_within"] is None:
        raise UserError("advise: --follow needs an end: --to-within or --budget")
    asked = find(meant_one(place))
    last: list[str] = []
    while True:
        _wait_for_runs(meant_one(place), poll_s)
        spent, n_choices = _spent_on(asked, question, unit)
        if most is not None and spent >= most:
            say(f"scalewright: the budget is spent: {spent:.4g} of {most:.4g} {unit} in {counted(n_choices, 'choice')}")
            return
        left = None if most is None else f"{most - spent!r}" if unit == "FLOP" else f"{most - spent:.9f}h"
        advice = print_advice(place, question, options | {"budget": left}, start=start, as_json=False)
        if not advice.chosen:
            why = ENDS[advice.outcome]
            say(f"scalewright: {why}, after {counted(n_choices, 'choice')} and {spent:.4g} {unit}")
            return
        if advice.run_ids == last:
            raise UserError("advise: the runs chosen were submitted and have not started; see: scalewright status")
        last = advice.run_ids


def _wait_for_runs(named: str, poll_s: float) -> None:
    """Return once no run of the experiment is with a job."""
    from scalewright.db.engine import open_database
    from scalewright.db.frames import runs as list_runs
    from scalewright.orchestrator.cli.selection import ask

    n_before = 0
    while True:
        asked = ask(named)
        database = open_database(asked.study.database, create=False)
        try:
            n_waiting = int(list_runs(database, asked.experiment)["state"].isin(MAYBE_IN_A_JOB).sum())
        finally:
            database.close()
        if not n_waiting:
            return
        if n_waiting != n_before:
            say(f"scalewright: waiting for {counted(n_waiting, 'run')}; Ctrl-C stops the waiting, not the runs")
        n_before = n_waiting
        time.sleep(poll_s)


def _spent_on(asked: "Asked", question: str, unit: str) -> tuple[float, int]:
    """Return the cost of what was submitted for a question, in its unit, and in how many choices."""
    from scalewright.orchestrator.analysis.advice import submitted_for

    made = submitted_for(asked.study, asked.experiment, question, unit)
    costs = [{row["run_id"]: row["cost"] for row in one.runs} for one in made]
    return sum(cost[run] for one, cost in zip(made, costs, strict=True) for run in one.run_ids), len(made)


def print_replay(path: Path, *, as_json: bool) -> None:
    """Do a choice again from what its file holds; raises UserError where another comes out."""
    from scalewright.orchestrator.analysis.advice import POLICY, decide, read_advice
    from scalewright.orchestrator.answers.advice import advice_answer
    from scalewright.orchestrator.answers.answer import show

    kept = read_advice(path)
    again = decide(replace(kept, chosen=[], outcome="chosen"))
    if again.run_ids != kept.run_ids:
        policy = f"policy {kept.policy} then, {POLICY} now"
        raise UserError(f"{path}: other runs are chosen now: {', '.join(again.run_ids) or 'none'} ({policy})")
    show(advice_answer(again), path.parent, as_json=as_json)
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(kept.time))
    say(f"scalewright: the same runs as were chosen at {when}")
