"""`advise` as functions: choose, write the choice down, show it, and submit exactly the runs that were chosen."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.talk import say


def print_advice(
    place: str | None, question: str, options: dict[str, Any], *, start: dict[str, Any] | None, as_json: bool
) -> None:
    """Choose runs, keep the choice in advice/ and print it; start: how to submit them, or None for not at all.

    What is started is said on stderr. Raises UserError for what cannot be asked, or started without a file.
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
