"""One connection from a follower to a leader: fetches partitions with Kafka's own Fetch, in a fetch session.

There is one request at a time for all partitions of the link, long-polled at the leader; it names what has
changed since the last one. A response is handled in place in the receive buffer, and the next request, which
acknowledges it, is sent in the same callback. A partition that starts to follow interrupts the poll: the
leader answers a waiting fetch when another arrives on its connection. Every result is matched with the
request that named its partition last before the answer: a result of an older leader epoch is dropped. The
partition decides where to truncate and what to append.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from heapq import heappop, heappush

from pykraft.broker.config import BrokerConfig
from pykraft.broker.fetch_sessions.follower_side import (
    SESSION_ERRORS,
    FetchNames,
    FetchSessionHandler,
    Key,
    SessionState,
)
from pykraft.broker.replicas.following.leader_connection import Asked, Followed, LeaderConnection
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import BrokerLease, ImageSource
from pykraft.broker.replicas.replication_quota import ReplicationQuota
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.fetch_follower import (
    FollowerResult,
    build_follower_fetch,
    parse_follower_response,
)
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.runtime.clock import Clock
from pykraft.runtime.network.tcp import StreamRuntime, connect
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

#: The wait after an error that means that the leader, or this broker, has not yet applied the newest epoch.
EPOCH_RETRY_MS = 50
CONNECT_BACKOFF_MS = 50
CONNECT_TIMEOUT_MS = 5000
MOST_NAMED = 500
"""The partitions that a request names, also to have them forgotten, unless it has no session: its leader ends
the session of a larger one.
"""
_SOON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class LeaderLink:
    """A connection to one leader and the partitions that are fetched over it."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ImageSource,
        lease: BrokerLease,
        quota: ReplicationQuota,
        runtime: StreamRuntime,
        clock: Clock,
        tasks: TaskSupervisor,
        leader_id: int,
        fetcher: int,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._lease = lease
        self._quota = quota
        self._runtime = runtime
        self._clock = clock
        self.leader_id = leader_id
        self._client_id = f"broker-{config.node_id}-fetcher-{fetcher}"
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}
        self._asks_again = False
        self._retries: list[tuple[int, Key]] = []
        self._session = FetchSessionHandler()
        self._in_session: dict[Key, Followed] = {}  # as of the newest answer
        self._connection: LeaderConnection | None = None
        self._address: tuple[str, int] | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._task = tasks.start(self._run(), f"replica-fetcher-{leader_id}-{fetcher}")

    # -- what to fetch ---------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        is_in_sync = self._config.node_id in partition.isr.committed
        self._followed[key] = Followed(partition, is_in_sync=is_in_sync)
        self._changed[key] = None
        self._wanted.set()
        self.fetch_soon()

    def fetch_soon(self) -> None:
        """Interrupt the poll. Deferred, because many partitions usually need that together."""
        if self._connection is not None:
            self._runtime.loop.call_soon(self._interrupt)

    def end_pauses(self) -> None:
        """Look again at what waits: the throttle may have been lifted."""
        self._changed.update((key, None) for _, key in self._retries)
        self.fetch_soon()

    def remove(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        self._followed.pop(key, None)
        self._changed[key] = None

    def state_changed(self, partition: Partition) -> None:
        """The next request names the partition, if what it says differs."""
        self._changed[partition.topic_id, partition.index] = None

    def _interrupt(self) -> None:
        if self._changed or self._retries:
            self.fetch()

    def endpoint_changed(self) -> None:
        if self._connection is not None and self._find_address() != self._address:
            self._connection.close()
        self._wanted.set()

    def fetch(self) -> None:
        """Send the next request for everything that may be fetched now."""
        connection, session = self._connection, self._session
        now_ms = self._clock.monotonic_ms()
        if connection is None or not session.may_send(connection.in_flight, now_ms):
            return
        self._take_retries(now_ms)
        is_full = session.is_full
        if is_full:
            self._changed = dict.fromkeys(self._followed)
        # A session is opened with some, and told of the others then: no request holds up its leader for long.
        room = len(self._changed) if session.state is SessionState.SESSIONLESS else MOST_NAMED
        again: dict[Key, None] = {}
        named: dict[Key, Followed | None] = {}
        wanted: dict[Key, FetchPartition | None] = {}
        for key in list(self._changed):
            if not room:
                break
            del self._changed[key]
            followed = self._followed.get(key)
            ready_ms = now_ms if followed is None else followed.ready_ms(self._quota, now_ms)
            if followed is None or ready_ms > now_ms:
                named[key] = wanted[key] = None
            elif not followed.is_asked and session.knows(key):
                # What the leader has told so far, it told another: it is to forget that first.
                again[key] = named[key] = wanted[key] = None
            else:
                followed.is_asked = True
                named[key], wanted[key] = followed, self._ask(followed)
            room -= wanted[key] is not None or session.knows(key)
            if ready_ms > now_ms:
                heappush(self._retries, (ready_ms, key))
        self._arm_retry(now_ms)
        names = session.build(wanted)
        self._changed |= again
        self._asks_again = bool(self._changed)
        if names is not None:
            frame = self._encode(names, connection.next_correlation_id)
            connection.send(frame, Asked(is_full, named))
        if self._asks_again:
            self.fetch_soon()

    def _ask(self, followed: Followed) -> FetchPartition:
        log = followed.partition.log
        return FetchPartition(
            followed.partition.index,
            followed.epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.stored_log_start_offset,
            self._config.replica_fetch_max_bytes,
        )

    def _encode(self, names: FetchNames, correlation_id: int) -> bytearray:
        config = self._config
        # A request that opens a session is answered at once, since others have to wait for its answer.
        is_opening = self._session.state is SessionState.OPENING
        return build_follower_fetch(
            correlation_id,
            self._client_id,
            replica_id=config.node_id,
            replica_epoch=self._lease.epoch,
            max_wait_ms=0 if is_opening else config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=names.session_id,
            session_epoch=names.epoch,
            topics=list(names.topics.items()),
            forgotten=list(names.forgotten.items()),
        )

    def _delay(self, followed: Followed, delay_ms: int) -> None:
        key = followed.partition.topic_id, followed.partition.index
        followed.retry_ms = self._clock.monotonic_ms() + delay_ms
        self._changed[key] = None

    def _take_retries(self, now_ms: int) -> None:
        """Fetch again what was delayed until now."""
        while self._retries and self._retries[0][0] <= now_ms:
            self._changed[heappop(self._retries)[1]] = None

    def _arm_retry(self, now_ms: int) -> None:
        if not self._retries:
            return
        loop, delay_s = self._runtime.loop, (self._retries[0][0] - now_ms) / 1000 + 0.001
        if self._retry_timer is not None and self._retry_timer.when() > loop.time() + delay_s:
            self._retry_timer.cancel()  # it was to end a throttle, and an error is retried sooner
            self._retry_timer = None
        if self._retry_timer is None:
            self._retry_timer = loop.call_later(delay_s, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._interrupt()

    # -- answers ---------------------------------------------------------------------------------------

    def handle_response(self, asked: Asked, frame: memoryview) -> None:
        """Apply a response; raises :class:`ProtocolError` if it cannot be understood."""
        response = parse_follower_response(frame)
        now_ms = self._clock.monotonic_ms()
        if response.error_code in SESSION_ERRORS:
            logger.info("leader %d ends the fetch session: error %d", self.leader_id, response.error_code)
            self._session.refused(response.error_code, now_ms)
            return
        if response.error_code != ErrorCode.NONE:
            raise ProtocolError(f"fetch refused with {response.error_code}")
        self._session.answered(response.session_id, now_ms)
        self._note_answered(asked)
        if self._asks_again:
            self.fetch_soon()
        for result in response.results:
            key = (result.topic_id, result.partition)
            followed = self._followed.get(key)
            if followed is None or self._in_session.get(key) is not followed:
                continue  # it follows another leader by now, or this one in another epoch
            self._changed[key] = None
            try:
                self._apply(followed, result)
            except KafkaError as error:
                logger.warning("fetching %s from %d: %s", followed.partition, self.leader_id, error)
                self._delay(followed, self._config.replica_fetch_backoff_ms)
            except STORAGE_ERRORS as failure:
                followed.partition.storage_failed(failure)
                self._delay(followed, self._config.replica_fetch_backoff_ms)
            except Exception as bug:  # a bug that this partition has met: the others go on
                followed.partition.replication_failed(bug)
                self._delay(followed, self._config.replica_fetch_backoff_ms)

    def _note_answered(self, asked: Asked) -> None:
        if asked.is_full:
            self._in_session = {}
        for key, followed in asked.named.items():
            if followed is None:
                self._in_session.pop(key, None)
            else:
                self._in_session[key] = followed

    def _apply(self, followed: Followed, result: FollowerResult) -> None:
        partition = followed.partition
        if result.error_code != ErrorCode.NONE:
            self._handle_error(followed, result)
            return
        if result.diverging is not None:
            before = partition.log.log_end_offset
            after = partition.truncate_to_divergence(*result.diverging)
            logger.info(
                "%s: truncated from %d to %d to match its leader %d",
                partition,
                before,
                after,
                self.leader_id,
            )
            return
        if len(result.records):
            if partition.is_throttled_follower:
                self._quota.record(len(result.records), self._clock.monotonic_ms())
            appended = partition.append_as_follower(
                result.records, self._clock.wall_ms(), result.log_start_offset
            )
            if appended:
                # Last in the next request, so that all partitions get their share of the responses.
                key = (partition.topic_id, partition.index)
                self._followed[key] = self._followed.pop(key)
        partition.follow(result.high_watermark, result.log_start_offset)
        followed.is_behind = partition.log.log_end_offset < result.high_watermark

    def _handle_error(self, followed: Followed, result: FollowerResult) -> None:
        partition = followed.partition
        log = partition.log
        # An empty log that starts beyond the leader's end has lost its records already: nothing more is lost.
        is_empty = log.log_start_offset == log.log_end_offset
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and (
            result.log_start_offset > log.log_end_offset
            or (is_empty and 0 <= result.log_start_offset < log.log_end_offset)
        ):
            logger.warning(
                "%s: the log ends at %d, the leader's starts at %d; starting over there",
                partition,
                log.log_end_offset,
                result.log_start_offset,
            )
            partition.restart_at(result.log_start_offset)
            return
        soon = result.error_code in _SOON
        if not soon:
            logger.warning("%s: leader %d answers error %d", partition, self.leader_id, result.error_code)
        self._delay(followed, EPOCH_RETRY_MS if soon else self._config.replica_fetch_backoff_ms)

    # -- connection ------------------------------------------------------------------------------------

    def _find_address(self) -> tuple[str, int] | None:
        broker = self._metadata.image.brokers.get(self.leader_id)
        listener_name = self._config.inter_broker_listener_name
        endpoint = broker.endpoint(listener_name) if broker is not None else None
        return None if endpoint is None else (endpoint.host, endpoint.port)

    async def _run(self) -> None:
        backoff_ms = CONNECT_BACKOFF_MS
        while True:
            await self._wanted.wait()
            self._address = self._find_address()
            if not self._followed or self._address is None:
                self._wanted.clear()
                continue
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                    host, port = self._address
                    _, connection = await connect(
                        self._runtime,
                        host,
                        port,
                        lambda link: LeaderConnection(link, self.leader_id, self.handle_response, self.fetch),
                    )
            except OSError as error:
                logger.debug("cannot reach leader %d: %s", self.leader_id, error)
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, self._config.replica_fetch_backoff_ms)
                continue
            backoff_ms = CONNECT_BACKOFF_MS
            assert isinstance(connection, LeaderConnection)
            self._session.connection_lost()
            self._in_session = {}
            self._connection = connection
            self.fetch()
            await self._watch(connection)
            self._connection = None
            await asyncio.sleep(CONNECT_BACKOFF_MS / 1000)

    async def _watch(self, connection: LeaderConnection) -> None:
        """Wait until the connection ends; close it if the leader has not answered for too long."""
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        while not connection.lost.is_set():
            answers = connection.answers
            waited_for = connection.in_flight
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await connection.lost.wait()
            if waited_for and connection.in_flight and connection.answers == answers:
                logger.warning("leader %d does not answer", self.leader_id)
                connection.close()

    def close(self) -> None:
        """End the connection; :meth:`stop` waits for that."""
        self._task.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def stop(self) -> None:
        self.close()
        with suppress(asyncio.CancelledError):
            await self._task
