"""Requests that reach a leader before its log is open: they wait for it, and so does all behind them.

The controller's word that this broker leads is known to clients as soon as it is in an image, here or on
another broker; a worker opens the log, or applies the new role, a moment later. What comes in between is held
with its connection, so that no client is refused by the leader that it was told of, and none of its requests
overtakes another. Decides how long: a log that does not open in time is answered as one that is not here.
"""

from __future__ import annotations

from typing import Final

from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.connection import Connection
from pykraft.runtime.clock import Clock

MAX_HOLD_MS: Final = 2000

TopicPartition = tuple[str, int]


class Openings:
    """Who waits for which log of one broker."""

    def __init__(self, clock: Clock, wakeups: Wakeups) -> None:
        self._clock = clock
        self._wakeups = wakeups
        self._held: dict[TopicPartition, dict[_Held, None]] = {}

    def hold(self, connection: Connection, key: TopicPartition) -> bool:
        """Hold ``connection`` with its present frame until :meth:`opened`; False if that took too long."""
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
        """The log is open and has its role, or there is nothing to wait for any more."""
        for held in self._held.pop(key, ()):
            self._wakeups.deadlines.remove(held)
            held.connection.retry_frame()

    def forget(self, held: _Held) -> None:
        others = self._held.get(held.key, {})
        others.pop(held, None)
        if not others:
            self._held.pop(held.key, None)


class _Held:
    """One connection that waits; a :class:`~pykraft.broker.replicas.purgatory.Waiting`."""

    __slots__ = ("_openings", "bucket", "connection", "key")

    def __init__(self, openings: Openings, connection: Connection, key: TopicPartition) -> None:
        self._openings = openings
        self.connection = connection
        self.key = key
        self.bucket = -1

    def expire(self) -> None:
        self._openings.forget(self)
        self.connection.retry_frame()
