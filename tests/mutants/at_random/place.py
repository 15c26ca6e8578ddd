"""Where in a source an operator is at work: the text of nodes, and the functions and classes around them."""

import ast
import re
from bisect import bisect_right
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Span = tuple[int, int]

_SAID = re.compile(r"(logger|logging|warnings)\.\w+")
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict, ast.Set)


@dataclass(slots=True)
class Place:
    """``scopes``: the functions and classes around the present node, the outermost first."""

    path: str
    source: bytes
    scopes: list[ast.ClassDef | Function] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts = [0, *(at + 1 for at, byte in enumerate(self.source) if byte == 0x0A)]

    def span(self, node: ast.AST) -> Span:
        """In bytes of the source, without parentheses around it."""
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def line(self, at: int) -> int:
        """Of a byte."""
        return bisect_right(self._starts, at)

    def text(self, node: ast.AST) -> str:
        return self.between(*self.span(node))

    def between(self, start: int, end: int) -> str:
        return self.source[start:end].decode()

    def operand(self, node: ast.expr) -> str:
        """Its text where it may need parentheses."""
        return self.text(node) if isinstance(node, _ATOMS) else f"({self.text(node)})"

    @property
    def function(self) -> Function | None:
        """The innermost."""
        return next((it for it in reversed(self.scopes) if not isinstance(it, ast.ClassDef)), None)

    @property
    def name(self) -> str:
        return ".".join(scope.name for scope in self.scopes)

    @property
    def outermost(self) -> tuple[str, int] | None:
        """The first function around the node: the qualified name and the line of its code."""
        for number, scope in enumerate(self.scopes):
            if not isinstance(scope, ast.ClassDef):
                first = scope.decorator_list[0] if scope.decorator_list else scope
                return ".".join(it.name for it in self.scopes[: number + 1]), first.lineno
        return None

    @property
    def returns_no_value(self) -> bool:
        """By the annotation of the function; that a generator has one says nothing."""
        if self.function is None:
            return False
        returns = self.function.returns
        if isinstance(returns, ast.Constant) and returns.value is None:
            return True
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(self.function))


def is_said(statement: ast.stmt) -> bool:
    """A docstring, or something for a log: to people only."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Call):
        return _SAID.fullmatch(ast.unparse(value.func)) is not None
    return isinstance(value, ast.Constant)


def binds_a_name(node: ast.AST) -> bool:
    """What is bound within it is used after it."""
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))
