"""Records of coordinators as JSON: the formatters of ``__consumer_offsets`` and ``__transaction_state``. Pure.

Names of fields, and which of them a version has, are Kafka's; a field with a tag is left out where it has its
default. What a formatter is not for prints nothing, and so does a record whose type is not known. Kafka's
formatters write objects without anything between; here each has a line.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from pykraft.group_coordinator.state.record_tables import (
    ClassicMember,
    GroupKey,
    GroupMetadata,
    OffsetCommit,
    OffsetKey,
)
from pykraft.kafka_protocol.codec.field_types import FieldSpec
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.codec.versioned import VERSION_BYTES, decode_versioned, read_version
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.node.cli.console.consumed_record import ConsumedRecord, UnprintableError
from pykraft.transaction_coordinator.log.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_Tables = Mapping[int, tuple[type[Message], type[Message]]]
"""The tables of keys and values, by the type of the record."""

_OFFSETS: Final[_Tables] = {0: (OffsetKey, OffsetCommit), 1: (OffsetKey, OffsetCommit)}
_GROUP_METADATA: Final[_Tables] = {2: (GroupKey, GroupMetadata)}
_TRANSACTIONS: Final[_Tables] = {0: (TransactionLogKey, TransactionLogValue)}

_FIELDS: Final[Mapping[type, Mapping[str, str]]] = {
    OffsetKey: {"group": "group_id", "topic": "topic", "partition": "partition"},
    OffsetCommit: {
        "offset": "offset",
        "leaderEpoch": "leader_epoch",
        "metadata": "metadata",
        "commitTimestamp": "commit_timestamp_ms",
        "expireTimestamp": "expire_timestamp_ms",
        "topicId": "topic_id",
    },
    GroupKey: {"group": "group_id"},
    GroupMetadata: {
        "protocolType": "protocol_type",
        "generation": "generation",
        "protocol": "protocol",
        "leader": "leader",
        "currentStateTimestamp": "current_state_timestamp_ms",
        "members": "members",
    },
    ClassicMember: {
        "memberId": "member_id",
        "groupInstanceId": "group_instance_id",
        "clientId": "client_id",
        "clientHost": "client_host",
        "rebalanceTimeout": "rebalance_timeout_ms",
        "sessionTimeout": "session_timeout_ms",
        "subscription": "subscription",
        "assignment": "assignment",
    },
    TransactionLogKey: {"transactionalId": "transactional_id"},
    TransactionLogValue: {
        "producerId": "producer_id",
        "previousProducerId": "previous_producer_id",
        "nextProducerId": "next_producer_id",
        "producerEpoch": "producer_epoch",
        "nextProducerEpoch": "next_producer_epoch",
        "transactionTimeoutMs": "transaction_timeout_ms",
        "transactionStatus": "transaction_status",
        "transactionPartitions": "transaction_partitions",
        "transactionLastUpdateTimestampMs": "transaction_last_update_timestamp_ms",
        "transactionStartTimestampMs": "transaction_start_timestamp_ms",
        "clientTransactionVersion": "client_transaction_version",
    },
    PartitionsSchema: {"topic": "topic", "partitionIds": "partition_ids"},
}
"""By Kafka's name, the field of our table; in Kafka's order."""


def offsets(record: ConsumedRecord) -> bytes:
    """Committed offsets."""
    return _line(record, _OFFSETS)


def group_metadata(record: ConsumedRecord) -> bytes:
    """Groups of the classic protocol."""
    return _line(record, _GROUP_METADATA)


def transaction_log(record: ConsumedRecord) -> bytes:
    return _line(record, _TRANSACTIONS)


def _line(record: ConsumedRecord, tables: _Tables) -> bytes:
    if record.key is None:
        return b""
    try:
        shown = _shown(record.key, record.value, tables)
    except ProtocolError as error:
        raise UnprintableError(f"Could not read record at offset {record.offset} due to: {error}") from None
    return (
        b""
        if shown is None
        else json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    )


def _shown(key: bytes, value: bytes | None, tables: _Tables) -> dict[str, Any] | None:
    kind = read_version(key)
    if kind not in tables:
        return None
    of_key, of_value = tables[kind]
    shown: dict[str, Any] = {
        "key": {"type": kind, "data": _fields(of_key.decode_from(key, VERSION_BYTES, 0)[0], 0)}
    }
    shown["value"] = None
    if value is not None:
        version = read_version(value)
        shown["value"] = {"version": version, "data": _fields(decode_versioned(of_value, value), version)}
    return shown


def _fields(struct: Any, version: int) -> dict[str, Any]:
    specs: dict[str, FieldSpec] = {spec.name: spec for spec in struct.FIELDS}
    shown = {}
    for name, field in _FIELDS[type(struct)].items():
        spec, value = specs[field], getattr(struct, field)
        if version in spec.versions and (spec.tag is None or value != spec.default):
            shown[name] = _value(spec.kind, value, version)
    return shown


def _value(kind: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    match kind:
        case "uuid":
            return uuid_to_str(value)
        case "bytes":
            return b64encode(value).decode()
        case "array":
            return [_fields(item, version) if type(item) in _FIELDS else item for item in value]
        case _:
            return value
