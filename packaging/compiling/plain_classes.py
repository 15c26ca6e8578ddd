"""Dataclasses as the compiler is given them, with a constructor, ``==``, hash and ``repr`` that it compiles.

``dataclasses`` writes these methods when the class is declared, so that they would be interpreted in a
compiled module: the constructor of a small class then costs more than the work it is made for. Here they are
written into a copy of the source, which is compiled in its place; everything else of the class is as it was.
The lines that are added are known, so that tracebacks name those of the source.

Left as they are, but for ``slots`` (a compiled class has no dictionary): dataclasses that are derived from
others, and fields whose default is neither written there nor made by ``default_factory``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiling.struct_fields import Field, base_name, decorator_of, fields_of, options_of, with_inherited


@dataclass(frozen=True, slots=True)
class Classes:
    """What of the classes of other sources decides how those of one are compiled."""

    bases: Collection[str]
    """Those that dataclasses are derived from."""
    subclassed: Mapping[str, Collection[str]] | None = None
    """By path: those from which interpreted classes are derived."""

    @staticmethod
    def of(sources: Iterable[str], subclassed: Mapping[str, Collection[str]]) -> Classes:
        classes = [
            node
            for text in sources
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ClassDef) and decorator_of(node)
        ]
        return Classes({base_name(base) for one in classes for base in one.bases}, subclassed)


class _Copy:
    """A copy of a source in the making. Lines are replaced by as many, and others added behind one."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.lines = source.splitlines()
        self._tree = tree
        self._added: dict[int, list[str]] = {}
        self._imports: dict[str, None] = {}

    def mark(self, cls: ast.ClassDef, decorator: str, imported: str) -> None:
        self.lines[cls.lineno - 1] = f"@{decorator}\n{self.lines[cls.lineno - 1]}"
        self._imports[imported] = None

    def derive(self, cls: ast.ClassDef, base: str, imported: str) -> None:
        """Give it a base, which is its only one."""
        number = cls.lineno - 1
        self.lines[number] = self.lines[number].replace(f"class {cls.name}:", f"class {cls.name}({base}):")
        self._imports[imported] = None

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        self.lines[first:last] = [text] + [""] * (last - first - 1)

    def add(self, cls: ast.ClassDef, lines: Iterator[str]) -> None:
        """At its end."""
        indent = " " * cls.body[0].col_offset
        self._added.setdefault(cls.end_lineno or 0, []).extend(indent + line for line in lines)
        self._imports["from pykraft.compiled import fields_of, shown"] = None

    def finish(self) -> tuple[str, list[int]]:
        if self._imports:
            imports = [node for node in self._tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            wanted = ["from typing import TYPE_CHECKING, Any, ClassVar, Final", *self._imports]
            self._added.setdefault(max(node.end_lineno or 0 for node in imports), []).extend(wanted)
        text: list[str] = []
        numbers = [0]
        for number, line in enumerate(self.lines, 1):
            for one in (*line.split("\n"), *self._added.get(number, ())):
                text.append(one)
                numbers.append(number)
        return "\n".join(text) + "\n", numbers


def rewrite(source: str, path: str, classes: Classes) -> tuple[str, list[int]]:
    """The source with compilable dataclasses, and for each of its lines that of ``source``, from 1 on."""
    source = source.replace("from pykraft.lazy_dataclass import", "from dataclasses import")
    tree = ast.parse(source)
    copy = _Copy(source, tree)
    own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for cls in own.values():
        if cls.name in (classes.subclassed or {}).get(path, ()):
            known = "if TYPE_CHECKING: from mypy_extensions import mypyc_attr"
            copy.mark(cls, "mypyc_attr(allow_interpreted_subclasses=True)", known)
        if any(
            isinstance(item, ast.Assign) and "'__weakref__'" in ast.unparse(item.value) for item in cls.body
        ):
            copy.derive(cls, "WeaklyReferenced", "from pykraft.compiled import WeaklyReferenced")
        decorator = decorator_of(cls)
        if decorator is not None:
            _rewrite_dataclass(copy, cls, decorator, own, classes)
    return copy.finish()


def _rewrite_dataclass(
    copy: _Copy, cls: ast.ClassDef, decorator: ast.Call, own: Mapping[str, ast.ClassDef], classes: Classes
) -> None:
    options = options_of(decorator)
    if any(
        isinstance(base, ast.Subscript) for base in cls.bases
    ):  # a generic one is no dataclass for the compiler
        fields = with_inherited(cls, own, options)
    else:
        fields = None if cls.name in classes.bases else fields_of(cls, options)
    indent = " " * (decorator.col_offset - 1)
    if not fields:  # none, or they are left as they are
        copy.replace(decorator, f"{indent}@{_shortened(options)}")
        return
    copy.replace(decorator, "")
    for item in cls.body:  # their defaults are those of the constructor's parameters
        if (
            isinstance(item, ast.AnnAssign)
            and item.value is not None
            and "ClassVar" not in ast.unparse(item.annotation)
        ):
            text = f"{ast.unparse(item.target)}: {ast.unparse(item.annotation)}"
            copy.replace(item, " " * item.col_offset + text)
    copy.add(cls, _methods(cls, fields, options))


def _shortened(options: Mapping[str, bool]) -> str:
    """The decorator without what a compiled class cannot have."""
    kept = {name: value for name, value in options.items() if name not in ("slots", "frozen")}
    if options.get("frozen") and options.get("eq", True):
        kept["unsafe_hash"] = True
    return f"dataclass({', '.join(f'{name}={value}' for name, value in kept.items())})"


def _methods(cls: ast.ClassDef, fields: Sequence[Field], options: Mapping[str, bool]) -> Iterator[str]:
    names = ", ".join(f"{one.name}={one.kind!r}" for one in fields)
    yield f"__dataclass_fields__: ClassVar[dict[str, Any]] = fields_of({names})"
    positional = (repr(one.name) for one in fields if one.init and not one.kw_only)
    yield f"__match_args__: Final = {_tuple(positional)}"
    written = {item.name for item in cls.body if isinstance(item, ast.FunctionDef)}
    compared = [one.name for one in fields if one.compare]
    if "__init__" not in written:
        yield from _init(fields, "__post_init__" in written)
    if options.get("eq", True) and "__eq__" not in written:
        yield from _eq(cls.name, compared)
        if options.get("frozen") and "__hash__" not in written:
            yield "def __hash__(self) -> int:"
            yield f"    return hash({_tuple(f'self.{name}' for name in compared)})"
    if options.get("repr", True) and "__repr__" not in written:
        yield "def __repr__(self) -> str:"
        yield f"    return shown(self, {', '.join(repr(one.name) for one in fields if one.repr)})"


def _tuple(parts: Iterator[str]) -> str:
    return f"({''.join(f'{one}, ' for one in parts)})"


def _init(fields: Sequence[Field], has_post_init: bool) -> Iterator[str]:
    given = [one for one in fields if one.init]
    positional = [_parameter(one) for one in given if not one.kw_only]
    named = [_parameter(one) for one in given if one.kw_only]
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    yield f"def __init__({parameters}) -> None:"
    for one in fields:
        if one.factory is not None:
            made = {"list": "[]", "dict": "{}"}.get(one.factory, f"({one.factory})()")
            value = f"{made} if {one.name} is None else {one.name}" if one.init else made
            yield f"    self.{one.name} = {value}"
        elif one.init or one.default is not None:
            yield f"    self.{one.name} = {one.name if one.init else one.default}"
    if has_post_init:
        yield "    self.__post_init__()"


def _parameter(one: Field) -> str:
    if one.factory is not None:
        return f"{one.name}: {one.kind} | None = None"
    return f"{one.name}: {one.kind}" + ("" if one.default is None else f" = {one.default}")


def _eq(cls: str, names: Sequence[str]) -> Iterator[str]:
    yield "def __eq__(self, other: object) -> bool:"
    yield f"    if not isinstance(other, {cls}):"
    yield "        return NotImplemented"
    equal = " and ".join(f"self.{name} == other.{name}" for name in names)
    yield f"    return self is other or ({equal})" if names else "    return True"
