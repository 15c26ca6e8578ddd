"""Compiling the decode function of one struct at one version: ``decode(buffer, position, end)``.

``end`` is the length of the whole buffer. Reading past it raises ``struct.error`` or ``IndexError``, which
the caller in ``schema`` converts; slices would silently be shortened, so every length is checked before the
slice, and every count before the list.

The same plan makes a second function for messages that may be large: ``decode(buffer, position, end, count)``
is a generator that counts the elements of all arrays before it makes objects of them, and yields after each
:data:`~pykraft.kafka_protocol.codec.pace.SLICE_BYTES` of one. Structs without an array are read by the first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

from pykraft.kafka_protocol.codec import plan_source
from pykraft.kafka_protocol.codec.field_types import FIXED_FORMATS, FieldSpec
from pykraft.kafka_protocol.codec.pace import SLICE_BYTES, ItemCount, forget
from pykraft.kafka_protocol.codec.plan_source import PlanSource
from pykraft.kafka_protocol.codec.tagged import check_tag_size, read_tag, read_tag_count, skip_tagged_fields
from pykraft.kafka_protocol.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    ProtocolError,
    read_uvarint_tail,
    truncated,
)

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
SlicedDecoder = Callable[[Buffer, int, int, ItemCount], Generator[None, None, tuple[Any, int]]]

_unpack_array = struct.unpack_from
_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from


def _null(what: str) -> ProtocolError:
    return ProtocolError(f"{what} must not be null in this version")


@cache
def decoder(struct_class: Any, version: int, flexible: bool) -> Decoder:
    """The compiled decode function of ``struct_class`` at ``version``."""
    compiled: Decoder = _compile(struct_class, version, flexible, sliced=False)
    return compiled


@cache
def sliced_decoder(struct_class: Any, version: int, flexible: bool) -> SlicedDecoder:
    """As :func:`decoder`, for what may be large."""
    compiled: SlicedDecoder = _compile(struct_class, version, flexible, sliced=True)
    return compiled


def _compile(struct_class: Any, version: int, flexible: bool, *, sliced: bool) -> Any:
    source = PlanSource(f"def decode(buffer, position, end{', count' if sliced else ''}):")
    if sliced:
        source.line("if False: yield")
    reader = _Reader(source, struct_class.__name__, version, flexible, sliced)
    new = source.bind("allocate", struct_class.__new__)
    source.line(f"m = {new}({source.bind('cls', struct_class)})")
    plain, tagged = plan_source.fields_at(struct_class, version)
    for run in plan_source.split_runs(plain):
        if run[0].kind in FIXED_FORMATS:
            reader.read_run(run)
        else:
            reader.read_field(run[0], f"m.{run[0].name}")
    for spec in struct_class.FIELDS:
        if spec not in plain:
            source.line(f"m.{spec.name} = {plan_source.default_expression(source, spec)}")
    if flexible:
        reader.read_tags(tagged)
    source.line("return m, position")
    return source.compile(
        "decode", f"decode {struct_class.__name__} v{version}{' in slices' if sliced else ''}"
    )


class _Reader:
    def __init__(
        self, source: PlanSource, struct_name: str, version: int, flexible: bool, sliced: bool
    ) -> None:
        self._source = source
        self._struct_name = struct_name
        self._version = version
        self._flexible = flexible
        self._sliced = sliced

    def read_run(self, specs: list[FieldSpec]) -> None:
        """Neighbouring fixed-size fields, unpacked by one call."""
        packed = struct.Struct(plan_source.run_format(specs))
        targets = ", ".join(f"m.{spec.name}" for spec in specs)
        unpack = self._source.bind("unpack", packed.unpack_from)
        self._source.line(f"{targets}, = {unpack}(buffer, position)")
        self._source.line(f"position += {packed.size}")

    def read_field(self, spec: FieldSpec, target: str) -> None:
        """A field that carries a length, a nested struct, or a single fixed field."""
        if spec.kind in FIXED_FORMATS:
            self.read_run([spec])
        elif spec.kind == "struct":
            self._read_nested(spec, target)
        else:
            label = f"{self._struct_name}.{spec.name}"
            self._read_length(spec.kind)
            with self._source.block("if n < 0:"):
                self._read_null(spec, target, label)
            with self._source.block("else:"):
                if spec.kind == "array":
                    self._read_array(spec, target, label)
                else:
                    self._read_sized(spec.kind, target, label)

    def read_tags(self, specs: list[FieldSpec]) -> None:
        """The tagged section: known tags into their fields, unknown ones skipped."""
        source = self._source
        with source.block("if position < end and buffer[position] == 0:"):
            source.line("position += 1")
        with source.block("else:"):
            if not specs:
                source.line(f"position = {source.bind('skip', skip_tagged_fields)}(buffer, position, end)")
                return
            source.line(f"tags, position = {source.bind('tag_count', read_tag_count)}(buffer, position, end)")
            with source.block("for _ in range(tags):"):
                source.line(f"tag, position, stop = {source.bind('tag', read_tag)}(buffer, position, end)")
                for spec in specs:
                    with source.block(f"if tag == {spec.tag}:"):
                        self.read_field(spec, f"m.{spec.name}")
                        source.line(f"{source.bind('check', check_tag_size)}(tag, position, stop)")
                source.line("position = stop")

    def _read_null(self, spec: FieldSpec, target: str, label: str) -> None:
        source = self._source
        if self._version in spec.nullable:
            if not self._flexible:
                with source.block("if n != -1:"):
                    source.line(f"raise {source.bind('truncated', truncated)}({label!r})")
            if self._sliced and spec.kind == "array":
                source.line("count.add(0)")
            source.line(f"{target} = None")
        else:
            source.line(f"raise {source.bind('null', _null)}({label!r})")

    def _read_length(self, kind: str) -> None:
        """Store the length or count in ``n``; null is -1."""
        source = self._source
        if not self._flexible:
            unpack = source.bind("unpack", _unpack_int16 if kind == "string" else _unpack_int32)
            source.line(f"n, = {unpack}(buffer, position)")
            source.line(f"position += {2 if kind == 'string' else 4}")
            return
        source.line("n = buffer[position] - 1")
        source.line("position += 1")
        with source.block("if n > 126:"):
            source.line(f"n, position = {source.bind('uvarint', read_uvarint_tail)}(buffer, position, n + 1)")
            source.line("n -= 1")

    def _read_sized(self, kind: str, target: str, label: str) -> None:
        """``n`` bytes as ``kind``; ``n`` is known not to be negative."""
        source = self._source
        source.line("last = position + n")
        too_long = f" or n > {MAX_STRING_BYTES}" if kind == "string" and self._flexible else ""
        with source.block(f"if last > end{too_long}:"):
            source.line(f"raise {source.bind('truncated', truncated)}({label!r})")
        match kind:
            case "string":
                source.line(f"{target} = str(buffer[position:last], 'utf-8')")
            case "bytes":
                source.line(f"{target} = bytes(buffer[position:last])")
            case _:
                source.line(f"{target} = buffer[position:last]")
        source.line("position = last")

    def _read_nested(self, spec: FieldSpec, target: str) -> None:
        source = self._source
        if self._version not in spec.nullable:
            source.line(f"{target}, position = {self._decode_call(spec.element)}")
            return
        source.line("marker = buffer[position]")
        source.line("position += 1")
        with source.block("if marker > 127:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            source.line(f"{target}, position = {self._decode_call(spec.element)}")

    def _decode_call(self, struct_class: Any) -> str:
        if self._sliced and plan_source.has_arrays(struct_class, self._version):
            decode = self._source.bind("decode", sliced_decoder(struct_class, self._version, self._flexible))
            return f"yield from {decode}(buffer, position, end, count)"
        decode = self._source.bind("decode", decoder(struct_class, self._version, self._flexible))
        return f"{decode}(buffer, position, end)"

    def _read_array(self, spec: FieldSpec, target: str, label: str) -> None:
        source, element = self._source, spec.element
        assert element is not None
        size = plan_source.min_bytes(element, self._version, self._flexible)
        with source.block(f"if n > (end - position) // {size}:"):
            source.line(f"raise {source.bind('truncated', truncated)}({label!r})")
        if self._sliced:
            source.line("count.add(n)")
        is_fixed = isinstance(element, str) and element in FIXED_FORMATS
        if element == "uuid":
            read = f"[bytes(buffer[p : p + 16]) for p in range(position, position + {size} * n, {size})]"
        elif is_fixed:
            unpack = source.bind("unpack_array", _unpack_array)
            read = f"{unpack}(f'>{{n}}{FIXED_FORMATS[str(element)]}', buffer, position)"
        if is_fixed:
            source.line(f"{target} = list({read if spec.distinct is None else f'dict.fromkeys({read})'})")
            source.line(f"position += {size} * n")
        else:
            self._read_elements(spec, target, label)

    def _read_elements(self, spec: FieldSpec, target: str, label: str) -> None:
        source, element = self._source, spec.element
        assert element is not None
        source.line(f"items = {target} = []")
        if spec.distinct is not None:
            source.line("seen = set()")
        if self._sliced:
            source.line(f"pause_at = position + {SLICE_BYTES}")
        with source.block("for _ in range(n):"):
            if self._sliced:
                with source.block("if position >= pause_at:"):
                    source.line("yield")
                    source.line(f"pause_at = position + {SLICE_BYTES}")
            if isinstance(element, str):
                self._read_length(element)
                with source.block("if n < 0:"):
                    source.line(f"raise {source.bind('null', _null)}({label!r})")
                self._read_sized(element, "x", label)
            else:
                source.line(f"x, position = {self._decode_call(element)}")
            if spec.distinct is None:
                source.line("items.append(x)")
            else:
                key = f"({', '.join(f'x.{name}' for name in spec.distinct)},)" if spec.distinct else "x"
                source.line(f"key = {key}")
                with source.block("if key not in seen:"):
                    source.line("seen.add(key)")
                    source.line("items.append(x)")
        if self._sliced and spec.distinct is not None:
            source.line(f"yield from {source.bind('forget', forget)}(seen)")
