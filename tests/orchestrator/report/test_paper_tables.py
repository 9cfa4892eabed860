"""The table of final losses as files: bold, escapes and notes on planted losses."""

import math

import pytest

from scalewright.fitting.difference import LossDifference
from scalewright.orchestrator.report.loss_tables import FinalLoss
from scalewright.orchestrator.report.paper_tables import FORMATS, bold_rows, latex_text


def row(label: str, loss: float, half: float | None = None, *, budget: str = "20x") -> FinalLoss:
    nats = loss - 2.7
    told = None if half is None else LossDifference("cell", nats, nats - half, nats + half, 1, 1, 1, 1, 6, "seeds")
    return FinalLoss("100M", budget, label, 1e8, 2e9, 3, loss, told, None if half is None else "base")


ROWS = [row("base", 2.7), row("a_1", 2.65, 0.01), row("b", 2.64, 0.1), row("base", 2.6, budget="40x"),
        row("a_1", 2.55, 0.03, budget="40x"), row("b", 2.5, 0.02, budget="40x")]  # fmt: skip


def test_bold_is_the_lowest_of_its_cell_and_only_where_its_interval_lies_below_0():
    """In the first cell the lowest is not told from the baseline: nothing is bold there, the second lowest neither."""
    assert bold_rows(ROWS) == {ROWS[5]}
    assert bold_rows([row("base", 2.6), row("a", 2.7, 0.001)]) == frozenset()


def test_latex_holds_what_latex_takes_for_its_own():
    assert latex_text("a_1 & 5% {x} #2 $3 ^ ~ \\") == (
        r"a\_1 \& 5\% \{x\} \#2 \$3 \textasciicircum{} \textasciitilde{} \textbackslash{}"
    )
    text = FORMATS["latex"].write(ROWS)
    assert r"100M & 20x & a\_1 & 3 & 2.650 & 14.15 & $-$0.050 [$-$0.060, $-$0.040] \\" in text
    assert r"100M & 40x & b & 3 & \textbf{2.500} & \textbf{12.18} & " in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_markdown_keeps_a_bar_in_a_name_in_its_cell():
    text = FORMATS["markdown"].write([row("a|b", 2.7)])
    assert r"| 100M | 20x | a\|b | 3 | 2.700 | 14.88 | - |" in text and "Bold" not in text


def test_csv_is_not_rounded():
    line = FORMATS["csv"].write([row("a,b", 2.7 + 1e-9)]).splitlines()[1]
    assert line == f'100M,20x,100000000.0,2000000000.0,"a,b",3,{2.7 + 1e-9},{math.exp(2.7 + 1e-9)},,,,'


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_ends_with_a_newline(name):
    assert FORMATS[name].write(ROWS).endswith("\n")
