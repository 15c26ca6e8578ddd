"""All bugs that the operators make of a source.

What a test cannot tell from the original is left alone: assertions, annotations, docstrings, decorators,
messages of logs and of errors. Operators keep to what the type checker lets pass as far as names tell it: a
``return`` is not removed where a value must follow, arguments are exchanged only if their types are known and
equal (:mod:`.known_types`), and dropped only if every function of that name has a default. No mutant is shown
to the type checker itself.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.mutants.at_random import expressions, statements
from tests.mutants.at_random.expressions import Change
from tests.mutants.at_random.known_types import KnownTypes
from tests.mutants.at_random.mutant import Mutant, numbered
from tests.mutants.at_random.place import Function, Place, is_said

OPERATORS = (
    *("and-or-exchanged", "argument-dropped", "arguments-exchanged", "comparison-inverted"),
    *("comparison-off-by-one", "condition-dropped", "condition-negated", "constant-changed", "early-return"),
    *("statement-removed", "statements-exchanged"),
)
_DECLARES = frozenset({"TypeVar", "cast", "field", "dataclass"})


def find_mutants(path: str, source: bytes, known: KnownTypes) -> list[Mutant]:
    """In the order of the text. One that does not compile is possible: :func:`compiles`."""
    finder = _Finder(path, source, known)
    finder.visit(ast.parse(source))
    return numbered(finder.found)


class _Finder(ast.NodeVisitor):
    """Visits what runs."""

    def __init__(self, path: str, source: bytes, known: KnownTypes) -> None:
        self.found: list[Mutant] = []
        self._place = Place(path, source)
        self._known = known

    def visit_Module(self, node: ast.Module) -> None:
        self._suites(node.body)

    def visit_ClassDef(self, node: ast.ClassDef | Function) -> None:
        self._place.scopes.append(node)
        self._suites(node.body)
        self._place.scopes.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        self._visit_all([*node.args.defaults, *(it for it in node.args.kw_defaults if it is not None)])
        if not any(isinstance(it, ast.Name) and it.id == "overload" for it in node.decorator_list):
            self.visit_ClassDef(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assert(self, node: ast.Assert) -> None:
        """It says what holds: without it nothing is different."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Its message is for people."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not is_said(node):
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._condition(node.test, "True", "False")
            self._suites(node.body, node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test, "False")
        self._suites(node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test, "True", "False")
        self._visit_all([node.body, node.orelse])

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self._condition(test, "True")

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._condition(node.guard, "True", "False")
        self._suites(node.body)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._suites(node.body, node.orelse)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._visit_all(node.items)
        self._suites(node.body)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        handled = (handler.body for handler in node.handlers)
        self._suites(node.body, *handled, node.orelse, node.finalbody)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._made(expressions.of_comparison(node, self._place))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._made(expressions.of_and_or(node, self._place))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._made(expressions.of_sum(node, self._place))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._made(expressions.of_constant(node, self._place))

    def visit_Call(self, node: ast.Call) -> None:
        if not (isinstance(node.func, ast.Name) and node.func.id in _DECLARES):
            self._made(expressions.of_call(node, self._place, self._known))
            self.generic_visit(node)

    def _condition(self, test: ast.expr, *constants: str) -> None:
        self._made(expressions.of_condition(test, self._place, constants))
        self.visit(test)

    def _suites(self, *suites: list[ast.stmt]) -> None:
        for suite in suites:
            self._made(statements.of_suite(suite, self._place))
            self._visit_all(suite)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _made(self, changes: Iterator[Change]) -> None:
        place = self._place
        for operator, (start, end), text, node in changes:
            first, last = place.span(node)
            last = max(last, end)
            self.found.append(
                Mutant(
                    path=place.path,
                    function=place.name,
                    operator=operator,
                    before=place.between(first, last),
                    after=place.between(first, start) + text + place.between(end, last),
                    start=start,
                    end=end,
                    text=text,
                    lines=range(place.line(start), place.line(max(start, end - 1)) + 1),
                    outermost=place.outermost,
                )
            )


def compiles(mutant: Mutant, source: bytes) -> bool:
    try:
        compile(mutant.apply(source), mutant.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
