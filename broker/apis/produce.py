"""Produce (0), versions 3-13 (advertised from 0: librdkafka reads "no version 0" as "no compression").

Hot path: parsed by hand, appended on the spot, answered by hand. acks=1 is answered at once, acks=all when
the high watermark has passed the batch or the request's time is up, acks=0 never; where a request without an
answer fails, the connection is closed so that the client looks for the leader anew. One batch per partition,
judged by header and checksum. A duplicate of an idempotent batch is answered like the original, and no
sooner. Past the broker's lease acks=0 and 1 are refused. Transactions are not served (INVALID_TXN_STATE).
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.broker.leader_hints import HINTED, find_endpoints, find_leader
from pykraft.broker.metadata_cache import INTERNAL_TOPICS
from pykraft.broker.partition import Partition
from pykraft.broker.replica_manager import ReplicaManager
from pykraft.broker.validate import validate_client_batch
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.produce_fast import (
    NodeEndpoint,
    ProducePartition,
    ProduceResult,
    build_produce_response,
    parse_produce_request,
)
from pykraft.kafka_protocol.request_context import RequestContext

ACKS_ALL = -1
_NONE = int(ErrorCode.NONE)

Results = list[tuple[str | Uuid, list[ProduceResult]]]


class ProduceHandler:
    """Answers Produce; one per broker."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Append what the request holds; complete ``slot`` now or once it is committed.

        Nothing is done yet, and the connection held, while this broker is about to lead a partition of it.
        """
        version = header.api_version
        request = parse_produce_request(body, 0, version)
        acks = request.acks
        replicas = self._replicas
        if not replicas.is_settled and replicas.hold_until_open(
            connection,
            (
                (name, topic_id, asked.partition)
                for name, topic_id, partitions in request.topics
                for asked in partitions
            ),
        ):
            return
        pending: _PendingProduce | None = None
        refusal = self._refusal(acks)
        now_ms = replicas.clock.wall_ms()
        topics: Results = []
        failed = False
        replicas.wakeups.begin_request()
        try:
            for name, topic_id, partitions in request.topics:
                results: list[ProduceResult] = []
                key: str | Uuid = name if topic_id is None else topic_id  # type: ignore[assignment]
                topics.append((key, results))
                for asked in partitions:
                    try:
                        if refusal is not None:
                            raise refusal
                        if topic_id is None:
                            assert name is not None
                            partition = replicas.by_name(name, asked.partition)
                        else:
                            partition = replicas.by_id(topic_id, asked.partition)
                        result, next_offset = self._append(partition, asked, acks, now_ms, version)
                    except KafkaError as error:
                        failed = True
                        results.append(self._error(name, topic_id, asked.partition, error))
                        continue
                    if acks == ACKS_ALL and next_offset > partition.high_watermark:
                        if pending is None:
                            pending = _PendingProduce(replicas, slot, header, topics)
                        pending.add(partition, next_offset, results)
                    results.append(result)
        finally:
            replicas.wakeups.end_request()
        if acks == 0:
            if failed:
                codes = {
                    ErrorCode(r.error_code).name for _, results in topics for r in results if r.error_code
                }
                connection.close(f"a Produce request with acks=0 failed: {', '.join(sorted(codes))}")
            slot.complete_without_response()
            return
        endpoints: Sequence[NodeEndpoint] = ()
        if failed:
            leaders = [r.leader[0] for _, results in topics for r in results if r.leader is not None]
            endpoints = find_endpoints(replicas.metadata.image, leaders, connection.listener_name)
        if pending is not None:
            pending.park(request.timeout_ms, endpoints)
        else:
            slot.complete_framed(
                [build_produce_response(version, header.correlation_id, topics, endpoints=endpoints)]
            )

    def _refusal(self, acks: int) -> KafkaError | None:
        """Why nothing of a request with these acks can be taken; None if it can."""
        if acks not in (ACKS_ALL, 0, 1):
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; known are -1, 0 and 1")
        try:
            self._replicas.refuse_if_fenced()
            if acks != ACKS_ALL:
                self._replicas.refuse_past_lease()
        except KafkaError as error:
            return error
        return None

    def _error(self, name: str | None, topic_id: Uuid | None, index: int, error: KafkaError) -> ProduceResult:
        leader = None
        if error.code in HINTED:
            image = self._replicas.metadata.image
            leader = find_leader(image, name, topic_id, index, self._replicas.node_id)
        return ProduceResult(index, int(error.code), error_message=error.message, leader=leader)

    def _append(
        self, partition: Partition, asked: ProducePartition, acks: int, now_ms: int, version: int
    ) -> tuple[ProduceResult, int]:
        """Append one batch; the answer, and the offset that must be committed for acks=all."""
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {partition.topic}")
        if not partition.is_leader:
            partition.require_leader()
        log = partition.log
        header = validate_client_batch(asked.records, log.config, now_ms, version)
        assert asked.records is not None
        try:
            base_offset, next_offset, append_time_ms, _ = partition.append_as_leader(
                asked.records, header, now_ms, all_acks=acks == ACKS_ALL
            )
        except OSError as error:
            self._replicas.storage_failed(partition, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if acks != ACKS_ALL:
            # The process may have stood still since it looked, in the disk or as a whole.
            self._replicas.refuse_past_lease()
        result = ProduceResult(asked.partition, _NONE, base_offset, append_time_ms, log.log_start_offset)
        return result, next_offset


class _PendingProduce:
    """A request that waits until all of its batches are committed."""

    __slots__ = ("_endpoints", "_header", "_replicas", "_slot", "_topics", "_waiting", "bucket")

    def __init__(
        self, replicas: ReplicaManager, slot: ResponseSlot, header: RequestHeader, topics: Results
    ) -> None:
        self._replicas = replicas
        self._slot = slot
        self._header = header
        self._topics = topics
        self._endpoints: Sequence[NodeEndpoint] = ()
        self._waiting: dict[_PendingBatch, None] = {}
        self.bucket = -1

    def add(self, partition: Partition, next_offset: int, results: list[ProduceResult]) -> None:
        """Wait for ``next_offset``; the answer will be the next entry of ``results``."""
        batch = _PendingBatch(self, results, len(results))
        self._waiting[batch] = None
        partition.wait_for_commit(next_offset, batch)

    def park(self, timeout_ms: int, endpoints: Sequence[NodeEndpoint]) -> None:
        """All batches are appended. Some may be committed already."""
        self._endpoints = endpoints
        if not self._waiting:
            self._answer()
            return
        self._slot.on_abandon = self._abandon
        deadline_ms = self._replicas.clock.monotonic_ms() + max(timeout_ms, 0)
        self._replicas.wakeups.wait_until(self, deadline_ms)

    def batch_done(self, batch: _PendingBatch) -> None:
        self._waiting.pop(batch, None)
        if not self._waiting and self.bucket >= 0:
            self._replicas.wakeups.deadlines.remove(self)
            self._answer()

    def expire(self) -> None:
        """The batches are in the log and may yet be committed; the client is told that nobody knows."""
        for batch in self._waiting:
            batch.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._forget_batches()
        self._answer()

    def _abandon(self) -> None:
        """The client is gone."""
        self._replicas.wakeups.deadlines.remove(self)
        self._forget_batches()

    def _forget_batches(self) -> None:
        """What waits on in a partition, perhaps for long, keeps no request and no connection alive."""
        for batch in self._waiting:
            batch.request = None
        self._waiting.clear()

    def _answer(self) -> None:
        if not self._slot.done and not self._slot.abandoned:
            version, correlation_id = self._header.api_version, self._header.correlation_id
            self._slot.complete_framed(
                [build_produce_response(version, correlation_id, self._topics, endpoints=self._endpoints)]
            )


class _PendingBatch:
    """One batch of a waiting request."""

    __slots__ = ("_index", "_results", "request")

    def __init__(self, request: _PendingProduce, results: list[ProduceResult], index: int) -> None:
        self.request: _PendingProduce | None = request
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
