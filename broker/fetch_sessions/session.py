"""A fetch session: what a client fetches here, so that requests and responses name only changes (KIP-227).

A request of a session stands for a fetch of all its partitions, whether it names them or not, and a client
that applies the responses knows what full responses would have told it. The rules:

- A partition is *due* if a look at its replica may find something to tell. A request looks at the due
  partitions and at no others. Due are those that the request names, those whose replica has changed since the
  last look (the session subscribes to it), and those whose last look did not come to rest: it found records
  or an error, or had no room left, or found a follower that has not acknowledged everything. So a round trip
  costs what has changed, however many partitions the session has.
- A partition is told if there are records, an error, a diverging epoch or a preferred replica, or if high
  watermark or log start differ from what was told last. After an error or a diverging epoch both
  are told again.
- Due partitions are looked at in their order, some at a time. One that was looked at and remains due becomes
  the last, unless the limits of the response left no room for its records: so all get their share of them,
  and none keeps the others from being looked at.
- A partition at rest is one whose follower has everything: each request of the session counts as its fetch.
  That is computed from the time of the last request when it is needed; nothing is written per partition.
- The epoch of a session increases with each request, so that a lost or repeated one is noticed. The client
  then starts over; it never guesses which changes have arrived.

This module knows neither replicas nor time, except as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeAlias

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition, FetchTopic, ForgottenTopic
from pykraft.kafka_protocol.hot.fetch_responses import FetchResult
from pykraft.kafka_protocol.ids import Uuid

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
"""The epoch of a full request that asks for a new session."""
FINAL_EPOCH = -1
"""The epoch of a full request that asks for none."""
MAX_EPOCH = 2**31 - 1
UNKNOWN_OFFSET = -1
CONSUMER_ID = -1

TopicKey: TypeAlias = str | Uuid
"""The name of a topic up to version 12 of Fetch, its id from 13 on; a session has only one kind."""
Key: TypeAlias = tuple[TopicKey, int]
Results: TypeAlias = list[tuple[TopicKey, list[FetchResult]]]
"""What a look found, in its order."""
Subscribers: TypeAlias = dict["CachedPartition", None]
"""The sessions that a replica tells of its changes."""
Watch: TypeAlias = Callable[["CachedPartition"], bool]
"""Subscribes a partition to its replica; returns whether the client has everything that it may read there."""


_CLOSED_AT_ONCE = 2_000
"""Partitions of a session: less than a millisecond."""


def is_full(epoch: int) -> bool:
    """Whether a request with this epoch names all its partitions."""
    return epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows one with ``epoch``."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


def topic_key(topic: FetchTopic | ForgottenTopic) -> TopicKey:
    if topic.topic_id is not None:
        return topic.topic_id
    assert topic.name is not None
    return topic.name


class WaitingFetch(Protocol):
    """The request of a session that waits for something to tell."""

    def wake(self) -> None: ...

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error of the whole request."""
        ...

    def supersede(self, connection: object) -> None:
        """Answer, because the next request of the session has arrived on ``connection``."""
        ...


class CountedFollower(Protocol):
    """The progress of a follower that the requests of a session count for."""

    def stop_counting(self, fetches: CachedPartition) -> None:
        """They count up to the last request, and no longer; nothing changes if another session counts."""
        ...


class CachedPartition:
    """One partition of a session: what the client asks for, and what it was told last."""

    __slots__ = (
        "_subscribers",
        "asked",
        "follower",
        "high_watermark",
        "log_start_offset",
        "session",
        "topic",
    )

    def __init__(self, session: FetchSession, topic: TopicKey, asked: FetchPartition) -> None:
        self.session = session
        self.topic = topic
        self.asked = asked
        self.high_watermark = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.follower: CountedFollower | None = None
        """Set while each request of the session is a fetch of this follower."""
        self._subscribers: Subscribers | None = None

    def subscribe(self, subscribers: Subscribers) -> None:
        """Be told of the changes of one replica, and of no other."""
        if self._subscribers is not subscribers:
            self.unsubscribe()
            subscribers[self] = None
            self._subscribers = subscribers

    def unsubscribe(self) -> None:
        if self._subscribers is not None:
            del self._subscribers[self]
            self._subscribers = None

    def changed(self, *, wake: bool) -> None:
        """The replica has changed. ``wake``: a request that waits may have an answer now."""
        session = self.session
        session.due[self] = None
        if self.follower is not None:
            self.stop_counting()
        if wake and session.waiting is not None:
            session.waiting.wake()

    @property
    def last_fetch_ms(self) -> int:
        return self.session.last_fetch_ms

    def displaced(self) -> None:
        """A fetch of the follower over another connection counts, and it may be an older one."""
        self.changed(wake=False)

    def stop_counting(self) -> None:
        if self.follower is not None:
            self.follower.stop_counting(self)
            self.follower = None

    def is_news(self, result: FetchResult) -> bool:
        """Whether the client has to be told a result."""
        return (
            not _is_quiet(result)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )

    def tell(self, result: FetchResult) -> None:
        """The client is told a result. One that has to truncate its log takes nothing else from it."""
        is_taken = result.error_code == ErrorCode.NONE and result.diverging is None
        self.high_watermark = result.high_watermark if is_taken else UNKNOWN_OFFSET
        self.log_start_offset = result.log_start_offset


def _is_quiet(result: FetchResult) -> bool:
    """Whether the next look finds the same only if the replica tells of a change."""
    return (
        result.records is None
        and result.error_code == ErrorCode.NONE
        and result.diverging is None
        and result.preferred_read_replica < 0
    )


class FetchSession:
    """See the module. ``replica_id`` is :data:`CONSUMER_ID` for a consumer. Times are monotonic."""

    __slots__ = (
        "created_ms",
        "due",
        "epoch",
        "id",
        "last_fetch_ms",
        "partitions",
        "reads_committed",
        "replica_epoch",
        "replica_id",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(
        self, id: int, replica_id: int, replica_epoch: int, *, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.id = id
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.uses_topic_ids = uses_topic_ids
        self.reads_committed = False
        """Whether its consumer reads up to the last stable offset, and not up to the high watermark."""
        self.created_ms = self.last_fetch_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[Key, CachedPartition] = {}
        self.due: dict[CachedPartition, None] = {}
        self.waiting: WaitingFetch | None = None

    @property
    def is_follower(self) -> bool:
        return self.replica_id != CONSUMER_ID

    def check(self, epoch: int, replica_id: int, replica_epoch: int, *, uses_topic_ids: bool) -> ErrorCode:
        """Whether a request is the next of this session.

        No other client may use it: a fetch of a follower acknowledges what its session holds.
        """
        if (replica_id, replica_epoch) != (self.replica_id, self.replica_epoch):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if uses_topic_ids != self.uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return ErrorCode.NONE

    # -- requests --------------------------------------------------------------------------------------

    def begin(self, topics: Iterable[FetchTopic], results: Results, watch: Watch) -> None:
        """Take the partitions of the full request that opens the session, and its answer."""
        for topic in topics:
            for asked in topic.partitions:
                self._ask(topic_key(topic), asked)
        for cached, result in self._each(results):
            cached.tell(result)
            self._rest(cached, result, watch)

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic], now_ms: int) -> None:
        """Take what the next request names. It counts as a fetch of the partitions at rest."""
        self.epoch = next_epoch(self.epoch)
        for topic in topics:
            for asked in topic.partitions:
                self._ask(topic_key(topic), asked)
        for gone in forgotten:
            for index in gone.partitions:
                cached = self.partitions.pop((topic_key(gone), index), None)
                if cached is not None:
                    self.due.pop(cached, None)
                    cached.stop_counting()
                    cached.unsubscribe()
        self.last_fetch_ms = now_ms

    def _ask(self, topic: TopicKey, asked: FetchPartition) -> None:
        cached = self.partitions.get((topic, asked.partition))
        if cached is None:
            cached = self.partitions[topic, asked.partition] = CachedPartition(self, topic, asked)
        cached.asked = asked
        cached.stop_counting()
        self.due[cached] = None

    def look_at_all(self) -> None:
        """Something has changed that no replica tells a consumer of. What is due already stays first."""
        if len(self.due) < len(self.partitions):
            self.due.update(dict.fromkeys(self.partitions.values()))

    def read_as(self, *, reads_committed: bool) -> None:
        """Take the isolation level of a request; with another one there may be more to read, or less."""
        if reads_committed != self.reads_committed:
            self.reads_committed = reads_committed
            self.look_at_all()

    def due_topics(self, most: int | None = None) -> list[FetchTopic]:
        """At most so many partitions to look at, in order; neighbours of one topic are put together."""
        topics: list[FetchTopic] = []
        last: TopicKey | None = None
        for cached in islice(self.due, most):
            if cached.topic != last:
                last = cached.topic
                name, topic_id = (last, None) if isinstance(last, str) else (None, last)
                topics.append(FetchTopic(name, topic_id, []))
            topics[-1].partitions.append(cached.asked)
        return topics

    # -- responses -------------------------------------------------------------------------------------

    def settle(self, results: Results, watch: Watch) -> bool:
        """Take what a look found that is not answered yet; returns whether there is news.

        What the next look may find the same comes last in it.
        """
        has_news = False
        for cached, result in self._each(results):
            if cached.is_news(result):
                has_news = True
                watch(cached)
            elif not self._rest(cached, result, watch):
                self._make_last(cached)
        return has_news

    def respond(self, results: Results, watch: Watch, *, is_short: bool = False) -> Results:
        """Return the part of a look's results to answer with; the client then counts as told.

        ``is_short``: the limits left some without room. They stay where they are.
        """
        told: Results = []
        for topic, of_topic in results:
            news: list[FetchResult] = []
            for result in of_topic:
                cached = self.partitions[topic, result.partition]
                if cached.is_news(result):
                    news.append(result)
                    cached.tell(result)
                if not self._rest(cached, result, watch) and not (is_short and _is_quiet(result)):
                    self._make_last(cached)
            if news:
                told.append((topic, news))
        return told

    def _each(self, results: Results) -> Iterator[tuple[CachedPartition, FetchResult]]:
        for topic, of_topic in results:
            for result in of_topic:
                yield self.partitions[topic, result.partition], result

    def _make_last(self, cached: CachedPartition) -> None:
        self.due.pop(cached, None)
        self.due[cached] = None

    def _rest(self, cached: CachedPartition, result: FetchResult, watch: Watch) -> bool:
        """Whether the partition is no longer due."""
        if not (watch(cached) and _is_quiet(result)):
            return False
        self.due.pop(cached, None)
        return True

    def close(self, code: ErrorCode) -> Generator[None, None, None]:
        """Forget everything; a request that waits is answered with ``code``. Yields between slices, the
        first time when the session has no partitions any more: what is left is to unsubscribe them.
        """
        partitions, self.partitions = self.partitions, {}
        if self.waiting is not None:
            self.waiting.refuse(code)
        yield
        while partitions:
            for _ in range(min(_CLOSED_AT_ONCE, len(partitions))):
                _, cached = partitions.popitem()
                cached.unsubscribe()
                self.due.pop(cached, None)
            yield
