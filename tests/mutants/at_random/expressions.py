"""Operators on expressions: each yields what to replace, by what, and the node that shows the change."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutants.at_random.known_types import KnownTypes
from tests.mutants.at_random.place import Place, Span, binds_a_name

Change = tuple[str, Span, str, ast.AST]
"""The operator, the bytes to replace, the text in their place, the node around them."""

_TOKENS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_INVERTED = {
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def of_comparison(node: ast.Compare, place: Place) -> Iterator[Change]:
    for (left, right), comparison in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
        token = _TOKENS[type(comparison)]
        span = _token_between(left, right, token, place)
        if token in _OFF_BY_ONE:
            yield "comparison-off-by-one", span, _OFF_BY_ONE[token], node
        yield "comparison-inverted", span, _INVERTED[token], node


def of_and_or(node: ast.BoolOp, place: Place) -> Iterator[Change]:
    token, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in pairwise(node.values):
        yield "and-or-exchanged", _token_between(left, right, token, place), other, node
    if not binds_a_name(node):
        for dropped in node.values:
            rest = [place.operand(value) for value in node.values if value is not dropped]
            yield "condition-dropped", place.span(node), f"({f' {token} '.join(rest)})", node


def of_condition(test: ast.expr, place: Place, constants: tuple[str, ...]) -> Iterator[Change]:
    """``constants``: what it may be in every case."""
    if isinstance(test, ast.Constant):
        return
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield "condition-negated", place.span(test), place.operand(test.operand), test
    else:
        yield "condition-negated", place.span(test), f"(not ({place.text(test)}))", test
    if not binds_a_name(test):
        for constant in constants:
            yield "condition-dropped", place.span(test), constant, test


def of_constant(node: ast.Constant, place: Place) -> Iterator[Change]:
    value = node.value
    changed: tuple[object, ...] = ()
    if isinstance(value, bool):
        changed = (not value,)
    elif isinstance(value, int):
        changed = (value + 1, value - 1) if value > 0 else (value + 1,)
    elif isinstance(value, float):
        changed = (value * 2 or 1.0,)
    for other in changed:
        yield "constant-changed", place.span(node), repr(other), node


def of_sum(node: ast.BinOp, place: Place) -> Iterator[Change]:
    """One that is added or subtracted is not."""
    if (
        isinstance(node.op, ast.Add | ast.Sub)
        and isinstance(node.right, ast.Constant)
        and node.right.value == 1
    ):
        yield "comparison-off-by-one", place.span(node), place.operand(node.left), node


def of_call(node: ast.Call, place: Place, known: KnownTypes) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    if name is None or any(isinstance(argument, ast.Starred) for argument in node.args):
        return
    end = place.span(node.func)[1]
    if name in _OPPOSITES and isinstance(node.func, ast.Name):
        yield "arguments-exchanged", (end - len(name), end), _OPPOSITES[name], node
    if name in ("min", "max") and len(node.args) == 2 and not node.keywords:
        for argument in node.args:
            yield "argument-dropped", place.span(node), place.operand(argument), node
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg is not None)]
    for first, second in pairwise(values):
        kinds = {known.of(value, place.function) for value in (first, second)}
        if len(kinds) == 1 and None not in kinds and place.text(first) != place.text(second):
            yield "arguments-exchanged", *exchanged(first, second, place), node
    for keyword in node.keywords:
        if keyword.arg is not None and known.has_default(name, keyword.arg):
            start, end = place.span(keyword)
            comma = re.match(rb"\s*,\s*", place.source[end:])
            yield "argument-dropped", (start, end + (comma.end() if comma else 0)), "", node


def exchanged(first: ast.AST, second: ast.AST, place: Place) -> tuple[Span, str]:
    """Two that follow each other, and what is between them stays there."""
    (start, end), (start_second, end_second) = place.span(first), place.span(second)
    text = f"{place.text(second)}{place.between(end, start_second)}{place.text(first)}"
    return (start, end_second), text


def _token_between(left: ast.expr, right: ast.expr, token: str, place: Place) -> Span:
    """Of an operator: only parentheses, white space and comments are beside it."""
    start, end = place.span(left)[1], place.span(right)[0]
    between = re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), place.source[start:end])
    words = rb"\s+".join(re.escape(word.encode()) for word in token.split())
    found = re.search(words, between)
    assert found, f"{place.path}: no {token!r} in {between!r}"
    return start + found.start(), start + found.end()
