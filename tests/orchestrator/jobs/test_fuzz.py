"""Files broken at random, with fixed seeds: the bounded version of benchmarks/fuzz."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from fuzz.checks import fuzz  # noqa: E402

pytestmark = pytest.mark.xdist_group("local-jobs")
# The first four once found something: DONE.json of wrong types, a link to nowhere, a journal that cannot be read.
SEEDS = [100, 102, 103, 132, 1, 3]


def test_whatever_breaks_every_verb_answers_and_sound_runs_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    tally = fuzz(tmp_path, SEEDS)
    assert tally.faults == []
    assert tally.rounds == len(SEEDS) and tally.codes[0] > 20 * tally.rounds
