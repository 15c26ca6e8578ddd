"""DeleteGroups: deletes groups without members, and their offsets.

A group and its offsets are deleted in one batch, as are some other groups of the request that are in the same
shard; each has its own error code.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.group_coordinator.offsets.commit import build_offset_tombstones
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.commits import LEAST_TOMBSTONE_BYTES, too_large
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.group_records import group_tombstones
from pykraft.group_coordinator.state.records import GroupMetadataKey, GroupRecord
from pykraft.group_coordinator.state.result import CoordinatorResult, Record
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import DeletableGroupResult, DeleteGroupsResponse


def handle_delete_groups(
    state: ShardState, group_ids: Sequence[str], max_batch_bytes: int
) -> CoordinatorResult[DeleteGroupsResponse]:
    """:class:`KafkaError` if the records cannot fit into one batch, before any of them is built."""
    response, records = DeleteGroupsResponse(), list[Record]()
    _check_size(state, group_ids, max_batch_bytes)
    for group_id in dict.fromkeys(group_ids):
        code, tombstones = check_deletion(state, group_id)
        if code is ErrorCode.NONE:
            records.extend(build_offset_tombstones(state, group_id))
            records.extend(tombstones)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return CoordinatorResult(response, tuple(records))


def check_deletion(state: ShardState, group_id: str) -> tuple[ErrorCode, tuple[GroupRecord, ...]]:
    """Why a group cannot be deleted; or no error, and the records that delete it, its offsets apart."""
    match state.group(group_id):
        case None:
            return ErrorCode.GROUP_ID_NOT_FOUND, ()
        case ClassicGroup(state=ClassicState.EMPTY):
            return ErrorCode.NONE, (GroupRecord(GroupMetadataKey(group_id), None),)
        case ConsumerGroup() as group if group.is_empty:
            return ErrorCode.NONE, group_tombstones(group)
        case _:
            return ErrorCode.NON_EMPTY_GROUP, ()


def _check_size(state: ShardState, group_ids: Sequence[str], max_batch_bytes: int) -> None:
    size_bytes = 0
    for group_id in group_ids:
        for topic, partitions in state.group_offsets(group_id).items():
            size_bytes += len(partitions) * (LEAST_TOMBSTONE_BYTES + len(group_id) + len(topic))
            if size_bytes > max_batch_bytes:
                raise too_large()
