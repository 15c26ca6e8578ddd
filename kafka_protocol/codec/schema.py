"""Declarative messages: one class per message for all of its versions.

A message class is a table. Each line names a field, its type for the reader and for mypy, and on the right
the wire type with the versions in which it exists (see ``field_types``)::

    @message(3, versions="0-13", flexible="9+")
    class MetadataRequest(Message):
        topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
        allow_auto_topic_creation: bool = boolean("4+", default=True)

Class and field names are Kafka's, in snake case. Instances are plain mutable slotted objects with keyword
arguments and Kafka's defaults (``table_class``). Values are what the wire carries: sentinels such as -1 stay,
error codes are integers, ids are sixteen bytes. A field that the encoded version lacks is left out; a field
that the decoded version lacks has its default.

Functions for a (class, version) are compiled on first use and kept (``encode_plan``, ``decode_plan``). What
may be large is read and written in slices: by generators that yield after each (:mod:`.pace`).
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Callable, Generator
from sys import getrefcount
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, dataclass_transform

from pykraft.kafka_protocol.codec import pace
from pykraft.kafka_protocol.codec.decode_plan import Decoder, decoder, sliced_decoder
from pykraft.kafka_protocol.codec.encode_plan import (
    CHUNK_BYTES,
    Body,
    EncodedElements,
    EncodedRuns,
    Encoder,
    SlicedEncoder,
    encoder,
    sliced_encoder,
)
from pykraft.kafka_protocol.codec.field_types import (
    FieldSpec,
    VersionRange,
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uint16,
    uint32,
    uuid,
)
from pykraft.kafka_protocol.codec.pace import ItemCount
from pykraft.kafka_protocol.codec.table_class import table_class
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import Buffer, ProtocolError

__all__ = [
    "CHUNK_BYTES",
    "Body",
    "EncodedElements",
    "EncodedRuns",
    "Message",
    "ProtocolError",
    "Request",
    "message",
    "response_to",
    "struct",
    "array",
    "boolean",
    "byte_string",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "nested",
    "records",
    "string",
    "uint16",
    "uint32",
    "uuid",
]

NEVER_FLEXIBLE = 0x7FFF
NO_API_KEY = -1

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")


def _references_of_one(owner: list[object]) -> int:
    for item in owner:
        return getrefcount(item)
    raise AssertionError("it has one")


_ALONE: Final = _references_of_one([object()])
"""References to a value that only its owner has, as :func:`_release` sees them: 3 up to CPython 3.13."""


_HOLDERS: Final = ("array", "struct")
"""Kinds of fields that may hold very many elements."""


class Message:
    """The base of all requests, responses and versioned data structures."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    FIELDS: ClassVar[tuple[FieldSpec, ...]]
    _ENCODERS: ClassVar[dict[int, Encoder]]
    _SLICED_ENCODERS: ClassVar[dict[int, SlicedEncoder]]
    _DECODERS: ClassVar[dict[int, Decoder]]

    def encode(self, version: int) -> bytes:
        """The body at ``version``, without header. :class:`ProtocolError` if the version cannot carry it."""
        out = bytearray()
        self.encode_fields(self, version, out)
        return bytes(out)

    def encode_into(self, version: int, out: bytearray) -> None:
        """Append the body at ``version`` to ``out``."""
        self.encode_fields(self, version, out)

    @classmethod
    def encode_fields(cls, value: object, version: int, out: bytearray) -> None:
        """As :meth:`encode_into` for a ``value`` of any class that has the fields of this table."""
        encode = cls._ENCODERS.get(version)
        if encode is None:
            encode = cls._compile_encoder(version)
        try:
            encode(value, out)
        except (struct_module.error, UnicodeEncodeError) as error:
            raise ProtocolError(f"{cls.__name__} v{version} cannot be encoded: {error}") from error

    def encode_in_slices(self, version: int, out: Body) -> Generator[None, None, None]:
        """As :meth:`encode_into`, for what does not change meanwhile; yields after each slice.

        What cannot be encoded raises any exception.
        """
        encode = self._SLICED_ENCODERS.get(version)
        if encode is None:
            self._check_version(version)
            table: Any = type(self)
            encode = sliced_encoder(table, version, version >= self.FLEXIBLE_FROM)
            self._SLICED_ENCODERS[version] = encode
        return encode(self, out)

    @classmethod
    def encode_part(cls, part: object, version: int) -> bytes:
        """A struct of this message as encoded at ``version``: one element of :class:`EncodedElements`."""
        out = bytearray()
        table: Any = type(part)
        encoder(table, version, version >= cls.FLEXIBLE_FROM)(part, out)
        return bytes(out)

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Read a whole body. :class:`ProtocolError` for anything but exactly one well-formed message."""
        value, position = cls.decode_from(data, 0, version)
        if position != len(data):
            raise ProtocolError(f"{len(data) - position} bytes follow {cls.__name__} v{version}")
        return value

    @classmethod
    def decode_from(cls, data: Buffer, position: int, version: int) -> tuple[Self, int]:
        """Read a message that starts at ``position``: (message, position after it)."""
        decode = cls._DECODERS.get(version)
        if decode is None:
            decode = cls._compile_decoder(version)
        try:
            return decode(data, position, len(data))
        except (struct_module.error, IndexError, UnicodeDecodeError) as error:
            raise cls._undecodable(version, error) from None

    @classmethod
    def decode_in_slices(cls, data: bytes, version: int, max_items: int) -> Generator[None, None, Self]:
        """Read a message from the start of ``data``; yields after each slice. Bytes after it are ignored.

        :class:`~.pace.TooManyItemsError` if all its arrays together have more elements than ``max_items``.
        """
        cls._check_version(version)
        table: Any = cls
        decode = sliced_decoder(table, version, version >= cls.FLEXIBLE_FROM)
        try:
            value, _ = yield from decode(data, 0, len(data), ItemCount(max_items))
        except (struct_module.error, IndexError, UnicodeDecodeError) as error:
            raise cls._undecodable(version, error) from None
        decoded: Self = value
        return decoded

    def release(self) -> Generator[None, None, None]:
        """Let go of the elements of all arrays, in slices: nobody needs this message any more. An array, or
        an element, that somebody else has stays as it is.
        """
        count = 0
        for done in _release(self):
            count += done
            if count >= pace.FREED_AT_ONCE:
                yield
                count = 0

    @classmethod
    def _undecodable(cls, version: int, error: Exception) -> ProtocolError:
        if isinstance(error, UnicodeDecodeError):
            return ProtocolError(f"{cls.__name__} v{version} holds a string that is not UTF-8")
        return ProtocolError(f"truncated {cls.__name__} v{version}")

    @classmethod
    def _compile_encoder(cls, version: int) -> Encoder:
        cls._check_version(version)
        table: Any = cls
        compiled = encoder(table, version, version >= cls.FLEXIBLE_FROM)
        cls._ENCODERS[version] = compiled
        return compiled

    @classmethod
    def _compile_decoder(cls, version: int) -> Decoder:
        cls._check_version(version)
        table: Any = cls
        compiled = decoder(table, version, version >= cls.FLEXIBLE_FROM)
        cls._DECODERS[version] = compiled
        return compiled

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ProtocolError(
                f"{cls.__name__} has no version {version}, only {cls.MIN_VERSION} to {cls.MAX_VERSION}",
                ErrorCode.UNSUPPORTED_VERSION,
            )


class Request(Message, Generic[_M]):
    """A message that is answered: its class knows the class of its response (:func:`response_to`)."""

    __slots__ = ()

    RESPONSE: type[_M]


def _release(value: Any) -> Generator[int, None, None]:
    """Yields how many elements were looked at, or freed, since the last time."""
    for spec in value.FIELDS:
        inner = getattr(value, spec.name) if spec.kind in _HOLDERS else None
        if inner is None or getrefcount(inner) > _ALONE:
            continue
        if spec.kind == "struct":
            yield from _release(inner)
        elif type(inner) is list:
            if any(of_element.kind in _HOLDERS for of_element in getattr(spec.element, "FIELDS", ())):
                for item in inner:
                    yield 1
                    if getrefcount(item) <= _ALONE:
                        yield from _release(item)
            left = len(inner)
            for _ in pace.let_go(inner):
                yield left - len(inner)
                left = len(inner)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[_T]) -> type[_T]:
    """Class decorator: a struct nested in messages, read and written at the message's version."""
    return table_class(cls)


@dataclass_transform(kw_only_default=True)
def message(
    api_key: int = NO_API_KEY, *, versions: str, flexible: str = "none"
) -> Callable[[type[_M]], type[_M]]:
    """Class decorator: a message with the versions that exist and those that are flexible (KIP-482)."""
    existing, compact = VersionRange.parse(versions), VersionRange.parse(flexible)
    flexible_from = compact.lowest if compact.highest >= 0 else NEVER_FLEXIBLE
    return lambda cls: _make_message(cls, api_key, existing.lowest, existing.highest, flexible_from)


@dataclass_transform(kw_only_default=True)
def response_to(request: type[Request[_M]]) -> Callable[[type[_M]], type[_M]]:
    """Class decorator: the response to a request, in the request's versions."""
    table: Any = request

    def decorate(cls: type[_M]) -> type[_M]:
        table.RESPONSE = _make_message(
            cls, table.API_KEY, table.MIN_VERSION, table.MAX_VERSION, table.FLEXIBLE_FROM
        )
        made: type[_M] = table.RESPONSE
        return made

    return decorate


def _make_message(cls: type[_M], api_key: int, lowest: int, highest: int, flexible_from: int) -> type[_M]:
    result = table_class(cls)
    result.API_KEY = api_key
    result.MIN_VERSION = lowest
    result.MAX_VERSION = highest
    result.FLEXIBLE_FROM = flexible_from
    result._ENCODERS = {}
    result._SLICED_ENCODERS = {}
    result._DECODERS = {}
    return result
