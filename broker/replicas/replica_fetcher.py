"""The followers' side of replication: fetches partitions from their leaders, with Kafka's own Fetch.

There is one connection per leader broker, with one request at a time for all partitions that follow it,
long-polled at the leader. A response is handled in place in the receive buffer, and the next request, which
acknowledges it, is sent in the same callback. A partition that starts to follow interrupts the poll: the
leader answers a waiting fetch when another arrives on its connection. Every result is matched with the leader
epoch of its request; a result of an older epoch is dropped. The partition decides where to truncate and what
to append.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress

from pykraft.broker.config import BrokerConfig
from pykraft.broker.replicas.partition import Partition
from pykraft.broker.replicas.ports import BrokerLease, ImageSource
from pykraft.broker.replicas.replication_quota import ReplicationQuota, ReplicationQuotas
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.fetch_fast import FetchPartition
from pykraft.kafka_protocol.fetch_follower import (
    FollowerResult,
    build_follower_fetch,
    parse_follower_response,
)
from pykraft.kafka_protocol.framing import SIZE_BYTES, FramingError, read_frame_size
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.log_store.interface import STORAGE_ERRORS
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.runtime.tcp import StreamConnection, StreamRuntime, connect

logger = logging.getLogger(__name__)

#: The wait after an error that means that the leader, or this broker, has not yet applied the newest epoch.
EPOCH_RETRY_MS = 50
CONNECT_BACKOFF_MS = 50
CONNECT_TIMEOUT_MS = 5000
MAX_RESPONSE_BYTES = 1 << 30
_SOON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

Key = tuple[Uuid, int]


class ReplicaFetchers:
    """The links to all leaders that this broker follows."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ImageSource,
        lease: BrokerLease,
        quotas: ReplicationQuotas,
        runtime: StreamRuntime,
        clock: Clock,
        tasks: TaskSupervisor,
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.lease = lease
        self.quota = quotas.follower
        self.runtime = runtime
        self.clock = clock
        self.tasks = tasks
        self._links: dict[int, _LeaderLink] = {}
        self._link_of: dict[Partition, _LeaderLink] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's current leader, in its current epoch."""
        leader = partition.leader_id
        assert leader is not None and leader != self.config.node_id
        self.unfollow(partition)
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = _LeaderLink(self, leader)
        self._link_of[partition] = link
        link.add(partition)

    def unfollow(self, partition: Partition) -> None:
        link = self._link_of.pop(partition, None)
        if link is not None:
            link.remove(partition)

    def report_log_start(self, partition: Partition) -> None:
        """Tell the leader that a log start is stored, without waiting for the end of the current poll."""
        link = self._link_of.get(partition)
        if link is not None:
            link.fetch_soon()

    def throttles_changed(self) -> None:
        """What waited for the limit may be fetched now."""
        for link in self._links.values():
            link.fetch_soon()

    def brokers_changed(self) -> None:
        """Leaders may have new addresses, or may be reachable again."""
        for leader in sorted(self._links):
            self._links[leader].endpoint_changed()

    async def stop(self) -> None:
        for leader in sorted(self._links):
            await self._links[leader].stop()


class _Followed:
    """One partition as it is fetched from one leader, in one leader epoch."""

    __slots__ = ("epoch", "is_behind", "partition", "retry_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.retry_ms = 0
        #: Whether the leader had committed more than this replica has, at the last answer.
        self.is_behind = True

    def ready_ms(self, quota: ReplicationQuota, now_ms: int) -> int:
        """When it may be fetched: not before the end of its pause, nor while a throttle holds it back.

        A throttle never holds back a replica that has all that is committed.
        """
        if self.is_behind and self.partition.is_throttled_follower:
            return max(self.retry_ms, quota.free_at_ms(now_ms))
        return self.retry_ms


class _LeaderLink:
    """The connection to one leader and the partitions that are fetched over it."""

    def __init__(self, owner: ReplicaFetchers, leader_id: int) -> None:
        self._owner = owner
        self._config = owner.config
        self._clock = owner.clock
        self._leader_id = leader_id
        self._followed: dict[Key, _Followed] = {}
        self._session: _FetchSession | None = None
        self._address: tuple[str, int] | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._task = owner.tasks.start(self._run(), f"replica-fetcher-{leader_id}")

    # -- what to fetch ---------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        self._followed[(partition.topic_id, partition.index)] = _Followed(partition)
        self._wanted.set()
        self.fetch_soon()

    def fetch_soon(self) -> None:
        """Interrupt the poll. Deferred, because many partitions usually need that together."""
        if self._session is not None:
            self._owner.runtime.loop.call_soon(self._interrupt)

    def remove(self, partition: Partition) -> None:
        self._followed.pop((partition.topic_id, partition.index), None)

    def _interrupt(self) -> None:
        if self._session is not None and self._session.in_flight < 2:
            self.fetch()

    def endpoint_changed(self) -> None:
        if self._session is not None and self._find_address() != self._address:
            self._session.close()
        self._wanted.set()

    def fetch(self) -> None:
        """Send one request for everything that may be fetched now."""
        session = self._session
        if session is None:
            return
        now_ms = self._clock.monotonic_ms()
        topics: dict[Uuid, list[FetchPartition]] = {}
        asked: dict[Key, _Followed] = {}
        retry_ms: int | None = None
        for key, followed in self._followed.items():
            ready_ms = followed.ready_ms(self._owner.quota, now_ms)
            if ready_ms > now_ms:
                retry_ms = ready_ms if retry_ms is None else min(retry_ms, ready_ms)
                continue
            log = followed.partition.log
            asked[key] = followed
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    key[1],
                    followed.epoch,
                    log.log_end_offset,
                    log.latest_epoch,
                    log.stored_log_start_offset,
                    self._config.replica_fetch_max_bytes,
                )
            )
        if retry_ms is not None:
            self._retry_at(retry_ms - now_ms)
        if asked:
            session.send(topics, asked)

    def _retry_at(self, delay_ms: int) -> None:
        loop, delay_s = self._owner.runtime.loop, delay_ms / 1000 + 0.001
        if self._retry_timer is not None and self._retry_timer.when() > loop.time() + delay_s:
            self._retry_timer.cancel()  # it was to end a throttle, and an error is retried sooner
            self._retry_timer = None
        if self._retry_timer is None:
            self._retry_timer = loop.call_later(delay_s, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._interrupt()

    # -- answers ---------------------------------------------------------------------------------------

    def handle_response(self, asked: dict[Key, _Followed], frame: memoryview) -> None:
        """Apply a response; raises :class:`ProtocolError` if it cannot be understood."""
        response = parse_follower_response(frame)
        if response.error_code != ErrorCode.NONE:
            raise ProtocolError(f"fetch refused with {response.error_code}")
        for result in response.results:
            key = (result.topic_id, result.partition)
            followed = self._followed.get(key)
            if followed is None or asked.get(key) is not followed:
                continue  # it follows another leader by now, or this one in another epoch
            try:
                self._apply(followed, result)
            except KafkaError as error:
                logger.warning("fetching %s from %d: %s", followed.partition, self._leader_id, error)
                self._delay(followed, self._config.replica_fetch_backoff_ms)
            except STORAGE_ERRORS as error:
                followed.partition.storage_failed(error)
                self._delay(followed, self._config.replica_fetch_backoff_ms)

    def _apply(self, followed: _Followed, result: FollowerResult) -> None:
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
                self._leader_id,
            )
            return
        if len(result.records):
            if partition.is_throttled_follower:
                self._owner.quota.record(len(result.records), self._clock.monotonic_ms())
            appended = partition.append_as_follower(result.records, self._clock.wall_ms())
            if appended:
                # Last in the next request, so that all partitions get their share of the responses.
                key = (partition.topic_id, partition.index)
                self._followed[key] = self._followed.pop(key)
        partition.follow(result.high_watermark, result.log_start_offset)
        followed.is_behind = partition.log.log_end_offset < result.high_watermark

    def _handle_error(self, followed: _Followed, result: FollowerResult) -> None:
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
            logger.warning("%s: leader %d answers error %d", partition, self._leader_id, result.error_code)
        self._delay(followed, EPOCH_RETRY_MS if soon else self._config.replica_fetch_backoff_ms)

    def _delay(self, followed: _Followed, delay_ms: int) -> None:
        followed.retry_ms = self._clock.monotonic_ms() + delay_ms

    # -- connection ------------------------------------------------------------------------------------

    def _find_address(self) -> tuple[str, int] | None:
        broker = self._owner.metadata.image.brokers.get(self._leader_id)
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
                    _, session = await connect(
                        self._owner.runtime, host, port, lambda link: _FetchSession(self, link)
                    )
            except OSError as error:
                logger.debug("cannot reach leader %d: %s", self._leader_id, error)
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, self._config.replica_fetch_backoff_ms)
                continue
            backoff_ms = CONNECT_BACKOFF_MS
            assert isinstance(session, _FetchSession)
            self._session = session
            self.fetch()
            await self._watch(session)
            self._session = None
            await asyncio.sleep(CONNECT_BACKOFF_MS / 1000)

    async def _watch(self, session: _FetchSession) -> None:
        """Wait until the connection ends; close it if the leader has not answered for too long."""
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        while not session.lost.is_set():
            answers = session.answers
            waited_for = session.in_flight
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await session.lost.wait()
            if waited_for and session.in_flight and session.answers == answers:
                logger.warning("leader %d does not answer", self._leader_id)
                session.close()

    def request_values(self) -> tuple[int, int]:
        """(this broker's id, its broker epoch)."""
        return self._config.node_id, self._owner.lease.epoch

    async def stop(self) -> None:
        self._task.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._session is not None:
            self._session.close()
        with suppress(asyncio.CancelledError):
            await self._task


class _FetchSession:
    """Frames to and from one leader; a :class:`~pykraft.runtime.tcp.StreamSession`."""

    def __init__(self, owner: _LeaderLink, link: StreamConnection) -> None:
        self._owner = owner
        self._link = link
        self._asked: deque[tuple[int, dict[Key, _Followed]]] = deque()
        self._correlation_id = 0
        self.need_bytes = SIZE_BYTES
        self.stalled = False
        self.lane: object = None
        self.answers = 0
        self.lost = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def send(self, topics: dict[Uuid, list[FetchPartition]], asked: dict[Key, _Followed]) -> None:
        config = self._owner._config
        node_id, broker_epoch = self._owner.request_values()
        self._correlation_id += 1
        self._asked.append((self._correlation_id, asked))
        self._link.write(
            [
                build_follower_fetch(
                    self._correlation_id,
                    f"broker-{node_id}-fetcher",
                    replica_id=node_id,
                    replica_epoch=broker_epoch,
                    max_wait_ms=config.replica_fetch_wait_max_ms,
                    min_bytes=config.replica_fetch_min_bytes,
                    max_bytes=config.replica_fetch_response_max_bytes,
                    topics=list(topics.items()),
                )
            ],
            urgent=True,
        )

    def receive(self, data: memoryview) -> int:
        position, end = 0, len(data)
        try:
            while end - position >= SIZE_BYTES:
                size = read_frame_size(data, position, MAX_RESPONSE_BYTES)
                following = position + SIZE_BYTES + size
                if following > end:
                    self.need_bytes = SIZE_BYTES + size
                    return position
                self._handle_frame(data[position + SIZE_BYTES : following])
                position = following
        except (FramingError, ProtocolError) as error:
            logger.warning("leader %d: %s", self._owner._leader_id, error)
            self.close()
            return end
        self.need_bytes = SIZE_BYTES
        return position

    def _handle_frame(self, frame: memoryview) -> None:
        if not self._asked or int.from_bytes(frame[:4], "big") != self._asked[0][0]:
            raise ProtocolError("a response without a request")
        _, asked = self._asked.popleft()
        self.answers += 1
        self._owner.handle_response(asked, frame)
        if not self._asked:
            self._owner.fetch()

    def connection_lost(self) -> None:
        self._asked.clear()
        self.lost.set()

    def close(self) -> None:
        self._link.close()
