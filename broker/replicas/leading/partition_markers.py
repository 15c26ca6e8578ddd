"""Writes transaction markers to partitions that this broker leads, and waits until they are committed."""

from __future__ import annotations

import asyncio
from typing import Final

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import EndOfTransaction
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.runtime.clock import Clock

TIMEOUT_MS: Final = 30_000
"""How long a marker may take to be committed, as Kafka's request.timeout.ms."""


class PartitionMarkers:
    """One per broker."""

    def __init__(self, replicas: ReplicaManager, wakeups: Wakeups, clock: Clock) -> None:
        self._replicas = replicas
        self._wakeups = wakeups
        self._clock = clock

    async def write(self, topic: str, index: int, end: EndOfTransaction) -> None:
        """Append a marker, and return when it is committed.

        :class:`KafkaError` UNKNOWN_TOPIC_OR_PARTITION if there is no usable replica here,
        NOT_LEADER_OR_FOLLOWER if it does not lead, REQUEST_TIMED_OUT if the outcome is unknown, and those of
        :meth:`.Partition.end_transaction`.
        """
        partition = self._find(topic, index)
        self._wakeups.begin_request()
        try:
            info = partition.end_transaction(end, self._clock.wall_ms())
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error
        finally:
            self._wakeups.end_request()
        if info.next_offset > partition.high_watermark:
            await self._until_committed(partition, info.next_offset)

    def _find(self, topic: str, index: int) -> Partition:
        self._replicas.refuse_if_fenced()
        try:
            partition = self._replicas.by_name(topic, index)
        except KafkaError as error:
            # Kafka's senders of markers take this for a reason to look for the leader, as the true one.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message) from error
        partition.require_leader()
        return partition

    async def _until_committed(self, partition: Partition, offset: int) -> None:
        pending = _PendingMarker(asyncio.get_running_loop().create_future())
        partition.committed_waiters.add(offset, pending)
        self._wakeups.wait_until(pending, self._clock.monotonic_ms() + TIMEOUT_MS)
        try:
            code = await pending.outcome
        finally:
            self._wakeups.deadlines.remove(pending)
        if code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(code), f"the marker in {partition} was not committed")


class _PendingMarker:
    """Waits for the high watermark, or for its deadline."""

    def __init__(self, outcome: asyncio.Future[int]) -> None:
        self.outcome = outcome
        self.bucket = -1

    def offset_committed(self) -> None:
        self._complete(ErrorCode.NONE)

    def offset_refused(self, error_code: int) -> None:
        self._complete(error_code)

    def expire(self) -> None:
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def _complete(self, code: int) -> None:
        if not self.outcome.done():
            self.outcome.set_result(code)
