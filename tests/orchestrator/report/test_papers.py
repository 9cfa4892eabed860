"""The papers' recorded results: each with its source, named as here, told as theirs."""

import json

import pytest

from scalewright.models.gating import GATES
from scalewright.models.methods import METHODS
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.report.papers import DIFFERENCES, paper_results

ROWS = paper_results()


def find(**wanted):
    (row,) = [row for row in ROWS if all(row[name] == value for name, value in wanted.items())]
    return row["value"]


def test_every_number_has_a_source_and_every_paper_says_where_it_differs():
    assert all(row["where"] and row["known_from"] and row["quantity"] for row in ROWS)
    assert {row["paper"].split(",")[0] for row in ROWS} == set(DIFFERENCES)
    keys = [tuple(value for name, value in row.items() if name != "value") for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_methods_are_called_as_here_where_they_are_tables_of_methods():
    names = {*METHODS, *(f"{method}+{gate}" for method in METHODS for gate in GATES)}
    told = {row["method"] for row in ROWS if row["quantity"] in ("convergence speed-up, mean over budgets",)}
    told |= {row["method"] for row in ROWS if row["where"] in ("Table 1", "Table 2")}
    assert told <= names


@pytest.mark.parametrize("size,gain", [("71M", 0.60), ("130M", 0.36), ("250M", 0.20), ("350M", 0.94), ("1B", 0.42)])
def test_the_gains_of_gpas_are_those_that_its_table_states(size, gain):
    plain = find(where="Table 2", size=size, method="pre-ln")
    assert plain - find(where="Table 2", size=size, method="pre-ln+gpas") == pytest.approx(gain, abs=1e-9)


def test_the_overheads_of_a_step_are_those_that_are_stated():
    step = {
        name: find(where="Table 2", quantity="training step on 4 A100", method=name)
        for name in ("gpt+", "ngpt", "angpt")
    }
    assert step["ngpt"] / step["gpt+"] == pytest.approx(1.096, abs=5e-4)
    assert step["angpt"] / step["gpt+"] == pytest.approx(1.0275, abs=5e-5)


def test_the_verb_prints_them_as_theirs(capsys):
    assert run(["papers", "angpt"]) == 0
    out = capsys.readouterr().out
    assert "not measured here" in out and "Figure 5" in out and "GPAS" not in out
    assert run(["papers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ROWS
    assert run(["papers", "bert"]) == 1
    assert "no results of 'bert'; recorded: anGPT, GPAS, Mix-LN, LNS" in capsys.readouterr().err
