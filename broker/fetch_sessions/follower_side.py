"""The client's side of a fetch session (KIP-227): what to name in the next request to one broker.

It knows what the broker knows once it has read all requests so far, and names what differs from that. Any
doubt ends the session: the next request is full and asks for a new one. Requests:

=============== ======================================================= ==========================
state           the next request                                        while one is not answered
=============== ======================================================= ==========================
``OPENING``     full; asks for a session and, if it has one, closes it  waits for the answer
``OPEN``        what has changed, and what is to be forgotten           may be sent
``SESSIONLESS`` full, without a session                                 may be sent
=============== ======================================================= ==========================

A broker that gives no session, or ends one soon after it was opened, is asked again after
:data:`SESSIONLESS_MS`. No IO; time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from pykraft.broker.fetch_sessions.session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, next_epoch
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition
from pykraft.kafka_protocol.ids import Uuid

SESSIONLESS_MS = 10_000
SHORT_SESSION_MS = 1000
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Key = tuple[Uuid, int]


class SessionState(Enum):
    OPENING = auto()
    OPEN = auto()
    SESSIONLESS = auto()


class FetchNames(NamedTuple):
    """The session of a request, and the partitions it names."""

    session_id: int
    epoch: int
    topics: dict[Uuid, list[FetchPartition]]
    forgotten: dict[Uuid, list[int]]


class FetchSessionHandler:
    """See the module."""

    def __init__(self) -> None:
        self.state = SessionState.OPENING
        self._id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, FetchPartition] = {}
        self._opened_ms = 0
        self._sessionless_until_ms = 0

    def may_send(self, in_flight: int, now_ms: int) -> bool:
        """Whether a request may be sent while ``in_flight`` have no answer."""
        if self.state is SessionState.SESSIONLESS and now_ms >= self._sessionless_until_ms and not in_flight:
            self.state = SessionState.OPENING
        return in_flight < (1 if self.state is SessionState.OPENING else 2)

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self.state is not SessionState.OPEN

    def knows(self, key: Key) -> bool:
        """Whether the next request need not name a partition to have it fetched."""
        return not self.is_full and key in self._known

    def build(self, wanted: Mapping[Key, FetchPartition | None]) -> FetchNames | None:
        """The next request; None if there is nothing to fetch.

        ``wanted`` has all partitions if :attr:`is_full`, else those that may have changed; None for one
        that is no longer to be fetched.
        """
        topics: dict[Uuid, list[FetchPartition]] = {}
        if self.is_full:
            self._known = {key: asked for key, asked in wanted.items() if asked is not None}
            for (topic_id, _), named in self._known.items():
                topics.setdefault(topic_id, []).append(named)
            if not topics:
                return None
            epoch = INITIAL_EPOCH if self.state is SessionState.OPENING else FINAL_EPOCH
            return FetchNames(self._id, epoch, topics, {})
        if not self._known and not any(wanted.values()):
            return None
        forgotten: dict[Uuid, list[int]] = {}
        for key, asked in wanted.items():
            topic_id, index = key
            if asked is None:
                if self._known.pop(key, None) is not None:
                    forgotten.setdefault(topic_id, []).append(index)
            elif self._known.get(key) != asked:
                self._known[key] = asked
                topics.setdefault(topic_id, []).append(asked)
        names = FetchNames(self._id, self._epoch, topics, forgotten)
        self._epoch = next_epoch(self._epoch)
        return names

    def answered(self, session_id: int, now_ms: int) -> None:
        """A request was answered without an error, in ``session_id``."""
        if self.state is SessionState.OPENING:
            self._id = session_id
            if session_id == NO_SESSION_ID:
                self._do_without(now_ms)
            else:
                self.state = SessionState.OPEN
                self._epoch = next_epoch(INITIAL_EPOCH)
                self._opened_ms = now_ms
        elif self.state is SessionState.OPEN and session_id == NO_SESSION_ID:
            self.state = SessionState.OPENING  # the broker has closed it: nothing was left in it
            self._id = NO_SESSION_ID

    def refused(self, code: int, now_ms: int) -> None:
        """A request was answered with one of :data:`SESSION_ERRORS`: the session has ended."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION_ID
        if self.state is SessionState.OPEN:
            self.state = SessionState.OPENING
            if now_ms - self._opened_ms < SHORT_SESSION_MS:
                self._do_without(now_ms)

    def connection_lost(self) -> None:
        """Nobody knows which requests have arrived."""
        self.state = SessionState.OPENING

    def _do_without(self, now_ms: int) -> None:
        self.state = SessionState.SESSIONLESS
        self._sessionless_until_ms = now_ms + SESSIONLESS_MS
