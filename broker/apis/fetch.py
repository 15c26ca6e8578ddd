"""Fetch, for consumers and followers alike.

Hot path: requests are parsed by hand; answers are header bytes and file ranges. A consumer reads below the
high watermark; a follower reads up to the log end, and its request is its acknowledgement. A fetch waits
until ``min_bytes`` are there or ``max_wait_ms`` have passed; an error or a diverging epoch is answered at
once. The first batch is returned whole, whatever its size; all others obey the limits of the request and of
the partition. There are no fetch sessions: every answer has session id 0. There are no transactions: the last
stable offset is the high watermark. No rack-aware reads: the preferred read replica is always the leader.
"""

from __future__ import annotations

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.fetch_session import check_session
from pykraft.broker.leader_hints import HINTED, find_endpoints, find_leader
from pykraft.broker.replicas.partition import Partition
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.fetch_fast import (
    FetchPartition,
    FetchRequestView,
    FetchResult,
    FetchTopic,
    build_fetch_response,
    parse_fetch_request,
)
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import STORAGE_ERRORS, LogSlice
from pykraft.log_store.segment import BadIndexError
from pykraft.runtime.turns import Turns

_NONE = int(ErrorCode.NONE)
_READ_COMMITTED = 1

Results = list[tuple[str | Uuid, list[FetchResult]]]


class FetchHandler:
    """Answers Fetch; one per broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._replicas = services.replicas
        self._isr_proposals = services.isr_proposals
        self._metadata = services.metadata
        self._max_bytes = services.config.fetch_max_bytes
        self.wakeups = services.wakeups
        self.clock = services.clock
        self.parked_followers: dict[int, _PendingFetch] = {}

    def handle(
        self,
        connection: Connection,
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Read the requested partitions; complete ``slot`` now, or when there is enough or time is up.

        A consumer's connection is held while this broker is about to lead a partition that it asks for.
        """
        version = header.api_version
        request = parse_fetch_request(body, 0, version)
        session_error = check_session(request.session_id, request.session_epoch)
        if session_error is not ErrorCode.NONE:
            empty = build_fetch_response(version, header.correlation_id, [], error_code=session_error)
            slot.complete_framed(empty)
            return
        replicas = self._replicas
        is_replica = request.replica_id >= 0
        # A follower is not held: it gets an error for such a partition and soon asks again. Its other
        # partitions must not wait.
        if not (is_replica or replicas.is_reconciled) and replicas.hold_until_open(
            connection,
            (
                (topic.name, topic.topic_id, asked.partition)
                for topic in request.topics
                for asked in topic.partitions
            ),
        ):
            return
        if is_replica:
            # A follower that sends another fetch while one waits has more partitions to fetch: answer the
            # first.
            waiting = self.parked_followers.pop(connection.connection_id, None)
            if waiting is not None:
                waiting.expire()
        self.wakeups.begin_request()
        try:
            if is_replica:
                self._acknowledge(request)
            topics, size, is_final = self.read(request)
        finally:
            self.wakeups.end_request()
        if is_final or size >= request.min_bytes or request.max_wait_ms <= 0:
            self.answer(header, request, connection.listener_name, topics, slot)
        else:
            pending = _PendingFetch(self, header, request, slot, connection)
            pending.park()
            if is_replica:
                self.parked_followers[connection.connection_id] = pending

    def _acknowledge(self, request: FetchRequestView) -> None:
        """Record what a follower's fetch offsets acknowledge. Errors are answered by :meth:`read`."""
        replica_id, broker_epoch = request.replica_id, request.replica_epoch
        now_ms = self.clock.monotonic_ms()
        for topic in request.topics:
            for asked in topic.partitions:
                try:
                    partition = self.find(topic, asked)
                    if self._diverging(partition, replica_id, asked) is None:
                        self._check_incarnation(replica_id, broker_epoch)
                        partition.handle_follower_fetch(
                            replica_id, asked.fetch_offset, broker_epoch, now_ms, asked.log_start_offset
                        )
                        if partition.followers[replica_id].may_have_found_damage(asked.fetch_offset):
                            self._replicas.check_sent(partition, asked.fetch_offset)
                except KafkaError:
                    continue
                if replica_id not in partition.isr.committed:
                    self._isr_proposals.maybe_propose(partition)

    def _check_incarnation(self, replica_id: int, broker_epoch: int) -> None:
        broker = self._metadata.image.brokers.get(replica_id)
        if broker is not None and 0 <= broker_epoch < broker.epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} has a newer incarnation"
            )

    def find(self, topic: FetchTopic, asked: FetchPartition) -> Partition:
        if topic.topic_id is not None:
            partition = self._replicas.by_id(topic.topic_id, asked.partition)
        else:
            assert topic.name is not None
            partition = self._replicas.by_name(topic.name, asked.partition)
        if asked.current_leader_epoch >= 0 or not partition.is_leader:
            partition.require_leader(asked.current_leader_epoch)
        return partition

    def _diverging(
        self, partition: Partition, replica_id: int, asked: FetchPartition
    ) -> tuple[int, int] | None:
        if replica_id >= 0:
            end = partition.check_follower(replica_id, asked.fetch_offset, asked.last_fetched_epoch)
        elif asked.last_fetched_epoch >= 0:
            before = asked.fetch_offset - 1
            if partition.log.epoch_cache.epoch_for_offset(before) != asked.last_fetched_epoch:
                # The log was truncated since, the batch has rotted in its header, or the epoch is made up.
                self._replicas.check_epoch(partition, before)
            end = partition.diverging_epoch(asked.fetch_offset, asked.last_fetched_epoch)
        else:
            return None
        return None if end is None else (end.epoch, end.end_offset)

    def read(self, request: FetchRequestView) -> tuple[Results, int, bool]:
        """(results, size of the records in bytes, whether they must be answered now)."""
        left = min(request.max_bytes, self._max_bytes)
        is_replica = request.replica_id >= 0
        refusal: KafkaError | None = None
        if not is_replica:
            try:
                self._replicas.refuse_if_fenced()
            except KafkaError as error:
                refusal = error
        topics: Results = []
        total = 0
        is_final = not request.topics
        for topic in request.topics:
            key: str | Uuid = topic.name if topic.topic_id is None else topic.topic_id  # type: ignore[assignment]
            results: list[FetchResult] = []
            topics.append((key, results))
            for asked in topic.partitions:
                try:
                    if refusal is not None:
                        raise refusal
                    partition = self.find(topic, asked)
                    diverging = self._diverging(partition, request.replica_id, asked)
                    records = None
                    if is_replica and partition.must_send_log_start(request.replica_id):
                        is_final = True
                    if diverging is not None:
                        is_final = True
                    elif is_replica and self._is_held_back(partition, request.replica_id):
                        pass  # the same as if nothing were there to read
                    elif left > 0 or total == 0:
                        limit = asked.max_bytes if asked.max_bytes < left else left
                        records = self._read_log(partition, asked.fetch_offset, limit, is_replica, total == 0)
                        if records is not None:
                            total += records.size_bytes
                            left -= records.size_bytes
                            if is_replica:
                                partition.followers[request.replica_id].sent_offset = asked.fetch_offset
                except KafkaError as error:
                    is_final = True
                    results.append(self._error(topic, asked, error))
                    continue
                results.append(
                    FetchResult(
                        asked.partition,
                        _NONE,
                        partition.high_watermark,
                        partition.log.log_start_offset,
                        records,
                        diverging,
                    )
                )
        return topics, total, is_final

    def _is_held_back(self, partition: Partition, replica_id: int) -> bool:
        """Whether the throttle of leaders keeps records from a follower that is not in sync (KIP-73)."""
        return (
            partition.is_throttled_leader
            and replica_id not in partition.isr.committed
            and self._replicas.quotas.leader.is_exceeded(self.clock.monotonic_ms())
        )

    def _count_throttled(self, request: FetchRequestView, topics: Results) -> None:
        """Records that are sent for throttled replicas use up the limit, also those to followers in sync."""
        quota = self._replicas.quotas.leader
        if quota.limit is None:
            return
        sent = sum(
            result.records.size_bytes
            for topic, (_, results) in zip(request.topics, topics, strict=True)
            for asked, result in zip(topic.partitions, results, strict=True)
            if isinstance(result.records, LogSlice) and self.find(topic, asked).is_throttled_leader
        )
        if sent:
            quota.record(sent, self.clock.monotonic_ms())

    def _read_log(
        self, partition: Partition, offset: int, limit: int, is_replica: bool, at_least_one: bool
    ) -> LogSlice | None:
        read = partition.read_replica if is_replica else partition.read_committed
        try:
            return read(offset, max(limit, 0), at_least_one=at_least_one)
        except BadIndexError:
            return None  # the fetch is woken when the index has been built again
        except STORAGE_ERRORS as error:
            raise partition.storage_failed(error) from error

    def _error(self, topic: FetchTopic, asked: FetchPartition, error: KafkaError) -> FetchResult:
        """The error, with a hint at the leader (KIP-951) or the valid offsets if the error calls for them."""
        leader: tuple[int, int] | None = None
        high_watermark = log_start = -1
        if error.code in HINTED:
            image, node_id = self._metadata.image, self._replicas.node_id
            leader = find_leader(image, topic.name, topic.topic_id, asked.partition, node_id)
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            partition = self.find(topic, asked)
            high_watermark, log_start = partition.high_watermark, partition.log.log_start_offset
        return FetchResult(asked.partition, int(error.code), high_watermark, log_start, leader=leader)

    def answer(
        self,
        header: RequestHeader,
        request: FetchRequestView,
        listener: str,
        topics: Results,
        slot: ResponseSlot,
    ) -> None:
        if request.replica_id >= 0:
            self._count_throttled(request, topics)
        leaders = [r.leader[0] for _, results in topics for r in results if r.leader is not None]
        image = self._metadata.image
        slot.complete_framed(
            build_fetch_response(
                header.api_version,
                header.correlation_id,
                topics,
                read_committed=request.isolation_level == _READ_COMMITTED,
                endpoints=find_endpoints(image, leaders, listener) if leaders else (),
            )
        )


def make_handler(services: BrokerServices, turns: Turns) -> FetchHandler:
    """The handler of one broker; the limits of a request bound its work, so it needs no ``turns``."""
    return FetchHandler(services)


class _PendingFetch:
    """A fetch that waits for data on any of its partitions."""

    __slots__ = ("_connection", "_handler", "_header", "_partitions", "_request", "_slot", "bucket")

    def __init__(
        self,
        handler: FetchHandler,
        header: RequestHeader,
        request: FetchRequestView,
        slot: ResponseSlot,
        connection: Connection,
    ) -> None:
        self._connection = connection
        self._handler = handler
        self._header = header
        self._request = request
        self._slot = slot
        self._partitions: list[dict[_PendingFetch, None]] = []
        self.bucket = -1

    def park(self) -> None:
        handler = self._handler
        is_replica = self._request.replica_id >= 0
        for topic in self._request.topics:
            for asked in topic.partitions:
                partition = handler.find(topic, asked)
                waiters: dict[_PendingFetch, None] = (
                    partition.replica_waiters if is_replica else partition.consumer_waiters  # type: ignore[assignment]
                )
                waiters[self] = None
                self._partitions.append(waiters)
        self._slot.on_abandon = self._leave
        handler.wakeups.wait_until(self, handler.clock.monotonic_ms() + self._request.max_wait_ms)

    def wake(self) -> None:
        self._handler.wakeups.wake(self)

    def evaluate(self) -> None:
        """Something changed: answer if there are enough bytes, otherwise keep waiting."""
        if self._slot.done or self._slot.abandoned:
            return
        topics, size, is_final = self._handler.read(self._request)
        if is_final or size >= self._request.min_bytes:
            self._finish(topics)

    def expire(self) -> None:
        if not self._slot.done and not self._slot.abandoned:
            self._finish(self._handler.read(self._request)[0])

    def _finish(self, topics: Results) -> None:
        self._leave()
        listener = self._connection.listener_name
        self._handler.answer(self._header, self._request, listener, topics, self._slot)

    def _leave(self) -> None:
        for waiters in self._partitions:
            waiters.pop(self, None)
        connection_id = self._connection.connection_id
        if self._handler.parked_followers.get(connection_id) is self:
            del self._handler.parked_followers[connection_id]
        self._handler.wakeups.deadlines.remove(self)
