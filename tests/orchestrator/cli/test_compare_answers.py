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


def law_rows(new):
    """A wide grid of both methods, each by its own law: E, A, alpha, B, beta."""
    rng, laws = np.random.default_rng(2), {"old": (1.8, 480, 0.35, 2080, 0.37), "new": new}
    found = []
    for label, (e, a, alpha, b, beta) in laws.items():
        for n in np.geomspace(3e7, 6e9, 7):
            for d in np.geomspace(1e9, 6e11, 5):
                loss = (e + a * n**-alpha + b * d**-beta) * math.exp(0.001 * rng.normal())
                found.append((label, float(n), float(d), loss))
    return found


def frontier_loss(flops, law):
    e, a, alpha, b, beta = law
    n = np.geomspace(1e6, 1e13, 20001)
    return float((e + a * n**-alpha + b * (flops / 6 / n) ** -beta).min())


def test_a_multiplier_read_past_the_baselines_runs_says_how_far_in_text_and_json(compared):
    new = (1.8, 480, 0.38, 2080, 0.37)
    page, told = compared("label,n_params,n_tokens,loss", law_rows(new))
    assert not told["sharing"]["shared"]
    (tokens,) = [one for one in told["pooled"] if (one["unit"], one["scope"]) == ("tokens", "pooled")]
    assert tokens["high"] > 2  # 2 to 32 by size: no one number, and none below 1
    assert "slower" not in page and "the speed-up differs by size" in page
    compute = [one for one in told["multipliers"] if one["kind"] == "compute"]
    dearest = max(6 * n * d for _, n, d, _ in law_rows(new))
    last = compute[-1]
    reached = np.geomspace(dearest, 1e5 * dearest, 400)
    old = (1.8, 480, 0.35, 2080, 0.37)
    needed = reached[np.argmax([frontier_loss(c, old) < frontier_loss(dearest, new) for c in reached])]
    assert last["past"] == pytest.approx(needed / dearest, rel=0.15) and last["past"] > 2
    assert last["past"] == pytest.approx(last["value"], rel=1e-6)  # both grids end at one compute
    assert compute[0]["past"] < 1
    assert any(f"read {last['past']:.3g}x outside its runs" in warning for warning in told["warnings"])
    assert f"{last['past']:.1f}× outside the baseline's runs" in page


def test_multipliers_that_are_not_resolved_are_null_with_a_reason(compared):
    """The method ends below the baseline's floor, and below what any size that was run could reach."""
    page, told = compared("label,n_params,n_tokens,loss", law_rows((1.2, 480, 0.35, 2080, 0.5)))
    lost = [one for one in told["multipliers"] if one["value"] is None]
    assert {one["kind"] for one in lost} == {"compute", "parameters"}
    assert all(one["low"] is None and one["high"] is None and one["reason"] for one in lost)
    assert all(one["value"] is not None or one["reason"] for one in told["multipliers"])
    for words in ("below the baseline's fitted floor", "more than the sizes that were run span (200×)"):
        assert any(words in one["reason"] for one in lost) and words in page
    assert all(one["value"] < 201 for one in told["multipliers"] if one["kind"] == "parameters" and one["value"])


def test_a_speed_up_of_three_sizes_says_that_they_are_few(compared):
    page, told = compared(COLUMNS, rows_of(lambda label, seed: (0.01, 4096, 0.1)), "--settings", "warmup")
    (words,) = [warning for warning in told["warnings"] if warning.startswith("few sizes: 3 tell")]
    assert words in page
