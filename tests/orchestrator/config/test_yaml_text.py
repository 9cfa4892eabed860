"""YAML text with the line of every key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewright.orchestrator.config.yaml_text import name_path, parse_yaml
from scalewright.orchestrator.errors import UserError

TEXT = """\
a: 1e-3   # stays a text
b:
  - 12:30:00
  - {c: yes, d: }
"quoted": "null"
base: &base { width: 3, depth: 4 }
other:
  <<: *base
  depth: 5
"""


def test_scalars_stay_as_they_were_written():
    value = parse_yaml(TEXT, "f").value
    assert value["a"] == "1e-3"
    assert value["b"] == ["12:30:00", {"c": "yes", "d": None}]
    assert value["quoted"] == "null"


def test_a_merge_key_fills_in_what_is_not_written():
    assert parse_yaml(TEXT, "f").value["other"] == {"width": "3", "depth": "5"}


def test_a_merge_in_a_merge_comes_in_and_the_nearest_wins():
    text = "a: &a {x: 1, y: 1, z: 1}\nb: &b\n  <<: *a\n  y: 2\nc:\n  <<: *b\n  z: 3\n"
    assert parse_yaml(text, "f").value["c"] == {"x": "1", "y": "2", "z": "3"}


def test_a_merge_of_itself_is_refused():
    with pytest.raises(UserError, match="^f:1: "):
        parse_yaml("a: &a\n  <<: *a\n", "f")


@pytest.mark.parametrize(
    ("path", "line"),
    [((), 1), (("a",), 1), (("b",), 2), (("b", 0), 3), (("b", 1, "d"), 4), (("other", "depth"), 9), (("b", 7), 2)],
)
def test_every_path_has_the_line_of_its_key_or_of_what_encloses_it(path, line):
    assert parse_yaml(TEXT, "f").line(path) == line


def test_a_path_is_named_as_a_person_would():
    assert name_path(("methods", 1, "gate")) == "methods[1].gate"
    assert name_path((0, "a")) == "[0].a"


def test_what_was_written_is_found_by_its_path():
    text = parse_yaml(TEXT, "f")
    assert text.at(("b", 1, "c")) == "yes"
    assert text.at(("b", 9)) is None
    assert text.at(("a", "b")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "f:2: the key a is given twice"),
        ("a:\n  b: 1\n  b: 2\n", "f:3: the key a.b is given twice"),
        ("a: *b\n", "f:1: not valid YAML: found undefined alias 'b'"),
        ("a: {b: 1\n", "f:1: not valid YAML: this '{' is not closed"),
        ('a: "b\n', "f:1: not valid YAML: this quote is not closed"),
        ("a: 1\n b: 2\n", "f:2: not valid YAML: unexpected ':' (quote a text that holds ': ', or start a new line)"),
        ("<<: 3\n", "f:1: '<<' takes a mapping, or a list of mappings"),
        ("? [a]\n: b\n", "f:1: a key must be a plain text"),
    ],
)
def test_bad_syntax_is_one_line_with_the_line_where_it_began(text, message):
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value) == message


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused_in_one_line(text):
    try:
        parsed = parse_yaml(text, "f")
    except UserError as error:
        assert "\n" not in str(error)
        assert str(error).startswith("f:")
    else:
        assert parsed.line(()) >= 1
