"""Which runs of a plan to buy next for a question, written down so that it can be done again. Knows frames, no plan.

advice/*.json beside the study's database: all that a choice rested on, and what was chosen.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.db.run_states import CLAIMABLE, ENDED, MAYBE_IN_A_JOB
from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import Broken, read, require, write_json
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.fitting.advise import Prospect

POLICY = "variance-per-cost 1"  # the number changes where the same data would give another choice
MOST_RUNS = 2000  # of a question, that are looked over
STEP = 0.8  # of the variance: the least that a choice is made for
NEARLY = 1.05  # times the variance that all planned runs would leave: what nobody buys past
COLUMNS = ("run_id", "label", "size", "budget", "seed", "n_params", "n_tokens", "state", "cost", "loss_nats")


@dataclass(frozen=True)
class Question:
    """What is asked: "compare" of two labels, "loss" of a label at a place, or "exponent" of a label's law."""

    kind: str
    labels: tuple[str, ...]
    at: Mapping[str, float] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Choice:
    """A run to buy, and the half-width of the answer's interval to expect once it and those before it are known."""

    run_id: str
    half: float | None


@dataclass(frozen=True)
class Advice:
    """One choice of runs with all that it rested on. Half-widths are of logs, but of an exponent itself; None: open.

    runs: a row each (COLUMNS) of every run that the question is about; budget and costs are in `unit`. outcome:
    "chosen", "narrow" (nothing is needed), "spent" (nothing fits the budget) or "none left".
    """

    experiment: str
    question: Question
    words: str
    runs: list[dict[str, Any]]
    unit: str
    budget: float | None
    n_batch: int
    to_within: float | None
    level: float
    seed: int
    policy: str = POLICY
    time: float = 0.0
    value: float = 0.0
    half: float | None = None
    outcome: str = "chosen"
    chosen: list[Choice] = field(default_factory=list)
    submitted: bool = False

    @property
    def run_ids(self) -> list[str]:
        """The runs to buy, in the order in which to buy them."""
        return [one.run_id for one in self.chosen]


def pool_rows(runs: "pd.DataFrame", finished: "pd.DataFrame", labels: Sequence[str], cost: str) -> list[dict[str, Any]]:
    """Return the rows of COLUMNS of a question's labels: finished runs that enter fits, then runs to come.

    runs: as planned (`frames.runs`); finished: points; cost: the column of `runs` that holds the bill. Raises UserError
    where runs to come differ in more than method, size, budget and seed: which of them is meant nobody knows.
    """
    import pandas as pd

    done = finished[finished["label"].isin(labels)].assign(cost=0.0, state="completed")
    waiting = runs[runs["label"].isin(labels) & ~runs["holdout"].fillna(False).astype(bool)]
    waiting = waiting[waiting["state"].isin(CLAIMABLE | MAYBE_IN_A_JOB)]
    waiting = waiting.assign(n_tokens=waiting["n_tokens_planned"], cost=waiting[cost], loss_nats=math.nan)
    swept = waiting[waiting.duplicated(["label", "size", "budget", "seed"], keep=False)]
    if len(swept):
        one = swept.iloc[0]
        where = f"{one['label']}, size {one['size']}, budget {one['budget']}, seed {one['seed']}"
        raise UserError(
            f"advise: several planned runs of {where} (a sweep?): it chooses among seeds, sizes and budgets"
        )
    if waiting["cost"].isna().any():
        raise UserError(f"advise: the cost of {int(waiting['cost'].isna().sum())} planned runs is not known ({cost})")
    table = pd.concat([part[list(COLUMNS)] for part in (done, waiting) if len(part)] or [done[list(COLUMNS)]])
    if len(table) > MOST_RUNS:
        raise UserError(
            f"advise: {counted(len(table), 'run')} to choose from, at most {MOST_RUNS:,}; plan fewer seeds or sizes"
        )
    return [dict(zip(COLUMNS, row, strict=True)) for row in table.astype(object).where(table.notna(), None).to_numpy()]


def decide(asked: Advice) -> Advice:
    """Fill in what is known now and the runs to buy: the same question on the same runs gives the same."""
    import numpy as np
    import pandas as pd

    from scalewright.fitting.advise import choose

    table = pd.DataFrame(asked.runs, columns=list(COLUMNS))
    table = table.astype(dict.fromkeys(("n_params", "n_tokens", "cost", "loss_nats"), np.float64))
    prospect = _prospect_of(asked, table)
    told = replace(asked, value=prospect.value, half=_finite(prospect.half))
    if asked.to_within is not None and prospect.half <= asked.to_within:
        return replace(told, outcome="narrow")
    prospect = prospect.awaiting(np.flatnonzero(table["state"].isin(MAYBE_IN_A_JOB)))
    is_open = table["state"].isin(CLAIMABLE).to_numpy()
    if not is_open.any():
        return replace(told, outcome="none left")
    moves = moves_of(table[is_open], paired=asked.question.kind == "compare")
    pool = np.zeros((len(moves), max(map(len, moves)), prospect.rows.shape[1]))
    for place, move in enumerate(moves):
        pool[place, : len(move)] = prospect.rows[move]
    costs = np.array([table["cost"].iloc[move].sum() for move in moves])
    budget = math.inf if asked.budget is None else asked.budget
    goal = goal_of(asked, prospect, prospect.given(np.flatnonzero(is_open)))
    way = choose(pool, prospect.answer, prospect.noise, costs, budget, asked.n_batch, goal)
    halves = prospect.halves(way.variance)[1:]
    ids = table["run_id"].tolist()
    bought = [(str(ids[row]), half) for k, half in zip(way.rows, halves, strict=True) for row in moves[k]]
    chosen = [Choice(run_id, _finite(half)) for run_id, half in bought[: asked.n_batch]]
    return replace(told, chosen=chosen, outcome="chosen" if chosen else "spent")


def moves_of(waiting: "pd.DataFrame", *, paired: bool) -> list[list[int]]:
    """Return what is bought at once, as labels of rows: in pairs, a run of each method at one size, budget and seed.

    One run of a pair alone tells nothing of a comparison where nothing else has run.
    """
    places: dict[Any, list[int]] = {}
    for row, size, budget, seed in waiting[["size", "budget", "seed"]].itertuples():
        places.setdefault((size, budget, seed) if paired else row, []).append(row)
    return list(places.values())


def goal_of(asked: Advice, prospect: "Prospect", spent: "Prospect") -> float:
    """Return the variance that is bought for: what was asked, or nearly what the whole plan would give; 0: no goal."""
    now, least = float((prospect.answer**2).sum()), NEARLY * float((spent.answer**2).sum())
    if asked.to_within is None:
        goal = least if asked.budget is None else 0.0
    else:
        narrow = now * (asked.to_within / prospect.halves([now])[0]) ** 2
        goal = max(min(narrow, STEP * now), least)  # what is believed may be narrow where the interval is not there yet
    return goal if goal < now else 0.0


def _prospect_of(asked: Advice, table: "pd.DataFrame") -> "Prospect":
    from scalewright.fitting.belief import exponent_prospect, loss_prospect
    from scalewright.fitting.joint.planned import comparison_prospect

    question = asked.question
    if question.kind == "compare":
        method, baseline = question.labels
        return comparison_prospect(table, method, baseline, asked.level)
    if question.kind == "loss":
        return loss_prospect(table, question.at["N"], question.at["D"], asked.level, asked.seed)
    return exponent_prospect(table, question.name, asked.level, asked.seed)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# --- what was advised before -----------------------------------------------------------------------------------------


def _advice_dir(study: Study) -> Path:
    return study.root / "advice"


def keep_advice(study: Study, advice: Advice) -> Path:
    """Write a choice down before anything is done about it; returns where."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(advice.time))
    name = f"{moment}-{int(advice.time * 1e6) % 10**6:06d}.json"
    write_json(_advice_dir(study) / name, asdict(advice))
    return _advice_dir(study) / name


def read_advice(path: Path) -> Advice:
    """Read a choice; raises UserError where the file is missing or is none."""
    return require(path, Advice)


def submitted_for(study: Study, experiment: str, words: str, unit: str) -> list[Advice]:
    """Return the choices that were submitted for a question, by its words, with costs in this unit; oldest first."""
    found = [read(path, Advice) for path in sorted(_advice_dir(study).glob("*.json"))]
    made = [one for one in found if isinstance(one, Advice) and one.submitted]
    return [one for one in made if (one.experiment, one.words, one.unit) == (experiment, words, unit)]


def advised_words(study: Study, experiment: str, runs: "pd.DataFrame") -> str:
    """Say how runs that have ended were chosen, where `advise --submit` chose them; nothing where it chose none."""
    found = [read(path, Advice) for path in sorted(_advice_dir(study).glob("*.json"))]
    made = [one for one in found if isinstance(one, Advice) and one.submitted and one.experiment == experiment]
    ended = runs.loc[runs["state"].isin(ENDED), "run_id"]
    n = int(ended.isin({run_id for one in made for run_id in one.run_ids}).sum())
    broken = [str(one) for one in found if isinstance(one, Broken)]
    unread = f" Not readable: {'; '.join(broken)}." if broken else ""
    if not n:
        return unread.strip()
    choices = f"{len(made)} choice{'s' * (len(made) > 1)}"
    questions = "; ".join(dict.fromkeys(one.words for one in made))
    return (
        f"`advise` chose {n} of {counted(len(ended), 'run')} that ended, in {choices} for: {questions}. Each "
        f"choice saw the losses before it, so these runs are no grid that was fixed beforehand.{unread}"
    )
