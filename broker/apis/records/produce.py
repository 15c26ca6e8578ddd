"""Produce.

Hot path: requests are parsed and answered by hand. acks=1 is answered when the batch is appended, or flushed
if ``flush.messages`` asks for that; acks=all when the high watermark has passed the batch or the request's
timeout has expired; acks=0 never, and if such a request fails the connection is closed, so that the client
looks for the leader again. A request holds one batch per partition, which is validated to its last record. A
request for very many partitions takes several turns, with its connection held. A duplicate of an idempotent
batch gets the answer of the original, and no earlier. After the broker's lease has expired acks=0 and acks=1
are refused. The first batch of a transaction waits for the transaction coordinator's answer
(:mod:`.produce_transactions`). The answer lists 1000 refused records at most.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pykraft.broker.apis.records.held_connection import to_the_end
from pykraft.broker.apis.records.leader_hints import HINTED, find_endpoints, find_leader
from pykraft.broker.apis.records.produce_answers import PendingProduce
from pykraft.broker.apis.records.produce_transactions import RequestTransaction, Verified, is_transactional
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.metadata.cache import INTERNAL_TOPICS
from pykraft.broker.replicas.leading.validate import ClientBatch, RejectedRecordsError
from pykraft.broker.replicas.leading.validation_turns import ValidationTurns
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.partition.purgatory import OffsetQueue
from pykraft.broker.serving.large_requests import Asked, LargeRequests
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.produce import (
    ProduceRequestView,
    ProduceResult,
    ProduceRow,
    build,
    build_in_slices,
    parse_if_short,
    parse_in_slices,
)
from pykraft.kafka_protocol.hot.wire import NodeEndpoint
from pykraft.kafka_protocol.record_walk import MAX_REJECTED_RECORDS
from pykraft.kafka_protocol.records import read_header
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import Turns

logger = logging.getLogger(__name__)

ACKS_ALL = -1

_COPIED_BYTES = 256 << 10
"""The rest of a request is copied up to this size; a larger one stays in the buffer it was received in."""

_ASKED_PER_SLICE = 1_000

_NONE = int(ErrorCode.NONE)


class ProduceHandler:
    """Answers Produce; one per broker. ``turns`` is the budget of the node's event loop."""

    def __init__(self, services: BrokerServices, turns: Turns) -> None:
        self.services = services
        self.validation = ValidationTurns(turns)
        self._turns = turns
        self.slices = Slices(turns, "large produce requests")
        self._large = LargeRequests(self.slices, services.replicas.hold_until_open)

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
        request = parse_if_short(body, 0, header.api_version)
        if request is None:
            self._begin_large(connection, header, body, slot)
            return
        replicas = self.services.replicas
        if not replicas.is_reconciled and replicas.hold_until_open(connection, _named(request)):
            return
        production = Production(self, connection, header, request, slot)
        production.look_for_transaction(request.rows)
        if not production.run():
            self._go_on(connection, production.run_in_slices)

    def _go_on(self, connection: Connection, work: Callable[[], Awaitable[None]]) -> None:
        """In a task, while the connection is held."""
        connection.hold()
        self.services.tasks.start(to_the_end(connection, work), "produce")
        self._turns.spend(steps=1)

    def _begin_large(
        self, connection: Connection, header: RequestHeader, body: memoryview, slot: ResponseSlot
    ) -> None:
        is_kept = len(body) > _COPIED_BYTES and connection.keep_frame()
        frame = body if is_kept else memoryview(bytearray(body))
        self._go_on(connection, partial(self._produce_large, connection, header, frame, slot))

    async def _produce_large(
        self, connection: Connection, header: RequestHeader, frame: memoryview, slot: ResponseSlot
    ) -> None:
        """As :meth:`handle`, for very many partitions. Few at a time, since they take memory."""
        young_only = self._large.collect_young_only()
        try:
            async with self._large.few:
                if slot.abandoned:
                    return
                request = await self.slices.result(parse_in_slices(frame, 0, header.api_version))
                await self._large.until_open(lambda: _named(request))
                production = Production(self, connection, header, request, slot, self.slices)
                await self.slices.finish(production.look_in_slices())
                if await self.slices.result(production.begin_transaction()):
                    await production.run_in_slices()
                    return
            await production.run_in_slices()  # the others do not wait for the coordinator of this transaction
        finally:
            young_only.end()


def _named(request: ProduceRequestView) -> Iterator[Asked]:
    for row in request.rows:
        yield row.topic, row.topic_id, row.partition


class Production:
    """One request: its batches one after the other, and then the answer.

    Batches that this turn has no time to validate wait for later turns. The connection is held meanwhile, so
    that no later request of the producer overtakes this one.
    """

    __slots__ = (
        "_answer_slices",
        "_begun",
        "_connection",
        "_endpoints",
        "_failed",
        "_handler",
        "_has_transaction",
        "_header",
        "_listed",
        "_now_ms",
        "_pending",
        "_refused",
        "_replicas",
        "_results",
        "_rows",
        "_timeout_ms",
        "_topics",
        "_transaction",
        "_transactional_id",
        "_verified",
        "acks",
        "services",
        "slot",
    )

    def __init__(
        self,
        handler: ProduceHandler,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequestView,
        slot: ResponseSlot,
        answer_slices: Slices | None = None,
    ) -> None:
        """``answer_slices``: the results are very many."""
        self._handler = handler
        self.services = handler.services
        self._replicas = handler.services.replicas
        self._connection = connection
        self._header = header
        self.slot = slot
        self._answer_slices = answer_slices
        self._transactional_id = request.transactional_id
        self.acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._topics = request.topics
        self._rows = request.rows
        self._results: list[ProduceResult] = []
        """One of each row that has been handled, in their order."""
        self._endpoints: Sequence[NodeEndpoint] = ()
        """Endpoints of the leaders that results hint at."""
        self._now_ms = handler.services.clock.wall_ms()
        self._pending: PendingProduce | None = None
        self._failed = False
        self._listed = 0
        """Records that the answer names because they were refused."""
        self._begun: ClientBatch | None = None
        self._transaction: RequestTransaction | None = None  # that its coordinator has to be asked about
        self._verified: dict[int, Verified] = {}
        """By the number of their row."""
        self._refused: KafkaError | None = None
        self._has_transaction = False

    def look_for_transaction(self, rows: Sequence[ProduceRow]) -> None:
        """See whether a batch of these is transactional."""
        for row in rows:
            if is_transactional(row.records):
                self._has_transaction = True

    def look_in_slices(self) -> Generator[None, None, None]:
        """As :meth:`look_for_transaction`, for all rows; yields between slices."""
        for number in range(0, len(self._rows), _ASKED_PER_SLICE):
            if number:
                yield
            self.look_for_transaction(self._rows[number : number + _ASKED_PER_SLICE])

    def run(self) -> bool:
        """Append and answer; False if the turn is too short: the rest is left to :meth:`run_in_slices`."""
        if self._has_transaction and not at_once(self.begin_transaction()):
            self._keep_rest(None)
            return False
        refusal = self._refusal()
        rows, results = self._rows, self._results
        self.services.wakeups.begin_request()
        try:
            while len(results) < len(rows):
                if self._failed and not self._handler.validation.has_room():
                    self._keep_rest(None)
                    return False
                row = rows[len(results)]
                try:
                    if refusal is not None:
                        raise refusal
                    verified = self._verification() if self._verified else None
                    partition = self._leader(row)
                    batch = self._begin(row, partition)
                    if not self._validate_now(batch):
                        self._keep_rest(batch)
                        return False
                    self._append(row, partition, batch, verified)
                except KafkaError as error:
                    self._fail(row, error)
        finally:
            self.services.wakeups.end_request()
        self._end()
        return True

    async def run_in_slices(self) -> None:
        """Like :meth:`run`, with a slice of the work in each turn of the event loop."""
        if self._transaction is not None:
            await self._transaction.ask(self._handler.slices)
        for row in self._rows:
            await self._append_in_slices(row)
        self._end()

    async def _append_in_slices(self, row: ProduceRow) -> None:
        begun, self._begun = self._begun, None  # of this row, and of no other should this one be refused
        try:
            if self._failed:
                await self._handler.validation.wait()  # a batch that is refused for its header is not walked
            self._require_permission()
            verified = self._verification()
            batch = begun or self._begin(row, self._leader(row))
            await self._validate_in_slices(batch)
            self._require_permission()
            partition = self._leader(row)  # it may have changed meanwhile
        except KafkaError as error:
            self._fail(row, error)
            return
        self.services.wakeups.begin_request()
        try:
            self._append(row, partition, batch, verified)
        except KafkaError as error:
            self._fail(row, error)
        finally:
            self.services.wakeups.end_request()

    def _refusal(self) -> KafkaError | None:
        """The error that refuses the whole request now; None if there is none."""
        if self._refused is not None:
            return self._refused
        if self.acks not in (ACKS_ALL, 0, 1):
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self.acks}; it must be -1, 0 or 1")
        try:
            self._replicas.refuse_if_fenced()
            if self.acks != ACKS_ALL:
                self._replicas.refuse_past_lease()
        except KafkaError as error:
            return error
        return None

    def _require_permission(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def begin_transaction(self) -> Generator[None, None, bool]:
        """Look at the transaction of this request, in slices; False if its coordinator has to be asked."""
        if not self._has_transaction:
            return True
        self._refused = self._refusal()
        if self._refused is not None:
            return True  # for good: without this look nothing may be appended in a later slice
        for number, row in enumerate(self._rows):
            if number % _ASKED_PER_SLICE == _ASKED_PER_SLICE - 1:
                yield
            if is_transactional(row.records):
                assert row.records is not None
                header = read_header(row.records)
                if header.producer_id >= 0:  # otherwise it is refused for that
                    self._verified[number] = Verified(header, partial(self._leader, row))
        version, id = self._header.api_version, self._transactional_id
        try:
            transaction = RequestTransaction(self.services, id, version, [*self._verified.values()])
        except KafkaError as error:
            self._refused = error
            return True
        if (yield from transaction.begin()):
            self._transaction = transaction
            return False
        return True

    def _verification(self) -> Verified | None:
        """The next row's; None if it is of no transaction. Raises the error that refused it."""
        verified = self._verified.get(len(self._results))
        if verified is not None and verified.error is not None:
            raise verified.error
        return verified

    # -- validating ------------------------------------------------------------------------------------

    def _begin(self, row: ProduceRow, partition: Partition) -> ClientBatch:
        return ClientBatch(row.records, partition.log.config, self._now_ms, self._header.api_version)

    def _leader(self, row: ProduceRow) -> Partition:
        if row.topic_id is None:
            assert row.topic is not None
            partition = self._replicas.by_name(row.topic, row.partition)
        else:
            partition = self._replicas.by_id(row.topic_id, row.partition)
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients must not write to {partition.topic}"
            )
        if not partition.is_leader:
            partition.require_leader()
        return partition

    def _validate_now(self, batch: ClientBatch) -> bool:
        """Validate the batch if the rest of this turn is enough; whether it was."""
        if batch.needs_recompression:
            return False
        is_done = self._handler.validation.walk_now(batch, is_first=not self._results)
        if batch.is_large or not is_done:
            return False
        batch.finish()
        return True

    async def _validate_in_slices(self, batch: ClientBatch) -> None:
        await self._handler.validation.walk(batch)
        if not batch.is_large and not batch.needs_recompression:
            batch.finish()
            return
        async with self._handler.validation.memory:
            if batch.is_large:
                await self.services.workers.run(batch.unfold)
                await self._handler.validation.walk(batch)
            await self.services.workers.run(batch.finish)

    def _keep_rest(self, begun: ClientBatch | None) -> None:
        """Keep the rest of the request beyond this call, after which its buffer is reused.

        The connection gives the buffer away if the rest is large, otherwise the rest is copied. ``begun`` is
        the first batch of the rest, or None; a copied one, which is small, is validated again from its
        beginning.
        """
        rest = self._rows[len(self._results) :]
        size_bytes = sum(len(row.records) for row in rest if row.records is not None)
        if size_bytes > _COPIED_BYTES and self._connection.keep_frame():
            self._rows, self._begun = rest, begun
            return
        self._rows = [
            replace(row, records=None if row.records is None else memoryview(bytearray(row.records)))
            for row in rest
        ]

    # -- appending and answering -------------------------------------------------------------------------

    def _append(
        self, row: ProduceRow, partition: Partition, batch: ClientBatch, verified: Verified | None
    ) -> None:
        """Append one batch and note its answer, which may have to wait until it is committed."""
        try:
            appended = partition.append_as_leader(
                batch.records,
                batch.header,
                self._now_ms,
                all_acks=self.acks == ACKS_ALL,
                guard=None if verified is None else verified.guard,
            )
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error
        next_offset = appended.next_offset
        if self.acks != ACKS_ALL:
            # The process may have been suspended, or stuck in the disk, since the lease was checked.
            self._replicas.refuse_past_lease()
            if self.acks == 1 and next_offset > partition.log.acknowledged_end_offset:
                self._wait_in(partition.flushed_waiters, next_offset)
        elif next_offset > partition.high_watermark:
            self._wait_in(partition.committed_waiters, next_offset)
        log_start_offset, time_ms = partition.log.log_start_offset, appended.log_append_time_ms
        result = ProduceResult(row.partition, _NONE, appended.base_offset, time_ms, log_start_offset)
        self._results.append(result)

    def _wait_in(self, queue: OffsetQueue, next_offset: int) -> None:
        if self._pending is None:
            self._pending = PendingProduce(self)
        self._pending.add(queue, next_offset, len(self._results))

    def _fail(self, row: ProduceRow, error: KafkaError) -> None:
        self._failed = True
        self._replicas.table.traffic.failed_produce += 1
        leader = None
        if error.code in HINTED:
            image = self.services.metadata.image
            leader = find_leader(image, row.topic, row.topic_id, row.partition, self._replicas.node_id)
        record_errors: Sequence[tuple[int, str]] = ()
        if isinstance(error, RejectedRecordsError):
            record_errors = error.record_errors[: MAX_REJECTED_RECORDS - self._listed]
            self._listed += len(record_errors)
        self._results.append(
            ProduceResult(
                row.partition,
                int(error.code),
                error_message=error.message,
                leader=leader,
                record_errors=record_errors,
            )
        )

    def _end(self) -> None:
        """Answer, now or when what was appended is committed."""
        pending, self._pending = self._pending, None
        # While it waits for its answer it keeps no records, in which a whole frame would stay.
        self._rows, self._verified, self._transaction = [], {}, None
        if self.acks == 0:
            self._end_without_answer()
            return
        if self._failed:
            leaders = {result.leader[0] for result in self._results if result.leader is not None}
            image = self.services.metadata.image
            self._endpoints = find_endpoints(image, leaders, self._connection.listener_name)
        if pending is not None:
            pending.park(self._timeout_ms)
        else:
            self.send()

    def _end_without_answer(self) -> None:
        if self._failed:
            codes = {result.error_code for result in self._results if result.error_code}
            names = sorted(ErrorCode(code).name for code in codes)
            self._connection.close(f"a Produce request with acks=0 failed: {', '.join(names)}")
        self.slot.complete_without_response()

    def refuse(self, index: int, error_code: int) -> None:
        """A batch that was appended is not confirmed after all."""
        self._results[index] = ProduceResult(self._results[index].partition, int(error_code))

    def send(self) -> None:
        if self.slot.done or self.slot.abandoned:
            return
        if self._answer_slices is not None:
            self.do(self._send_in_slices())
            return
        version, id, frame = self._header.api_version, self._header.correlation_id, bytearray()
        build(frame, version, id, self._topics, self._results, endpoints=self._endpoints)
        self.slot.complete_framed((frame,))

    def _send_in_slices(self) -> Generator[None, None, None]:
        version, id, frame = self._header.api_version, self._header.correlation_id, bytearray()
        yield from build_in_slices(frame, version, id, self._topics, self._results, endpoints=self._endpoints)
        if not (self.slot.done or self.slot.abandoned):
            self.slot.complete_framed((frame,))

    def do(self, work: Generator[None, None, None]) -> None:
        """Do work whose length depends on the number of results."""
        if self._answer_slices is not None:
            self._answer_slices.run(work, self._fail_connection)
            return
        for _ in work:
            pass  # it is short

    def _fail_connection(self, error: Exception) -> None:
        logger.error("no answer to Produce", exc_info=error)
        self._connection.close("internal error")
