"""The fetch sessions of one broker: which exist, and which one goes when there is no room (KIP-227).

There are at most ``max.incremental.fetch.session.cache.slots`` sessions. A client that gets none keeps
sending full requests. For a new one room is made by closing, in this order:

- the session that has not been used for the longest time, if that is more than :data:`EVICTION_MS`;
- else the least valuable of those that may be closed: a consumer's is worth less than a follower's, fewer
  partitions are worth less than more. Anyone may close one that was created more than :data:`EVICTION_MS`
  ago, a follower also any consumer's; but none that is worth more than the new one.

So consumers never close the session of a follower that fetches. Those of a broker's earlier incarnations end
with the first one of the next. Slots alone would not bound memory: the
sessions of all consumers together hold at most :data:`MAX_CONSUMER_PARTITIONS`, those of followers
:data:`MAX_FOLLOWER_PARTITIONS`. Decides this and nothing else; time and randomness are arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator

from pykraft.broker.fetch_sessions.session import NO_SESSION_ID, FetchSession, Results, Watch, is_full
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.fetch_requests import FetchRequestView
from pykraft.runtime.backoff import RandomSource

EVICTION_MS = 120_000
MAX_CONSUMER_PARTITIONS = 200_000
MAX_FOLLOWER_PARTITIONS = 1_000_000
MAX_SESSION_ID = 2**31 - 1


class FetchSessionCache:
    """See the module. Times are monotonic."""

    def __init__(self, slots: int, rng: RandomSource) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._sizes: dict[int, int] = {}  # as counted in _totals, by id
        self._totals = {False: 0, True: 0}  # partitions, by whether they are a follower's
        self.in_slices: Callable[[Generator[None, None, None]], None] = at_once
        """How work of any length is done."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, request: FetchRequestView, *, uses_topic_ids: bool) -> FetchSession | None:
        """The session of an incremental request; None for a full one, which closes a session that it names.

        :class:`KafkaError` if the request is not the next of its session.
        """
        if is_full(request.session_epoch):
            named = self._sessions.get(request.session_id)
            if named is not None and named.replica_id == request.replica_id:
                self._remove(named)
            return None
        session = self._sessions.get(request.session_id)
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session is not None:
            code = session.check(
                request.session_epoch,
                request.replica_id,
                request.replica_epoch,
                uses_topic_ids=uses_topic_ids,
            )
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"fetch session {request.session_id}, epoch {request.session_epoch}")
        return session

    def update(self, session: FetchSession, request: FetchRequestView, now_ms: int) -> bool:
        """Take the next request of a session. False if nothing is left in it: it is closed then.

        :class:`KafkaError` if it holds too much now; it is closed, and the client goes on without.
        """
        session.update(request.topics, request.forgotten, now_ms)
        session.read_as(reads_committed=request.reads_committed)
        self._sessions.move_to_end(session.id)
        self._count(session)
        if not session.partitions:
            self._remove(session)
            return False
        if not self._has_room(is_follower=session.is_follower):
            self._remove(session)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.id} is too large")
        return True

    def create(
        self, request: FetchRequestView, results: Results, watch: Watch, *, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """The session that a full request asks for, with the answer to it; None if there is no room."""
        size = sum(len(topic.partitions) for topic in request.topics)
        session = self.draft(request, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        if not self._may_keep(session, size, now_ms):
            return None
        session.begin(request.topics, results, watch)
        self._keep(session)
        return session

    def draft(self, request: FetchRequestView, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """A session for a full request that is answered in slices, with each of which it is begun."""
        session = FetchSession(
            self._new_id(),
            request.replica_id,
            request.replica_epoch,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        session.reads_committed = request.reads_committed
        return session

    def keep(self, draft: FetchSession, now_ms: int) -> bool:
        """Keep a session that is complete. If there is no room for it, it is closed."""
        if not self._may_keep(draft, len(draft.partitions), now_ms):
            self.close(draft)
            return False
        self._keep(draft)
        return True

    def end(self, session: FetchSession) -> None:
        """Close a session whose client has to begin another."""
        self._remove(session)

    def close(self, session: FetchSession) -> None:
        """End a session that is not kept, at once; its subscriptions end in slices."""
        closing = session.close(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        next(closing)
        self.in_slices(closing)

    def _may_keep(self, session: FetchSession, size: int, now_ms: int) -> bool:
        """Whether there is room for a new session with so many partitions; others are closed if need be."""
        is_follower = session.is_follower
        if is_follower:
            self._close_older(session.replica_id, session.replica_epoch)
        return self._has_room(size, is_follower=is_follower) and self._make_room(
            size, is_follower=is_follower, now_ms=now_ms
        )

    def _keep(self, session: FetchSession) -> None:
        self._sessions[session.id] = session
        self._count(session)

    def _close_older(self, replica_id: int, replica_epoch: int) -> None:
        """Close the sessions of earlier incarnations of a broker: nobody fetches in them any more."""
        for session in list(self._sessions.values()):
            if session.replica_id == replica_id and session.replica_epoch < replica_epoch:
                self._remove(session)

    def _has_room(self, size: int = 0, *, is_follower: bool) -> bool:
        most = MAX_FOLLOWER_PARTITIONS if is_follower else MAX_CONSUMER_PARTITIONS
        return self._totals[is_follower] + size <= most

    def _make_room(self, size: int, *, is_follower: bool, now_ms: int) -> bool:
        """Whether there is a slot for a new session, after another was closed if need be."""
        if len(self._sessions) < self._slots:
            return True
        victim = next(iter(self._sessions.values()), None)
        if victim is None:
            return False
        if now_ms - victim.last_fetch_ms <= EVICTION_MS:
            closable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (is_follower and not session.is_follower)
            ]
            victim = min(closable, key=_value, default=None)
            if victim is None or (is_follower, size, NO_SESSION_ID) < _value(victim):
                return False
        self._remove(victim)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = 1 + int(self._rng.random() * MAX_SESSION_ID)
            if session_id not in self._sessions:
                return session_id

    def _count(self, session: FetchSession) -> None:
        size = len(session.partitions)
        self._totals[session.is_follower] += size - self._sizes.get(session.id, 0)
        self._sizes[session.id] = size

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._totals[session.is_follower] -= self._sizes.pop(session.id)
        self.close(session)


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.id
