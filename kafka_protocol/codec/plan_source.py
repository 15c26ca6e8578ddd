"""Turning a message table into straight-line Python: the source text a plan is compiled from.

Interpreting a table field by field costs a call per field. Instead each (struct, version) gets one encode and
one decode function, written out here as source and compiled once, on first use. The text contains only names
bound in this file's namespaces and literals from our own tables: no input ever reaches ``exec``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pykraft.kafka_protocol.codec.field_types import FIXED_FORMATS, FieldSpec, default_factory

_FIXED_BYTES = {
    "int8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}


class PlanSource:
    """Lines of one function below its ``header``, their indentation, and the objects the lines name."""

    def __init__(self, header: str) -> None:
        self.header = header
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, object] = {}

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Append ``header`` and indent what follows."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, stem: str, value: object) -> str:
        """Name ``value`` for the lines and return the name; the same object gets the same name."""
        for name, bound in self._names.items():
            if bound is value:
                return name
        name = f"{stem}_{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, function: str, filename: str) -> Any:
        """The function called ``function`` that the lines define."""
        code = compile("\n".join([self.header, *self._lines]), f"<{filename}>", "exec")
        exec(code, self._names)
        return self._names[function]


def fields_at(struct: Any, version: int) -> tuple[list[FieldSpec], list[FieldSpec]]:
    """The fields that exist at ``version``: the plain ones in wire order, the tagged ones by tag."""
    present = [spec for spec in struct.FIELDS if version in spec.versions]
    tagged = sorted((spec for spec in present if spec.tag is not None), key=lambda spec: spec.tag or 0)
    return [spec for spec in present if spec.tag is None], tagged


def has_arrays(struct: Any, version: int) -> bool:
    """Whether a value of ``struct`` can have very many parts."""
    plain, tagged = fields_at(struct, version)
    return any(
        spec.kind == "array" or (spec.kind == "struct" and has_arrays(spec.element, version))
        for spec in (*plain, *tagged)
    )


def split_runs(specs: list[FieldSpec]) -> Iterator[list[FieldSpec]]:
    """Neighbouring fields of fixed size together (they are packed by one call), every other field alone."""
    run: list[FieldSpec] = []
    for spec in specs:
        if spec.kind in FIXED_FORMATS:
            run.append(spec)
            continue
        if run:
            yield run
            run = []
        yield [spec]
    if run:
        yield run


def run_format(specs: list[FieldSpec]) -> str:
    """The ``struct`` format of a run of fixed fields."""
    return ">" + "".join(FIXED_FORMATS[spec.kind] for spec in specs)


def min_bytes(kind: str | type, version: int, flexible: bool) -> int:
    """The fewest bytes a value of ``kind`` (or a struct class) can take; array counts are checked with it."""
    if isinstance(kind, str):
        if kind in FIXED_FORMATS:
            return _FIXED_BYTES[kind]
        if flexible:
            return 1
        return 2 if kind == "string" else 4
    plain, _ = fields_at(kind, version)
    size = sum(_field_min_bytes(spec, version, flexible) for spec in plain) + flexible
    return max(size, 1)


def _field_min_bytes(spec: FieldSpec, version: int, flexible: bool) -> int:
    if spec.kind != "struct":
        return min_bytes(spec.kind, version, flexible)
    if version in spec.nullable:
        return 1
    assert isinstance(spec.element, type)
    return min_bytes(spec.element, version, flexible)


def default_expression(source: PlanSource, spec: FieldSpec) -> str:
    """Python text that yields the field's default, fresh each time where it is mutable."""
    factory = default_factory(spec)
    if factory is list:
        return "[]"
    if factory is not None:
        return f"{source.bind('new', factory)}()"
    return repr(spec.default)
