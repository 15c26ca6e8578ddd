"""Records to bytes and back, in Kafka's own ``__consumer_offsets`` format.

Key: int16 record type, then plain fields. Value: int16 version, then fields (some of them flexible).
Types that are not known here decode to None: a reader must step over what a newer coordinator wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from pykraft.group_coordinator.records import (
    ClassicMemberValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    Partitions,
    RecordKey,
    RecordValue,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
    TopicPartition,
    by_topic,
)
from pykraft.group_coordinator.wire import Reader, Writer
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.primitives import ProtocolError

_OFFSET_COMMIT_KEY_VERSION = 1
_GROUP_METADATA_VALUE_VERSION = 3
_METADATA_HASH_TAG = 0
_TOPIC_ID_TAG = 0


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they go into a record batch."""
    return _encode_key(record.key), None if record.value is None else _encode_value(record.value)


def encode_records(records: Iterable[GroupRecord]) -> list[tuple[bytes, bytes | None]]:
    return [encode_record(record) for record in records]


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, or None if its type is unknown. :class:`ProtocolError` if its bytes make no sense."""
    decoded_key = _decode_key(key)
    if decoded_key is None:
        return None
    if value is None or isinstance(decoded_key, ConsumerGroupPartitionMetadataKey):
        return GroupRecord(decoded_key, None)
    return GroupRecord(decoded_key, _VALUE_DECODERS[type(decoded_key)](Reader(value)))


def _encode_key(key: RecordKey) -> bytes:
    match key:
        case OffsetCommitKey(group_id, topic, partition):
            writer = Writer(_OFFSET_COMMIT_KEY_VERSION)
            writer.string(group_id)
            writer.string(topic)
            writer.int32(partition)
            return writer.finish()
        case (
            ConsumerGroupMemberMetadataKey(group_id, member_id)
            | TargetAssignmentMemberKey(group_id, member_id)
            | CurrentAssignmentKey(group_id, member_id)
        ):
            writer = Writer(_KEY_TYPES[type(key)])
            writer.string(group_id)
            writer.string(member_id)
            return writer.finish()
        case _:
            writer = Writer(_KEY_TYPES[type(key)])
            writer.string(key.group_id)
            return writer.finish()


def _decode_key(raw: bytes) -> RecordKey | None:
    reader = Reader(raw)
    match reader.version:
        case 0 | 1:
            return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
        case 2:
            return GroupMetadataKey(reader.string())
        case 3:
            return ConsumerGroupMetadataKey(reader.string())
        case 4:
            return ConsumerGroupPartitionMetadataKey(reader.string())
        case 5:
            return ConsumerGroupMemberMetadataKey(reader.string(), reader.string())
        case 6:
            return TargetAssignmentMetadataKey(reader.string())
        case 7:
            return TargetAssignmentMemberKey(reader.string(), reader.string())
        case 8:
            return CurrentAssignmentKey(reader.string(), reader.string())
        case _:
            return None


def _encode_value(value: RecordValue) -> bytes:
    match value:
        case OffsetCommitValue():
            return _encode_offset_commit(value)
        case GroupMetadataValue():
            return _encode_group_metadata(value)
        case ConsumerGroupMetadataValue(epoch, metadata_hash):
            writer = Writer(0, flexible=True)
            writer.int32(epoch)
            tag = ((_METADATA_HASH_TAG, struct.pack(">q", metadata_hash)),) if metadata_hash else ()
            writer.tags(tag)
            return writer.finish()
        case ConsumerGroupMemberMetadataValue():
            return _encode_member_metadata(value)
        case TargetAssignmentMetadataValue(assignment_epoch):
            writer = Writer(0, flexible=True)
            writer.int32(assignment_epoch)
            writer.tags()
            return writer.finish()
        case TargetAssignmentMemberValue(partitions):
            writer = Writer(0, flexible=True)
            _write_partitions(writer, partitions)
            writer.tags()
            return writer.finish()
        case CurrentAssignmentValue():
            writer = Writer(0, flexible=True)
            writer.int32(value.member_epoch)
            writer.int32(value.previous_member_epoch)
            writer.int8(value.state)
            _write_partitions(writer, value.assigned)
            _write_partitions(writer, value.pending_revocation)
            writer.tags()
            return writer.finish()


def _encode_offset_commit(value: OffsetCommitValue) -> bytes:
    if value.expire_timestamp_ms is not None:
        writer = Writer(1)
        writer.int64(value.offset)
        writer.string(value.metadata)
        writer.int64(value.commit_timestamp_ms)
        writer.int64(value.expire_timestamp_ms)
        return writer.finish()
    writer = Writer(4, flexible=True)
    writer.int64(value.offset)
    writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    writer.tags(() if value.topic_id == ZERO_UUID else ((_TOPIC_ID_TAG, value.topic_id),))
    return writer.finish()


def _decode_offset_commit(reader: Reader) -> OffsetCommitValue:
    version = _checked_version(reader, 4)
    reader.flexible = version >= 4
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG, ZERO_UUID)
    if len(topic_id) != len(ZERO_UUID):
        raise ProtocolError(f"a topic id of {len(topic_id)} bytes")
    return OffsetCommitValue(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        None if expire_timestamp_ms < 0 else expire_timestamp_ms,
        Uuid(topic_id),
    )


def _encode_group_metadata(value: GroupMetadataValue) -> bytes:
    writer = Writer(_GROUP_METADATA_VALUE_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.current_state_timestamp_ms)
    writer.count(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.byte_string(member.subscription)
        writer.byte_string(member.assignment)
    return writer.finish()


def _decode_group_metadata(reader: Reader) -> GroupMetadataValue:
    version = _checked_version(reader, 4)
    reader.flexible = version >= 4
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.int64() if version >= 2 else -1
    members = []
    for _ in range(reader.count()):
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else -1
        session_timeout_ms = reader.int32()
        members.append(
            ClassicMemberValue(
                member_id=member_id,
                group_instance_id=instance_id,
                client_id=client_id,
                client_host=client_host,
                rebalance_timeout_ms=session_timeout_ms if version < 1 else rebalance_timeout_ms,
                session_timeout_ms=session_timeout_ms,
                subscription=reader.byte_string(),
                assignment=reader.byte_string(),
            )
        )
        reader.tags()
    reader.tags()
    return GroupMetadataValue(protocol_type, generation, protocol, leader, timestamp_ms, tuple(members))


def _decode_consumer_group_metadata(reader: Reader) -> ConsumerGroupMetadataValue:
    _flexible_v0(reader)
    epoch = reader.int32()
    raw_hash = reader.tags().get(_METADATA_HASH_TAG)
    return ConsumerGroupMetadataValue(epoch, struct.unpack(">q", raw_hash)[0] if raw_hash is not None else 0)


def _encode_member_metadata(value: ConsumerGroupMemberMetadataValue) -> bytes:
    writer = Writer(0, flexible=True)
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.count(len(value.subscribed_topic_names))
    for name in value.subscribed_topic_names:
        writer.string(name)
    writer.string(value.subscribed_topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.server_assignor)
    writer.tags()
    return writer.finish()


def _decode_member_metadata(reader: Reader) -> ConsumerGroupMemberMetadataValue:
    _flexible_v0(reader)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        subscribed_topic_names=tuple(reader.string() for _ in range(reader.count())),
        subscribed_topic_regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
    )
    reader.tags()
    return value


def _decode_target_metadata(reader: Reader) -> TargetAssignmentMetadataValue:
    _flexible_v0(reader)
    value = TargetAssignmentMetadataValue(reader.int32())
    reader.tags()
    return value


def _decode_target_member(reader: Reader) -> TargetAssignmentMemberValue:
    _flexible_v0(reader)
    value = TargetAssignmentMemberValue(_read_partitions(reader))
    reader.tags()
    return value


def _decode_current_assignment(reader: Reader) -> CurrentAssignmentValue:
    _flexible_v0(reader)
    value = CurrentAssignmentValue(
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=reader.int8(),
        assigned=_read_partitions(reader),
        pending_revocation=_read_partitions(reader),
    )
    reader.tags()
    return value


def _write_partitions(writer: Writer, partitions: Partitions) -> None:
    grouped = by_topic(partitions)
    writer.count(len(grouped))
    for topic_id, indexes in grouped.items():
        writer.uuid(topic_id)
        writer.count(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tags()


def _read_partitions(reader: Reader) -> Partitions:
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        partitions.extend((topic_id, reader.int32()) for _ in range(reader.count()))
        reader.tags()
    return frozenset(partitions)


def _checked_version(reader: Reader, newest: int) -> int:
    if not 0 <= reader.version <= newest:
        raise ProtocolError(f"record value version {reader.version} is not one of 0 to {newest}")
    return reader.version


def _flexible_v0(reader: Reader) -> None:
    _checked_version(reader, 0)
    reader.flexible = True


_KEY_TYPES: dict[type, int] = {
    GroupMetadataKey: 2,
    ConsumerGroupMetadataKey: 3,
    ConsumerGroupPartitionMetadataKey: 4,
    ConsumerGroupMemberMetadataKey: 5,
    TargetAssignmentMetadataKey: 6,
    TargetAssignmentMemberKey: 7,
    CurrentAssignmentKey: 8,
}
_VALUE_DECODERS: dict[type, Callable[[Reader], RecordValue]] = {
    OffsetCommitKey: _decode_offset_commit,
    GroupMetadataKey: _decode_group_metadata,
    ConsumerGroupMetadataKey: _decode_consumer_group_metadata,
    ConsumerGroupMemberMetadataKey: _decode_member_metadata,
    TargetAssignmentMetadataKey: _decode_target_metadata,
    TargetAssignmentMemberKey: _decode_target_member,
    CurrentAssignmentKey: _decode_current_assignment,
}
