"""The answer of `design`: what a planned grid can be expected to tell, before anything is launched."""

from functools import partial
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.answers.answer import Answer
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.format import listed, number
from scalewright.orchestrator.report.html import Picture, Table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from scalewright.fitting.design import DesignReport

ERROR_WORDS = {"E": "E (nats)", "log A": "ln A", "alpha": "α", "log B": "ln B", "beta": "β", "a": "a"}


def design_answer(points: "pd.DataFrame", assumed: dict[str, float], scatter: float | None) -> Answer:
    """Assess each label's planned runs (label, n_params, n_tokens, flops), and the same compute spread as isoFLOP.

    assumed: parameters of the law that is supposed, over the usual ones; scatter: share of its loss by which a run
    varies.
    """
    from scalewright.fitting.choices import ASSUMED
    from scalewright.fitting.design import ASSUMED_SCATTER, assess, isoflop_alternative
    from scalewright.fitting.figures.style import name_of

    scatter, truth = ASSUMED_SCATTER if scatter is None else scatter, ASSUMED | assumed
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    value: dict[str, Any] = {}
    n_labels = points["label"].nunique()
    for labels, own in alike(points):
        label = "every method" if len(labels) == n_labels else listed([name_of(one) for one in labels])
        own = own.drop(columns="flops")  # both grids are billed as 6 N D
        other = isoflop_alternative(own)
        reports = {
            "as planned": assess(own, assumed, scatter),
            "same compute, isoFLOP": assess(other, assumed, scatter),
        }
        against = {name: problems(report, truth) for name, report in reports.items()}
        rows += [
            {"methods": label, "grid": name, **_row_of(report), "can fit the full law": not against[name]}
            for name, report in reports.items()
        ]
        lines += [f"{label}: {problem}" for problem in against["as planned"]]
        told: dict[str, Any] = {
            name: vars(report) | {"problems": against[name], "passes": not against[name]}
            for name, report in reports.items()
        }
        value |= {one: told | {"alternative": other.to_dict("records")} for one in labels}
    supposed = [f"{name} = {value:g}" for name, value in truth.items()]
    note = (
        f"Expected standard errors of L = E + A N^-α + B D^-β, if {listed(supposed)} "
        f"and a run scatters by {100 * scatter:g}% of its loss. Small runs deviate more from a law, so this is the "
        "best case. a: exponent of the optimal parameters N* ~ C^a."
    )
    table = Table("What this design can tell", tuple(rows), (note,))
    lines = lines or ["nothing stands against fitting the full law to this grid"]
    return Answer((table,), lines=tuple(lines), pictures=(_picture(points),), value=value)


def alike(points: "pd.DataFrame") -> "list[tuple[list[str], pd.DataFrame]]":
    """Put labels whose runs lie at the same places (to 2 digits) together: each with the runs of its first label."""
    from scalewright.fitting.figures.style import in_order

    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for label in in_order(points["label"]):
        own = points[points["label"] == label]
        places = sorted((f"{n:.1e}", f"{d:.1e}") for n, d in zip(own["n_params"], own["n_tokens"], strict=True))
        found.setdefault(tuple(places), []).append(label)
    return [(labels, points[points["label"] == labels[0]]) for labels in found.values()]


def problems(report: "DesignReport", truth: dict[str, float]) -> list[str]:
    """Return what stands against the full law here: the design's own problems, and a floor that stays unknown."""
    found = list(report.problems)
    if report.se["E"] > truth["E"] / 4:
        found.append(
            f"expected standard error of E is {number(report.se['E'], 2)} nats: the floor stays unknown; fit laws in "
            "compute and read speed-ups, or run larger budgets"
        )
    return found


def planned_points(file: "Path") -> "pd.DataFrame":
    """Return the runs that a YAML file plans, one row each: label, n_params, n_tokens, flops. Records nothing."""
    import pandas as pd

    from scalewright.orchestrator.plan.make import plan_file

    plan, _ = plan_file(file)
    rows = [
        (run.label, run.planned["n_params_non_embedding"], run.spec.training["n_tokens"], run.planned["flops_total"])
        for run in plan.runs
    ]
    return pd.DataFrame(rows, columns=["label", "n_params", "n_tokens", "flops"]).astype(
        {"n_params": float, "n_tokens": float}
    )


def points_of_runs(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Return the places of an experiment's runs as `planned_points` does: of imported ones, for which no file plans."""
    import pandas as pd

    columns = ["label", "n_params", "n_tokens_planned", "flops_planned"]
    renamed = {"n_tokens_planned": "n_tokens", "flops_planned": "flops"}
    numbers: pd.DataFrame = runs[columns].rename(columns=renamed)
    return numbers.astype({"n_params": float, "n_tokens": float})


def read_assumed(words: str) -> dict[str, float]:
    """Read `alpha=0.3,E=1.7`; raises UserError for a parameter that the law does not have, or no number."""
    from scalewright.fitting.choices import ASSUMED

    found = {}
    for part in filter(None, (piece.strip() for piece in words.split(","))):
        name, _, value = part.partition("=")
        if name.strip() not in ASSUMED:
            raise UserError(f"--assume {part}: expected {', '.join(f'{known}=NUMBER' for known in ASSUMED)}")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise UserError(f"--assume {part}: {value!r} is not a number") from None
    return found


def _row_of(report: "DesignReport") -> dict[str, Any]:
    return {
        "runs": report.n_runs,
        "sizes × budgets": f"{report.n_sizes} × {report.n_budgets}",
        "tokens/parameter": f"{number(report.spread_decades, 2)} decades",
        "condition": number(report.condition, 2),
        **{f"se of {words}": number(report.se[name], 2) for name, words in ERROR_WORDS.items()},
        "FLOP (6ND)": number(report.total_flops),
    }


def _picture(points: "pd.DataFrame") -> Picture:
    from scalewright.fitting.figures.gallery import FIGURES

    note = f"{counted(len(points), 'planned run')}. Runs along one grey line cannot tell parameters from tokens."
    return Picture("design", partial(FIGURES["design"], points, note=note), "Where the planned runs lie.")
