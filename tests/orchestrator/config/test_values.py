"""Values as people write them."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewright.orchestrator.config import values

NUMBERS = [
    ("1e-3", 0.001), ("1E-3", 0.001), ("0.02", 0.02), (".5", 0.5), ("3e9", 3e9), ("131072", 131072),
    ("131_072", 131072), ("0.5M", 500_000), ("2B", 2e9), ("20k", 20_000), ("20K", 20_000), ("1.5T", 1.5e12),
    ("128Ki", 131072), ("1.5Mi", 1572864), ("2Gi", 2147483648), ("3G", 3e9), (" 7 ", 7), ("+3", 3), ("-2.5", -2.5),
]  # fmt: skip
DURATIONS = [
    ("90min", 5400), ("1h30m", 5400), ("1h 30min", 5400), ("12:30:00", 45000), ("12:30", 45000), ("2-00:00:00", 172800),
    ("30 s", 30), ("1.5h", 5400), ("2 hours", 7200), ("3 days", 259200), ("45 mins", 2700),
]  # fmt: skip
NOT_NUMBERS = [
    "",
    "abc",
    "1.2.3",
    "nan",
    "inf",
    "-inf",
    "1e",
    "0x10",
    "1,000",
    "5m",
    "1e999",
    "20x",
    "true",
    "--1",
    "٣",
]


@pytest.mark.parametrize(("text", "expected"), NUMBERS)
def test_a_number_reads_as_what_a_person_means(text, expected):
    assert values.read_number(text) == expected


@pytest.mark.parametrize("text", [*NOT_NUMBERS, None, True, [], {}])
def test_what_is_no_finite_number_is_refused(text):
    with pytest.raises(ValueError, match="number"):
        values.read_number(text)


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_a_length_of_time_reads_as_seconds(text, seconds):
    assert values.read_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["90", "", "1:2:3:4", "1h foo", "min", "-5min", "1 fortnight"])
def test_a_length_of_time_without_a_unit_is_refused(text):
    with pytest.raises(ValueError, match="is not a length of time; write for example 90min"):
        values.read_duration_s(text)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("0.5M", 5e5, "tokens"),
        ("131072", 131072, "tokens"),
        ("3e9 tokens", 3e9, "tokens"),
        ("20x", 20, "tokens per parameter"),
        ("0.5 x", 0.5, "tokens per parameter"),
        ("20 tokens per parameter", 20, "tokens per parameter"),
        ("1e15 FLOPs", 1e15, "FLOPs"),
        ("1e15flops", 1e15, "FLOPs"),
        ("2T FLOPs", 2e12, "FLOPs"),
    ],
)
def test_a_budget_has_the_unit_it_is_written_with(text, amount, unit):
    budget = values.read_budget(text)
    assert (budget.amount, budget.unit, budget.text) == (amount, unit, text)


@pytest.mark.parametrize("text", ["0", "0x", "-1M", "x", "FLOPs", "1e15 flips", ""])
def test_a_budget_of_nothing_is_refused(text):
    with pytest.raises(ValueError, match="greater than 0|is not a budget"):
        values.read_budget(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10%", 1000),
        ("100%", 10_000),
        ("3 steps", 300),
        ("1 step", 100),
        ("250 tokens", 200),
        ("1 token", 100),
        ("0", 0),
    ],
)
def test_an_extent_is_a_part_of_a_run_in_whole_steps(text, expected):
    assert values.read_extent(text).to_tokens(10_000, 100) == expected


@pytest.mark.parametrize("text", ["100", "0.1", "10", "steps", "120%"])
def test_an_extent_that_could_mean_two_things_is_refused(text):
    with pytest.raises(ValueError, match="ambiguous|not between"):
        values.read_extent(text)


@pytest.mark.parametrize(("text", "expected"), [("10%", 0.1), ("0.1", 0.1), ("0", 0.0), ("100%", 1.0)])
def test_a_share_is_a_percentage_or_a_fraction(text, expected):
    assert values.read_fraction(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("false", False), ("3", 3), ("3.0", 3.0), ("1e-3", 0.001), ("row", "row"), ("0.5M", 500000.0)],
)
def test_an_option_without_a_declared_type_is_read_by_its_looks(text, expected):
    read = values.guess(text)
    assert read == expected
    assert type(read) is type(expected)


def test_a_list_of_options_is_read_item_by_item():
    assert values.guess({"a": ["1", "x"], "b": None}) == {"a": [1, "x"], "b": None}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_that_python_writes_is_read_back_exactly(number):
    assert values.read_number(repr(number)) == number


@given(st.integers(0, 10**12), st.sampled_from(list(values.MULTIPLIERS)))
def test_a_whole_count_with_a_multiplier_is_exact(count, letter):
    expected = count * values.MULTIPLIERS[letter]
    if expected <= values.MAX_COUNT:
        assert values.read_count(f"{count}{letter}") == expected


@given(st.decimals(0, 10**6, places=3), st.sampled_from(["k", "M", "B"]))
def test_decimal_thousandths_of_a_multiple_are_whole_and_exact(amount, letter):
    assert values.read_count(f"{amount}{letter}") == amount * Decimal(values.MULTIPLIERS[letter])


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_with_its_value_in_one_line(text):
    for read in (
        values.read_number,
        values.read_budget,
        values.read_duration_s,
        values.read_extent,
        values.read_fraction,
    ):
        try:
            read(text)
        except ValueError as error:
            assert str(error)
        else:
            assert any(character.isdigit() for character in text)


@given(st.integers(1, 10**7), st.integers(1, 10**5), st.floats(0, 1))
def test_an_extent_never_exceeds_the_run_by_a_step(n_steps, batch_tokens, share):
    tokens = values.Extent(share, "share").to_tokens(n_steps * batch_tokens, batch_tokens)
    assert tokens % batch_tokens == 0
    assert 0 <= tokens <= n_steps * batch_tokens
    assert math.isclose(tokens, share * n_steps * batch_tokens, abs_tol=batch_tokens)


def test_the_nearest_name_is_suggested_and_all_are_listed():
    with pytest.raises(ValueError, match=r'unknown fruit "appel"; did you mean "apple"\? \(valid: apple, pear\)'):
        values.choose("appel", ["apple", "pear"], "fruit")


def test_no_name_is_suggested_where_none_is_near():
    with pytest.raises(ValueError, match=r'unknown fruit "zzz" \(valid: apple, pear\)'):
        values.choose("zzz", ["apple", "pear"], "fruit")


@pytest.mark.parametrize(("word", "truth"), [(word, word in ("true", "yes", "on")) for word in values.TRUTHS])
def test_a_truth_is_read_from_each_of_its_words(word, truth):
    assert values.read_truth(word) is values.read_truth(word.capitalize()) is truth
