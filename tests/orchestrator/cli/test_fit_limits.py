"""A range that only says where a search began is no result: the optimum past it is found, or the answer says so."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scalewright.fitting import fit as fitting
from scalewright.fitting import rivals
from scalewright.fitting.laws import LAWS
from scalewright.fitting.problem import with_box

BREAK = {"E": 0.41, "c0": 0.05, "c1": 5.7, "d1": 1e21, "f1": 0.5}


def broken_rows():
    """L = E + A C^-c0 (1 + (C/d1)^(1/f1))^(-c1 f1), noise .3%; c1 lies past the range where a search begins."""
    flops = np.geomspace(1e17, 1e22, 36)
    turn = (1 + (flops / BREAK["d1"]) ** (1 / BREAK["f1"])) ** (-BREAK["c1"] * BREAK["f1"])
    loss = BREAK["E"] + 2.0 * (flops / 1e17) ** -BREAK["c0"] * turn
    loss *= np.exp(0.003 * np.random.default_rng(1).normal(size=36))
    n = np.sqrt(flops / 120)
    return list(zip(n.tolist(), (flops / 6 / n).tolist(), loss.tolist(), strict=True))


@pytest.fixture
def told(say, tmp_path, monkeypatch):
    """Import rows of N, D and loss (and more columns), and return what `fit` prints and its JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    monkeypatch.setattr(rivals, "better_law", lambda points, law: None)  # these fits are of one law each

    def answer(rows, *options, columns="n_params,n_tokens,loss", page=True):
        (tmp_path / "known.csv").write_text("\n".join([columns, *(",".join(map(repr, row)) for row in rows)]))
        assert say("import", "known.csv", "--as", "known")[0] == 0
        code, out, err = say("fit", "known", *options, "--json")
        assert code == 0, err
        return say("fit", "known", *options)[1] if page else "", json.loads(out)

    return answer


@pytest.mark.parametrize("options", [(), ("--fix", "E=0.41"), ("--bounds", "c1=0:20")])
def test_a_break_far_past_the_range_of_the_search_is_found_and_covered(told, options):
    page, found = told(broken_rows(), "--law", "broken", *options)
    assert found["objective_value"] < 1e-4 and found["certificate"]["at_bound"] == []
    for name, truth in BREAK.items():
        one = found["params"][name]
        assert not one["at_limit"] and (one["low"] < truth < one["high"] or one["interval"] == "fixed"), (name, one)
    assert "limit" not in page and "end of its range" not in page


def test_bounds_past_the_range_of_the_search_are_taken_at_their_word(told):
    _, found = told(broken_rows(), "--law", "broken", "--bounds", "c1=4:5", page=False)
    slope = found["params"]["c1"]
    assert slope["value"] == pytest.approx(5.0) and slope["at_limit"]


COLUMNS = "n_params,n_tokens,loss,unique_tokens,width,depth"
N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(3e7, 6e9, 7), np.geomspace(1e9, 2e11, 6)))
LOSS = (1.8 + 480 * N**-0.35 + 2080 * D**-0.37) * np.exp(0.003 * np.random.default_rng(3).normal(size=len(N)))
SHAPES = np.minimum(D, 2e10), np.round(N**0.4), np.round(np.tile([1.0, 1.5], 21) * N**0.2)
ROWS = list(zip(*(column.tolist() for column in (N, D, LOSS, *SHAPES)), strict=True))
EXPONENTS = ("c1", "a", "alpha_D", "beta", "alpha")
SLOW = ("broken", "repeated-data")  # seconds a fit, by their points
PLAIN = ("--by", "none", "--objective", "log-l2")


@pytest.mark.parametrize("law", LAWS)
def test_an_optimum_at_the_end_of_a_range_is_told_by_text_and_json(told, monkeypatch, law):
    """Of every law: the range of an exponent ends short of its optimum, and that end may not move."""
    _, free = told(ROWS[:: 2 if law in SLOW else 1], *PLAIN, "--law", law, columns=COLUMNS, page=False)
    name = next(one for one in (*EXPONENTS, *reversed(LAWS[law].parameters)) if one in free["params"])
    value = free["params"][name]["value"]
    lay_out = fitting.lay_out

    def laid_out_short(points, own):
        problem = lay_out(points, own)
        upper = problem.box.upper.copy()
        upper[problem.names.index(name)] = value - 0.1 * abs(value)
        return with_box(problem, replace(problem.box, upper=upper, open_below=None, open_above=None))

    monkeypatch.setattr(fitting, "lay_out", laid_out_short)
    page, found = told(ROWS[:: 2 if law in SLOW else 1], *PLAIN, "--law", law, columns=COLUMNS)
    assert found["params"][name]["at_limit"] and not free["params"][name]["at_limit"]
    assert "at its limit" in next(line for line in page.splitlines() if line.strip().startswith(f"{name} "))
    (warning,) = (text for text in found["warnings"] if "end of its range" in text)
    assert name in warning and warning in page
