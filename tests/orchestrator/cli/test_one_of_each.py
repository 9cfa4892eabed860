"""A number of 1 takes a noun in the singular, in whatever a verb prints of a study with a single run."""

import re

import pytest
from tiny_study import YAML, write_study

PLURAL_ONE = re.compile(r"\b1 (?!is\b|was\b|has\b|as\b)[a-z]+s\b")
POINTS = "size,budget,method,seed,n_params,n_tokens,loss_nats\na,b,m,0,1000,20000,3.5\na,b,m,0,1000,-1,3.5\n"


@pytest.fixture
def study(tmp_path, monkeypatch):
    write_study(tmp_path, YAML.replace("[4k, 8k]", "[4k]").replace("[pre-ln, gpt+]", "[pre-ln]"))
    (tmp_path / "points.csv").write_text(POINTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    return tmp_path


VERBS = (
    ("data", "prepare", "experiments.yaml"),
    ("plan",),
    ("submit", "--dry-run"),
    ("submit", "--executor", "debug", "--payload", "debug"),
    ("submit",),
    ("sync",),
    ("status",),
    ("status", "--runs"),
    ("runs", "tiny"),
    ("query", "SELECT run_id FROM runs"),
    ("query", "SELECT name FROM sqlite_master", "--limit", "1"),
    ("export", "out.csv"),
    ("export", "copy.sqlite"),
    ("import", "points.csv", "--as", "taken"),
    ("fit", "tiny"),
    ("fit", "taken"),
    ("fit", "tiny", "--law", "isoflop"),
    ("hyper", "tiny"),
    ("compare", "pre-ln", "pre-ln"),
    ("forecast", "tiny"),
    ("design", "experiments.yaml"),
    ("figures", "tiny"),
    ("report", "tiny"),
    ("experiment", "ls"),
    ("db", "check"),
    ("db", "stats"),
    ("retry", "tiny"),
    ("hold", "tiny"),
    ("cancel", "tiny"),
)


def test_no_verb_says_1_runs(study, say):
    wrong = []
    for verb in VERBS:
        code, out, err = say(*verb)
        assert "Traceback" not in err
        assert code != 2, (verb, err)  # a verb as it is typed
        wrong += [(verb, found.group()) for found in PLURAL_ONE.finditer(out + err)]
    assert not wrong
