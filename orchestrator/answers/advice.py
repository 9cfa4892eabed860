"""The answer of `advise`: which planned runs to buy next for a question, at what cost, and what to expect of them."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.advice import Advice, Question, decide, pool_rows
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.config.values import read_duration_s, read_positive
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.format import number
from scalewright.orchestrator.report.html import Table

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database

COMPARE = re.compile(r"(?:compare:?\s+)?(\S.*?)\s+over\s+(\S.*)", re.ASCII)
LOSS = re.compile(r"loss(?:\s+of\s+(.+?))?\s+at\s+N\s*=\s*([^\s,]+)\s*,\s*D\s*=\s*([^\s,]+)", re.ASCII)
EXPONENT = re.compile(r"exponent\s+(\w+)(?:\s+of\s+(.+))?", re.ASCII)
EXPECTED = '"compare: angpt over gpt+", "loss of gpt+ at N=1e9, D=2e10" or "exponent alpha of gpt+"'
COSTS = {"FLOP": "flops_planned", "hours": "wall_s_planned"}


def read_question(words: str, labels: Sequence[str]) -> Question:
    """Read a question about an experiment's labels; raises UserError that names what was expected."""
    text = words.strip()
    if found := EXPONENT.fullmatch(text):
        return Question("exponent", (_one_label(found[2], labels),), name=found[1])
    if found := LOSS.fullmatch(text):
        try:
            at = {name: read_positive(value) for name, value in (("N", found[2]), ("D", found[3]))}
        except ValueError as error:
            raise UserError(f"--question {words!r}: {error}") from None
        return Question("loss", (_one_label(found[1], labels),), at)
    if found := COMPARE.fullmatch(text):
        method, baseline = (_one_label(name, labels) for name in found.groups())
        if method == baseline:
            raise UserError(f"--question {words!r}: {method} cannot be compared with itself")
        return Question("compare", (method, baseline))
    raise UserError(f"--question {words!r}: expected {EXPECTED}")


def _one_label(name: str | None, labels: Sequence[str]) -> str:
    from scalewright.fitting.frame import unknown

    if name is None:
        if len(labels) != 1:
            raise UserError(f"--question: of which method? add `of LABEL`, one of: {', '.join(labels)}")
        return labels[0]
    if name.strip() not in labels:
        raise UserError(f"--question: {unknown('method', name.strip(), list(labels))}")
    return name.strip()


def read_budget(words: str | None) -> tuple[str, float | None]:
    """Read `1e18` (FLOP) or `20h` (hours of planned training); nothing means all that is left, in FLOP."""
    if words is None:
        return "FLOP", None
    text = re.sub(r"\s*(FLOPs?|GPU[- ]?)(?=$|h)", "", words.strip(), flags=re.IGNORECASE)
    try:
        return "FLOP", read_positive(text)
    except ValueError:
        pass
    try:
        return "hours", read_duration_s(text) / 3600
    except ValueError:
        raise UserError(f"--budget {words!r}: expected FLOP (1e18) or GPU hours (20h)") from None


def advise_on(
    database: "Database", experiment: str, words: str, *, budget: str | None, n_batch: int, to_within: float | None,
    level: float, seed: int,
) -> Advice:  # fmt: skip
    """Choose runs of an experiment as it stands in the database."""
    from scalewright.db.frames import final_losses
    from scalewright.db.frames import runs as list_runs

    planned = list_runs(database, experiment)
    question = read_question(words, sorted(planned["label"].dropna().unique()))
    unit, most = read_budget(budget)
    planned = planned.assign(wall_s_planned=planned["wall_s_planned"].astype(float) / 3600)  # as COSTS bills it
    rows = pool_rows(planned, entered(final_losses(database, experiment)), question.labels, COSTS[unit])
    asked = Advice(experiment, question, words, rows, unit, most, n_batch, to_within, level, seed, time=time.time())
    return decide(asked)


def entered(losses: "pd.DataFrame") -> "pd.DataFrame":
    """Return the finished runs that a comparison would take; none where none has ended."""
    from scalewright.fitting.frame import check_points
    from scalewright.fitting.hyper import best_of_sweeps

    done = losses[losses["loss_nats"].notna()]
    if done.empty:
        return done
    return best_of_sweeps(check_points(done)).frame


def advice_answer(advice: Advice) -> Answer:
    """Put a choice in words and a table."""
    rows = {row["run_id"]: row for row in advice.runs}
    n_done = sum(row["loss_nats"] is not None for row in advice.runs)
    n_coming = sum(row["state"] not in ("completed", "planned", "interrupted") for row in advice.runs)
    known = f"{counted(n_done, 'finished run')}"
    known += f", {n_coming} on their way counted as bought" if n_coming else ""
    lead = (f"{advice.words}: {now_words(advice)} ({known})", "")
    table = (
        Table("Runs to buy next", tuple(_choice_rows(advice, rows)), _notes(advice, rows)) if advice.chosen else None
    )
    told = {name: value for name, value in asdict(advice).items() if name != "runs"}
    chosen = [rows[one.run_id] | {"half": one.half} for one in advice.chosen]
    value = told | {"chosen": chosen, "answer": now_words(advice), "total_cost": _total(advice, rows)}
    return Answer((table,) if table else (), lead, (OUTCOMES[advice.outcome],) * (not advice.chosen), value=value)


OUTCOMES = {
    "chosen": "",
    "narrow": "the interval is as narrow as asked: nothing to buy",
    "spent": "no run fits the budget",
    "none left": "no planned run of these methods is left; plan more seeds, sizes or budgets",
}


def now_words(advice: Advice) -> str:
    """Say what is known: a speed-up or a loss as a factor, an exponent as it is."""
    if advice.question.kind == "compare":
        what = "speed-up in tokens"
    else:
        what = "loss" if advice.question.kind == "loss" else advice.question.name
    if advice.half is None:
        return f"{what} not known yet"
    return f"{what} {_value_words(advice, advice.half)}"


def _value_words(advice: Advice, half: float) -> str:
    ends = (advice.value, advice.value - half, advice.value + half)
    value, low, high = ends if advice.question.kind == "exponent" else map(math.exp, ends)
    return f"{number(value)} [{number(low)}, {number(high)}]"


def _choice_rows(advice: Advice, rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    before = advice.half
    found = []
    for one in advice.chosen:
        row = rows[one.run_id]
        found.append(
            {
                "run": one.run_id[:8],
                "method": row["label"],
                "size": row["size"],
                "budget": row["budget"],
                "seed": row["seed"],
                f"cost ({advice.unit})": number(row["cost"]),
                "expected interval": "open" if one.half is None else f"± {number(one.half)}",
                "reason": reason(before, one.half, row, advice),
            }
        )
        before = one.half
    return found


def reason(before: float | None, after: float | None, row: dict[str, Any], advice: Advice) -> str:
    """Say what a run takes from the interval, and at which share of the plan's cost."""
    left = sum(other["cost"] for other in advice.runs)
    share = f"for {number(100 * row['cost'] / left, 2)}% of the plan's cost"
    if before is None or after is None:
        return f"needed for an interval, {share}"
    return f"narrows it by {number(100 * (1 - after / before), 2)}%, {share}"


def _notes(advice: Advice, rows: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    what = "the exponent" if advice.question.kind == "exponent" else "the log"
    return (
        f"{counted(len(advice.chosen), 'run')}, {number(_total(advice, rows))} {advice.unit}, in the order of choice. "
        f"Expected half-widths of the {100 * advice.level:g}% interval of {what}, if all before it are run.",
    )


def _total(advice: Advice, rows: dict[str, dict[str, Any]]) -> float:
    return float(sum(rows[run_id]["cost"] for run_id in advice.run_ids))
