"""OffsetForLeaderEpoch.

Where a leader epoch ends in this leader's log: the greatest epoch not above the requested one and its
exclusive end offset, or -1/-1 if that is unknown (KIP-101, KIP-279, KIP-320). Consumers validate their
position with it after a leader change; the current leader epoch that they send must be the leader's. Past
its lease a broker does not answer them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.messages.records import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pykraft.kafka_protocol.request_context import RequestContext


def handle(
    services: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest, version: int
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        yield
        partitions = EncodedElements()
        for asked in topic.partitions:
            answer = _answer(services.replicas, topic.topic, asked, is_replica=request.replica_id >= 0)
            partitions.append(OffsetForLeaderEpochResponse.encode_part(answer, version))
            yield
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response


def partitions_of(request: OffsetForLeaderEpochRequest) -> Iterator[tuple[str, int]]:
    """The requested partitions, by topic name and index."""
    for topic in request.topics:
        for asked in topic.partitions:
            yield topic.topic, asked.partition


def _answer(
    replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition, *, is_replica: bool
) -> EpochEndOffset:
    try:
        partition = replicas.by_name(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
        if not is_replica:  # a consumer may have read further, in the log of another leader
            replicas.refuse_past_lease()
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
