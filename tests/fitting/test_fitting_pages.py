"""The code of the notebook page runs from top to bottom, and the reference names only what exists."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from scalewright.fitting.choices import APPROACHES
from scalewright.fitting.laws import LAWS
from scalewright.fitting.objectives import OBJECTIVES

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


def test_the_notebook_page_runs_and_ends_in_a_figure_and_an_honest_sentence(capsys):
    names: dict[str, object] = {}
    for code in blocks("fit-your-own-points.md"):
        exec(compile(code, "fit-your-own-points.md", "exec"), names)  # noqa: S102
    assert isinstance(names["figure"], Figure)
    comparison = names["comparison"]
    assert comparison.speedup("tokens").low < 1.4 < comparison.speedup("tokens").high
    printed = capsys.readouterr().out
    assert "chinchilla: L = E + A N^-alpha + B D^-beta" in printed and comparison.sentence in printed


def test_the_way_to_a_figure_is_ten_lines():
    code = blocks("fit-your-own-points.md")[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_printed_start_of_the_summary_is_that_of_the_fit():
    names: dict[str, object] = {}
    for code in blocks("fit-your-own-points.md")[:2]:
        exec(compile(code, "fit-your-own-points.md", "exec"), names)  # noqa: S102
    page = (DOCS / "fit-your-own-points.md").read_text()
    shown = re.search(r"```text\n(.*?)```", page, flags=re.DOTALL)
    assert shown
    real = names["result"].summary().splitlines()
    for line, own in zip(shown.group(1).splitlines(), real, strict=False):
        assert own.startswith(line.removesuffix("...").rstrip())


@pytest.mark.parametrize("name", [*LAWS, *APPROACHES])
def test_every_law_and_approach_has_its_row_in_the_reference(name):
    """A row, since a law may have the name of a column, such as `depth`."""
    assert re.search(rf"^\|[^|]*`{name}`", (DOCS / "fitting.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_in_the_reference(name):
    assert f"`{name}`" in (DOCS / "fitting.md").read_text()
