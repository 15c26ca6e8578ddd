"""Batches and records as ``pykraft dump-log`` prints them: the lines of kafka-dump-log, or objects.

What is in a record is told by a decoder: text, or the records of the metadata, of groups or of transactions.
Those have the names that their fields have here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pykraft.group_coordinator.state.codec import decode_record as decode_group_record
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.markers import ABORT, Marker
from pykraft.kafka_protocol.record_codec import Record
from pykraft.kafka_protocol.records import NO_SEQUENCE, BatchHeader
from pykraft.log_store.dump import FoundBatch
from pykraft.metadata_log.record_json import record_to_json, value_to_json
from pykraft.node.cli.shared.common import compact_json
from pykraft.quorum.control_json import control_to_json
from pykraft.quorum.control_records import ControlType
from pykraft.transaction_coordinator.log.codec import decode_record as decode_transaction_record

_DELETED: Final = "<DELETE>"
_SEQUENCE_MASK: Final = 0x7FFFFFFF

_CONTROLS: Final = {
    ControlType.LEADER_CHANGE.name: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER.name: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER.name: "SnapshotFooter",
    ControlType.KRAFT_VERSION.name: "KRaftVersion",
    ControlType.KRAFT_VOTERS.name: "KRaftVoters",
}


class Decoded(NamedTuple):
    """A record: its key and its payload as text, None if it has none, and the same as an object."""

    key: str | None
    payload: str | None
    as_object: Mapping[str, Any]

    def __str__(self) -> str:
        parts = {"key": self.key, "payload": self.payload}
        return " ".join(f"{name}: {text}" for name, text in parts.items() if text is not None)


Decoder = Callable[[Record], Decoded]


def decode_text(record: Record) -> Decoded:
    key, value = _text(record.key), _text(record.value)
    return Decoded(key, value, {"key": key, "value": value})


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def decode_metadata(record: Record) -> Decoded:
    found = record_to_json(record.value or b"")
    return Decoded(None, compact_json(found), found)


def decode_group(record: Record) -> Decoded:
    found = decode_group_record(record.key or b"", record.value)
    if found is None:
        return decode_text(record)
    kind, key = type(found.key).__name__, value_to_json(found.key)
    value = None if found.value is None else value_to_json(found.value)
    return _keyed(kind, key, value)


def decode_transaction(record: Record) -> Decoded:
    found = decode_transaction_record(record.key or b"", record.value)
    if found is None:
        return decode_text(record)
    value = None
    if found.value is not None:
        value = value_to_json(found.value) | {"state": found.value.state.label}
    return _keyed("TransactionMetadata", {"transactionalId": found.transactional_id}, value)


def _keyed(kind: str, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Decoded:
    payload = _DELETED if value is None else compact_json(value)
    shown = {"type": kind, "key": key, "value": value}
    return Decoded(compact_json({"type": kind, "data": key}), payload, shown)


def decode(decoder: Decoder, header: BatchHeader, record: Record) -> Decoded:
    """The record; one that cannot be decoded says why, and shows its bytes."""
    try:
        if header.is_control:
            return Decoded(None, None, control_to_json(record.key, record.value))
        return decoder(record)
    except (ValueError, KafkaError) as error:
        reason = f"Error at offset {record.offset}, skipping. {error}"
        return Decoded(None, reason, {"error": str(error), "hex": (record.value or b"").hex()})


def batch_line(found: FoundBatch) -> str:
    header = found.header
    horizon_ms = header.delete_horizon_ms
    horizon = "OptionalLong.empty" if horizon_ms is None else f"OptionalLong[{horizon_ms}]"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)}"
        f" deleteHorizonMs: {horizon}"
        f" position: {found.position} {_time_of(header)}: {header.max_timestamp} size: {header.size_bytes}"
        f" magic: {header.magic} compresscodec: {_codec(header)} crc: {header.crc}"
        f" isvalid: {_flag(found.is_valid)}"
    )


def record_line(header: BatchHeader, record: Record, marker: Marker | None) -> str:
    """Describe a record without its content; a control record with it."""
    sequence = NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & _SEQUENCE_MASK
    key_bytes, value_bytes = (-1 if data is None else len(data) for data in (record.key, record.value))
    control = f" {_control(record, marker)}" if header.is_control else ""
    return (
        f"| offset: {record.offset} {_time_of(header)}: {record.timestamp_ms} keySize: {key_bytes}"
        f" valueSize: {value_bytes} sequence: {sequence}"
        f" headerKeys: [{','.join(name for name, _ in record.headers)}]{control}"
    )


def _control(record: Record, marker: Marker | None) -> str:
    if marker is not None and marker.ends_transaction:
        kind = "ABORT" if marker.kind == ABORT else "COMMIT"
        return f"endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    found = control_to_json(record.key, record.value)
    return f"{_CONTROLS.get(found['type'], found['type'])} {compact_json(found['data'])}"


def _time_of(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except (ValueError, KafkaError):
        return "unknown"
