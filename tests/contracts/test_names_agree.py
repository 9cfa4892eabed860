"""Names that rooms keep apart, because they do not know each other, mean the same thing."""

import pandas as pd
import pytest

from scalewright.db.run_states import ENDED, STATES
from scalewright.fitting.figures.style import STYLES, name_of
from scalewright.fitting.frame import SETTLED
from scalewright.models.gating import GATES
from scalewright.models.methods import METHODS
from scalewright.orchestrator.analysis.analyze import usual_pairs
from scalewright.orchestrator.runs.journal import LASTING

STANDARDS = {"gpt", "gpt+", "pre-ln"}  # what the papers compare with; they have no baseline themselves


def test_a_lasting_outcome_is_an_ended_state_and_a_settled_point():
    assert ENDED == LASTING == SETTLED
    assert set(STATES) >= ENDED


def runs_of(*labels):
    """Return a frame of runs with these labels, as a YAML makes them: a method, or METHOD+GATE."""
    split = [label if label in METHODS else label.rpartition("+")[::2] for label in labels]
    named = [(one, "none") if isinstance(one, str) else one for one in split]
    return pd.DataFrame([(label, *pair) for label, pair in zip(labels, named, strict=True)], columns=COLUMNS)


COLUMNS = ["label", "method", "gate"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_but_the_standards_is_compared_where_its_baseline_was_trained(method):
    baseline = METHODS[method].baseline
    assert (baseline is None) == (method in STANDARDS)
    labels = [label for label in (method, baseline) if label]
    assert usual_pairs(runs_of(*labels), labels) == ([(method, baseline)] if baseline else [])


@pytest.mark.parametrize("gate", [gate for gate in GATES if gate != "none"])
@pytest.mark.parametrize("method", METHODS)
def test_a_gate_is_compared_with_its_method_without_it(method, gate):
    labels = [f"{method}+{gate}", method]
    assert (labels[0], method) in usual_pairs(runs_of(*labels), labels)


def test_every_look_is_of_a_method_or_of_a_gate_on_one():
    assert all(label in METHODS or label.rpartition("+")[0] in METHODS for label in STYLES)


@pytest.mark.parametrize("method", METHODS)
def test_a_figure_writes_a_method_as_its_paper_does(method):
    """A figure's name of a label is its spelling but for capitals and hyphens, so that one finds it in the YAML."""
    assert name_of(method).lower().replace("-", "") == method.replace("-", "")
