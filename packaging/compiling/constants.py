"""Module constants as the compiler is given them: ``Final``, so that they are not looked up at each use."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from compiling.sources import UncompilableError

FUTURE: Final = "from __future__ import annotations"
MAKERS_OF_KINDS: Final = frozenset(("TypeVar", "TypeVarTuple", "ParamSpec", "NewType", "NamedTuple", "cast"))
VALUES: Final = (ast.Call, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.Attribute)
VALUES_OF_VALUES: Final = (
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.Compare,
    ast.IfExp,
    ast.BoolOp,
    ast.JoinedStr,
)


def looked_up(source: str, names: Collection[str]) -> str:
    """The source, with as many lines, without ``Final`` at these names."""
    for name in names:
        declared = rf"(?m)^({name})(?:: Final(?:\[(.+)\])?)? ="
        source, count = re.subn(declared, _plainly, source)
        if not count:
            raise UncompilableError(f"packaging/compiling/modules.toml: there is no constant {name}")
    return source


def _plainly(found: re.Match[str]) -> str:
    name, kind = found.groups()
    return f"{name}: {kind} =" if kind else f"{name} ="


def with_finals(source: str, looked_up: Collection[str] = ()) -> str:
    """The source, with as many lines; names to which a module gives a value once are final, but for some."""
    tree = ast.parse(source)
    bound = Counter(
        node.id
        for node in _of_module(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    bound.update(looked_up)
    again = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    lines = source.splitlines(keepends=True)
    for item in tree.body:
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and _is_value(item.value):
            target = item.targets[0]
            if isinstance(target, ast.Name) and bound[target.id] == 1 and target.id not in again:
                _insert(lines, target, ": Final")
            elif isinstance(target, ast.Tuple) and isinstance(item.value, ast.Tuple):
                names = [ast.unparse(name) for name in target.elts]
                if all(bound[name] == 1 and name not in again for name in names):
                    _take_apart(lines, item, names, item.value.elts)
        elif isinstance(item, ast.AnnAssign) and item.value is not None and isinstance(item.target, ast.Name):
            kind = item.annotation
            name = item.target.id
            if (
                bound[name] == 1
                and name not in again
                and not ast.unparse(kind).startswith(("Final", "TypeAlias"))
            ):
                line = lines[kind.lineno - 1]
                if kind.lineno == kind.end_lineno:
                    start, end = kind.col_offset, kind.end_col_offset
                    lines[kind.lineno - 1] = f"{line[:start]}Final[{line[start:end]}]{line[end:]}"
    return "".join(lines).replace(FUTURE, f"{FUTURE}; from typing import Final", 1)


def _take_apart(lines: list[str], item: ast.Assign, names: list[str], values: list[ast.expr]) -> None:
    """``A, B = 1, 2`` becomes ``A: Final = 1; B: Final = 2``."""
    each = [f"{name}: Final = {ast.unparse(value)}" for name, value in zip(names, values, strict=True)]
    assert item.end_lineno is not None
    left = item.end_lineno - item.lineno
    lines[item.lineno - 1 : item.end_lineno] = ["; ".join(each) + "\n", *"\n" * left]


def _insert(lines: list[str], after: ast.Name, text: str) -> None:
    line = lines[after.lineno - 1]
    lines[after.lineno - 1] = line[: after.end_col_offset] + text + line[after.end_col_offset :]


def _of_module(tree: ast.Module) -> list[ast.AST]:
    """All nodes outside functions and classes."""
    found: list[ast.AST] = []
    rest: list[ast.AST] = list(tree.body)
    while rest:
        node = rest.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            rest.extend(ast.iter_child_nodes(node))
    return found


def _is_value(value: ast.expr) -> bool:
    """Whether it is no name of a kind, which is no constant for the type checker."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in MAKERS_OF_KINDS:
        return False
    if isinstance(value, ast.Attribute):
        return not value.attr[:1].isupper() or value.attr.isupper()
    if isinstance(value, ast.BinOp):
        return not isinstance(value.op, ast.BitOr) or _is_value(value.left)
    return isinstance(value, (*VALUES, *VALUES_OF_VALUES))
