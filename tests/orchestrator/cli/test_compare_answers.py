"""What `compare` says of the runs behind its numbers, from the typed command to the text and the JSON."""

import json
import math

import numpy as np
import pytest

SIZES, BUDGETS = (1e7, 4e7, 1.6e8), (1e9, 4e9, 1.6e10)


@pytest.fixture
def compared(say, tmp_path, monkeypatch):
    """Import rows of a table and compare `new` with `old`; return the page and the JSON object."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)

    def answer(columns, rows, *options):
        (tmp_path / "runs.csv").write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]))
        code, _, err = say("import", "runs.csv", "--as", "runs", *options)
        assert code == 0, err
        (code, page, err), (_, out, _) = (say("compare", "new", "old", "runs", *more) for more in ((), ("--json",)))
        assert code == 0, err
        return page, json.loads(out)

    return answer


def rows_of(besides, seeds=(0, 1)):
    """Both methods at every size and budget, `new` worth 1.3 times the tokens, with further columns of each run."""
    rng = np.random.default_rng(5)
    found = []
    for label, speed in (("old", 1.0), ("new", 1.3)):
        for n in SIZES:
            for d in BUDGETS:
                for seed in seeds:
                    loss = (1.7 + 300 * n**-0.34 + 900 * (speed * d) ** -0.36) * math.exp(0.003 * rng.normal())
                    found.append((label, n, d, loss, seed, *besides(label, seed)))
    return found


COLUMNS = "label,n_params,n_tokens,loss,seed,lr_peak,batch_tokens,warmup"


def test_settings_that_differ_between_two_methods_are_named_with_their_values(compared):
    page, told = compared(
        COLUMNS, rows_of(lambda label, seed: (0.01, 8192 if label == "new" else 4096, 0.1)), "--settings", "warmup"
    )
    (found,) = told["settings"]
    assert found == {"setting": "batch_tokens", "within": None, "values": {"new": ["8192"], "old": ["4096"]}}
    words = "new and old also differ in batch_tokens (8192 against 4096): what separates them is of all these together"
    assert words in page and words in told["warnings"]


def test_settings_that_differ_within_a_method_are_not_pooled_without_a_word(compared):
    page, told = compared(
        COLUMNS,
        rows_of(lambda label, seed: (0.01, 4096, 0.3 if label == "old" and seed else 0.1)), "--settings", "warmup",
    )  # fmt: skip
    found = {(one["setting"], one["within"]) for one in told["settings"]}
    assert found == {("warmup", None), ("warmup", "old")}
    words = "runs of old of one size and budget differ in warmup (0.1, 0.3) and are taken for seeds"
    assert words in page and any(words in warning for warning in told["warnings"])


def test_a_rate_of_its_own_for_each_method_is_no_difference_between_them(compared):
    page, told = compared(
        COLUMNS, rows_of(lambda label, seed: (0.02 if label == "new" else 0.01, 4096, 0.1)), "--settings", "warmup"
    )
    assert told["settings"] == [] and "differ in" not in page
