"""Commits of a member that has moved on since: accepted for partitions that are still its own (KIP-1251).

A member of a consumer group commits with the epoch that it knows. If it is not the current one, its answer
may be under way. That must not cost the commit, unless another member may have had the partition meanwhile:
each partition that a member holds (assigned, or still to be revoked) carries the assignment epoch at which
the member got it, and no other has held it since.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.records import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError


def check_commit(member: ConsumerMember, epoch: int, partitions: Iterable[TopicPartition]) -> None:
    """:class:`KafkaError` unless the member may commit at ``epoch`` all of ``partitions``, or none."""
    if epoch == member.epoch:
        return
    code = epoch_error(member)
    if epoch > member.epoch:
        raise KafkaError(
            code, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}."
        )
    for topic_id, index in partitions:
        assigned_at = member.assignment_epochs.get((topic_id, index))
        if assigned_at is None:
            raise KafkaError(
                code,
                f"Partition {index} is not assigned or pending revocation for member {member.member_id}.",
            )
        if epoch < assigned_at:
            raise KafkaError(
                code, f"Received member epoch {epoch} is older than assignment epoch {assigned_at}."
            )


def epoch_error(member: ConsumerMember) -> ErrorCode:
    """The error for an epoch that the member may not use, in the words of its protocol."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
