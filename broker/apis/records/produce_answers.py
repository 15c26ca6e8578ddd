"""The answer to a Produce request, and the wait until what it confirms is committed, or flushed.

A request for very many partitions is answered, and expires, in slices.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.produce import (
    NodeEndpoint,
    ProduceResult,
    build_in_slices,
    build_produce_response,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.runtime.slices import Slices

logger = logging.getLogger(__name__)

_EXPIRED_AT_ONCE = 1_000


class ProduceAnswer:
    """The results of one request, and where they go. ``slices``: they are very many."""

    __slots__ = ("_connection", "_header", "_slices", "_topics", "endpoints", "services", "slot")

    def __init__(
        self,
        services: BrokerServices,
        connection: Connection,
        header: RequestHeader,
        slot: ResponseSlot,
        slices: Slices | None = None,
    ) -> None:
        self.services = services
        self.slot = slot
        self.endpoints: Sequence[NodeEndpoint] = ()
        """Of the leaders that results hint at."""
        self._connection = connection
        self._header = header
        self._slices = slices
        self._topics: list[tuple[str | Uuid, list[ProduceResult]]] = []

    def add_topic(self, key: str | Uuid) -> list[ProduceResult]:
        """Where the results of the next topic go."""
        results: list[ProduceResult] = []
        self._topics.append((key, results))
        return results

    def results(self) -> Iterator[ProduceResult]:
        for _, results in self._topics:
            yield from results

    def send(self) -> None:
        if self.slot.done or self.slot.abandoned:
            return
        if self._slices is not None:
            self._slices.run(self._send_in_slices(), self._fail)
            return
        version, correlation_id = self._header.api_version, self._header.correlation_id
        frame = build_produce_response(version, correlation_id, self._topics, endpoints=self.endpoints)
        self.slot.complete_framed([frame])

    def _send_in_slices(self) -> Generator[None, None, None]:
        version, correlation_id = self._header.api_version, self._header.correlation_id
        frame = yield from build_in_slices(version, correlation_id, self._topics, endpoints=self.endpoints)
        if not (self.slot.done or self.slot.abandoned):
            self.slot.complete_framed([frame])

    def send_nothing(self) -> None:
        self.slot.complete_without_response()

    def run(self, work: Generator[None, None, None]) -> None:
        """Do work whose length depends on the number of results."""
        if self._slices is None:
            at_once(work)
        else:
            self._slices.run(work, self._fail)

    def _fail(self, error: Exception) -> None:
        logger.error("no answer to Produce", exc_info=error)
        self._connection.close("internal error")


class PendingProduce:
    """A request that waits until all of its batches are committed, or flushed."""

    __slots__ = ("_answer", "_services", "_waiting", "bucket")

    def __init__(self, answer: ProduceAnswer) -> None:
        self._answer = answer
        self._services = answer.services
        self._waiting: dict[_PendingBatch, None] = {}
        self.bucket = -1

    def add(self, partition: Partition, next_offset: int, results: list[ProduceResult]) -> None:
        """Wait for ``next_offset``; the answer will be the next entry of ``results``."""
        batch = _PendingBatch(self, results, len(results))
        self._waiting[batch] = None
        partition.committed_waiters.add(next_offset, batch)

    def add_flush(self, partition: Partition, next_offset: int, results: list[ProduceResult]) -> None:
        """As :meth:`add`, until the batch is flushed and this leader may still answer."""
        batch = _FlushedBatch(self, results, len(results))
        self._waiting[batch] = None
        partition.flushed_waiters.add(next_offset, batch)

    def refusal(self) -> ErrorCode | None:
        """Why nothing may be confirmed any more without the ISR; None if it may."""
        try:
            self._services.replicas.refuse_past_lease()
        except KafkaError as error:
            return error.code
        return None

    def park(self, timeout_ms: int) -> None:
        """Wait until the batches are committed. Some may be already, and the client may have disconnected."""
        if self._answer.slot.abandoned:
            self._forget_batches()
            return
        if not self._waiting:
            self._answer.send()
            return
        self._answer.slot.on_abandon = self._abandon
        deadline_ms = self._services.clock.monotonic_ms() + max(timeout_ms, 0)
        self._services.wakeups.wait_until(self, deadline_ms)

    def batch_done(self, batch: _PendingBatch) -> None:
        self._waiting.pop(batch, None)
        if not self._waiting and self.bucket >= 0:
            self._services.wakeups.deadlines.remove(self)
            self._answer.send()

    def expire(self) -> None:
        """Answer with an error that says the outcome is unknown: the batches may still be committed."""
        self._answer.run(self._expire_in_slices())

    def _expire_in_slices(self) -> Generator[None, None, None]:
        self.bucket = -1
        left = _EXPIRED_AT_ONCE
        while self._waiting:
            batch, _ = self._waiting.popitem()
            batch.fail(ErrorCode.REQUEST_TIMED_OUT)
            batch.request = None
            left -= 1
            if not left:
                yield
                left = _EXPIRED_AT_ONCE
        self._answer.send()

    def _abandon(self) -> None:
        """The client has disconnected."""
        self._services.wakeups.deadlines.remove(self)
        self._forget_batches()

    def _forget_batches(self) -> None:
        """A batch may keep waiting in its partition for long; it must not keep the request alive."""
        for batch in self._waiting:
            batch.request = None
        self._waiting.clear()


class _PendingBatch:
    """One batch of a waiting request."""

    __slots__ = ("_index", "_results", "request")

    def __init__(self, request: PendingProduce, results: list[ProduceResult], index: int) -> None:
        self.request: PendingProduce | None = request
        self._results = results
        self._index = index

    def offset_committed(self) -> None:
        if self.request is not None:
            self.request.batch_done(self)

    def offset_refused(self, error_code: int) -> None:
        if self.request is not None:
            self.fail(error_code)
            self.request.batch_done(self)

    def fail(self, error_code: int) -> None:
        partition = self._results[self._index].partition
        self._results[self._index] = ProduceResult(partition, int(error_code))


class _FlushedBatch(_PendingBatch):
    """One batch of a request with acks=1. The lease may have expired while it was flushed."""

    __slots__ = ()

    def offset_committed(self) -> None:
        refusal = None if self.request is None else self.request.refusal()
        if refusal is None:
            super().offset_committed()
        else:
            self.offset_refused(refusal)
