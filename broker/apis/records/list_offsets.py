"""ListOffsets.

The offset for a time, or for an end of the log: -1 latest, -2 earliest, -3 the record with the greatest
timestamp (from version 7), -4 (from 8) earliest too; -5 and -6, of tiered storage, are unknown, without an
error. Any other negative time is answered with UNSUPPORTED_VERSION, a partition that is named twice with
INVALID_REQUEST. Latest is the high watermark for consumers, the last stable offset for those that read
committed transactions only, and the log end for replicas; later records are not found by time either. Until a
new leader has found its high watermark the answer is OFFSET_NOT_AVAILABLE (before version 5
LEADER_NOT_AVAILABLE), so that no consumer sees the end of a partition move back.

After the lease has expired clients get NOT_LEADER_OR_FOLLOWER, since another leader may contradict every
offset. (A leader in Kafka answers until it hears of its successor.)
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.leading.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
    find_offset,
)
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.fetch_requests import READ_COMMITTED
from pykraft.kafka_protocol.messages.records import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import STORAGE_ERRORS

_FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which each negative timestamp has a meaning."""


async def handle(
    services: BrokerServices, context: RequestContext, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    if request.replica_id < 0:
        services.replicas.refuse_if_fenced()
    twice = await services.slices.result(_find_twice(request))
    topics = await _answer_all(services, request, version, twice)
    await services.slices.finish(request.release())
    return ListOffsetsResponse(topics=topics)


async def _answer_all(
    services: BrokerServices, request: ListOffsetsRequest, version: int, twice: set[tuple[str, int]]
) -> list[ListOffsetsTopicResponse]:
    topics = []
    for topic in request.topics:
        await services.slices.pause()
        partitions = EncodedElements()
        for asked in topic.partitions:
            if (topic.name, asked.partition_index) in twice:
                answer = _refused(asked, ErrorCode.INVALID_REQUEST)
            else:
                answer = await _answer(services, topic.name, asked, version, request)
            partitions.append(ListOffsetsResponse.encode_part(answer, version))
            await services.slices.pause()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return topics


def _find_twice(request: ListOffsetsRequest) -> Generator[None, None, set[tuple[str, int]]]:
    """The partitions that are named more than once."""
    seen: dict[str, set[int]] = {}
    twice = set()
    for topic in request.topics:
        yield
        indexes = seen.setdefault(topic.name, set())
        for asked in topic.partitions:
            if asked.partition_index in indexes:
                twice.add((topic.name, asked.partition_index))
            indexes.add(asked.partition_index)
            yield
    return twice


def partitions_of(request: ListOffsetsRequest) -> Iterable[tuple[str, int]]:
    """The requested partitions, by topic name and index."""
    return ((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)


async def _answer(
    services: BrokerServices,
    topic: str,
    asked: ListOffsetsPartition,
    version: int,
    request: ListOffsetsRequest,
) -> ListOffsetsPartitionResponse:
    replicas, is_replica = services.replicas, request.replica_id >= 0
    reads_committed = request.isolation_level == READ_COMMITTED
    try:
        if asked.timestamp < 0 and version < _FIRST_VERSION.get(asked.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {asked.timestamp} has no meaning in version {version}",
            )
        partition = replicas.by_name(topic, asked.partition_index)
        partition.require_leader(asked.current_leader_epoch)
        found = await _find(
            services, partition, asked.timestamp, is_replica=is_replica, reads_committed=reads_committed
        )
        partition.require_leader(asked.current_leader_epoch)  # a look-up takes time
        if not is_replica:
            replicas.refuse_past_lease()
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _refused(asked, code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


async def _find(
    services: BrokerServices, partition: Partition, timestamp: int, *, is_replica: bool, reads_committed: bool
) -> FoundOffset:
    try:
        look_up = services.logs.time_lookups.look_up
        return await find_offset(
            partition, timestamp, look_up, is_replica=is_replica, reads_committed=reads_committed
        )
    except STORAGE_ERRORS as error:
        raise partition.storage_failed(error) from error
