"""Every message, every version, both ways, against an independent codec."""

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta, i64Timedelta
from kio.static.protocol import Entity

from pykraft.kafka_protocol.codec.schema import Message
from tests.kafka_protocol.values import Generator, Table, nested_table
from tests.narrowing import as_type

E = TypeVar("E", bound=Entity)
Field: TypeAlias = "dataclasses.Field[object]"
EXAMPLES = 8
UNSTABLE = {"InitProducerIdRequest", "InitProducerIdResponse"}
"""Kafka does not yet call their newest version stable: it is not served and has no table here."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_class(message_class: type[Message], version: int) -> type[Entity]:
    name = message_class.__name__
    if message_class.API_KEY < 0:
        module = f"{_snake(name)}.v{version}.data"
    else:
        part = "request" if name.endswith("Request") else "response"
        module = f"{_snake(name.removesuffix('Request').removesuffix('Response'))}.v{version}.{part}"
    return cast(type[Entity], getattr(importlib.import_module(f"kio.schema.{module}"), name))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def to_kio(value: Table, kio_type: type[E]) -> E:
    """The same message as kio's entity; the two represent times, ids and error codes differently."""
    ours = {spec.name for spec in type(value).FIELDS}
    arguments = {}
    for field in dataclasses.fields(kio_type):
        name = field.name if field.name in ours else f"{field.name}_ms"
        arguments[field.name] = _convert(getattr(value, name), field)
    make: Callable[..., E] = kio_type
    return make(**arguments)


def _convert(value: object, field: Field) -> object:
    if value is None:
        return None
    nested = _nested_type(field.type)
    if isinstance(value, list):
        return tuple(_convert_one(item, field, nested) for item in value)
    return _convert_one(value, field, nested)


def _convert_one(value: object, field: Field, nested: type[Entity] | None) -> object:
    if nested is not None:
        return to_kio(cast(Table, value), nested)
    match field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(as_type(value, int))
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=as_type(value, bytes))
        case "timedelta_i32":
            return i32Timedelta.parse(datetime.timedelta(milliseconds=as_type(value, int)))
        case "timedelta_i64":
            return i64Timedelta.parse(datetime.timedelta(milliseconds=as_type(value, int)))
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=as_type(value, int))
        case _:
            return value


def _nested_type(annotation: object) -> type[Entity] | None:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return cast(type[Entity], annotation)
    for argument in getattr(annotation, "__args__", ()):
        if found := _nested_type(argument):
            return found
    return None


def kio_bytes(entity: Entity) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def test_message_agrees_with_kio_both_ways(message_class: type[Message], version: int) -> None:
    kio_type = kio_class(message_class, version)
    read = entity_reader(kio_type)
    for example in range(EXAMPLES):
        make = Generator(f"{message_class.__name__}/{version}/{example}")
        ours = make.message(message_class, version)
        theirs = to_kio(ours, kio_type)

        encoded = ours.encode(version)
        decoded, size = read(encoded, 0)
        assert size == len(encoded)
        assert decoded == theirs

        their_bytes = kio_bytes(theirs)
        assert their_bytes == encoded
        assert message_class.decode(their_bytes, version) == ours


def test_version_range_is_kios(message_class: type[Message]) -> None:
    for version in (message_class.MIN_VERSION, message_class.MAX_VERSION):
        kio_type = kio_class(message_class, version)
        assert kio_type.__flexible__ is (version >= message_class.FLEXIBLE_FROM)
    newest = message_class.MAX_VERSION + (message_class.__name__ in UNSTABLE)
    for version in (message_class.MIN_VERSION - 1, newest + 1):
        with pytest.raises(ModuleNotFoundError):
            kio_class(message_class, version)


def test_defaults_are_kios(message_class: type[Message], version: int) -> None:
    check_defaults(message_class, kio_class(message_class, version))


def check_defaults(ours: type[Table], kio_type: type[Entity]) -> None:
    value = ours()
    specs = {spec.name: spec for spec in ours.FIELDS}
    for field in dataclasses.fields(kio_type):
        name = field.name if field.name in specs else f"{field.name}_ms"
        if field.default is not dataclasses.MISSING:
            assert _convert(getattr(value, name), field) == field.default, f"{ours.__name__}.{name}"
        if nested := _nested_type(field.type):
            check_defaults(nested_table(specs[name]), nested)


def test_nullable_fields_are_kios(message_class: type[Message], version: int) -> None:
    check_nullability(message_class, kio_class(message_class, version), version)


def check_nullability(ours: type[Table], kio_type: type[Entity], version: int) -> None:
    specs = {spec.name: spec for spec in ours.FIELDS}
    for field in dataclasses.fields(kio_type):
        name = field.name if field.name in specs else f"{field.name}_ms"
        if field.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):  # their None is our sentinel
            nullable = type(None) in getattr(field.type, "__args__", ())
            assert (version in specs[name].nullable) is nullable, f"{ours.__name__}.{name}"
        if nested := _nested_type(field.type):
            check_nullability(nested_table(specs[name]), nested, version)
