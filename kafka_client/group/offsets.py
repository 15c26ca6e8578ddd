"""Committing the offsets of a group as one of its members.

A request that was answered is finished, and is retried if the error is retriable. A request that was sent and
never answered may still be carried out at any time, even after a later one: it is not retried, and the caller
is told that the outcome is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pykraft.kafka_client.cluster import is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.errors import CommitRefusedError, CommitUnknownError
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykraft.lazy_dataclass import dataclass

_LAST_VERSION_WITH_NAMES = 9

# The coordinator returns these before it writes. Others, such as NOT_COORDINATOR, may also answer a commit
# that was written before the leader changed.
_NOT_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``offset`` is the next record to read."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


async def commit_offsets(
    link: CoordinatorLink,
    identity: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deadline_ms: int,
) -> None:
    """Commit the offsets.

    :class:`CommitRefusedError`: none of them is committed; :class:`CommitUnknownError`: some may be, now
    or later.
    """
    request = _request(link.key, identity, offsets)
    what = f"OffsetCommit of {link.key}"
    maybe_written = False

    async def attempt() -> KafkaError | None:
        """The error, if there was no answer."""
        nonlocal maybe_written
        connection = await link.connection(deadline_ms)
        connection.version_for(request, _LAST_VERSION_WITH_NAMES)  # raises before anything is sent
        try:
            response = await connection.call(
                request,
                link.cluster.request_deadline(deadline_ms),
                max_version=_LAST_VERSION_WITH_NAMES,
            )
        except KafkaError as error:
            link.forget()
            return error
        codes = {ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions}
        maybe_written = maybe_written or not codes <= _NOT_WRITTEN
        errors = [KafkaError(code) for code in sorted(codes) if code is not ErrorCode.NONE]
        if errors:
            worst = min(errors, key=is_passing)
            link.check(worst.code, what)
        return None

    try:
        unanswered = await link.cluster.retrying(what, attempt, deadline_ms)
    except KafkaError as error:
        kind = CommitUnknownError if maybe_written else CommitRefusedError
        raise kind(error.code, error.message) from error
    if unanswered is not None:
        raise CommitUnknownError(unanswered.code, unanswered.message) from unanswered


def _request(
    group_id: str, identity: GroupIdentity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in sorted(offsets.items()):
        by_topic[topic].append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.member_epoch,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=p) for name, p in by_topic.items()],
    )
