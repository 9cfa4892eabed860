"""What Python and notebooks see: an experiment's frames, and fit, compare and figure as the verbs give them.

Every number comes from the functions behind the verbs. Heavy packages are imported where they are used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from scalewright.db.engine import Database
    from scalewright.orchestrator.analysis.analyze import Analysis
    from scalewright.orchestrator.analysis.fits import FitRequest, Fitted
    from scalewright.orchestrator.answers.answer import Answer
    from scalewright.orchestrator.study import Asked

NUMBERS = ("value", "low", "high", "se", "one_sided", "identified")
PARAMETER_COLUMNS = ("fit_id", "label", "law", "n", "parameter", *NUMBERS)


class FitOptions(TypedDict, total=False):
    """What `fit` may be told besides its law: the options of `scalewright fit`, with their defaults."""

    objective: str
    delta: float | None
    n_convention: str
    flop_convention: str
    by: str
    holdout: str
    exclude_worst: int
    level: float
    fixed: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    asymmetry: float
    at: Sequence[float]
    loss: str


@dataclass(frozen=True)
class Fit:
    """One law fitted to runs: apart by label, or to all together.

    value: what `scalewright fit --law LAW --json` prints, as Python values.
    """

    value: dict[str, Any]
    _fitted: "tuple[Fitted, ...]"

    @cached_property
    def params(self) -> "pd.DataFrame":
        """Every parameter of every label.

        Columns fit_id (None for a fit that is not stored), label, law, n, parameter, value, low, high, se, one_sided,
        identified.
        """
        import pandas as pd

        rows = [
            {key: one[key] for key in ("fit_id", "label", "law", "n")} | {"parameter": name} | told
            for one in self.value.get("fits", [self.value])
            for name, told in one["params"].items()
        ]
        return pd.DataFrame(rows)[list(PARAMETER_COLUMNS)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What must be kept in mind, each sentence once."""
        return tuple(dict.fromkeys(line for one in self._fitted for line in one.result.warnings))

    def predict(
        self,
        n_params: "ArrayLike | None" = None,
        n_tokens: "ArrayLike | None" = None,
        *,
        flops: "ArrayLike | None" = None,
        label: str | None = None,
        new_run: bool = False,
    ) -> "pd.DataFrame":
        """Predict the loss in nats a token at N parameters and D tokens, or at compute in FLOP: loss_nats, low, high.

        label: whose law, where several were fitted. new_run: the interval of a single new run instead of the law's.
        Raises UserError for a label that was not fitted, FittingError for an axis that the law lacks.
        """
        from scalewright.orchestrator.errors import UserError

        known = [one.label for one in self._fitted]
        shared = list(self._fitted[0].result.methods) if self._fitted[0].result.law.per_method else []
        valid = shared or known
        if label is None and len(valid) == 1:
            label = valid[0]
        if label not in valid:
            raise UserError(f"label {label!r}: expected one that was fitted: {', '.join(valid)}")
        result = self._fitted[0 if shared else known.index(label)].result
        return result.predict(
            n_params, n_tokens, flops=flops, method=label if shared else None, new_run=new_run
        ).frame()

    def __repr__(self) -> str:
        return "\n".join(f"{one.label}: {one.result.summary()}" for one in self._fitted)

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{escape(one.label)}</h4>{one.result._repr_html_()}" for one in self._fitted)


@dataclass(frozen=True)
class Comparison:
    """A method against its baseline.

    sentence: what a paper could print; warnings: what it must admit; value: what `scalewright compare --json` prints,
    as Python values.
    """

    value: dict[str, Any]
    _answer: "Answer"

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return self._answer.lead[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What must be admitted beside the sentence."""
        return self._answer.lines

    @property
    def speed_ups(self) -> "pd.DataFrame":
        """What the baseline needs over what the method needs to the same loss, from one model of all runs.

        Columns unit (tokens, flops, seconds), scope (pooled, size .., budget .., new size), ratio, low, high, n_cells,
        n_sizes; an end that the runs do not bound is NaN.
        """
        return self._frame("pooled")

    @property
    def differences(self) -> "pd.DataFrame":
        """The final loss of the method minus the baseline's: scope, nats, low, high, and what each rests on."""
        return self._frame("differences")

    def figure(self) -> "Figure | None":
        """Draw the speed-ups; None where none was measured."""
        return self._answer.pictures[0].figure if self._answer.pictures else None

    def _frame(self, name: str) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(self.value[name])

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *(f"- {line}" for line in self.warnings)])

    def _repr_html_(self) -> str:
        import pandas as pd

        notes = "".join(f"<li>{escape(line)}</li>" for line in self.warnings)
        tables = [
            f"<h4>{escape(table.title)}</h4>{pd.DataFrame(list(table.rows)).to_html(index=False)}"
            for table in self._answer.tables
        ]
        return f"<p><strong>{escape(self.sentence)}</strong></p>{''.join(tables)}<ul>{notes}</ul>"


class Experiment:
    """One experiment of a study, read from its database. `scalewright.open` makes it.

    Frames are read anew at each call. Losses are nats a token; NaN means not measured.
    """

    def __init__(self, asked: "Asked") -> None:
        self._asked = asked

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self._asked.experiment

    def sync(self) -> None:
        """Read what jobs wrote since; what a person should be told goes to stderr."""
        from scalewright.orchestrator.jobs.observe import refresh
        from scalewright.orchestrator.talk import say

        self.__dict__.pop("_analysis", None)
        for line in refresh(self._asked.study):
            say(line)

    def runs(
        self, *, where: str | None = None, sort: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> "pd.DataFrame":
        """List the runs, planned and measured numbers side by side, as `scalewright runs` does.

        where: a condition such as "n_params < 1e8 and loss < 3"; sort: columns, a leading `-` descends; columns: only
        these. Raises DbError for a name that is no column.
        """
        from scalewright.db import frames

        return frames.runs(self._database(), self.name, where=where, sort=sort, columns=columns)

    def final_losses(self) -> "pd.DataFrame":
        """What laws are fitted to, one row a run: loss_nats, n_params, n_tokens, flops, label, size, budget, seed, ...

        The columns are those of docs/database.md, and one for each setting that differs within a method, size and
        budget. loss_nats is NaN until a run has ended.
        """
        from scalewright.db import frames
        from scalewright.orchestrator.analysis.settings import with_settings

        database = self._database()
        return with_settings(database, self.name, frames.final_losses(database, self.name))

    def curves(self, metric: str = "loss_nats", *, where: str | None = None) -> "pd.DataFrame":
        """What was logged along training: run_id, label, size, budget, step, n_tokens, value.

        where: of which runs, a condition as in `runs`. Raises DbError for a metric that was not logged.
        """
        from scalewright.db import frames

        names = self.runs(where=where, columns=("run_id", "label", "size", "budget"))
        return names.merge(frames.curves(self._database(), names["run_id"], metric), on="run_id")

    def evaluations(self) -> "pd.DataFrame":
        """Losses on fixed sets, on the way and at the end: run_id, split, step, n_tokens, loss_nats, final, ..."""
        from scalewright.db import frames

        return frames.evaluations(self._database(), experiment=self.name)

    def fits(self) -> "pd.DataFrame":
        """Stored fits, newest first, one row a parameter.

        Columns fit_id, label, law, n, parameter, value, low, high, se, one_sided, identified.
        """
        import json

        import pandas as pd

        from scalewright.db import frames
        from scalewright.fitting.result import parameter_of

        rows = [
            {"fit_id": one.fit_id, "label": one.label, "law": one.law, "n": one.n_points, "parameter": name, **told}
            | {"identified": parameter_of(told).identified}
            for one in frames.fits(self._database(), self.name).itertuples()
            for name, told in (json.loads(str(one.record)).get("params") or {}).items()
        ]
        return pd.DataFrame(rows, columns=list(PARAMETER_COLUMNS))

    def fit(self, law: str = "chinchilla", **options: Unpack[FitOptions]) -> Fit:
        """Fit a law to each label and store it, as `scalewright fit --law LAW` does; see `scalewright.fit`."""
        from scalewright.orchestrator.analysis.fits import fit_as_asked

        request = _request(law, options)
        return _fit_of(fit_as_asked(self._asked.study, self.name, request), request)

    def compare(self, method: str, baseline: str, *, curve: str = "fitted", level: float = 0.95) -> Comparison:
        """Compare two labels, as `scalewright compare METHOD BASELINE` does; see `scalewright.compare`."""
        from scalewright.orchestrator.answers.comparison import compare_as_asked

        return _comparison_of(compare_as_asked(self._asked, method, baseline, curve=curve, level=level))

    def figures(self) -> "pd.DataFrame":
        """List the figures that these runs can give: name, caption."""
        return _list_figures(self._analysis)

    def figure(self, name: str, *, width: str = "page") -> "Figure":
        """Draw one figure of the report by its name, for a "page", "column" or "slide".

        Raises UserError with the names that there are.
        """
        return _draw(self._analysis, name, width)

    @cached_property
    def _analysis(self) -> "Analysis":
        from scalewright.orchestrator.analysis.analyze import analyze

        return analyze(self._asked.study, self.name, compare=self._asked.compare)

    def _database(self) -> "Database":
        from scalewright.db.engine import open_database

        return open_database(self._asked.study.database, create=False)

    def _facts(self) -> list[tuple[str, str]]:
        runs = self.runs()
        states = ", ".join(f"{n} {state}" for state, n in runs["state"].value_counts().items())
        kinds = [
            (name, ", ".join(map(str, runs[column].dropna().unique())))
            for name, column in (("labels", "label"), ("sizes", "size"), ("budgets", "budget"))
        ]
        return [("runs", f"{len(runs)} ({states})"), *kinds, ("database", self._database().name)]

    def __repr__(self) -> str:
        facts = "".join(f"\n  {name}: {text}" for name, text in self._facts())
        return f"experiment {self.name}{facts}"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in self._facts())
        return f"<table><caption>experiment {escape(self.name)}</caption>{rows}</table>"


def open(place: str | Path = ".", experiment: str | None = None, *, sync: bool = True) -> Experiment:  # noqa: A001
    """Open an experiment by its study's folder, its YAML file, a SQLite file or a database's URL.

    experiment: its name, where the place holds several. sync: first read what jobs wrote, as the verbs do; never for a
    URL, which says nothing of where the runs lie. Raises UserError or DbError, both ValueError, for what is not there.
    """
    from scalewright.orchestrator.cli.selection import experiment_at

    found = Experiment(experiment_at(str(place), experiment))
    if sync and "://" not in str(place):
        found.sync()
    return found


def fit(runs: "pd.DataFrame", law: str = "chinchilla", **options: Unpack[FitOptions]) -> Fit:
    """Fit a law to runs at hand, apart by their column label; nothing is stored.

    runs: loss_nats (nats a token) and what the law needs of n_params, n_tokens and flops, for example rows of
    `Experiment.final_losses`. by: another column, or "none" for all in one fit. Raises FittingError for runs that
    cannot carry the law, UserError for an unknown option.
    """
    from scalewright.orchestrator.analysis.fits import HELD_OUT, fit_runs
    from scalewright.orchestrator.errors import UserError

    request = _request(law, options)
    if request.holdout not in HELD_OUT:
        raise UserError(f"holdout={request.holdout!r}: expected one of {', '.join(HELD_OUT)}; mark the column holdout")
    return _fit_of(fit_runs(runs, request), request)


def compare(
    runs: "pd.DataFrame", method: str, baseline: str, *, curve: str = "fitted", level: float = 0.95
) -> Comparison:
    """Compare two labels of runs at hand over the sizes and budgets they share.

    runs: label, loss_nats, n_params and n_tokens, for example rows of `Experiment.final_losses`. Raises FittingError
    for an unknown label, or where the two share no size and budget.
    """
    from scalewright.orchestrator.answers.comparison import comparison_answer

    return _comparison_of(comparison_answer(runs, method, baseline, curve=curve, level=level))


def figure(
    runs: "pd.DataFrame", name: str, *, width: str = "page", compare: Sequence[tuple[str, str]] = ()
) -> "Figure":
    """Draw one figure of the report from runs at hand: rows of `Experiment.final_losses`.

    compare: pairs (label, baseline); without any the usual baselines. Raises UserError with the names there are.
    """
    from scalewright.orchestrator.analysis.analyze import analyze_frame

    return _draw(analyze_frame(runs, "these runs", compare=compare), name, width)


def _request(law: str, options: FitOptions) -> "FitRequest":
    from scalewright.fitting.errors import FittingError
    from scalewright.fitting.frame import unknown
    from scalewright.fitting.laws import LAWS
    from scalewright.orchestrator.analysis.fits import FitRequest
    from scalewright.orchestrator.analysis.own_law import known_law
    from scalewright.orchestrator.errors import UserError

    law = known_law(law)
    if law not in LAWS:
        raise FittingError(unknown("law", law, list(LAWS)))
    given: dict[str, Any] = dict(options)
    for name in given:
        if name not in FitOptions.__annotations__:
            raise UserError(unknown("option of fit", name, list(FitOptions.__annotations__)))
    if "asymmetry" in given:
        given["above"] = given.pop("asymmetry")
    return FitRequest(law=law, **given | {"at": tuple(given.get("at", ()))})


def _fit_of(fitted: "tuple[Fitted, ...]", request: "FitRequest") -> Fit:
    from scalewright.orchestrator.analysis.fits import together_json
    from scalewright.orchestrator.report.tables import finite

    return Fit(finite(together_json(fitted, request)), fitted)


def _comparison_of(answer: "Answer") -> Comparison:
    from scalewright.orchestrator.report.tables import finite

    return Comparison(finite(answer.value), answer)


def _list_figures(analysis: "Analysis") -> "pd.DataFrame":
    import pandas as pd

    from scalewright.orchestrator.report.figures import page_pictures

    return pd.DataFrame([{"name": one.name, "caption": one.caption} for one in page_pictures(analysis)])


def _draw(analysis: "Analysis", name: str, width: str) -> "Figure":
    from scalewright.fitting.figures.style import drawn_at
    from scalewright.orchestrator.errors import UserError
    from scalewright.orchestrator.report.figure_files import Wanted
    from scalewright.orchestrator.report.figures import page_pictures

    wanted = Wanted.read([name], None, width)
    found = page_pictures(analysis, wanted.names)
    if len(found) > 1:
        raise UserError(f"{name} is several figures; name one: {', '.join(one.name for one in found)}")
    with drawn_at(wanted.width):
        return found[0].draw()
