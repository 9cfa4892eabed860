"""Conditions as people type them (`n_params < 1e8 and method == 'angpt'`) -> SQL, and the rows that meet them."""

import ast
import difflib
import io
import math
import operator
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Double,
    NullPool,
    and_,
    cast,
    column,
    create_engine,
    func,
    literal,
    not_,
    or_,
    select,
    table,
)

from scalewright.db.errors import DbError, UnknownColumnError

ALIASES = {"tokens": "n_tokens", "params": "n_params", "loss": "loss_nats", "lr": "lr_peak", "id": "run_id"}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 2000
LARGEST_WHOLE = 2**63 - 1
LARGEST_FLOAT = 2**1023
EXAMPLE = "n_params < 1e8 and method == 'angpt'"


def parse_where(
    text: str, names: Collection[str], kinds: Mapping[str, str] = MappingProxyType({})
) -> ColumnElement[bool]:
    """Make the SQL condition of the option --where, which every refusal of the condition itself names."""
    try:
        return parse_condition(text, names, kinds)
    except UnknownColumnError:
        raise
    except DbError as error:
        raise DbError(f"{error}") from None


def parse_condition(
    text: str, names: Collection[str], kinds: Mapping[str, str] = MappingProxyType({})
) -> ColumnElement[bool]:
    """Make the SQL condition that `text` says, over the columns in `names`; kinds: "text" or "number" of columns.

    Comparisons (also chained), and, or, not, in (...), is None, + - * / and numbers such as 1e8; `=` means `==`.
    Raises DbError for anything else, for unknown names and where text is compared with a number, which databases
    understand differently.
    """
    if len(text) > LONGEST:
        raise DbError(f"a condition of {len(text)} characters (at most {LONGEST})")
    try:
        tree = ast.parse(with_double_equals(text.strip()), mode="eval")
        if isinstance(tree.body, ast.Constant | ast.Name | ast.BinOp):
            raise DbError(f"{text!r} compares nothing (expected something like {EXAMPLE!r})")
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare | ast.BinOp):
                _check_kinds(node, names, kinds)
        return condition(tree.body, names)
    except (SyntaxError, ValueError, MemoryError, RecursionError, tokenize.TokenError) as error:
        if isinstance(error, DbError):
            raise
        raise DbError(f"{text!r} is not a condition (expected something like {EXAMPLE!r})") from None


def which_meet(
    conditions: Sequence[str], rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str]
) -> list[tuple[bool, ...]]:
    """Tell of each row (a value for every name in `kinds`) which conditions it meets, as the database would."""
    met = [func.coalesce(parse_condition(one, kinds, kinds), False) for one in conditions]
    values = [tuple(row[name] for name in kinds) for row in rows]
    if not values:
        return []
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in kinds)
    with create_engine("sqlite://", poolclass=NullPool).connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLE chosen ({names})")  # columns without a type keep values as they are
        connection.exec_driver_sql(f"INSERT INTO chosen VALUES ({', '.join('?' * len(kinds))})", values)
        found = select(*met).select_from(table("chosen")).order_by(column("rowid"))
        return [tuple(map(bool, row)) for row in connection.execute(found)]


def names_in(conditions: Iterable[str], names: Collection[str]) -> list[str]:
    """Return those of `names` that the conditions may speak of."""
    words = {word for one in conditions for word in re.findall(r"[\w.]+", one)}
    return [name for name in names if name in words or any(ALIASES.get(word) == name for word in words)]


def with_double_equals(text: str) -> str:
    """Write `==` where a person wrote `=` to compare; what stands between quotes is left alone."""
    places = [
        token.start[1]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.OP and token.string == "=" and token.start[0] == 1
    ]
    for place in reversed(places):
        text = f"{text[:place]}={text[place:]}"
    return text


def _check_kinds(node: ast.Compare | ast.BinOp, names: Collection[str], kinds: Mapping[str, str]) -> None:
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, *node.comparators)
    parts = [part for side in sides for part in getattr(side, "elts", [side])]
    found = {kind_of(part, names, kinds) for part in parts}
    if isinstance(node, ast.BinOp) and "text" in found:
        raise DbError(f"{ast.unparse(node)!r} calculates with text")
    if {"text", "number"} <= found:
        raise DbError(f"{ast.unparse(node)!r} compares text with a number")


def kind_of(node: ast.expr, names: Collection[str], kinds: Mapping[str, str]) -> str:
    """Return "text", "number" or, where nothing can be said, nothing."""
    match node:
        case ast.Name() | ast.Attribute():
            return kinds.get(column_name(ast.unparse(node), names), "")
        case ast.Constant(value=str()):
            return "text"
        case ast.Constant(value=bool() | None):
            return ""
        case ast.Constant() | ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            return "number"
    return ""


def condition(node: ast.expr, names: Collection[str]) -> ColumnElement[bool]:
    """Return a boolean expression in SQL; raises DbError for what is none."""
    match node:
        case ast.BoolOp(op=ast.And()):
            return and_(*[condition(value, names) for value in node.values])
        case ast.BoolOp():
            return or_(*[condition(value, names) for value in node.values])
        case ast.UnaryOp(op=ast.Not()):
            return not_(condition(node.operand, names))
        case ast.Compare():
            return comparison(node, names)
        case ast.Name() | ast.Attribute():
            return column(column_name(ast.unparse(node), names)).is_(True)
    raise DbError(f"{ast.unparse(node)!r} is not a condition (expected something like {EXAMPLE!r})")


def comparison(node: ast.Compare, names: Collection[str]) -> ColumnElement[bool]:
    """Return `a < b < c` in SQL: each neighbour with the next."""
    sides = (node.left, *node.comparators)
    return and_(*[compare(left, op, right, names) for left, op, right in zip(sides, node.ops, sides[1:], strict=False)])


def compare(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Collection[str]) -> ColumnElement[bool]:
    """Compare two sides: None with `is` alone, lists after `in` alone, everything else value by value."""
    if _is_none(right) or isinstance(op, ast.Is | ast.IsNot):
        return _compare_with_none(left, op, right, names)
    if isinstance(op, ast.In | ast.NotIn):
        if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
            raise _cannot_be_used(right)
        values = [value_of(item, names) for item in right.elts]
        found = value_of(left, names).in_(values)
        return not_(found) if isinstance(op, ast.NotIn) else found
    compared: ColumnElement[bool] = COMPARISONS[type(op)](value_of(left, names), value_of(right, names))
    return compared


def _compare_with_none(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Collection[str]) -> ColumnElement[bool]:
    there = isinstance(op, ast.Is | ast.Eq)
    if not isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        raise DbError(f"{ast.unparse(left)!r} can be compared with None by `is None` and `is not None` alone")
    value = value_of(left, names)
    if _is_none(right):
        return value.is_(None) if there else value.is_not(None)
    if isinstance(right, ast.Constant) and isinstance(right.value, bool):
        return value.is_(right.value) if there else value.is_not(right.value)
    raise _cannot_be_used(right)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def value_of(node: ast.expr, names: Collection[str]) -> ColumnElement[Any]:
    """Return one value: a column, a constant, or what is calculated from them, in floating point."""
    match node:
        case ast.Name() | ast.Attribute():
            return column(column_name(ast.unparse(node), names))
        case ast.Constant(value=bool() | int() | float() | str()):
            return literal(constant(node.value))
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Name() | ast.Attribute() | ast.Constant(value=int() | float()) | ast.BinOp()
        ):
            return -value_of(node.operand, names)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            left, right = cast(value_of(node.left, names), Double), cast(value_of(node.right, names), Double)
            divisor = func.nullif(right, 0.0) if isinstance(node.op, ast.Div) else right
            return cast(ARITHMETIC[type(node.op)](left, divisor), Double)
    raise _cannot_be_used(node)


def constant(value: Any) -> Any:
    """Return a constant as every database takes it: a whole number past 64 bits as a float, text without NUL."""
    if isinstance(value, str) and "\0" in value:
        raise DbError("a text with a NUL character is in no database")
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        return float(value) if abs(value) < LARGEST_FLOAT else math.copysign(math.inf, value)
    return value


def _cannot_be_used(node: ast.expr) -> DbError:
    return DbError(f"{ast.unparse(node)!r} cannot be used here (expected something like {EXAMPLE!r})")


def column_name(name: str, names: Collection[str]) -> str:
    """Return the column that `name` means; raises DbError with what it may have meant."""
    known = name if name in names else ALIASES.get(name)
    if known in names:
        return str(known)
    near = difflib.get_close_matches(name, [*names, *ALIASES], n=1)
    hint = f"; did you mean {near[0]}?" if near else f" (columns: {', '.join(sorted(names))})"
    raise UnknownColumnError(f"no column {name!r}{hint}")
