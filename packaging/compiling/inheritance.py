"""Interpreted classes cannot be derived from compiled ones, unless those are listed as subclassed.

The compiler cannot know: an interpreted module is only imported where it is used, and its class fails when
the first object of it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from compiling.sources import UncompilableError
from compiling.struct_fields import base_name


def check(
    texts: Mapping[str, str], compiled: Collection[str], subclassed: Mapping[str, Collection[str]]
) -> None:
    """:class:`UncompilableError` for such classes. ``texts``: all sources by path; ``subclassed``: the
    names of classes by path.
    """
    trees = {path: ast.parse(text) for path, text in texts.items() if path.endswith(".py")}
    declared = {path: {one.name: one for one in _classes(tree)} for path, tree in trees.items()}

    def problems() -> Iterator[str]:
        for path, tree in trees.items():
            if path in compiled:
                continue
            imported = _imports(tree)
            for cls in _classes(tree):
                for base in cls.bases:
                    source, name = imported.get(base_name(base), ("", ""))
                    if source not in compiled or name in subclassed.get(source, ()):
                        continue
                    if name in declared[source] and not _is_protocol(declared[source][name]):
                        at = f"{path}:{cls.lineno}"
                        yield f"{at}: {cls.name} is interpreted, {name} of {source} is compiled"

    found = "\n".join(problems())
    if found:
        raise UncompilableError(found)


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _is_protocol(cls: ast.ClassDef) -> bool:
    return any(
        base_name(base) in ("Protocol", "NamedTuple", "Enum", "IntEnum", "StrEnum") for base in cls.bases
    )


def _imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """The names that modules of the product gave: (path, name there) of each."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pykraft."):
            path = (node.module or "").removeprefix("pykraft.").replace(".", "/") + ".py"
            found.update({it.asname or it.name: (path, it.name) for it in node.names})
    return found
