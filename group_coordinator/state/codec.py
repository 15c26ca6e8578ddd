"""Encodes and decodes records in Kafka's own ``__consumer_offsets`` format (:mod:`.record_tables`).

Unknown types decode to None: a reader must skip the records of a newer coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pykraft.group_coordinator.state import record_tables as tables
from pykraft.group_coordinator.state.records import (
    AssignmentEpochs,
    ClassicMemberMetadata,
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
    RegularExpressionKey,
    ResolvedRegex,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
    TopicPartition,
    by_topic,
)
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.codec.versioned import (
    VERSION_BYTES,
    decode_versioned,
    encode_versioned,
    read_version,
)
from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Format:
    """One type of record. ``read_*`` turn a decoded table into the classes of :mod:`.records`; ``to_table``
    does the reverse for values whose fields differ from those of their table.
    """

    record_type: int
    key_table: type[Message]
    read_key: Callable[[Any], RecordKey]
    value_table: type[Message] | None
    read_value: Callable[[Any], RecordValue | None]
    version: int = 0
    to_table: Callable[[Any], object] | None = None


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they go into a record batch."""
    form = _FORMATS[type(record.key)]
    key = encode_versioned(form.key_table, record.key, 0, stated=form.record_type)
    if record.value is None:
        return key, None
    assert form.value_table is not None, f"{record.key} is never written"
    version = form.version
    if isinstance(record.value, OffsetCommitValue) and record.value.expire_timestamp_ms is not None:
        version = _VERSION_WITH_RETENTION
    value = record.value if form.to_table is None else form.to_table(record.value)
    return key, encode_versioned(form.value_table, value, version)


def encode_records(records: Iterable[GroupRecord]) -> list[tuple[bytes, bytes | None]]:
    return [encode_record(record) for record in records]


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, or None if its type is unknown. :class:`ProtocolError` if its bytes cannot be decoded."""
    form = _FORMATS_BY_TYPE.get(read_version(key))
    if form is None:
        return None
    decoded_key = form.read_key(form.key_table.decode_from(key, VERSION_BYTES, 0)[0])
    if value is None or form.value_table is None:
        return GroupRecord(decoded_key, None)
    return GroupRecord(decoded_key, form.read_value(decode_versioned(form.value_table, value)))


def _read_offset_commit(read: tables.OffsetCommit) -> OffsetCommitValue:
    return OffsetCommitValue(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp_ms,
        None if read.expire_timestamp_ms < 0 else read.expire_timestamp_ms,
        read.topic_id,
    )


def _read_group_metadata(read: tables.GroupMetadata) -> GroupMetadataValue:
    return GroupMetadataValue(
        read.protocol_type,
        read.generation,
        read.protocol,
        read.leader,
        read.current_state_timestamp_ms,
        tuple(_read_classic_member(member) for member in read.members),
    )


def _read_classic_member(read: tables.ClassicMember) -> ClassicMemberValue:
    return ClassicMemberValue(
        read.member_id,
        read.group_instance_id,
        read.client_id,
        read.client_host,
        # Version 0 has one timeout for both.
        read.session_timeout_ms if read.rebalance_timeout_ms == -1 else read.rebalance_timeout_ms,
        read.session_timeout_ms,
        read.subscription,
        read.assignment,
    )


def _read_member_metadata(read: tables.ConsumerGroupMemberMetadata) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        read.instance_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        tuple(read.subscribed_topic_names),
        read.subscribed_topic_regex,
        read.rebalance_timeout_ms,
        read.server_assignor,
        None if read.classic is None else _read_classic_metadata(read.classic),
    )


def _read_classic_metadata(read: tables.ClassicMemberMetadata) -> ClassicMemberMetadata:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in read.supported_protocols)
    return ClassicMemberMetadata(read.session_timeout_ms, protocols)


def _member_metadata(value: ConsumerGroupMemberMetadataValue) -> object:
    if value.classic is None:
        return value
    protocols = [
        tables.ClassicProtocol(name=name, metadata=m) for name, m in value.classic.supported_protocols
    ]
    return tables.ConsumerGroupMemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=list(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=tables.ClassicMemberMetadata(
            session_timeout_ms=value.classic.session_timeout_ms, supported_protocols=protocols
        ),
    )


def _read_current_assignment(read: tables.CurrentAssignment) -> CurrentAssignmentValue:
    epochs: dict[TopicPartition, int] = {}
    return CurrentAssignmentValue(
        read.member_epoch,
        read.previous_member_epoch,
        read.state,
        _read_held(read.assigned, read.member_epoch, epochs),
        _read_held(read.pending_revocation, read.member_epoch, epochs),
        epochs,
    )


def _read_held(
    read: list[tables.HeldPartitions], member_epoch: int, epochs: dict[TopicPartition, int]
) -> Partitions:
    """The partitions; ``epochs`` gets their assignment epochs. A coordinator before Kafka 4.3 wrote none: the
    member's own epoch then stands for all, so that nothing older is accepted.
    """
    for topic in read:
        own = topic.assignment_epochs
        if own is None or len(own) != len(topic.partitions):
            own = [max(member_epoch, 0)] * len(topic.partitions)
        epochs.update(zip([(topic.topic_id, index) for index in topic.partitions], own, strict=True))
    return frozenset((topic.topic_id, index) for topic in read for index in topic.partitions)


def _current_assignment(value: CurrentAssignmentValue) -> tables.CurrentAssignment:
    return tables.CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=value.state,
        assigned=_held(value.assigned, value.assignment_epochs),
        pending_revocation=_held(value.pending_revocation, value.assignment_epochs),
    )


def _held(partitions: Partitions, epochs: AssignmentEpochs) -> list[tables.HeldPartitions]:
    return [
        tables.HeldPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[epochs[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in by_topic(partitions).items()
    ]


def _read_partitions(read: list[tables.TopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in read for index in topic.partitions)


def _partitions(partitions: Partitions) -> list[tables.TopicPartitions]:
    return [
        tables.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic(partitions).items()
    ]


_VERSION_WITH_RETENTION: Final = 1
_OFFSET_COMMIT: Final = _Format(
    1,
    tables.OffsetKey,
    lambda key: OffsetCommitKey(key.group_id, key.topic, key.partition),
    tables.OffsetCommit,
    _read_offset_commit,
    version=4,
)
_FORMATS: Final[dict[type[RecordKey], _Format]] = {
    OffsetCommitKey: _OFFSET_COMMIT,
    GroupMetadataKey: _Format(
        2,
        tables.GroupKey,
        lambda key: GroupMetadataKey(key.group_id),
        tables.GroupMetadata,
        _read_group_metadata,
        version=3,
    ),
    ConsumerGroupMetadataKey: _Format(
        3,
        tables.GroupKey,
        lambda key: ConsumerGroupMetadataKey(key.group_id),
        tables.ConsumerGroupMetadata,
        lambda read: ConsumerGroupMetadataValue(read.epoch, read.metadata_hash),
    ),
    ConsumerGroupPartitionMetadataKey: _Format(
        4,
        tables.GroupKey,
        lambda key: ConsumerGroupPartitionMetadataKey(key.group_id),
        None,
        lambda read: None,
    ),
    ConsumerGroupMemberMetadataKey: _Format(
        5,
        tables.MemberKey,
        lambda key: ConsumerGroupMemberMetadataKey(key.group_id, key.member_id),
        tables.ConsumerGroupMemberMetadata,
        _read_member_metadata,
        to_table=_member_metadata,
    ),
    TargetAssignmentMetadataKey: _Format(
        6,
        tables.GroupKey,
        lambda key: TargetAssignmentMetadataKey(key.group_id),
        tables.TargetAssignmentMetadata,
        lambda read: TargetAssignmentMetadataValue(read.assignment_epoch, read.assignment_timestamp_ms),
    ),
    TargetAssignmentMemberKey: _Format(
        7,
        tables.MemberKey,
        lambda key: TargetAssignmentMemberKey(key.group_id, key.member_id),
        tables.TargetAssignmentMember,
        lambda read: TargetAssignmentMemberValue(_read_partitions(read.partitions)),
        to_table=lambda value: tables.TargetAssignmentMember(partitions=_partitions(value.partitions)),
    ),
    CurrentAssignmentKey: _Format(
        8,
        tables.MemberKey,
        lambda key: CurrentAssignmentKey(key.group_id, key.member_id),
        tables.CurrentAssignment,
        _read_current_assignment,
        to_table=_current_assignment,
    ),
    RegularExpressionKey: _Format(
        16,
        tables.RegularExpressionKey,
        lambda key: RegularExpressionKey(key.group_id, key.regex),
        tables.RegularExpression,
        lambda read: ResolvedRegex(tuple(read.topics), read.version, read.timestamp_ms),
    ),
}
_FORMATS_BY_TYPE: Final = {0: _OFFSET_COMMIT} | {form.record_type: form for form in _FORMATS.values()}
