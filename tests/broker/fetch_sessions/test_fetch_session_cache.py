"""Which fetch sessions a broker keeps, and which one makes room for another (KIP-227)."""

import random
from dataclasses import replace

import pytest

from pykraft.broker.fetch_sessions import cache as fetch_session_cache
from pykraft.broker.fetch_sessions.cache import EVICTION_MS, FetchSessionCache
from pykraft.broker.fetch_sessions.session import FetchSession, Results
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.hot.fetch_requests import (
    FetchPartition,
    FetchRequestView,
    FetchTopic,
    ForgottenTopic,
)
from pykraft.kafka_protocol.hot.fetch_responses import FetchResult
from tests.broker.answers import refused
from tests.narrowing import present

FOLLOWER = (2, 102)
CONSUMER = (-1, -1)


def request(
    count: int = 1,
    *,
    replica: tuple[int, int] = CONSUMER,
    session: FetchSession | None = None,
    epoch: int | None = None,
    forget: int = 0,
) -> FetchRequestView:
    asked = [FetchPartition(index, -1, 0, -1, 0, 1000) for index in range(count)]
    session_id = 0 if session is None else session.id
    if epoch is None:
        epoch = 0 if session is None else session.epoch
    forgotten = [ForgottenTopic("t", None, list(range(forget)))]
    return FetchRequestView(
        *replica, 0, 1, 1000, 0, session_id, epoch, [FetchTopic("t", None, asked)], forgotten, "", None
    )


class Cache:
    """Two slots, and a time that a test sets."""

    def __init__(self, slots: int = 2) -> None:
        self.cache = FetchSessionCache(slots, random.Random(3))
        self.now_ms = 0

    def create(self, count: int = 1, replica: tuple[int, int] = CONSUMER) -> FetchSession | None:
        results: Results = [("t", [FetchResult(index, 0, 0, 0) for index in range(count)])]
        return self.cache.create(
            request(count, replica=replica),
            results,
            lambda cached: True,
            uses_topic_ids=False,
            now_ms=self.now_ms,
        )

    def made(self, count: int = 1, replica: tuple[int, int] = CONSUMER) -> FetchSession:
        return present(self.create(count, replica))

    def has(self, session: FetchSession) -> bool:
        try:
            replica = session.replica_id, session.replica_epoch
            return self.cache.find(request(replica=replica, session=session), uses_topic_ids=False) is session
        except KafkaError as error:
            assert error.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return False

    def use(self, session: FetchSession, count: int = 1, forget: int = 0) -> bool:
        asked = request(count, session=session, forget=forget)
        return self.cache.update(session, asked, self.now_ms)


def test_full_request_closes_the_session_that_it_names() -> None:
    world = Cache()
    session = world.made()
    assert world.cache.find(request(session=session, epoch=0), uses_topic_ids=False) is None
    assert not world.has(session)


def test_consumer_does_not_close_the_session_of_a_follower() -> None:
    world = Cache()
    session = world.made(replica=FOLLOWER)
    world.cache.find(request(session=session, epoch=-1), uses_topic_ids=False)
    assert world.has(session)


def test_unknown_session_is_not_found_whatever_its_epoch() -> None:
    world = Cache()
    for session_id in (0, 5, -3):
        with refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
            asked = replace(request(epoch=1), session_id=session_id)
            world.cache.find(asked, uses_topic_ids=False)


def test_without_slots_there_is_no_session() -> None:
    assert Cache(slots=0).create() is None


def test_idle_session_makes_room_for_anyone() -> None:
    world = Cache()
    idle, used = world.made(9), world.made(1)
    world.now_ms = EVICTION_MS
    world.use(used)
    assert world.create(1) is None  # used, if long ago
    world.now_ms += 1
    assert world.create(1) is not None
    assert (world.has(idle), world.has(used)) == (False, True)


def test_consumer_closes_an_old_session_with_no_more_partitions_than_its_own() -> None:
    world = Cache()
    small, large = world.made(2), world.made(3)
    world.now_ms = EVICTION_MS + 1
    world.use(large, 3)
    world.use(small, 2)
    assert world.create(1) is None
    world.made(3)
    assert (world.has(small), world.has(large)) == (False, True)


def test_young_session_of_a_consumer_gives_way_to_a_follower_only() -> None:
    world = Cache()
    world.made(5)
    small = world.made(3)
    assert world.create(9) is None
    world.made(1, FOLLOWER)
    assert not world.has(small)


def test_young_sessions_of_followers_give_way_to_nobody() -> None:
    world = Cache()
    followers = [world.made(1, FOLLOWER), world.made(1, FOLLOWER)]
    assert world.create(9) is None
    assert world.create(9, FOLLOWER) is None
    assert all(map(world.has, followers))


def test_consumer_never_closes_the_session_of_a_follower_that_fetches() -> None:
    world = Cache()
    followers = [world.made(1, FOLLOWER), world.made(1, FOLLOWER)]
    world.now_ms = 10 * EVICTION_MS
    for session in followers:
        asked = request(session=session, replica=FOLLOWER)
        world.cache.update(session, asked, world.now_ms)
    assert world.create(1000) is None
    assert all(map(world.has, followers))


def test_sessions_of_an_earlier_incarnation_end_with_the_first_of_the_next() -> None:
    world = Cache(slots=5)
    broker_id, epoch = FOLLOWER
    old, other = world.made(replica=FOLLOWER), world.made(replica=(broker_id + 1, epoch))
    second = world.made(replica=FOLLOWER)  # it has several fetchers
    assert world.has(old)
    again = world.made(replica=(broker_id, epoch + 1))
    assert not world.has(old) and not world.has(second) and world.has(other) and world.has(again)


def test_session_without_partitions_is_closed() -> None:
    world = Cache()
    session = world.made(2)
    assert world.use(session, 1)
    assert not world.use(session, 0, forget=2)
    assert not world.has(session)


@pytest.mark.parametrize(
    ("bound", "own", "other"),
    [("MAX_CONSUMER_PARTITIONS", CONSUMER, FOLLOWER), ("MAX_FOLLOWER_PARTITIONS", FOLLOWER, CONSUMER)],
)
def test_sessions_of_a_kind_hold_a_bounded_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch, bound: str, own: tuple[int, int], other: tuple[int, int]
) -> None:
    monkeypatch.setattr(fetch_session_cache, bound, 10)
    world = Cache(slots=100)
    first = world.made(6, own)
    assert world.create(5, own) is None
    second = world.made(4, own)
    assert world.create(1, own) is None
    assert world.made(11, other)
    assert world.use(first, 6) and world.has(first)
    with refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        world.use(first, 7)
    assert not world.has(first) and world.has(second)
    assert world.made(6, own)


class Waiting:
    def __init__(self) -> None:
        self.refused: ErrorCode | None = None

    def wake(self) -> None: ...
    def supersede(self, connection: object) -> None: ...

    def refuse(self, code: ErrorCode) -> None:
        self.refused = code


def test_request_that_waits_in_a_closed_session_is_answered() -> None:
    world = Cache(slots=1)
    session = world.made()
    session.waiting = waiting = Waiting()
    subscribers: dict[object, None] = {}
    session.partitions["t", 0].subscribe(subscribers)  # type: ignore[arg-type]
    world.made(1, FOLLOWER)
    assert waiting.refused is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not subscribers
