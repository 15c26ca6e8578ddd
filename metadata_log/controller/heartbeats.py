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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykraft.metadata_log.image import BrokerRegistration


@dataclass(slots=True)
class _Session:
    """``awaited``: an offset, and a time at which nothing behind it was committed; not yet reported applied.
    ``progress_ms``: when the broker last got further, or was not behind. It and ``last_contact_ms`` are moved
    by the time in which the controller itself stood still.
    ``current_ms``: a time such that the broker has applied all that was committed then; None for unknown.
    ``metadata_offset``: up to where the broker has applied the log, as it last said; -1 for unknown.
    ``handed_over_at``: the offset at which nothing was left that a leaving broker leads."""

    broker_epoch: int
    last_contact_ms: int
    awaited: tuple[int, int] | None
    progress_ms: int
    current_ms: int | None = None
    metadata_offset: int = -1
    handed_over_at: int | None = None

    def hear(self, metadata_offset: int, committed_offset: int, now_ms: int) -> None:
        self.last_contact_ms = now_ms
        if metadata_offset > self.metadata_offset:
            self.metadata_offset, self.progress_ms = metadata_offset, now_ms
        if self.metadata_offset >= committed_offset:
            self.current_ms = self.progress_ms = now_ms
            self.awaited = None
        elif self.awaited is None:
            # Until now it was not behind, or not heard of: its time begins here.
            self.awaited, self.progress_ms = (committed_offset, now_ms), now_ms
        elif self.metadata_offset >= self.awaited[0]:
            self.current_ms = self.awaited[1]
            self.awaited = (committed_offset, now_ms)


class Heartbeats:
    """Sessions of registered brokers, on the monotonic clock of the active controller."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def start(self, brokers: Mapping[int, BrokerRegistration], committed_offset: int, now_ms: int) -> None:
        """Begin afresh on becoming active: every unfenced broker has just been heard from."""
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms, (committed_offset, now_ms), now_ms)
            for broker in brokers.values()
            if not broker.fenced
        }

    def clear(self) -> None:
        """Forget everything: another controller keeps the sessions now."""
        self._sessions.clear()

    def begin(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A broker has registered: its epoch is the offset of that, which was not committed at ``now_ms``."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, (broker_epoch, now_ms), now_ms)

    def hear(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, committed_offset: int, now_ms: int
    ) -> None:
        """A heartbeat: the broker has applied the log up to ``metadata_offset``, both offsets inclusive."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, now_ms, None, now_ms)
        session.hear(metadata_offset, committed_offset, now_ms)

    def excuse(self, duration_ms: int, now_ms: int) -> None:
        """The controller itself stood still for so long, until just now: nobody was silent or stale in it.

        Fences come later by that. Leases do not: what a broker is known to have had at what time stays.
        """
        for session in self._sessions.values():
            session.last_contact_ms = min(session.last_contact_ms + duration_ms, now_ms)
            session.progress_ms = min(session.progress_ms + duration_ms, now_ms)

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
            and now_ms - session.last_contact_ms < self._session_timeout_ms
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
        return session.awaited is not None and now_ms - session.progress_ms >= self._session_timeout_ms
