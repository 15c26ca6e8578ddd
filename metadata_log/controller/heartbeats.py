"""Who has been heard from lately: the one part of the controller's state that is not in the log.

Heartbeats are liveness, not truth; logging them would cost a write per broker every two seconds. The price:
a new active controller knows no past heartbeats, so it gives every unfenced broker a full session timeout
from the moment it takes over. Fencing itself is a record, like everything that matters.

A heartbeat also says how far the broker has applied the log, and so up to what *time* it knows it: who has
applied all that was committed when its heartbeat arrived is current as of then. One that is behind at that
moment, as somebody always is where the log never rests, is asked for what was committed then (awaited); once
it reports that, it was current as of the time when the asking began. Leases end by that time
(:mod:`.leadership`), and who gets no further for a whole session is fenced like one that is silent: it may
lead, as far as it knows, what others have led for long.

Nobody is blamed for the time in which the controller itself stood still: heartbeats lay unread, and if the
whole machine was suspended none were sent. But a controller that stalls again and again, each time for less
than it takes to depose it, must fence the dead all the same. So of the stalls since a broker was last heard
from the first is excused whole, however long it was, and those that recur by a session timeout in all: who is
silent is fenced within two session timeouts and one stall. No lease rests on an excuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykraft.metadata_log.image import BrokerRegistration


class _Since:
    """A moment from which a broker's time runs, later by what is excused (see the top of this file)."""

    __slots__ = ("ms", "recurring_ms")

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms
        self.recurring_ms: int | None = None
        """What stalls after the first one were excused for; None before the first."""

    def excuse(self, duration_ms: int, most_ms: int, now_ms: int) -> None:
        """The controller stood still for so long, until just now. ``most_ms``: for all stalls but one."""
        if self.recurring_ms is None:
            self.recurring_ms = 0
        else:
            duration_ms = min(duration_ms, most_ms - self.recurring_ms)
            self.recurring_ms += duration_ms
        self.ms = max(self.ms, min(self.ms + duration_ms, now_ms))


class _Session:
    """``contact``: when the broker was last heard from. ``progress``: when it last got further in the log, or
    was not behind.
    ``awaited``: an offset, and a time at which nothing behind it was committed; not yet reported applied.
    ``current_ms``: a time such that the broker has applied all that was committed then; None for unknown.
    ``metadata_offset``: up to where the broker has applied the log, as it last said; -1 for unknown.
    ``handed_over_at``: the offset at which nothing was left that a leaving broker leads."""

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
        self, broker_epoch: int, awaited: tuple[int, int] | None, now_ms: int, owed_ms: int = 0
    ) -> None:
        """``owed_ms``: by how much the session is longer than those of this reign."""
        self.broker_epoch = broker_epoch
        self.contact = _Since(now_ms + owed_ms)
        self.progress = _Since(now_ms + owed_ms)
        self.awaited = awaited
        self.current_ms: int | None = None
        self.metadata_offset = -1
        self.handed_over_at: int | None = None

    def hear(self, metadata_offset: int, committed_offset: int, now_ms: int) -> None:
        # What is left of an earlier reign's longer session is not cut short.
        self.contact = _Since(max(now_ms, self.contact.ms))
        if metadata_offset > self.metadata_offset:
            self.metadata_offset, self.progress = metadata_offset, self._got_further(now_ms)
        if self.metadata_offset >= committed_offset:
            self.current_ms, self.progress = now_ms, self._got_further(now_ms)
            self.awaited = None
        elif self.awaited is None:
            # Until now it was not behind, or not heard of: its time begins here.
            self.awaited, self.progress = (committed_offset, now_ms), self._got_further(now_ms)
        elif self.metadata_offset >= self.awaited[0]:
            self.current_ms = self.awaited[1]
            self.awaited = (committed_offset, now_ms)

    def _got_further(self, now_ms: int) -> _Since:
        return _Since(max(now_ms, self.progress.ms))


class Heartbeats:
    """Sessions of registered brokers, on the monotonic clock of the active controller."""

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
        """Begin afresh on becoming active: every unfenced broker has just been heard from.

        ``longest_session_ms``: the longest session timeout under which a lease may have been granted. Brokers
        are given that long, once.
        """
        owed_ms = max(0, longest_session_ms - self._session_timeout_ms)
        self._inherited_until_ms = now_ms + owed_ms + self._session_timeout_ms
        self._sessions = {
            broker.id: _Session(broker.epoch, (committed_offset, now_ms), now_ms, owed_ms)
            for broker in brokers.values()
            if not broker.fenced
        }

    def has_outlasted_earlier_leases(self, now_ms: int) -> bool:
        """Whether every lease has ended that was granted before this reign."""
        return now_ms >= self._inherited_until_ms

    def clear(self) -> None:
        """Forget everything: another controller keeps the sessions now."""
        self._sessions.clear()

    def begin(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A broker has registered: its epoch is the offset of that, which was not committed at ``now_ms``."""
        self._sessions[broker_id] = _Session(broker_epoch, (broker_epoch, now_ms), now_ms)

    def hear(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, committed_offset: int, now_ms: int
    ) -> None:
        """A heartbeat: the broker has applied the log up to ``metadata_offset``, both offsets inclusive."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, None, now_ms)
        session.hear(metadata_offset, committed_offset, now_ms)

    def excuse(self, duration_ms: int, now_ms: int) -> None:
        """The controller itself stood still for so long, until just now: nobody was silent or stale in it.

        Fences come later by that. Leases do not: what a broker is known to have had at what time stays.
        """
        for session in self._sessions.values():
            session.contact.excuse(duration_ms, self._session_timeout_ms, now_ms)
            session.progress.excuse(duration_ms, self._session_timeout_ms, now_ms)

    def current_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """A time such that the broker has applied all that was committed then; None if none is known."""
        session = self._sessions.get(broker_id)
        return session.current_ms if session is not None and session.broker_epoch == broker_epoch else None

    def is_current(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the broker has applied all that was committed a session ago."""
        current_ms = self.current_ms(broker_id, broker_epoch)
        return current_ms is not None and now_ms - current_ms < self._session_timeout_ms

    def is_handed_over(
        self, leaving: BrokerRegistration, brokers: Iterable[BrokerRegistration], offset: int
    ) -> bool:
        """Whether all active brokers know that ``leaving`` leads nothing any more.

        It led nothing at ``offset``, the newest one. Until then somebody might still send clients to it, or
        fetch from it.
        """
        session = self._sessions[leaving.id]
        if session.handed_over_at is None:
            session.handed_over_at = offset
        return all(
            self._acknowledged(broker) >= session.handed_over_at for broker in brokers if broker.is_active
        )

    def cancel_hand_over(self, broker_id: int) -> None:
        """A broker stays: what it leads from now on has not been handed over."""
        self._sessions[broker_id].handed_over_at = None

    def _acknowledged(self, broker: BrokerRegistration) -> int:
        session = self._sessions.get(broker.id)
        return session.metadata_offset if session is not None and session.broker_epoch == broker.epoch else -1

    def drop(self, broker_id: int) -> None:
        """A broker is known to be gone: its id may be registered anew at once."""
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
        """Whether the broker is behind, and has got no further for a whole session."""
        session = self._sessions[broker_id]
        return session.awaited is not None and now_ms - session.progress.ms >= self._session_timeout_ms
