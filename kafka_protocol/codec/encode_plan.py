"""Compiling the encode function of one struct at one version: ``encode(value, out: bytearray)``.

A value of a shape that the version cannot carry (null where null is not allowed, a string too long) raises
:class:`ProtocolError`; an integer out of range surfaces as ``struct.error`` and is converted by the caller in
``schema``. Fields that the version does not have are silently left out.

The same plan makes a second function for messages that may be large: a generator that yields after each
:data:`~pykraft.kafka_protocol.codec.pace.SLICE_BYTES` of an array. Structs without one are written by the
first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pykraft.kafka_protocol.codec import plan_source
from pykraft.kafka_protocol.codec.field_types import FIXED_FORMATS, FieldSpec, default_factory
from pykraft.kafka_protocol.codec.pace import SLICE_BYTES
from pykraft.kafka_protocol.codec.plan_source import PlanSource
from pykraft.kafka_protocol.codec.tagged import write_tagged_field
from pykraft.kafka_protocol.primitives import MAX_STRING_BYTES, Buffer, ProtocolError, write_uvarint
from pykraft.runtime.network.streams import Chunk, Pieces

Encoder = Callable[[Any, bytearray], None]
SlicedEncoder = Callable[[Any, bytearray], Generator[None, None, None]]

_pack_array = struct.pack
_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_join = b"".join

CHUNK_BYTES = 64 << 10
"""The size of a chunk of a message that is not joined."""
_MIN_PIECE_BYTES = 128
_PARTS_PER_SLICE = 1_000


class Body(bytearray):
    """A buffer for a whole message. Elements that are already encoded are inserted at the end."""

    __slots__ = ("_insertions",)

    _insertions: list[tuple[int, EncodedElements]]

    @property
    def insertions(self) -> list[tuple[int, EncodedElements]]:
        """(place, elements), in order."""
        try:
            return self._insertions
        except AttributeError:  # it is made for every answer, so it is made by C
            made: list[tuple[int, EncodedElements]] = []
            self._insertions = made
            return made

    def add_encoded(self, encoded: bytes) -> None:
        """Add what is encoded already."""
        self.insertions.append((len(self), EncodedElements([encoded])))

    @property
    def size_bytes(self) -> int:
        """With the inserted elements."""
        return len(self) + sum(sum(map(len, elements)) for _, elements in self.insertions)

    def to_bytes(self) -> bytes:
        """The whole message, with the inserted elements in their places."""
        return b"".join(self._parts()) if self.insertions else bytes(self)

    def in_chunks(self) -> Generator[None, None, list[Chunk]]:
        """As :meth:`to_bytes`, but a long message is not joined; yields after each slice.

        Nothing may be changed any more.
        """
        chunks: list[Chunk] = []
        pieces: list[Buffer] = []
        size_bytes = 0
        for number, part in enumerate(self._parts()):
            pieces.append(part)
            size_bytes += len(part)
            if size_bytes >= CHUNK_BYTES:
                # Large pieces may be shared by many answers; small ones take longer to send than to copy.
                is_large = size_bytes >= len(pieces) * _MIN_PIECE_BYTES
                chunks.append(Pieces(pieces, size_bytes) if is_large else b"".join(pieces))
                pieces, size_bytes = [], 0
            if number % _PARTS_PER_SLICE == 0:
                yield
        chunks.append(b"".join(pieces))
        return chunks

    def _parts(self) -> Iterator[Buffer]:
        view, start = memoryview(self), 0
        for at, elements in self.insertions:
            yield view[start:at]
            yield from elements
            start = at
        yield view[start:]


class EncodedElements(list[Any]):
    """An array of structs whose elements are already encoded, each as it appears in the message."""

    __slots__ = ()

    @property
    def length(self) -> int:
        """How many elements the array has."""
        return len(self)

    def write_to(self, out: bytearray) -> None:
        if isinstance(out, Body):
            out.insertions.append((len(out), self))
        else:
            out += b"".join(self)


class EncodedRuns(EncodedElements):
    """As :class:`EncodedElements`, in pieces that may hold several elements."""

    __slots__ = ("_length",)

    def __init__(self, pieces: Iterable[bytes], length: int) -> None:
        super().__init__(pieces)
        self._length = length

    @property
    def length(self) -> int:
        return self._length


def _null(what: str) -> ProtocolError:
    return ProtocolError(f"{what} must not be null in this version")


def _too_long(what: str) -> ProtocolError:
    return ProtocolError(f"{what} is longer than {MAX_STRING_BYTES} bytes")


def _bad_uuid(what: str) -> ProtocolError:
    return ProtocolError(f"{what} is not sixteen bytes")


@cache
def encoder(struct_class: Any, version: int, flexible: bool) -> Encoder:
    """The compiled encode function of ``struct_class`` at ``version``."""
    compiled: Encoder = _compile(struct_class, version, flexible, sliced=False)
    return compiled


@cache
def sliced_encoder(struct_class: Any, version: int, flexible: bool) -> SlicedEncoder:
    """As :func:`encoder`, for what may be large."""
    compiled: SlicedEncoder = _compile(struct_class, version, flexible, sliced=True)
    return compiled


def _compile(struct_class: Any, version: int, flexible: bool, *, sliced: bool) -> Any:
    source = PlanSource("def encode(m, out):")
    if sliced:
        source.line("if False: yield")
    plain, tagged = plan_source.fields_at(struct_class, version)
    writer = _Writer(source, struct_class.__name__, version, flexible, sliced)
    for run in plan_source.split_runs(plain):
        if run[0].kind in FIXED_FORMATS:
            writer.write_run(run)
        else:
            writer.write_field(run[0], f"m.{run[0].name}")
    if flexible:
        writer.write_tags(tagged)
    source.line("return")
    return source.compile(
        "encode", f"encode {struct_class.__name__} v{version}{' in slices' if sliced else ''}"
    )


class _Writer:
    def __init__(
        self, source: PlanSource, struct_name: str, version: int, flexible: bool, sliced: bool
    ) -> None:
        self._source = source
        self._struct_name = struct_name
        self._version = version
        self._flexible = flexible
        self._sliced = sliced

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
        if self._sliced and plan_source.has_arrays(struct_class, self._version):
            encode = self._source.bind("encode", sliced_encoder(struct_class, self._version, self._flexible))
            self._source.line(f"yield from {encode}({expression}, out)")
            return
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
        if isinstance(element, type):
            self._write_structs(element, expression)
            return
        self._write_length(f"len({expression})")
        if element == "uuid":
            source.line(f"out += {source.bind('join', _join)}({expression})")
            with source.block(f"for x in {expression}:"):
                self._check_uuid("x", self._label(spec))
        elif isinstance(element, str) and element in FIXED_FORMATS:
            pack = source.bind("pack_array", _pack_array)
            source.line(f"out += {pack}(f'>{{len({expression})}}{FIXED_FORMATS[element]}', *{expression})")
        else:
            assert element is not None
            with self._each(expression):
                self._write_sized(element, "x", self._label(spec))

    def _write_structs(self, element: type, expression: str) -> None:
        source = self._source
        with source.block(f"if isinstance({expression}, {source.bind('encoded', EncodedElements)}):"):
            self._write_length(f"{expression}.length")
            source.line(f"{expression}.write_to(out)")
        with source.block("else:"):
            self._write_length(f"len({expression})")
            with self._each(expression):
                self._write_struct(element, "x")

    @contextmanager
    def _each(self, expression: str) -> Iterator[None]:
        source = self._source
        if self._sliced:
            source.line(f"pause_at = len(out) + {SLICE_BYTES}")
        with source.block(f"for x in {expression}:"):
            if self._sliced:
                with source.block("if len(out) >= pause_at:"):
                    source.line("yield")
                    source.line(f"pause_at = len(out) + {SLICE_BYTES}")
            yield
