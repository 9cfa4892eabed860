"""Conditions as people type them (`n_params < 1e8 and method == 'angpt'`) -> SQL expressions. Evaluates nothing."""

import ast
import difflib
import operator
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, and_, column, literal, not_, or_

from scalewright.db.errors import DbError

ALIASES = {"tokens": "n_tokens", "params": "n_params", "loss": "loss_nats", "lr": "lr_peak", "id": "run_id"}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: lambda left, right: left.is_(right),
    ast.IsNot: lambda left, right: left.is_not(right),
    ast.In: lambda left, right: left.in_(right),
    ast.NotIn: lambda left, right: left.not_in(right),
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 2000
EXAMPLE = "n_params < 1e8 and method == 'angpt'"


def parse_where(
    text: str, names: Collection[str], kinds: Mapping[str, str] = MappingProxyType({})
) -> ColumnElement[bool]:
    """Make the SQL condition that `text` says, over the columns in `names`; kinds: "text" or "number" of columns.

    Comparisons (also chained), and, or, not, in (...), is None, + - * / and numbers such as 1e8; `=` means `==`.
    Raises DbError for anything else, for unknown names and where text is compared with a number, which databases
    understand differently.
    """
    spelled = re.sub(r"(?<![<>=!])=(?!=)", "==", text)
    if len(text) > LONGEST:
        raise DbError(f"--where: a condition of {len(text)} characters (at most {LONGEST})")
    try:
        tree = ast.parse(spelled.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise DbError(f"--where {text!r}: not a condition (expected something like {EXAMPLE!r})") from None
    if isinstance(tree.body, ast.Constant | ast.Name | ast.BinOp):
        raise DbError(f"--where {text!r}: compares nothing (expected something like {EXAMPLE!r})")
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            check_kinds(node, names, kinds)
    return condition(tree.body, names)


def check_kinds(node: ast.Compare, names: Collection[str], kinds: Mapping[str, str]) -> None:
    parts = [part for side in (node.left, *node.comparators) for part in getattr(side, "elts", [side])]
    found = {kind_of(part, names, kinds) for part in parts}
    if {"text", "number"} <= found:
        raise DbError(f"--where: {ast.unparse(node)!r} compares text with a number")


def kind_of(node: ast.expr, names: Collection[str], kinds: Mapping[str, str]) -> str:
    """Return "text", "number" or, where nothing can be said, nothing."""
    match node:
        case ast.Name():
            return kinds.get(column_name(node.id, names), "")
        case ast.Constant(value=str()):
            return "text"
        case ast.Constant(value=bool() | None):
            return ""
        case ast.Constant() | ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            return "number"
    return ""


def condition(node: ast.expr, names: Collection[str]) -> ColumnElement[bool]:
    match node:
        case ast.BoolOp(op=ast.And()):
            return and_(*[condition(value, names) for value in node.values])
        case ast.BoolOp():
            return or_(*[condition(value, names) for value in node.values])
        case ast.UnaryOp(op=ast.Not()):
            return not_(condition(node.operand, names))
        case ast.Compare():
            return comparison(node, names)
        case ast.Name():
            return column(column_name(node.id, names)).is_(True)
    raise DbError(f"--where: {ast.unparse(node)!r} is not a condition (expected something like {EXAMPLE!r})")


def comparison(node: ast.Compare, names: Collection[str]) -> ColumnElement[bool]:
    values = [value_of(part, names) for part in (node.left, *node.comparators)]
    pairs = zip(values, node.ops, values[1:], strict=False)
    return and_(*[COMPARISONS[type(op)](left, right) for left, op, right in pairs])


def value_of(node: ast.expr, names: Collection[str]) -> Any:
    match node:
        case ast.Name():
            return column(column_name(node.id, names))
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=bool() | int() | float() | str()):
            return literal(node.value)
        case ast.UnaryOp(op=ast.USub()):
            return -value_of(node.operand, names)
        case ast.Tuple() | ast.List():
            return [value_of(item, names) for item in node.elts]
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            return ARITHMETIC[type(node.op)](value_of(node.left, names), value_of(node.right, names))
    raise DbError(f"--where: {ast.unparse(node)!r} cannot be used here (expected something like {EXAMPLE!r})")


def column_name(name: str, names: Collection[str]) -> str:
    """Return the column that `name` means; raises DbError with what it may have meant."""
    known = name if name in names else ALIASES.get(name)
    if known in names:
        return str(known)
    near = difflib.get_close_matches(name, [*names, *ALIASES], n=1)
    hint = f"; did you mean {near[0]}?" if near else f" (columns: {', '.join(sorted(names))})"
    raise DbError(f"no column {name!r}{hint}")
