"""AlterPartitionReassignments and ListPartitionReassignments: partitions move to other brokers (KIP-455).

A reassignment is state of the partition: its replicas are the union of old and new ones, with lists of those
that are being added and removed. It ends with the AlterPartition that brings the last added replica into the
ISR (see :mod:`pykraft.metadata_log.controller.elections`), or when it is cancelled. A new target replaces the
old one: replicas that are only in the old one are removed at once.
"""

from __future__ import annotations

from collections import Counter

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Assignment, Elections
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.controller.topics.assignments import check_assignments
from pykraft.metadata_log.image import MetadataImage, TopicImage
from pykraft.metadata_log.records import PartitionChangeRecord


def handle_alter_partition_reassignments(
    image: MetadataImage, config: ControllerConfig, request: AlterPartitionReassignmentsRequest
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Each partition begins, replaces or cancels its reassignment, or is refused, alone."""
    named = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    change = _Reassignment(image, config, allow_factor_change=request.allow_replication_factor_change)
    records: list[PartitionChangeRecord] = []
    responses = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named more than once")
                record = change.build(topic.name, wanted)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return ControllerResult(tuple(records), response)


def handle_list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ControllerResult[ListPartitionReassignmentsResponse]:
    """The reassignments under way among the named partitions
    (:mod:`~pykraft.metadata_log.controller.calls.request_parts`); unknown partitions are left out.
    """
    assert request.topics is not None
    asked: dict[str, set[int]] = {}
    for wanted in request.topics:
        asked.setdefault(wanted.name, set()).update(wanted.partition_indexes)
    topics = []
    for name, indexes in asked.items():
        topic = image.topic(name)
        if topic is not None and (ongoing := _ongoing(topic, indexes)):
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ControllerResult((), ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _ongoing(topic: TopicImage, indexes: set[int]) -> list[OngoingPartitionReassignment]:
    count = len(topic.partitions)
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding),
            removing_replicas=list(partition.removing),
        )
        for index in sorted(indexes)
        if 0 <= index < count and (partition := topic.partitions[index]).is_reassigning
    ]


class _Reassignment:
    """Decides on the partitions of one request."""

    def __init__(self, image: MetadataImage, config: ControllerConfig, *, allow_factor_change: bool) -> None:
        self._image = image
        self._elections = Elections(image, config)
        self._allow_factor_change = allow_factor_change

    def build(self, name: str, wanted: ReassignablePartition) -> PartitionChangeRecord | None:
        """The requested change; None if the partition is already in that state."""
        topic = self._image.topic(name)
        partition = None if topic is None else self._image.partition(topic.id, wanted.partition_index)
        if topic is None or partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{wanted.partition_index}"
            )
        original = tuple(id for id in partition.replicas if id not in partition.adding)
        if wanted.replicas is None:
            if not partition.is_reassigning:
                raise KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned"
                )
            assignment = Assignment(original)
        else:
            target = self._check_target(wanted.replicas, len(original))
            removing = tuple(id for id in original if id not in target)
            adding = tuple(id for id in target if id not in original)
            assignment = Assignment(target + removing, adding, removing)
        builder = self._elections.builder(name)
        holders = builder.find_holders(partition)
        if holders and set(holders).isdisjoint(assignment.replicas):
            # A replica that holds the records must not be removed before a remaining one holds them.
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"only {sorted(holders)} hold all records; without them an unclean election would be needed",
            )
        return builder.build(topic.id, wanted.partition_index, partition, assignment=assignment)

    def _check_target(self, replicas: list[int], factor: int) -> tuple[int, ...]:
        (target,) = check_assignments(self._image, [replicas])
        if not self._allow_factor_change and len(target) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the partition has {factor} replicas, not {len(target)}, and the number must not change",
            )
        return target
