"""Frames to and from one leader: the requests that are not answered yet, and the answers in their order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pykraft.broker.fetch_sessions.follower_side import Key
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.replication_quota import ReplicationQuota
from pykraft.kafka_protocol.framing import SIZE_BYTES, FramingError, take_frames
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.runtime.network.tcp import StreamConnection

logger = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 1 << 30
FLUSH_WAIT_MS = 1000
"""How often a partition is looked at whose log is being flushed; it is fetched when that is done."""


class Followed:
    """One partition as it is fetched from one leader, in one leader epoch."""

    __slots__ = ("epoch", "is_asked", "is_behind", "partition", "retry_ms")

    def __init__(self, partition: Partition, *, is_in_sync: bool) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.retry_ms = 0
        self.is_asked = False
        #: Whether the leader had committed more than this replica has, at the last answer; before the first
        #: one a member of the ISR has all that is committed.
        self.is_behind = not is_in_sync

    def ready_ms(self, quota: ReplicationQuota, now_ms: int) -> int:
        """When it may be fetched: not before the end of its pause, nor while a throttle holds it back.

        A throttle never holds back a replica that has all that is committed. A fetch acknowledges everything
        in the log: while that has to be flushed first there is none.
        """
        if self.partition.log.is_flush_due:
            return max(self.retry_ms, now_ms + FLUSH_WAIT_MS)
        if self.is_behind and self.partition.is_throttled_follower:
            return max(self.retry_ms, quota.free_at_ms(now_ms))
        return self.retry_ms


class Asked(NamedTuple):
    """The content of a request: everything, or changes only; None: no longer fetched."""

    is_full: bool
    named: dict[Key, Followed | None]


class LeaderConnection:
    """A :class:`~pykraft.runtime.network.tcp.StreamSession`.

    ``handle_response`` gets each answer with what its request named; ``fetch`` is called when all requests
    are answered.
    """

    def __init__(
        self,
        link: StreamConnection,
        leader_id: int,
        handle_response: Callable[[Asked, memoryview], None],
        fetch: Callable[[], None],
    ) -> None:
        self._link = link
        self._leader_id = leader_id
        self._handle_response = handle_response
        self._fetch = fetch
        self._asked: deque[tuple[int, Asked]] = deque()
        self._correlation_id = 0
        self.need_bytes = SIZE_BYTES
        self.stalled = False
        self.lane: object = None
        self.answers = 0
        self.lost = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    @property
    def next_correlation_id(self) -> int:
        return self._correlation_id + 1

    def send(self, frame: bytearray, asked: Asked) -> None:
        """Send a request that was built with :attr:`next_correlation_id`."""
        self._correlation_id += 1
        self._asked.append((self._correlation_id, asked))
        self._link.write([frame], urgent=True)

    def receive(self, data: memoryview) -> int:
        try:
            position, self.need_bytes = take_frames(data, MAX_RESPONSE_BYTES, self._handle_frame)
        except (FramingError, ProtocolError) as error:
            logger.warning("leader %d: %s", self._leader_id, error)
            self.close()
            return len(data)
        return position

    def _handle_frame(self, frame: memoryview) -> None:
        if not self._asked or int.from_bytes(frame[:4], "big") != self._asked[0][0]:
            raise ProtocolError("a response without a request")
        _, asked = self._asked.popleft()
        self.answers += 1
        self._handle_response(asked, frame)
        if not self._asked:
            self._fetch()

    def connection_lost(self) -> None:
        self._asked.clear()
        self.lost.set()

    def close(self) -> None:
        self._link.close()
