"""Operators on statements: removed, exchanged with the next one, or never reached."""

import ast
from collections.abc import Iterator

from tests.mutants.at_random.expressions import Change, exchanged
from tests.mutants.at_random.place import Place, is_said

_WITHOUT_EFFECT = (
    ast.Return,
    ast.Raise,
    ast.Pass,
    ast.Assert,
    ast.Nonlocal,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
)


def of_suite(suite: list[ast.stmt], place: Place) -> Iterator[Change]:
    """The statements of a block, one after the other."""
    for at, statement in enumerate(suite):
        if _can_be_removed(statement, place, is_last=at == len(suite) - 1):
            yield "statement-removed", place.span(statement), "pass", statement
        if at > 0 and _can_be_exchanged(suite[at - 1], statement, place):
            yield "statements-exchanged", *exchanged(suite[at - 1], statement, place), suite[at - 1]
        if (early := _early_return(statement, place)) is not None:
            start = place.span(statement)[0]
            yield "early-return", (start, start), f"{early}\n{' ' * statement.col_offset}", statement


def _can_be_removed(statement: ast.stmt, place: Place, *, is_last: bool) -> bool:
    if place.function is None or is_said(statement):
        return False
    match statement:
        case ast.Expr(ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete():
            return place.function.name != "__init__"
        case ast.Return(value=None) | ast.Continue() | ast.Break():
            return True
        case ast.Raise():  # a value must follow
            return not is_last or place.returns_no_value
        case ast.Return():
            return place.returns_no_value or statement not in _last(place.function.body)
    return False


def _last(suite: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements after which a function ends."""
    last = suite[-1]
    yield last
    for name in ("body", "orelse", "finalbody"):
        if inner := getattr(last, name, None):
            yield from _last(inner)
    for part in (*getattr(last, "handlers", ()), *getattr(last, "cases", ())):
        yield from _last(part.body)


def _can_be_exchanged(first: ast.stmt, second: ast.stmt, place: Place) -> bool:
    """Both change something, others may see it in between, and the second needs no name from the first."""
    if place.function is None or any(is_said(one) or not _has_effect(one) for one in (first, second)):
        return False
    if not any(_lets_others_see(one) for one in (first, second)):
        return False
    bound = {
        node.id for node in ast.walk(first) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    used = {node.id for node in ast.walk(second) if isinstance(node, ast.Name)}
    return not bound & used and place.text(first) != place.text(second)


def _has_effect(statement: ast.stmt) -> bool:
    """On more than a local name."""
    match statement:
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(value=ast.Await()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _lets_others_see(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) or any(isinstance(node, ast.Await) for node in ast.walk(statement))


def _early_return(statement: ast.stmt, place: Place) -> str | None:
    function = place.function
    if function is None or isinstance(statement, _WITHOUT_EFFECT) or is_said(statement):
        return None
    if function.name == "__init__" or isinstance(
        statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        return None
    if place.returns_no_value:
        return "return"
    return (
        "return False" if isinstance(function.returns, ast.Name) and function.returns.id == "bool" else None
    )
