"""Peak learning rates by rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scalewright.orchestrator.config.rates import (
    DEFAULT_RULE,
    RateLaw,
    RatePlace,
    RateRule,
    describe_rule,
    is_shared,
    resolve_rate,
)

RULE = TypeAdapter(RateRule)
SIZES = {"27k": 27_000, "141k": 141_000}


def place(label="angpt", size="27k", budget="1M", n_params=27_000, n_tokens=1_000_000):
    return RatePlace(label, "angpt", size, budget, n_params, n_tokens)


def rate(written, where=None, laws=None):
    return resolve_rate(RULE.validate_python(written), where or place(), n_params_of=SIZES, laws=laws)


def test_a_number_is_a_fixed_rate():
    assert rate("2e-2") == 0.02


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"27k": "0.1", "141k": "0.2"}, 0.1),
        ({"angpt": "0.3", "27k": "0.1"}, 0.3),
        ({"angpt": {"141k": "0.2", "default": "0.4"}}, 0.4),
        ({"angpt": {"27k": {"1M": "0.5", "2M": "0.6"}}}, 0.5),
        ({"gpt+": "0.1", "default": {"1M": "0.7"}}, 0.7),
    ],
)
def test_a_table_is_looked_up_by_label_then_size_then_budget_then_default(table, expected):
    assert rate(table) == expected
    assert rate({"rule": "table", "values": table}) == expected


def test_a_table_without_the_place_says_what_it_knows():
    with pytest.raises(ValueError, match="no rate for method angpt, size 27k, budget 1M; it knows 141k"):
        rate({"141k": "0.1"})


def test_a_label_of_its_own_falls_back_to_the_name_of_its_method():
    assert rate({"angpt": "0.3"}, place(label="mine")) == 0.3


@given(st.floats(1e-4, 1), st.floats(0, 1), st.integers(1000, 10**9), st.integers(1000, 10**9))
def test_a_power_rule_is_its_formula(peak, exponent, n_params, n_params_at):
    written = {"rule": "power", "lr": repr(peak), "at": str(n_params_at), "exponent": repr(exponent)}
    expected = peak * (n_params / n_params_at) ** -exponent
    assert rate(written, place(n_params=n_params)) == pytest.approx(expected, rel=1e-5)  # stored to six digits


def test_a_power_rule_is_its_own_rate_at_the_named_size_and_differs_by_method():
    written = {
        "rule": "power", "lr": "0.02", "at": "27k", "exponent": "0.3", "methods": {"angpt": {"exponent": "0.5"}},
    }  # fmt: skip
    assert rate(written) == 0.02
    large = place(size="141k", n_params=108_000)
    assert rate(written, large) == pytest.approx(0.02 / 2)
    assert (
        rate(written, place(label="gpt+", n_params=108_000).__class__("gpt+", "gpt+", "141k", "1M", 108_000, 1)) > 0.01
    )


def test_a_power_rule_can_fall_with_tokens():
    written = {
        "rule": "power",
        "lr": "0.02",
        "at": "27k",
        "exponent": "0",
        "token_exponent": "0.5",
        "tokens_at": "0.25M",
    }
    assert rate(written) == pytest.approx(0.01)


def test_a_stored_law_is_evaluated_for_the_label():
    laws = {("tuned", "angpt"): RateLaw(3.0, -0.5, 0.25, "fit-1")}
    found = rate({"rule": "law", "law": "tuned"}, laws=lambda name, label: laws[name, label])
    assert found == pytest.approx(3.0 * 27_000**-0.5 * 1_000_000**0.25)


@pytest.mark.parametrize(
    ("written", "shared"),
    [
        ("0.02", True),
        ({"27k": "0.1", "141k": "0.2"}, True),
        ({"angpt": {"27k": "0.1"}, "gpt+": {"27k": "0.1"}}, False),
        ({"angpt": "0.1", "gpt+": "0.2"}, False),
        ({"27k": {"angpt": "0.1", "default": "0.2"}}, False),
        ({"rule": "power", "lr": "1", "at": "27k", "exponent": "0"}, True),
        ({"rule": "power", "lr": "1", "at": "27k", "exponent": "0", "methods": {"angpt": {"lr": "1"}}}, False),
    ],
)
def test_a_rule_is_shared_unless_it_speaks_of_methods(written, shared):
    assert is_shared(RULE.validate_python(written), {"angpt", "gpt+"}) is shared


def test_the_rule_is_named_with_its_numbers_in_the_record():
    assert describe_rule(DEFAULT_RULE) == "power: lr 0.02 at 55k, exponent 0.33"


def test_a_method_changes_any_number_of_a_power_rule_and_its_label_comes_before_its_name():
    """(108k / 27k)^-p * (1M / 0.25M)^-q by hand: 4^-p 4^-q."""
    shared = {"rule": "power", "lr": "0.02", "at": "27k", "exponent": "0.5", "token_exponent": "1"}
    own = {"mine": {"token_exponent": "0.5"}, "angpt": {"lr": "0.04"}, "gpt+": {"exponent": "1", "lr": "0.08"}}
    written = shared | {"tokens_at": "0.25M", "methods": own}
    large = {"size": "141k", "n_params": 108_000}
    assert rate(written, place(label="mine", **large)) == pytest.approx(0.02 / 2 / 2)
    assert rate(written, place(label="other", **large)) == pytest.approx(0.04 / 2 / 4)
    assert rate(written, place(label="gpt+", **large)) == pytest.approx(0.08 / 4 / 4)


def test_tokens_move_a_power_rule_only_where_it_says_from_which():
    written = {"rule": "power", "lr": "0.02", "at": "27k", "exponent": "0", "token_exponent": "0.5"}
    assert rate(written) == 0.02


@pytest.mark.parametrize("written", [[0.1], None, {}])
def test_a_table_holds_rates_and_nothing_else(written):
    with pytest.raises(ValueError, match="expected a rate or a mapping of rates"):
        RULE.validate_python({"rule": "table", "values": {"angpt": written}})
