"""All Python files of the repository, and what the tests of the house itself ask of each."""

import ast
import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NO_SOURCES = frozenset({"build", "data", "dist", "metastore_db", "out", "spark-warehouse"})
"""Folders of the root that are made (``.gitignore``); so are those whose names begin with a dot."""


class Source(NamedTuple):
    """``imports``: modules, and names in modules. ``functions``: lines of each, by path and qualified name.
    ``names``: all that it defines. ``members`` and ``bases``: of its classes.
    """

    docstring: str
    imports: set[str]
    functions: dict[str, int]
    names: set[str]
    members: dict[str, set[str]]
    bases: dict[str, set[str]]


@cache
def files(ending: str) -> tuple[str, ...]:
    """Paths below the root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        path = Path(folder).relative_to(ROOT)
        made = NO_SOURCES if path == Path() else ()
        folders[:] = [it for it in folders if not it.startswith((".", "__pycache__")) and it not in made]
        found += [(path / name).as_posix() for name in names if name.endswith(ending)]
    return tuple(sorted(found))


@cache
def modules() -> tuple[str, ...]:
    """Those that are written by hand."""
    return tuple(path for path in files(".py") if not path.endswith("_pb2.py"))


def is_test(path: str) -> bool:
    return path.startswith("tests/")


def room_of(path: str) -> str:
    return path.partition("/")[0] if "/" in path else "the root"


def dotted(path: str) -> str:
    """The name under which a module is imported."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return (
        name if path.startswith(("benchmarks/", "examples/", "packaging/", "tests/")) else f"pykraft.{name}"
    )


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def sources() -> dict[str, Source]:
    gc.disable()  # three quarters of the time, and a tree has no circles
    try:
        return {path: _read(path) for path in modules()}
    finally:
        gc.enable()


def _read(path: str) -> Source:
    tree = ast.parse(text_of(path))
    found = Source(ast.get_docstring(tree) or "", set(), {}, set(), {}, {})
    _read_block(found, tree, f"{path}:", "")
    return found


def _read_block(found: Source, block: ast.AST, scope: str, owner: str) -> None:
    """``owner``: the class whose members are bound here."""
    for node in _statements(block):
        match node:
            case ast.Import():
                found.imports.update(it.name for it in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                found.imports.update((module, *(f"{module}.{it.name}" for it in node.names)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                assert node.end_lineno is not None
                found.functions[f"{scope}{node.name}"] = node.end_lineno - node.lineno + 1
                _note(found, node.name, owner)
                _read_block(found, node, f"{scope}{node.name}.", owner)
            case ast.ClassDef():
                _note(found, node.name, owner)
                found.bases.setdefault(node.name, set()).update(map(_last_name, node.bases))
                _read_block(found, node, f"{scope}{node.name}.", node.name)
            case ast.Assign(targets=targets):
                for target in targets:
                    for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                        _note(found, _last_name(one), owner)
            case ast.AnnAssign(target=target):
                _note(found, _last_name(target), owner)
            case _:
                _read_block(found, node, scope, owner)


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    for part in ("body", "orelse", "finalbody"):
        yield from getattr(block, part, ())
    for part in ("handlers", "cases"):
        for one in getattr(block, part, ()):
            yield from one.body


def _note(found: Source, name: str, owner: str) -> None:
    found.names.add(name)
    if owner:
        found.members.setdefault(owner, set()).add(name)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
    return ""
