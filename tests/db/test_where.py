"""Conditions that people type mean in SQL what they mean in pandas, and can do nothing else."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Double, Integer, MetaData, Table, Text, create_engine, insert, select
from sqlalchemy.dialects import postgresql

from scalewright.db.errors import DbError
from scalewright.db.where import parse_where

COLUMNS = ("n_params", "n_tokens", "loss_nats", "method")
ROWS = [
    {"n_params": p, "n_tokens": t, "loss_nats": loss, "method": m}
    for p, t, loss, m in [
        (1000, 10, 3.5, "gpt+"),
        (2000, 20, 3.0, "angpt"),
        (2000, 40, 2.5, "gpt+"),
        (4000, 40, 2.0, "pre-ln"),
        (8000, 10, 1.5, "angpt"),
    ]
]


@pytest.fixture(scope="module")
def table():
    columns = [Column("n_params", Integer), Column("n_tokens", Integer), Column("loss_nats", Double)]
    made = Table("t", MetaData(), *columns, Column("method", Text))
    engine = create_engine("sqlite://")
    made.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(made), [*ROWS, {"n_params": 1, "n_tokens": None, "loss_nats": None, "method": None}])
    return engine, made


def chosen(table, text):
    engine, made = table
    with engine.connect() as connection:
        query = select(made.c.n_params, made.c.n_tokens).where(parse_where(text, COLUMNS))
        return sorted(connection.execute(query).all())


numbers = st.sampled_from(["1000", "2e3", "4_000", "2.5", "10", "40"])
names = st.sampled_from(["n_params", "n_tokens", "loss_nats"])
comparisons = st.builds(
    lambda name, op, number: f"{name} {op} {number}",
    names,
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    numbers,
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a} and {b})", inner, inner),
        st.builds(lambda a, b: f"({a} or {b})", inner, inner),
        st.builds(lambda a: f"(not {a})", inner),
    ),
    max_leaves=5,
)


@given(conditions)
@settings(max_examples=150, deadline=None)
def test_a_condition_chooses_what_pandas_would(table, condition):
    full = pd.DataFrame(ROWS)
    expected = full[full.eval(condition)][["n_params", "n_tokens"]]
    found = [row for row in chosen(table, condition) if row[1] is not None]
    assert found == sorted(map(tuple, expected.to_numpy().tolist()))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("method = 'angpt'", [2000, 8000]),
        ("method in ('angpt', 'pre-ln')", [2000, 4000, 8000]),
        ("method not in ['angpt', 'gpt+']", [4000]),
        ("params < 3e3 and tokens >= 20", [2000, 2000]),
        ("1500 < n_params < 5000", [2000, 2000, 4000]),
        ("n_tokens / n_params > 0.015", [2000]),
        ("loss is None", [1]),
        ("loss is not None and not (method == 'gpt+')", [2000, 4000, 8000]),
        ('method == "x\' OR 1=1 --"', []),
        ("method == 'angpt (alpha_init=0.01)'", []),
        ("method = 'a=b' or method == \"angpt\"", [2000, 8000]),
        ("n_params < 99999999999999999999999", [1, 1000, 2000, 2000, 4000, 8000]),
        ("n_params / 0 > 1", []),
        ("n_params * 9e300 * 9e300 < 0", []),
        ("loss == None", [1]),
    ],
)
def test_conditions_as_people_write_them(table, condition, expected):
    assert [row[0] for row in chosen(table, condition)] == expected


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "n_params",
        "1",
        "n_params <",
        "n_params < 1; drop table t",
        "__import__('os').system('true') == 0",
        "n_params.real < 3",
        "(lambda: 1)() < 2",
        "n_params < [x for x in (1,)]",
        "n_parms < 3",
        "n_params << 3 < 1",
        "f'{n_params}' == '1'",
        "n_params < 1j",
        "(" * 300,
        "not " * 3000 + "n_params < 1",
        "n_params\0 < 1",
        "n_params < None",
        "method in None",
        "-None < 1",
        "-'a' < 1",
        "n_params in ((1, 2), 3)",
        "n_params in ()",
        "n_params is 3",
        "n_params in n_tokens",
        "method == 'a\\0b'",
        "n_params == (1, 2)",
        "None is None < 1",
        "n_params = ",
        "'",
        '"""',
    ],
)
def test_anything_else_is_refused_in_one_line(condition):
    with pytest.raises(DbError) as refused:
        parse_where(condition, COLUMNS)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 10_000


@pytest.mark.parametrize(
    "condition", ["n_params < 'a'", "method < 3", "method in ('a', 2)", "loss_nats == method", "method == 2 * n_params"]
)
def test_text_is_not_compared_with_numbers(condition):
    kinds = dict.fromkeys(COLUMNS, "number") | {"method": "text"}
    with pytest.raises(DbError, match="compares text with a number"):
        parse_where(condition, COLUMNS, kinds)
    parse_where("method in ('a', 'b') and 1 < n_params < 2 * n_tokens and method is not None", COLUMNS, kinds)


def test_a_misspelt_column_names_the_near_one():
    with pytest.raises(DbError, match="no column 'n_parms'; did you mean n_params"):
        parse_where("n_parms < 3", COLUMNS)


TOKENS = [
    "n_params",
    "method",
    "loss",
    "<",
    "=",
    "==",
    "is",
    "not",
    "in",
    "and",
    "or",
    "(",
    ")",
    ",",
    "None",
    "True",
    "1",
    "'a=b'",
    "-",
    "+",
    "*",
    "/",
    "1e400",
    "99999999999999999999999",
    "[",
    "]",
    "if",
    "else",
    ":",
    "lambda",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join) | st.text(max_size=60))
@settings(max_examples=400, deadline=None)
def test_whatever_is_typed_is_a_condition_that_runs_or_one_line(table, text):
    engine, made = table
    try:
        wanted = parse_where(text, COLUMNS, dict.fromkeys(COLUMNS, "number") | {"method": "text"})
    except DbError as refused:
        assert "\n" not in str(refused)
        return
    with engine.connect() as connection:
        connection.execute(select(made.c.n_params).where(wanted)).all()
    str(wanted.compile(dialect=postgresql.dialect()))
