"""Which sources of the product are compiled, by ``modules.toml``, and which cannot be."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
BUILD: Final = ROOT / "build" / "compiled"
APART: Final = frozenset("tests benchmarks docs examples packaging jepsen_like build changes".split())
"""Folders with no product in them."""
TAKES_ALL: Final = frozenset(
    "all any bytes Counter deque dict dict.fromkeys extend frozenset join list Map max min next set sorted"
    " sum tuple update".split()
)
"""What goes through a generator expression at once, and is called so."""


class UncompilableError(Exception):
    """A source or the list of modules has to be changed; says which, and why."""


def listed() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "modules.toml").read_text(encoding="utf-8"))


def product() -> dict[str, str]:
    """All sources of the product by their paths below the root."""
    found = [*ROOT.glob("*.py"), *ROOT.glob("*/**/*.py"), *ROOT.glob("*/**/*.pyi")]
    paths = sorted(path.relative_to(ROOT) for path in found)
    kept = [path for path in paths if path.parts[0] not in APART and not path.parts[0].startswith(".")]
    return {str(path): (ROOT / path).read_text(encoding="utf-8") for path in kept}


def compiled() -> list[str]:
    """The paths of those that are compiled. Packages themselves (``__init__``) hold no code."""
    names = listed()
    interpreted = [path for paths in names["interpreted"].values() for path in paths]
    for path in (*interpreted, *names["packages"], *names["subclassed"], *names["looked_up"]):
        if not (ROOT / path).exists():
            raise UncompilableError(f"packaging/compiling/modules.toml: there is no {path}")
    return [
        path
        for path in product()
        if path.endswith(".py") and _is_compiled(path, names["packages"], interpreted)
    ]


def _is_compiled(path: str, packages: Collection[str], interpreted: Collection[str]) -> bool:
    return (
        not path.endswith("__init__.py")
        and any(path == one or path.startswith(f"{one}/") for one in packages)
        and path not in interpreted
        and not any(path.startswith(one) for one in interpreted if one.endswith("/"))
    )


def check(texts: Mapping[str, str]) -> None:
    """:class:`UncompilableError` for what the compiler takes and translates into something else."""
    found = [problem for path, text in texts.items() for problem in _problems(path, text)]
    if found:
        raise UncompilableError("\n".join(found))


def _problems(path: str, text: str) -> Iterator[str]:
    """A name bound by two ``except`` clauses has one type in the compiled function: that of the first.

    While a ``finally`` waits, its error is that of whoever runs, and any that is handled then is raised at
    its end. A name of alternatives has a value after one of them only. A generator expression becomes a list:
    what was to be taken a slice at a time is made in one turn.
    """
    tree = ast.parse(text)
    yield from (f"{path}:{line}: {problem}" for line, problem in sorted(_mistranslated(tree)))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            kinds: dict[str, str] = {}
            for clause in _clauses(function):
                kind = ast.unparse(clause.type) if clause.type else ""
                if kinds.setdefault(clause.name or "", kind) != kind:
                    at = f"{path}:{clause.lineno}"
                    yield f"{at}: {clause.name} is an error of another kind above: name it apart"


def _mistranslated(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchAs) and isinstance(node.pattern, ast.MatchOr):
            yield node.lineno, f"{node.name} is a name of alternatives, not bound by each: use a guard"
        if isinstance(node, ast.Try) and any(
            isinstance(one, ast.Await | ast.AsyncFor | ast.AsyncWith)
            for statement in node.finalbody
            for one in ast.walk(statement)
        ):
            yield node.finalbody[0].lineno, "finally waits: use except BaseException, and raise"
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.GeneratorExp) and not _takes_all(node):
                yield (
                    one.lineno,
                    "a generator expression is a list here: write one, or a function that yields",
                )


def _takes_all(node: ast.AST) -> bool:
    """Whether a generator expression directly in it gives all at once."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name in TAKES_ALL or name.rpartition(".")[2] in TAKES_ALL
    return isinstance(node, ast.Starred) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    )


def _clauses(function: ast.AST) -> Iterator[ast.ExceptHandler]:
    """Those of the function that bind a name, in their order; not those of functions within."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node
        yield from _clauses(node)
