"""Bytes of keys, values and headers as values that can be printed, under the names of Kafka's deserializers. Pure."""

from __future__ import annotations

import json
import struct
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from pykraft.node.cli.console.librdkafka_properties import class_name

Deserializer = Callable[[bytes], Any]
"""To what ``json`` can write, or bytes. :class:`ValueError` for bytes that are no such value."""

_SUFFIX: Final = "Deserializer"
_STRING: Final = "string"


def find_deserializer(name: str, settings: Mapping[str, str]) -> Deserializer:
    """``name`` is a class of Kafka's or a short name (``IntegerDeserializer``, ``integer``); ``settings`` are its
    own. :class:`ValueError` if there is none, or a setting is not known.
    """
    short = class_name(name).removesuffix(_SUFFIX).lower()
    found = _string(settings) if short == _STRING else _BY_NAME.get(short)
    if found is None:
        raise ValueError(f"there is no deserializer {name} here, only {', '.join([_STRING, *_BY_NAME])}")
    if settings and short != _STRING:
        raise ValueError(f"the deserializer {name} has no setting {', '.join(settings)}")
    return found


def printed(value: Any) -> bytes:
    """A deserialized value as text in UTF-8."""
    if isinstance(value, bytes):
        return value
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    ).encode()


def text_or_base64(data: bytes) -> object:
    """Bytes in JSON: text if they are UTF-8, else ``{"base64": …}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _string(settings: Mapping[str, str]) -> Deserializer:
    encoding = "utf-8"
    for name, value in settings.items():
        if name.rpartition(".")[2] != "encoding":
            raise ValueError(f"the deserializer of strings has no setting {name}")
        encoding = value.strip()
    try:
        b"?".decode(encoding, "replace")
    except LookupError:
        raise ValueError(f"there is no encoding {encoding!r}") from None
    return lambda data: data.decode(encoding, "replace")


def _escaped(data: bytes) -> str:
    """As Java's ``Bytes`` shows itself."""
    return "".join(chr(it) if 0x20 <= it <= 0x7E and it != 0x5C else f"\\x{it:02X}" for it in data)


def _fixed(layout: str) -> Deserializer:
    form = struct.Struct(f">{layout}")

    def read(data: bytes) -> Any:
        if len(data) != form.size:
            raise ValueError(f"{len(data)} bytes, not {form.size}")
        return form.unpack(data)[0]

    return read


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"{data[:8]!r} is not a boolean")
    return data == b"\1"


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _void(data: bytes) -> None:
    raise ValueError(f"{len(data)} bytes, not null")


_BY_NAME: Final[Mapping[str, Deserializer]] = {
    "bytearray": lambda data: data,
    "bytebuffer": lambda data: data,
    "bytes": _escaped,
    "short": _fixed("h"),
    "integer": _fixed("i"),
    "int": _fixed("i"),
    "long": _fixed("q"),
    "float": _fixed("f"),
    "double": _fixed("d"),
    "boolean": _boolean,
    "uuid": lambda data: str(uuid.UUID(data.decode())),
    "void": _void,
    "json": _json,
}
