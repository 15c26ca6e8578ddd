"""Compiling the encode function of one struct at one version: ``encode(value, out: bytearray)``.

A value of a shape that the version cannot carry (null where null is not allowed, a string too long) raises
:class:`ProtocolError`; an integer out of range surfaces as ``struct.error`` and is converted by the caller in
``schema``. Fields that the version does not have are silently left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from pykraft.kafka_protocol import plan_source
from pykraft.kafka_protocol.field_types import FIXED_FORMATS, FieldSpec, default_factory
from pykraft.kafka_protocol.plan_source import PlanSource
from pykraft.kafka_protocol.primitives import MAX_STRING_BYTES, ProtocolError, write_uvarint
from pykraft.kafka_protocol.tagged import write_tagged_field

Encoder = Callable[[Any, bytearray], None]

_pack_array = struct.pack
_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_join = b"".join


class Body(bytearray):
    """What a whole message is encoded into. Elements that are already encoded are inserted at the end."""

    __slots__ = ("insertions",)

    def __init__(self) -> None:
        self.insertions: list[tuple[int, EncodedElements]] = []

    def to_bytes(self) -> bytes:
        """The whole message, with the inserted elements in their places."""
        if not self.insertions:
            return bytes(self)
        parts: list[bytes | bytearray] = []
        start = 0
        for at, elements in self.insertions:
            parts.append(self[start:at])
            parts += elements
            start = at
        parts.append(self[start:])
        return b"".join(parts)


class EncodedElements(list[Any]):
    """An array of structs whose elements are already encoded, each as it appears in the message."""

    def write_to(self, out: bytearray) -> None:
        if isinstance(out, Body):
            out.insertions.append((len(out), self))
        else:
            out += b"".join(self)


def _null(what: str) -> ProtocolError:
    return ProtocolError(f"{what} must not be null in this version")


def _too_long(what: str) -> ProtocolError:
    return ProtocolError(f"{what} is longer than {MAX_STRING_BYTES} bytes")


def _bad_uuid(what: str) -> ProtocolError:
    return ProtocolError(f"{what} is not sixteen bytes")


@cache
def encoder(struct_class: Any, version: int, flexible: bool) -> Encoder:
    """The compiled encode function of ``struct_class`` at ``version``."""
    source = PlanSource("def encode(m, out):")
    plain, tagged = plan_source.fields_at(struct_class, version)
    writer = _Writer(source, struct_class.__name__, version, flexible)
    for run in plan_source.split_runs(plain):
        if run[0].kind in FIXED_FORMATS:
            writer.write_run(run)
        else:
            writer.write_field(run[0], f"m.{run[0].name}")
    if flexible:
        writer.write_tags(tagged)
    source.line("return")
    compiled: Encoder = source.compile("encode", f"encode {struct_class.__name__} v{version}")
    return compiled


class _Writer:
    def __init__(self, source: PlanSource, struct_name: str, version: int, flexible: bool) -> None:
        self._source = source
        self._struct_name = struct_name
        self._version = version
        self._flexible = flexible

    def write_run(self, specs: list[FieldSpec]) -> None:
        """Neighbouring fixed-size fields, packed by one call."""
        for spec in specs:
            if spec.kind == "uuid":
                self._check_uuid(f"m.{spec.name}", self._label(spec))
        pack = self._source.bind("pack", struct.Struct(plan_source.run_format(specs)).pack)
        values = ", ".join(f"m.{spec.name}" for spec in specs)
        self._source.line(f"out += {pack}({values})")

    def write_field(self, spec: FieldSpec, expression: str) -> None:
        """A field that carries a length, a nested struct, or a single fixed field."""
        if spec.kind in FIXED_FORMATS:
            self._write_fixed(spec.kind, expression, self._label(spec))
            return
        source = self._source
        source.line(f"v = {expression}")
        null_allowed = self._version in spec.nullable
        with source.block("if v is None:"):
            if null_allowed:
                source.line(f"out += {self._null_bytes(spec.kind)!r}")
            else:
                source.line(f"raise {source.bind('null', _null)}({self._label(spec)!r})")
        with source.block("else:"):
            if spec.kind == "struct":
                if null_allowed:
                    source.line("out.append(1)")
                self._write_struct(spec.element, "v")
            elif spec.kind == "array":
                self._write_array(spec, "v")
            else:
                self._write_sized(spec.kind, "v", self._label(spec))

    def write_tags(self, specs: list[FieldSpec]) -> None:
        """The tagged section: those of ``specs`` that differ from their default."""
        source = self._source
        if not specs:
            source.line("out.append(0)")
            return
        source.line("tags = []")
        source.line("body = out")
        for spec in specs:
            with source.block(f"if {self._differs(spec)}:"):
                source.line("out = bytearray()")
                self.write_field(spec, f"m.{spec.name}")
                source.line(f"tags.append(({spec.tag}, out))")
        source.line("out = body")
        source.line(f"{source.bind('uvarint', write_uvarint)}(out, len(tags))")
        with source.block("for tag, value in tags:"):
            source.line(f"{source.bind('write_tag', write_tagged_field)}(out, tag, value)")

    def _label(self, spec: FieldSpec) -> str:
        return f"{self._struct_name}.{spec.name}"

    def _differs(self, spec: FieldSpec) -> str:
        factory = default_factory(spec)
        if factory is list:
            return f"m.{spec.name} is None or m.{spec.name}"
        if factory is not None:
            return f"m.{spec.name} != {self._source.bind('default', factory())}"
        if spec.default is None:
            return f"m.{spec.name} is not None"
        return f"m.{spec.name} != {spec.default!r}"

    def _null_bytes(self, kind: str) -> bytes:
        if kind == "struct":
            return b"\xff"
        if self._flexible:
            return b"\x00"
        return b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"

    def _check_uuid(self, expression: str, label: str) -> None:
        with self._source.block(f"if len({expression}) != 16:"):
            self._source.line(f"raise {self._source.bind('bad_uuid', _bad_uuid)}({label!r})")

    def _write_fixed(self, kind: str, expression: str, label: str) -> None:
        if kind == "uuid":
            self._check_uuid(expression, label)
            self._source.line(f"out += {expression}")
            return
        pack = self._source.bind("pack", struct.Struct(">" + FIXED_FORMATS[kind]).pack)
        self._source.line(f"out += {pack}({expression})")

    def _write_struct(self, struct_class: Any, expression: str) -> None:
        encode = self._source.bind("encode", encoder(struct_class, self._version, self._flexible))
        self._source.line(f"{encode}({expression}, out)")

    def _write_length(self, expression: str, *, short: bool = False) -> None:
        source = self._source
        if not self._flexible:
            pack = source.bind("pack", _pack_int16 if short else _pack_int32)
            source.line(f"out += {pack}({expression})")
            return
        source.line(f"n = {expression} + 1")
        with source.block("if n < 128:"):
            source.line("out.append(n)")
        with source.block("else:"):
            source.line(f"{source.bind('uvarint', write_uvarint)}(out, n)")

    def _write_sized(self, kind: str, expression: str, label: str) -> None:
        source = self._source
        if kind == "string":
            source.line(f"b = {expression}.encode()")
            with source.block(f"if len(b) > {MAX_STRING_BYTES}:"):
                source.line(f"raise {source.bind('too_long', _too_long)}({label!r})")
            expression = "b"
        self._write_length(f"len({expression})", short=kind == "string")
        source.line(f"out += {expression}")

    def _write_array(self, spec: FieldSpec, expression: str) -> None:
        source, element = self._source, spec.element
        self._write_length(f"len({expression})")
        if element == "uuid":
            source.line(f"out += {source.bind('join', _join)}({expression})")
            with source.block(f"for x in {expression}:"):
                self._check_uuid("x", self._label(spec))
        elif isinstance(element, str) and element in FIXED_FORMATS:
            pack = source.bind("pack_array", _pack_array)
            source.line(f"out += {pack}(f'>{{len({expression})}}{FIXED_FORMATS[element]}', *{expression})")
        elif isinstance(element, str):
            with source.block(f"for x in {expression}:"):
                self._write_sized(element, "x", self._label(spec))
        else:
            with source.block(f"if {expression}.__class__ is {source.bind('encoded', EncodedElements)}:"):
                source.line(f"{expression}.write_to(out)")
            with source.block("else:"), source.block(f"for x in {expression}:"):
                self._write_struct(element, "x")
