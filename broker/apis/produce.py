"""Produce.

Hot path: requests are parsed by hand, appended at once and answered by hand. acks=1 is answered at once, or
when the batch is flushed if ``flush.messages`` asks for that; acks=all when the high watermark has passed the
batch or the request's timeout has expired, acks=0 never; if a request without an answer fails, the connection
is closed so that the client looks for the leader again. A request holds one batch per partition, which is
validated to its last record before it is appended. A duplicate of an idempotent batch gets the answer of the
original, and no earlier. After the broker's lease has expired acks=0 and acks=1 are refused. The first batch
of a transaction waits until the transaction coordinator has been asked (:mod:`.produce_transactions`), with
its connection held.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from pykraft.broker.apis.produce_transactions import RequestTransaction, Verified, is_transactional
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.leader_hints import HINTED, find_endpoints, find_leader
from pykraft.broker.metadata_cache import INTERNAL_TOPICS
from pykraft.broker.replicas.partition import Partition
from pykraft.broker.replicas.validate import ClientBatch, RejectedRecordsError
from pykraft.broker.replicas.validation_turns import ValidationTurns
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.produce_fast import (
    NodeEndpoint,
    ProduceRequestView,
    ProduceResult,
    build_produce_response,
    parse_produce_request,
)
from pykraft.kafka_protocol.records import read_header
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

ACKS_ALL = -1

_COPIED_BYTES = 256 << 10
"""The rest of a request is copied up to this size; a larger one stays in the buffer it was received in."""

_NONE = int(ErrorCode.NONE)

Results = list[tuple[str | Uuid, list[ProduceResult]]]


class ProduceHandler:
    """Answers Produce; one per broker. ``turns`` is the budget of the node's event loop."""

    def __init__(self, services: BrokerServices, turns: Turns) -> None:
        self.services = services
        self.validation = ValidationTurns(turns)
        self._turns = turns

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Append the request's batches; complete ``slot`` now or once they are committed.

        While this broker is about to lead one of the partitions nothing is appended yet, and the connection
        is held.
        """
        request = parse_produce_request(body, 0, header.api_version)
        replicas = self.services.replicas
        if not replicas.is_reconciled and replicas.hold_until_open(
            connection,
            (
                (name, topic_id, asked.partition)
                for name, topic_id, partitions in request.topics
                for asked in partitions
            ),
        ):
            return
        production = _Production(self, connection, header, request, slot)
        if not production.run():
            connection.hold()
            self.services.tasks.start(production.run_in_slices(), "produce")
            self._turns.spend(steps=1)


def make_handler(services: BrokerServices, turns: Turns) -> ProduceHandler:
    """The handler of one broker."""
    return ProduceHandler(services, turns)


class _Asked(NamedTuple):
    """One partition of a request, and where its answer goes."""

    topic: str | None
    topic_id: Uuid | None
    partition: int
    records: memoryview | None
    results: list[ProduceResult]
    verified: Verified | None = None


class _Production:
    """One request: its batches one after the other, and then the answer.

    Batches that this turn has no time to validate wait for later turns. The connection is held meanwhile, so
    that no later request of the producer overtakes this one.
    """

    __slots__ = (
        "_acks",
        "_asked",
        "_begun",
        "_connection",
        "_failed",
        "_has_transaction",
        "_header",
        "_next",
        "_now_ms",
        "_pending",
        "_refused",
        "_replicas",
        "_services",
        "_slot",
        "_timeout_ms",
        "_topics",
        "_transaction",
        "_transactional_id",
        "_validation",
    )

    def __init__(
        self,
        handler: ProduceHandler,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequestView,
        slot: ResponseSlot,
    ) -> None:
        self._services = handler.services
        self._replicas = handler.services.replicas
        self._validation = handler.validation
        self._connection = connection
        self._header = header
        self._slot = slot
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._now_ms = handler.services.clock.wall_ms()
        self._pending: _PendingProduce | None = None
        self._failed = False
        self._topics: Results = []
        self._asked: list[_Asked] = []
        self._next = 0
        self._begun: ClientBatch | None = None
        self._transactional_id = request.transactional_id
        self._transaction: RequestTransaction | None = None  # that its coordinator has to be asked about
        self._refused: KafkaError | None = None
        self._has_transaction = False
        for name, topic_id, partitions in request.topics:
            results: list[ProduceResult] = []
            key: str | Uuid = name if topic_id is None else topic_id  # type: ignore[assignment]
            self._topics.append((key, results))
            for index, records in partitions:
                self._asked.append(_Asked(name, topic_id, index, records, results))
                if is_transactional(records):
                    self._has_transaction = True

    def run(self) -> bool:
        """Append and answer; False if the turn is too short: the rest is left to :meth:`run_in_slices`."""
        if self._has_transaction and not self._begin_transaction():
            self._keep_rest(None)
            return False
        refusal = self._refusal()
        asked = self._asked
        self._services.wakeups.begin_request()
        try:
            while self._next < len(asked):
                if self._failed and not self._validation.has_room():
                    self._keep_rest(None)
                    return False
                one = asked[self._next]
                try:
                    if refusal is not None:
                        raise refusal
                    if one.verified is not None and one.verified.error is not None:
                        raise one.verified.error
                    batch = self._begin(one)
                    if not self._validate_now(batch):
                        self._keep_rest(batch)
                        return False
                    self._append(one, batch)
                except KafkaError as error:
                    self._fail(one, error)
                self._next += 1
        finally:
            self._services.wakeups.end_request()
        self._answer()
        return True

    async def run_in_slices(self) -> None:
        """Like :meth:`run`, with a slice of the work in each turn of the event loop."""
        try:
            if self._transaction is not None:
                await self._transaction.ask()
            for one in self._asked:
                await self._append_in_slices(one)
            self._answer()
        except AssertionError:
            raise
        except Exception:
            # As for requests that are handled at once: a bug costs only the connection of its request.
            logger.exception("Produce failed")
            self._connection.close("internal error")
        except BaseException:
            # Cancelled. Later requests of this connection must not be handled: they would overtake this one.
            self._connection.close("the broker is stopping")
            raise
        finally:
            self._connection.release()

    async def _append_in_slices(self, one: _Asked) -> None:
        try:
            if self._failed:
                await self._validation.wait()  # a batch that is refused for its header is not walked
            if one.verified is not None and one.verified.error is not None:
                raise one.verified.error
            batch, self._begun = self._begun or self._begin(one), None
            await self._validate_in_slices(batch)
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
        except KafkaError as error:
            self._fail(one, error)
            return
        self._services.wakeups.begin_request()
        try:
            self._append(one, batch)
        except KafkaError as error:
            self._fail(one, error)
        finally:
            self._services.wakeups.end_request()

    def _refusal(self) -> KafkaError | None:
        """The error that refuses the whole request now; None if there is none."""
        if self._refused is not None:
            return self._refused
        if self._acks not in (ACKS_ALL, 0, 1):
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self._acks}; it must be -1, 0 or 1")
        try:
            self._replicas.refuse_if_fenced()
            if self._acks != ACKS_ALL:
                self._replicas.refuse_past_lease()
        except KafkaError as error:
            return error
        return None

    def _begin_transaction(self) -> bool:
        """Look at the transaction of this request; False if its coordinator has to be asked."""
        if self._refusal() is not None:
            return True
        asked: list[_Asked] = []
        partitions: list[Verified] = []
        for one in self._asked:
            if is_transactional(one.records):
                assert one.records is not None
                header = read_header(one.records)
                if header.producer_id >= 0:  # otherwise it is refused for that
                    partitions.append(Verified(header, partial(self._leader, one)))
                    asked.append(one._replace(verified=partitions[-1]))
                    continue
            asked.append(one)
        self._asked = asked
        version, id = self._header.api_version, self._transactional_id
        try:
            transaction = RequestTransaction(self._services, id, version, partitions)
        except KafkaError as error:
            self._refused = error
            return True
        if transaction.begin():
            self._transaction = transaction
            return False
        return True

    # -- validating ------------------------------------------------------------------------------------

    def _begin(self, one: _Asked) -> ClientBatch:
        config = self._leader(one).log.config
        return ClientBatch(one.records, config, self._now_ms, self._header.api_version)

    def _leader(self, one: _Asked) -> Partition:
        if one.topic_id is None:
            assert one.topic is not None
            partition = self._replicas.by_name(one.topic, one.partition)
        else:
            partition = self._replicas.by_id(one.topic_id, one.partition)
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients must not write to {partition.topic}"
            )
        if not partition.is_leader:
            partition.require_leader()
        return partition

    def _validate_now(self, batch: ClientBatch) -> bool:
        """Validate the batch if the rest of this turn is enough; whether it was."""
        if batch.needs_recompression or not self._validation.walk_now(batch) or batch.is_large:
            return False
        batch.finish()
        return True

    async def _validate_in_slices(self, batch: ClientBatch) -> None:
        await self._validation.walk(batch)
        if not batch.is_large and not batch.needs_recompression:
            batch.finish()
            return
        async with self._validation.memory:
            if batch.is_large:
                await self._services.workers.run(batch.unfold)
                await self._validation.walk(batch)
            await self._services.workers.run(batch.finish)

    def _keep_rest(self, begun: ClientBatch | None) -> None:
        """Keep the rest of the request beyond this call, after which its buffer is reused.

        The connection gives the buffer away if the rest is large, otherwise the rest is copied. ``begun`` is
        the first batch of the rest, or None; a copied one, which is small, is validated again from its
        beginning.
        """
        rest = self._asked[self._next :]
        size_bytes = sum(len(one.records) for one in rest if one.records is not None)
        if size_bytes > _COPIED_BYTES and self._connection.keep_frame():
            self._asked, self._begun = rest, begun
            return
        self._asked = [
            one._replace(records=None if one.records is None else memoryview(bytearray(one.records)))
            for one in rest
        ]

    # -- appending and answering -------------------------------------------------------------------------

    def _append(self, one: _Asked, batch: ClientBatch) -> None:
        """Append one batch and note its answer, which may have to wait until it is committed."""
        partition = self._leader(one)
        try:
            base_offset, next_offset, append_time_ms = partition.append_as_leader(
                batch.records,
                batch.header,
                self._now_ms,
                all_acks=self._acks == ACKS_ALL,
                guard=None if one.verified is None else one.verified.guard,
            )
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error
        if self._acks != ACKS_ALL:
            # The process may have been suspended, or stuck in the disk, since the lease was checked.
            self._replicas.refuse_past_lease()
            if self._acks == 1 and next_offset > partition.log.acknowledged_end_offset:
                self._begin_to_wait().add_flush(partition, next_offset, one.results)
        elif next_offset > partition.high_watermark:
            self._begin_to_wait().add(partition, next_offset, one.results)
        log_start_offset = partition.log.log_start_offset
        one.results.append(ProduceResult(one.partition, _NONE, base_offset, append_time_ms, log_start_offset))

    def _begin_to_wait(self) -> _PendingProduce:
        if self._pending is None:
            self._pending = _PendingProduce(self._services, self._slot, self._header, self._topics)
        return self._pending

    def _fail(self, one: _Asked, error: KafkaError) -> None:
        self._failed = True
        self._replicas.table.traffic.failed_produce += 1
        leader = None
        if error.code in HINTED:
            image = self._services.metadata.image
            leader = find_leader(image, one.topic, one.topic_id, one.partition, self._replicas.node_id)
        record_errors = error.record_errors if isinstance(error, RejectedRecordsError) else ()
        one.results.append(
            ProduceResult(
                one.partition,
                int(error.code),
                error_message=error.message,
                leader=leader,
                record_errors=record_errors,
            )
        )

    def _answer(self) -> None:
        if self._acks == 0:
            self._end_without_answer()
            return
        endpoints: Sequence[NodeEndpoint] = ()
        if self._failed:
            leaders = [r.leader[0] for _, results in self._topics for r in results if r.leader is not None]
            image = self._services.metadata.image
            endpoints = find_endpoints(image, leaders, self._connection.listener_name)
        if self._pending is not None:
            self._pending.park(self._timeout_ms, endpoints)
        elif not self._slot.abandoned:
            version, correlation_id = self._header.api_version, self._header.correlation_id
            self._slot.complete_framed(
                [build_produce_response(version, correlation_id, self._topics, endpoints=endpoints)]
            )

    def _end_without_answer(self) -> None:
        if self._failed:
            codes = {
                ErrorCode(r.error_code).name for _, results in self._topics for r in results if r.error_code
            }
            self._connection.close(f"a Produce request with acks=0 failed: {', '.join(sorted(codes))}")
        self._slot.complete_without_response()


class _PendingProduce:
    """A request that waits until all of its batches are committed, or flushed."""

    __slots__ = ("_endpoints", "_header", "_services", "_slot", "_topics", "_waiting", "bucket")

    def __init__(
        self, services: BrokerServices, slot: ResponseSlot, header: RequestHeader, topics: Results
    ) -> None:
        self._services = services
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

    def add_flush(self, partition: Partition, next_offset: int, results: list[ProduceResult]) -> None:
        """As :meth:`add`, until the batch is flushed and this leader may still answer."""
        batch = _FlushedBatch(self, results, len(results))
        self._waiting[batch] = None
        partition.wait_for_flush(next_offset, batch)

    def refusal(self) -> ErrorCode | None:
        """Why nothing may be confirmed any more without the ISR; None if it may."""
        try:
            self._services.replicas.refuse_past_lease()
        except KafkaError as error:
            return error.code
        return None

    def park(self, timeout_ms: int, endpoints: Sequence[NodeEndpoint]) -> None:
        """Wait until the batches are committed. Some may be already, and the client may have disconnected."""
        self._endpoints = endpoints
        if self._slot.abandoned:
            self._forget_batches()
            return
        if not self._waiting:
            self._answer()
            return
        self._slot.on_abandon = self._abandon
        deadline_ms = self._services.clock.monotonic_ms() + max(timeout_ms, 0)
        self._services.wakeups.wait_until(self, deadline_ms)

    def batch_done(self, batch: _PendingBatch) -> None:
        self._waiting.pop(batch, None)
        if not self._waiting and self.bucket >= 0:
            self._services.wakeups.deadlines.remove(self)
            self._answer()

    def expire(self) -> None:
        """Answer with an error that says the outcome is unknown: the batches may still be committed."""
        for batch in self._waiting:
            batch.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._forget_batches()
        self._answer()

    def _abandon(self) -> None:
        """The client has disconnected."""
        self._services.wakeups.deadlines.remove(self)
        self._forget_batches()

    def _forget_batches(self) -> None:
        """A batch may keep waiting in its partition for long; it must not keep the request alive."""
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


class _FlushedBatch(_PendingBatch):
    """One batch of a request with acks=1. The lease may have expired while it was flushed."""

    __slots__ = ()

    def offset_committed(self) -> None:
        refusal = None if self.request is None else self.request.refusal()
        if refusal is None:
            super().offset_committed()
        else:
            self.offset_refused(refusal)
