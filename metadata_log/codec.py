"""Metadata records in bytes: one msgpack array ``[type, version, field, …]`` per record.

Type numbers are Kafka's; those from 200 on are our own, for records that Kafka does not have. A record type
only grows: a new version appends fields, and old versions stay readable, with the new fields at their
defaults. The tests pin the bytes with golden fixtures, because logs outlive code. An unknown type or version
was written by newer code and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import msgpack

from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log import records as r
from pykraft.metadata_log.records import Record


class RecordFormatError(ValueError):
    """The bytes are not a record that this code can read."""


Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Spec:
    """The layout of one record type. ``field_counts[version]`` is the number of fields of that version.

    ``last_default``: while the newest field has this value, the record is written in the version before,
    which older code can read, too.
    """

    type_id: int
    record_class: type[Any]
    field_counts: tuple[int, ...]
    nested: dict[int, tuple[Convert, Convert]]
    get_fields: Callable[[Any], Any]
    last_default: Any

    @property
    def version(self) -> int:
        return len(self.field_counts) - 1


_ALWAYS_NEWEST: Final = object()


def _spec(
    type_id: int,
    record_class: type[Any],
    *field_counts: int,
    nested: dict[str, type[Any]] | None = None,
    last_default: Any = _ALWAYS_NEWEST,
) -> _Spec:
    names = [field.name for field in fields(record_class)]
    assert field_counts[-1] == len(names), f"{record_class.__name__}: a changed record needs a new version"
    converters = {names.index(name): _struct_list(cls) for name, cls in (nested or {}).items()}
    return _Spec(type_id, record_class, field_counts, converters, _getter(names), last_default)


def _getter(names: list[str]) -> Callable[[Any], Any]:
    if not names:
        return lambda _record: ()
    get: Callable[[Any], Any] = attrgetter(*names)
    return get if len(names) > 1 else lambda record: (get(record),)


def _struct_list(cls: type[Any]) -> tuple[Convert, Convert]:
    get = _getter([field.name for field in fields(cls)])

    def pack(items: Any) -> Any:
        return [get(item) for item in items]

    def unpack(rows: Any) -> Any:
        return tuple(cls(*row) for row in rows)

    return pack, unpack


_SPECS: Final = (
    _spec(
        0,
        r.RegisterBrokerRecord,
        *(9, 10, 11, 12, 13),
        nested={"endpoints": r.Endpoint, "features": r.FeatureRange},
        last_default=(),
    ),
    _spec(1, r.UnregisterBrokerRecord, 2),
    _spec(2, r.TopicRecord, 2),
    _spec(3, r.PartitionRecord, 11, 12, 13, last_default=()),
    _spec(4, r.ConfigRecord, 4),
    _spec(5, r.PartitionChangeRecord, 9, 10, 11, last_default=None),
    _spec(9, r.RemoveTopicRecord, 1),
    _spec(12, r.FeatureLevelRecord, 2),
    _spec(15, r.ProducerIdsRecord, 3),
    _spec(17, r.BrokerRegistrationChangeRecord, 4, 5, 6, last_default=None),
    _spec(20, r.NoOpRecord, 0),
    _spec(27, r.RegisterControllerRecord, 2, 3, nested={"features": r.FeatureRange, "endpoints": r.Endpoint}),
    _spec(200, r.SessionTimeoutRecord, 1),
)
_BY_TYPE: Final = {spec.type_id: spec for spec in _SPECS}
_BY_CLASS: Final = {spec.record_class: spec for spec in _SPECS}


def encode_record(record: Record) -> bytes:
    """The record in its newest version, or in an earlier one if the newer fields have their default."""
    spec = _BY_CLASS[type(record)]
    row = [spec.type_id, spec.version, *spec.get_fields(record)]
    while row[1] > 0 and row[-1] == spec.last_default:
        row[1] -= 1
        del row[-1]
    for index, (pack, _) in spec.nested.items():
        row[index + 2] = pack(row[index + 2])
    return msgpack.packb(row, use_bin_type=True)  # type: ignore[no-any-return]


def decode_record(data: bytes) -> Record:
    """The record in ``data``. Raises :class:`RecordFormatError` if it is newer than this code, or damaged."""
    try:
        row = msgpack.unpackb(data, use_list=False, raw=False)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise RecordFormatError(f"a metadata record is not msgpack: {error}") from error
    if not isinstance(row, tuple) or len(row) < 2 or not isinstance(row[0], int):
        raise RecordFormatError("a metadata record is not an array of type, version and fields")
    spec, version = _BY_TYPE.get(row[0]), row[1]
    if spec is None:
        raise RecordFormatError(f"metadata record type {row[0]!r} is unknown: the log is newer than the code")
    if not isinstance(version, int) or not 0 <= version <= spec.version:
        raise RecordFormatError(
            f"{spec.record_class.__name__} version {version!r} is unknown (this code reads up to "
            f"{spec.version}): the log is newer than the code"
        )
    if len(row) - 2 != spec.field_counts[version]:
        raise RecordFormatError(
            f"{spec.record_class.__name__} version {version} has {len(row) - 2} fields, "
            f"not {spec.field_counts[version]}"
        )
    return _build(spec, row[2:])


def _build(spec: _Spec, values: tuple[Any, ...]) -> Record:
    if not spec.nested:
        return spec.record_class(*values)  # type: ignore[no-any-return]
    row = list(values)
    try:
        for index, (_, unpack) in spec.nested.items():
            if index < len(row):
                row[index] = unpack(row[index])
    except TypeError as error:
        raise RecordFormatError(f"{spec.record_class.__name__} is damaged: {error}") from error
    return spec.record_class(*row)  # type: ignore[no-any-return]
