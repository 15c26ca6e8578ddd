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
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from pykraft.broker.apis.records.leader_hints import HINTED, find_endpoints, find_leader
from pykraft.broker.apis.records.produce_answers import PendingProduce, ProduceAnswer
from pykraft.broker.apis.records.produce_transactions import RequestTransaction, Verified, is_transactional
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.metadata.cache import INTERNAL_TOPICS
from pykraft.broker.replicas.leading.validate import ClientBatch, RejectedRecordsError
from pykraft.broker.replicas.leading.validation_turns import ValidationTurns
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.serving.large_requests import Asked, LargeRequests
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot.produce import (
    NodeEndpoint,
    ProduceRequestView,
    ProduceResult,
    ProduceTopic,
    parse_if_short,
    parse_in_slices,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError
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
        answer = ProduceAnswer(self.services, connection, header, slot)
        production = _Production(self, connection, header, request, answer)
        for _ in production.take(request.topics):
            pass
        if not production.run():
            self._go_on(connection, production.run_in_slices)

    def _go_on(self, connection: Connection, work: Callable[[], Awaitable[None]]) -> None:
        """In a task, while the connection is held."""
        connection.hold()
        self.services.tasks.start(_to_the_end(connection, work), "produce")
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
                answer = ProduceAnswer(self.services, connection, header, slot, self.slices)
                production = _Production(self, connection, header, request, answer)
                await self.slices.finish(production.take(request.topics))
                if await self.slices.result(production.begin_transaction()):
                    await production.run_in_slices()
                    return
            await production.run_in_slices()  # the others do not wait for the coordinator of this transaction
        finally:
            young_only.end()


def make_handler(services: BrokerServices, turns: Turns) -> ProduceHandler:
    """The handler of one broker."""
    return ProduceHandler(services, turns)


def _named(request: ProduceRequestView) -> Iterable[Asked]:
    for name, topic_id, partitions in request.topics:
        for asked in partitions:
            yield name, topic_id, asked.partition


async def _to_the_end(connection: Connection, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work for which the connection is held."""
    try:
        await work()
    except ProtocolError as error:
        connection.close(f"malformed request: {error.message}")
    except AssertionError:
        raise
    except Exception:
        # As for requests that are handled at once: a bug costs only the connection of its request.
        logger.exception("Produce failed")
        connection.close("internal error")
    except BaseException:
        # Cancelled. Later requests of this connection must not be handled: they would overtake this one.
        connection.close("the broker is stopping")
        raise
    finally:
        connection.release()


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
        "_answer",
        "_asked",
        "_begun",
        "_connection",
        "_failed",
        "_has_transaction",
        "_header",
        "_listed",
        "_next",
        "_now_ms",
        "_pending",
        "_refused",
        "_replicas",
        "_services",
        "_slices",
        "_timeout_ms",
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
        answer: ProduceAnswer,
    ) -> None:
        self._services = handler.services
        self._replicas = handler.services.replicas
        self._validation = handler.validation
        self._slices = handler.slices
        self._connection = connection
        self._header = header
        self._answer = answer
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._now_ms = handler.services.clock.wall_ms()
        self._pending: PendingProduce | None = None
        self._failed = False
        self._listed = 0
        """Records that the answer names because they were refused."""
        self._asked: list[_Asked] = []
        self._next = 0
        self._begun: ClientBatch | None = None
        self._transactional_id = request.transactional_id
        self._transaction: RequestTransaction | None = None  # that its coordinator has to be asked about
        self._refused: KafkaError | None = None
        self._has_transaction = False

    def take(self, topics: Iterable[ProduceTopic]) -> Generator[None, None, None]:
        """Note what is asked; yields between slices."""
        asked, left = self._asked, _ASKED_PER_SLICE
        for name, topic_id, partitions in topics:
            key: str | Uuid = name if topic_id is None else topic_id  # type: ignore[assignment]
            results = self._answer.add_topic(key)
            left -= 1
            for index, records in partitions:
                if left <= 0:
                    yield
                    left = _ASKED_PER_SLICE
                left -= 1
                asked.append(_Asked(name, topic_id, index, records, results))
                if is_transactional(records):
                    self._has_transaction = True

    def run(self) -> bool:
        """Append and answer; False if the turn is too short: the rest is left to :meth:`run_in_slices`."""
        if self._has_transaction and not at_once(self.begin_transaction()):
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
                    partition = self._leader(one)
                    batch = self._begin(one, partition)
                    if not self._validate_now(batch):
                        self._keep_rest(batch)
                        return False
                    self._append(one, partition, batch)
                except KafkaError as error:
                    self._fail(one, error)
                self._next += 1
        finally:
            self._services.wakeups.end_request()
        self._end()
        return True

    async def run_in_slices(self) -> None:
        """Like :meth:`run`, with a slice of the work in each turn of the event loop."""
        if self._transaction is not None:
            await self._transaction.ask(self._slices)
        for one in self._asked:
            await self._append_in_slices(one)
        self._end()

    async def _append_in_slices(self, one: _Asked) -> None:
        try:
            if self._failed:
                await self._validation.wait()  # a batch that is refused for its header is not walked
            self._require_permission()
            if one.verified is not None and one.verified.error is not None:
                raise one.verified.error
            batch, self._begun = self._begun or self._begin(one, self._leader(one)), None
            await self._validate_in_slices(batch)
            self._require_permission()
            partition = self._leader(one)  # it may have changed meanwhile
        except KafkaError as error:
            self._fail(one, error)
            return
        self._services.wakeups.begin_request()
        try:
            self._append(one, partition, batch)
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

    def _require_permission(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def begin_transaction(self) -> Generator[None, None, bool]:
        """Look at the transaction of this request; False if its coordinator has to be asked. Yields between
        slices.
        """
        if not self._has_transaction:
            return True
        self._refused = self._refusal()
        if self._refused is not None:
            return True  # for good: without this look nothing may be appended in a later slice
        asked: list[_Asked] = []
        partitions: list[Verified] = []
        for number, one in enumerate(self._asked, 1):
            if not number % _ASKED_PER_SLICE:
                yield
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
        if (yield from transaction.begin()):
            self._transaction = transaction
            return False
        return True

    # -- validating ------------------------------------------------------------------------------------

    def _begin(self, one: _Asked, partition: Partition) -> ClientBatch:
        return ClientBatch(one.records, partition.log.config, self._now_ms, self._header.api_version)

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

    def _append(self, one: _Asked, partition: Partition, batch: ClientBatch) -> None:
        """Append one batch and note its answer, which may have to wait until it is committed."""
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

    def _begin_to_wait(self) -> PendingProduce:
        if self._pending is None:
            self._pending = PendingProduce(self._answer)
        return self._pending

    def _fail(self, one: _Asked, error: KafkaError) -> None:
        self._failed = True
        self._replicas.table.traffic.failed_produce += 1
        leader = None
        if error.code in HINTED:
            image = self._services.metadata.image
            leader = find_leader(image, one.topic, one.topic_id, one.partition, self._replicas.node_id)
        record_errors: Sequence[tuple[int, str]] = ()
        if isinstance(error, RejectedRecordsError):
            record_errors = error.record_errors[: MAX_REJECTED_RECORDS - self._listed]
            self._listed += len(record_errors)
        one.results.append(
            ProduceResult(
                one.partition,
                int(error.code),
                error_message=error.message,
                leader=leader,
                record_errors=record_errors,
            )
        )

    def _end(self) -> None:
        """Answer, now or when what was appended is committed."""
        if self._acks == 0:
            self._end_without_answer()
            return
        endpoints: Sequence[NodeEndpoint] = ()
        if self._failed:
            leaders = {result.leader[0] for result in self._answer.results() if result.leader is not None}
            image = self._services.metadata.image
            endpoints = find_endpoints(image, leaders, self._connection.listener_name)
        self._answer.endpoints = endpoints
        if self._pending is not None:
            self._pending.park(self._timeout_ms)
        else:
            self._answer.send()

    def _end_without_answer(self) -> None:
        if self._failed:
            codes = {result.error_code for result in self._answer.results() if result.error_code}
            names = sorted(ErrorCode(code).name for code in codes)
            self._connection.close(f"a Produce request with acks=0 failed: {', '.join(names)}")
        self._answer.send_nothing()
