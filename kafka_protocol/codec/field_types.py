"""The vocabulary of message tables: what a field is, in which versions it exists, and its default.

A message class reads as a table, one field a line, and serves every version (see ``schema``). The functions
below are the right-hand side of such a line. They are typed as the value a field holds, so that mypy checks
the table, but return a :class:`FieldSpec` that the ``struct`` and ``message`` decorators remove.

Version ranges are written as in Kafka's own tables: ``"0+"``, ``"4-7"``, ``"3"``. A field with a tag is
optional on the wire: it is written only when it differs from its default.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast

from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid

_NO_UPPER_BOUND = 0x7FFF

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""The kinds of fixed size, with their ``struct`` format. All others carry a length."""


class VersionRange(NamedTuple):
    """Versions ``lowest`` to ``highest``, both included; empty when ``lowest > highest``."""

    lowest: int
    highest: int

    @staticmethod
    @cache
    def parse(text: str) -> VersionRange:
        """Read ``"4+"``, ``"4-7"``, ``"4"`` or ``"none"``."""
        if text == "none":
            return VersionRange(0, -1)
        if text.endswith("+"):
            return VersionRange(int(text[:-1]), _NO_UPPER_BOUND)
        lowest, _, highest = text.partition("-")
        return VersionRange(int(lowest), int(highest or lowest))

    def __contains__(self, version: object) -> bool:
        assert isinstance(version, int)
        return self.lowest <= version <= self.highest


class FieldSpec(NamedTuple):
    """One line of a message table.

    ``kind`` is a name of :data:`FIXED_FORMATS` or ``string bytes records struct array``. ``element`` is the
    element of an array: a kind, or a struct class; for ``struct`` it is that class. ``name`` is filled in by
    the decorator. ``distinct``: the fields by which the elements of an array are told apart, none of which
    is kept twice; empty for elements without fields, None if all are kept.
    """

    kind: str
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    default: object
    element: str | type | None = None
    distinct: tuple[str, ...] | None = None
    name: str = ""


_DEFAULT_LISTS = object()
_DEFAULT_STRUCT = object()


def _spec(
    kind: str, versions: str, default: object, tag: int | None, nullable: str = "none", element: Any = None
) -> Any:
    return FieldSpec(kind, VersionRange.parse(versions), VersionRange.parse(nullable), tag, default, element)


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """A signed byte."""
    return cast(int, _spec("int8", versions, default, tag))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """A signed 16-bit integer."""
    return cast(int, _spec("int16", versions, default, tag))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """An unsigned 16-bit integer."""
    return cast(int, _spec("uint16", versions, default, tag))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """A signed 32-bit integer."""
    return cast(int, _spec("int32", versions, default, tag))


def uint32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """An unsigned 32-bit integer."""
    return cast(int, _spec("uint32", versions, default, tag))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """A signed 64-bit integer."""
    return cast(int, _spec("int64", versions, default, tag))


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> float:
    """A double."""
    return cast(float, _spec("float64", versions, default, tag))


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    """One byte, true unless zero."""
    return cast(bool, _spec("bool", versions, default, tag))


def uuid(versions: str = "0+", *, tag: int | None = None) -> Uuid:
    """Sixteen bytes; the zero id stands for none."""
    return cast(Uuid, _spec("uuid", versions, ZERO_UUID, tag))


def string(
    versions: str = "0+", *, nullable: str = "none", default: str | None = "", tag: int | None = None
) -> Any:
    """UTF-8 text of at most 32,767 bytes; null only in the ``nullable`` versions."""
    return _spec("string", versions, default, tag, nullable)


def byte_string(
    versions: str = "0+", *, nullable: str = "none", default: bytes | None = b"", tag: int | None = None
) -> Any:
    """Bytes, copied out of the frame when decoded."""
    return _spec("bytes", versions, default, tag, nullable)


def records(versions: str = "0+", *, nullable: str = "0+", tag: int | None = None) -> Any:
    """Record batches: a slice of the frame, not copied, when the frame is a ``memoryview``."""
    return _spec("records", versions, None, tag, nullable)


def nested(
    struct_class: type, versions: str = "0+", *, nullable: str = "none", tag: int | None = None
) -> Any:
    """One nested struct. Its default is null where it is nullable, else a struct of defaults."""
    default = None if nullable != "none" else _DEFAULT_STRUCT
    return _spec("struct", versions, default, tag, nullable, struct_class)


def array(
    element: str | type,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default_null: bool = False,
    tag: int | None = None,
    distinct: bool | tuple[str, ...] = False,
) -> Any:
    """A list of structs (a class) or of a kind (its name, as in ``array("int32")``).

    ``distinct``: the list is a set, and what is named twice is decoded once. Structs are told apart by the
    fields that are given.
    """
    default = None if default_null else _DEFAULT_LISTS
    spec = _spec("array", versions, default, tag, nullable, element)
    if distinct is False:
        return spec
    assert isinstance(distinct, tuple) is isinstance(element, type), "structs, and only they, have fields"
    return spec._replace(distinct=distinct if isinstance(distinct, tuple) else ())


def default_factory(spec: FieldSpec) -> Any:
    """The callable that makes the field's default, or None when the default is an immutable value."""
    if spec.default is _DEFAULT_LISTS:
        return list
    if spec.default is _DEFAULT_STRUCT:
        return spec.element
    return None
