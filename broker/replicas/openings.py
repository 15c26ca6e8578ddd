"""Requests that reach a leader before its log is open: they wait for it, and so do all requests behind them.

Clients learn that this broker leads as soon as any broker's image says so; a worker opens the log, or applies
the new role, a moment later. A request that arrives in between is held together with its connection, so that
no client is refused by the leader that it was directed to, and none of its requests overtakes another.
Decides how long they wait: a log that does not open in time is answered like one that is not on this broker.
"""

from __future__ import annotations

from typing import Final

from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.connection import Holdable
from pykraft.runtime.clock import Clock

MAX_HOLD_MS: Final = 2000

TopicPartition = tuple[str, int]


class Openings:
    """The connections that wait for logs of one broker."""

    def __init__(self, clock: Clock, wakeups: Wakeups) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._held: dict[TopicPartition, dict[_Held, None]] = {}

    def hold(self, connection: Holdable, key: TopicPartition) -> bool:
        """Hold ``connection`` with its current frame until :meth:`opened`; False if it was held too long."""
        now_ms = self._clock.monotonic_ms()
        since_ms = now_ms if connection.held_since_ms is None else connection.held_since_ms
        if now_ms >= since_ms + MAX_HOLD_MS:
            return False
        connection.hold_frame(now_ms)
        held = _Held(self, connection, key)
        self._held.setdefault(key, {})[held] = None
        self._wakeups.wait_until(held, since_ms + MAX_HOLD_MS)
        return True

    def opened(self, key: TopicPartition) -> None:
        """The log is open and has its role, or is no longer wanted here: handle the held frames."""
        for held in self._held.pop(key, ()):
            self._wakeups.deadlines.remove(held)
            held.connection.retry_frame()

    def forget(self, held: _Held) -> None:
        others = self._held.get(held.key, {})
        others.pop(held, None)
        if not others:
            self._held.pop(held.key, None)


class _Held:
    """One connection that waits; a :class:`~pykraft.broker.replicas.partition.purgatory.Waiting`."""

    __slots__ = ("_openings", "bucket", "connection", "key")

    def __init__(self, openings: Openings, connection: Holdable, key: TopicPartition) -> None:
        self._openings = openings
        self.connection = connection
        self.key = key
        self.bucket = -1

    def expire(self) -> None:
        self._openings.forget(self)
        self.connection.retry_frame()
