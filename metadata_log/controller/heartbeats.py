"""Who has been heard from lately: the one part of the controller's state that is not in the log.

Heartbeats are liveness, not truth; logging them would cost a write per broker every two seconds. The price:
a new active controller knows no past heartbeats, so it gives every unfenced broker a full session timeout
from the moment it takes over. Fencing itself is a record, like everything that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykraft.metadata_log.image import BrokerRegistration


@dataclass(slots=True)
class _Session:
    """``metadata_offset``: up to where the broker has applied the log, as it last said; -1 for unknown.
    ``handed_over_at``: the offset at which nothing was left that a leaving broker leads."""

    broker_epoch: int
    last_contact_ms: int
    metadata_offset: int = -1
    handed_over_at: int | None = None


class Heartbeats:
    """Sessions of registered brokers, on the monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def start(self, brokers: Mapping[int, BrokerRegistration], now_ms: int) -> None:
        """Begin afresh on becoming active: every unfenced broker has just been heard from."""
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms) for broker in brokers.values() if not broker.fenced
        }

    def clear(self) -> None:
        """Forget everything: another controller keeps the sessions now."""
        self._sessions.clear()

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int, metadata_offset: int = -1) -> None:
        """A broker has been heard from."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, now_ms)
        session.last_contact_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

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
        """Ids of unfenced brokers whose session has lapsed, in order."""
        return sorted(
            broker.id
            for broker in brokers
            if not broker.fenced and not self.has_session(broker.id, broker.epoch, now_ms)
        )
