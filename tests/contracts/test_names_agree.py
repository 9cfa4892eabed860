"""Names that rooms keep apart, because they do not know each other, mean the same thing."""

from scalewright.db.run_states import ENDED, STATES
from scalewright.fitting.frame import SETTLED
from scalewright.orchestrator.runs.journal import LASTING


def test_a_lasting_outcome_is_an_ended_state_and_a_settled_point():
    assert ENDED == LASTING == SETTLED
    assert set(STATES) >= ENDED
