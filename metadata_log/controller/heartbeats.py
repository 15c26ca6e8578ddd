"""The brokers' sessions: the one part of the controller's state that is not in the log.

Logging heartbeats would cost a write per broker every two seconds. Because they are not logged, a new active
controller knows no past heartbeats, so it gives every unfenced broker a full session timeout from the moment
it becomes active. Fencing itself is a record.

A heartbeat also says how far the broker has applied the log, and so up to which *time* it knows the log: a
broker that has applied everything that was committed when its heartbeat arrived is current as of that time.
If a broker is behind at that moment, as some broker always is while the log grows, the offset that was
committed then is awaited; once the broker reports it, the broker was current as of the time when the wait
began. Leases are counted from that time (:mod:`.leadership`), and a broker that makes no progress for a whole
session is fenced like a silent one: it may still believe that it leads partitions that others have led for
long.

Time in which the controller itself was stalled extends every session: heartbeats were not read, and if the
whole machine was suspended none were sent. But a controller that stalls again and again, each time too
briefly to be deposed, must still fence dead brokers. So of the stalls since a broker was last heard from, the
first extends the session by its whole length, and the later ones by up to one session timeout in total: a
silent broker is fenced within two session timeouts and one stall. Leases are never extended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykraft.metadata_log.image import BrokerRegistration


class _Since:
    """The start of a session timeout, moved later by stalls (see the top of this file)."""

    __slots__ = ("ms", "recurring_ms")

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms
        self.recurring_ms: int | None = None
        """By how much stalls after the first one have extended the session; None before the first."""

    def extend_for_stall(self, duration_ms: int, most_ms: int, now_ms: int) -> None:
        """The controller was stalled for ``duration_ms``; ``most_ms`` limits all but the first stall."""
        if self.recurring_ms is None:
            self.recurring_ms = 0
        else:
            duration_ms = min(duration_ms, most_ms - self.recurring_ms)
            self.recurring_ms += duration_ms
        self.ms = max(self.ms, min(self.ms + duration_ms, now_ms))


class _Session:
    """The times of one broker.

    - ``contact``: when the broker was last heard from.
    - ``progress``: when it last advanced in the log, or was not behind.
    - ``awaited``: an offset that it has not yet reported as applied, and a time at which nothing after that
      offset was committed.
    - ``current_ms``: a time such that it has applied all that was committed then; None for unknown.
    - ``metadata_offset``: the last offset that it has reported as applied; -1 for unknown.
    - ``handed_over_at``: the offset at which a broker in controlled shutdown no longer led any partition.
    """

    __slots__ = (
        "awaited",
        "broker_epoch",
        "contact",
        "current_ms",
        "handed_over_at",
        "metadata_offset",
        "progress",
    )

    def __init__(
        self, broker_epoch: int, awaited: tuple[int, int] | None, now_ms: int, extension_ms: int = 0
    ) -> None:
        """``extension_ms``: by how much this session is longer than the sessions of the current epoch."""
        self.broker_epoch = broker_epoch
        self.contact = _Since(now_ms + extension_ms)
        self.progress = _Since(now_ms + extension_ms)
        self.awaited = awaited
        self.current_ms: int | None = None
        self.metadata_offset = -1
        self.handed_over_at: int | None = None

    def handle_heartbeat(self, metadata_offset: int, committed_offset: int, now_ms: int) -> None:
        # The rest of a longer session of an earlier epoch is not cut short.
        self.contact = _Since(max(now_ms, self.contact.ms))
        if metadata_offset > self.metadata_offset:
            self.metadata_offset, self.progress = metadata_offset, self._progressed(now_ms)
        if self.metadata_offset >= committed_offset:
            self.current_ms, self.progress = now_ms, self._progressed(now_ms)
            self.awaited = None
        elif self.awaited is None:
            # Until now it was not behind, or not heard from: its time begins here.
            self.awaited, self.progress = (committed_offset, now_ms), self._progressed(now_ms)
        elif self.metadata_offset >= self.awaited[0]:
            self.current_ms = self.awaited[1]
            self.awaited = (committed_offset, now_ms)

    def _progressed(self, now_ms: int) -> _Since:
        return _Since(max(now_ms, self.progress.ms))


class Heartbeats:
    """The sessions of registered brokers, on the monotonic clock of the active controller."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._inherited_until_ms = 0

    def start(
        self,
        brokers: Mapping[int, BrokerRegistration],
        committed_offset: int,
        longest_session_ms: int,
        now_ms: int,
    ) -> None:
        """This controller becomes active: every unfenced broker counts as heard from now.

        ``longest_session_ms``: the longest session timeout on which a lease may have been based. Brokers get
        a session of this length, once.
        """
        extension_ms = max(0, longest_session_ms - self._session_timeout_ms)
        self._inherited_until_ms = now_ms + extension_ms + self._session_timeout_ms
        self._sessions = {
            broker.id: _Session(broker.epoch, (committed_offset, now_ms), now_ms, extension_ms)
            for broker in brokers.values()
            if not broker.fenced
        }

    def has_outlasted_earlier_leases(self, now_ms: int) -> bool:
        """Whether every lease that was granted before this epoch has ended."""
        return now_ms >= self._inherited_until_ms

    def clear(self) -> None:
        """Drop all sessions: another controller keeps them now."""
        self._sessions.clear()

    def begin(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A broker has registered; the record, whose offset is its epoch, was not committed at ``now_ms``."""
        self._sessions[broker_id] = _Session(broker_epoch, (broker_epoch, now_ms), now_ms)

    def handle_heartbeat(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, committed_offset: int, now_ms: int
    ) -> None:
        """A heartbeat: the broker has applied the log up to ``metadata_offset``, both offsets inclusive."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, None, now_ms)
        session.handle_heartbeat(metadata_offset, committed_offset, now_ms)

    def extend_for_stall(self, duration_ms: int, now_ms: int) -> None:
        """The controller was stalled for ``duration_ms``, until now: extend every session by that time.

        Brokers are fenced later by that time. Leases do not become longer: their times are not changed.
        """
        for session in self._sessions.values():
            session.contact.extend_for_stall(duration_ms, self._session_timeout_ms, now_ms)
            session.progress.extend_for_stall(duration_ms, self._session_timeout_ms, now_ms)

    def current_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """A time such that the broker has applied all that was committed then; None if none is known."""
        session = self._sessions.get(broker_id)
        return session.current_ms if session is not None and session.broker_epoch == broker_epoch else None

    def is_current(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the broker has applied everything that was committed one session timeout ago."""
        current_ms = self.current_ms(broker_id, broker_epoch)
        return current_ms is not None and now_ms - current_ms < self._session_timeout_ms

    def is_handed_over(
        self, leaving: BrokerRegistration, brokers: Iterable[BrokerRegistration], offset: int
    ) -> bool:
        """Whether all active brokers know that ``leaving`` no longer leads any partition.

        It led none at ``offset``, the newest one. Until all know, a broker may still send clients to it, or
        fetch from it.
        """
        session = self._sessions[leaving.id]
        if session.handed_over_at is None:
            session.handed_over_at = offset
        return all(
            self._acknowledged(broker) >= session.handed_over_at for broker in brokers if broker.is_active
        )

    def cancel_hand_over(self, broker_id: int) -> None:
        """A broker does not shut down: partitions that it leads from now on have not been handed over."""
        self._sessions[broker_id].handed_over_at = None

    def _acknowledged(self, broker: BrokerRegistration) -> int:
        session = self._sessions.get(broker.id)
        return session.metadata_offset if session is not None and session.broker_epoch == broker.epoch else -1

    def drop(self, broker_id: int) -> None:
        """A broker has shut down: its id may be registered again at once."""
        self._sessions.pop(broker_id, None)

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether that incarnation was heard from within the session timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and now_ms - session.contact.ms < self._session_timeout_ms
        )

    def overdue(self, brokers: Iterable[BrokerRegistration], now_ms: int) -> list[int]:
        """Ids of unfenced brokers that are silent or stale, in order."""
        return sorted(
            broker.id
            for broker in brokers
            if not broker.fenced
            and (not self.has_session(broker.id, broker.epoch, now_ms) or self._is_stale(broker.id, now_ms))
        )

    def _is_stale(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker is behind, and has not advanced for a whole session."""
        session = self._sessions[broker_id]
        return session.awaited is not None and now_ms - session.progress.ms >= self._session_timeout_ms
