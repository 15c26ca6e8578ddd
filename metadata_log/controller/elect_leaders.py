"""ElectLeaders: a client asks for preferred or unclean elections (KIP-460).

Each partition has its own result. If the request is for all partitions, those that need no election are left
out.
"""

from __future__ import annotations

from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Election, Elections
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import PartitionChangeRecord


def handle_elect_leaders(
    image: MetadataImage, config: ControllerConfig, request: ElectLeadersRequest
) -> ControllerResult[ElectLeadersResponse]:
    """Records for the partitions that get another leader, and a result for each partition of the request,
    which names them (:mod:`~pykraft.metadata_log.controller.calls.request_parts`).
    """
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
        ) from None
    elections = Elections(image, config)
    records: list[PartitionChangeRecord] = []
    results: dict[str, list[PartitionResult]] = {}
    elected, last_message = set(), None
    assert request.topic_partitions is not None
    named = [(asked.topic, index) for asked in request.topic_partitions for index in asked.partitions]
    for name, index in named:
        answer = PartitionResult(partition_id=index, error_message=None)
        try:
            if (name, index) in elected:
                raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is named twice")
            records.append(_elect(image, elections, election_type, name, index))
            elected.add((name, index))
        except KafkaError as error:
            # Very many may have the same one.
            last_message = last_message if error.message == last_message else error.message
            answer.error_code, answer.error_message = error.code, last_message
        results.setdefault(name, []).append(answer)
    return ControllerResult(
        tuple(records),
        ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=name, partition_result=answers)
                for name, answers in results.items()
            ]
        ),
    )


def _elect(
    image: MetadataImage, elections: Elections, election_type: ElectionType, name: str, index: int
) -> PartitionChangeRecord:
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    partition = image.partition(topic.id, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {index}")
    builder = elections.builder(name)
    if election_type is ElectionType.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by {preferred}")
        record = builder.build(topic.id, index, partition, election=Election.PREFERRED)
        if record is None or record.leader != preferred:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"{preferred}, the preferred leader of {name}-{index}, is offline or not in sync",
            )
        return record
    if partition.has_leader:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by {partition.leader}")
    record = builder.build(topic.id, index, partition, election=Election.UNCLEAN)
    if record is None or record.leader is None:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{index} is online")
    return record
