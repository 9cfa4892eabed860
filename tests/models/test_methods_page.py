"""docs/methods.md and docs/add-a-method.md keep up with the tables and the files they speak of."""

from pathlib import Path

import pytest

from scalewright.models.count import FLOP_CONVENTIONS
from scalewright.models.gating import ACTIVATIONS, GATES, POSITIONS
from scalewright.models.inits import INITS
from scalewright.models.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()
TABLES = {"method": METHODS, "gate": GATES, "init": INITS}
NAMES = [(what, name) for what, table in TABLES.items() for name in table]
OPTIONS = [(name, option) for table in TABLES.values() for name, entry in table.items() for option in entry.options]


@pytest.mark.parametrize("what,name", NAMES)
def test_every_entry_has_its_row(what, name):
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("name,option", OPTIONS)
def test_every_option_is_on_the_page(name, option):
    assert f"`{option}`" in PAGE


def test_the_row_of_a_method_names_its_init():
    for name, method in METHODS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |") and "arXiv" in line)
        assert f"`{method.init}`" in row


def test_positions_activations_and_conventions_are_on_the_page():
    assert all(f"| {name} |" in PAGE for name in POSITIONS)
    assert all(name in PAGE for name in ACTIVATIONS)
    assert all(f"`{name}`" in PAGE for name in FLOP_CONVENTIONS)


def test_the_example_of_adding_a_method_is_the_file_it_adds():
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert code == (ROOT / "models" / "methods" / "peri_ln.py").read_text()
    assert len(code.splitlines()) < 40
