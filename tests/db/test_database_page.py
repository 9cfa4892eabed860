"""The page on the database says what is true: its Python runs, its views, tables, verbs and options exist."""

import re
from pathlib import Path

import pytest

from scalewright.db.schema import METADATA
from scalewright.db.upgrade import upgrade
from scalewright.db.views import VIEWS

PAGE = (Path(__file__).parents[2] / "docs" / "database.md").read_text()


def test_its_python_runs(tmp_path, monkeypatch, folder):
    import sqlite3
    from contextlib import closing

    golden = sorted(Path(__file__).parent.glob("golden/schema_*.sql"))[-1]
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        connection.executescript(golden.read_text())
    upgrade("runs.sqlite")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(block, names)
    assert len(names["losses"]) == 2 and names["curves"]["value"].tolist() == [3.0, 1.5, 1.0]


def test_it_lists_every_view():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(VIEWS)


@pytest.mark.parametrize("table", sorted(set(METADATA.tables) - {"schema_version"}))
def test_it_names_every_table(table):
    assert f"`{table}`" in PAGE


def test_its_verbs_and_options_exist():
    import typer

    from scalewright.orchestrator.cli import app

    command = typer.main.get_command(app)
    for line in re.findall(r"^scalewright (.*?)(?:\s+#.*)?$", PAGE, re.MULTILINE):
        words = line.split()
        verb = command.commands[words[0]]
        if words[0] == "db":
            verb = verb.commands[words[1]]
        known = {option for parameter in verb.params for option in parameter.opts}
        assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known, line
