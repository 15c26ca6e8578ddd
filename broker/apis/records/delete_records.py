"""DeleteRecords (KIP-107).

The log start of a partition moves at once, to the given offset or (-1) to the high watermark. The answer
comes when the low watermark, the smallest *stored* log start of all replicas that may lead without a fetch,
live or not (:meth:`~pykraft.broker.replicas.partition.partition.Partition.low_watermark`), has reached that
offset: from then on no leader serves the records again. After the timeout it is REQUEST_TIMED_OUT with the
low watermark, and the records stay deleted. The timeout is for other replicas: the leader's own disk is
waited for, since Kafka, where no replica lags, answers without an error even with a timeout of 0. Internal
topics are refused with INVALID_TOPIC_EXCEPTION, topics that are only compacted with POLICY_VIOLATION, offsets
above the high watermark with OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.metadata.topic_answers import INTERNAL_TOPICS
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pykraft.kafka_protocol.request_context import RequestContext

UNKNOWN_LOW_WATERMARK = -1


async def handle(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest, version: int
) -> DeleteRecordsResponse:
    asked = await services.slices.result(_offsets(request))
    deletion = _Deletion(services, request.timeout_ms)
    try:
        await services.slices.finish(request.release())
        for (name, index), offset in asked.items():
            deletion.begin(name, index, offset)
            await services.slices.pause()
        await deletion.wait()
    finally:
        deletion.leave()
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for (name, _), result in deletion.results.items():
        results.setdefault(name, []).append(result)
        await services.slices.pause()
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in results.items()
        ]
    )


def _offsets(request: DeleteRecordsRequest) -> Generator[None, None, dict[TopicPartition, int]]:
    """The last one counts if a partition is named twice."""
    offsets: dict[TopicPartition, int] = {}
    for topic in request.topics:
        yield
        for partition in topic.partitions:
            offsets[topic.name, partition.partition_index] = partition.offset
            yield
    return offsets


def partitions_of(request: DeleteRecordsRequest) -> Iterable[tuple[str, int]]:
    """The requested partitions, by topic name and index."""
    return ((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)


class _Deletion:
    """One request: the partitions that are answered, and those that wait for log starts."""

    def __init__(self, services: BrokerServices, timeout_ms: int) -> None:
        self.services = services
        self.results: dict[tuple[str, int], DeleteRecordsPartitionResult] = {}
        self.waiting: dict[_Awaited, None] = {}
        self.bucket = -1
        self._deadline_ms = services.clock.monotonic_ms() + max(0, timeout_ms)
        self._is_done = asyncio.Event()

    def begin(self, topic: str, index: int, offset: int) -> None:
        """Move one log start, and wait until all replicas have."""
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
            partition = self.services.replicas.by_name(topic, index)
            partition.require_leader()
            awaited = _Awaited(self, partition, partition.delete_records(offset))
        except KafkaError as error:
            self._answer(topic, index, UNKNOWN_LOW_WATERMARK, error.code)
            return
        self.waiting[awaited] = None
        partition.log_start_waiters[awaited] = None
        awaited.evaluate()

    def is_live(self, replica: int) -> bool:
        broker = self.services.metadata.image.brokers.get(replica)
        return broker is not None and not broker.fenced

    def complete(self, awaited: _Awaited, low_watermark: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """One partition that waited is answered."""
        self._drop(awaited)
        self._answer(awaited.partition.topic, awaited.partition.index, low_watermark, code)
        if not self.waiting:
            self._is_done.set()

    def _answer(self, topic: str, index: int, low_watermark: int, code: ErrorCode) -> None:
        self.results[topic, index] = DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=low_watermark, error_code=code
        )

    async def wait(self) -> None:
        """Until every partition is answered, or time is up."""
        if self.waiting:
            self._is_done.clear()  # the partitions before were answered at once
            self.services.wakeups.wait_until(self, self._deadline_ms)
            await self._is_done.wait()

    def expire(self) -> None:
        """Time is up; called by the purgatory."""
        for awaited in list(self.waiting):
            awaited.expire()

    def leave(self) -> None:
        """Wait for nothing any more; the client may have gone."""
        self.services.wakeups.deadlines.remove(self)
        for awaited in list(self.waiting):
            self._drop(awaited)

    def _drop(self, awaited: _Awaited) -> None:
        del self.waiting[awaited]
        awaited.partition.log_start_waiters.pop(awaited, None)


class _Awaited:
    """One partition whose low watermark has to reach ``offset``."""

    def __init__(self, deletion: _Deletion, partition: Partition, offset: int) -> None:
        self._deletion = deletion
        self.partition = partition
        self._offset = offset
        self._is_late = False

    def wake(self) -> None:
        self._deletion.services.wakeups.wake(self)

    def evaluate(self) -> None:
        """Something changed: answer the partition if that decides it."""
        if self not in self._deletion.waiting:
            return
        try:
            partition = self._led()
        except KafkaError as error:
            self._deletion.complete(self, UNKNOWN_LOW_WATERMARK, error.code)
            return
        is_live = self._deletion.is_live
        low_watermark = partition.low_watermark(is_live)
        if low_watermark >= self._offset:
            self._deletion.complete(self, low_watermark)
        elif self._is_late and partition.low_watermark_of_others(is_live) < self._offset:
            self._deletion.complete(self, low_watermark, ErrorCode.REQUEST_TIMED_OUT)

    def expire(self) -> None:
        """The client's time is up."""
        self._is_late = True
        self.evaluate()

    def _led(self) -> Partition:
        """The partition. :class:`KafkaError` if this broker no longer leads it."""
        partition = self.partition
        if self._deletion.services.replicas.by_name(partition.topic, partition.index) is not partition:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was deleted")
        partition.require_leader()
        return partition
