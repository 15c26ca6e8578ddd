"""Fetch requests that name, or stand for, very many partitions: in slices, and within bounds.

The bounds are made small, so that some partitions are very many.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pykraft.broker.apis.records import fetch as fetch_api
from pykraft.broker.apis.records import fetch_exchange, large_fetches
from pykraft.broker.apis.records.fetch import FetchHandler
from pykraft.broker.apis.records.fetch_reader import FetchReader, Found
from pykraft.broker.fetch_sessions import session as fetch_session
from pykraft.broker.replicas.following import leader_link
from pykraft.kafka_protocol.connection import Connection
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.headers import RequestHeader
from pykraft.kafka_protocol.hot import fetch_requests
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records
from pykraft.runtime.turns import BULK, UnlimitedTurn
from tests.broker.data_cluster import DataClient, DataCluster, make_batch, values_in
from tests.broker.fetch_world import FOLLOWER, FOLLOWER_EPOCH, LEADER, OTHER, FetchWorld, Slot, connect
from tests.narrowing import present
from tests.waits import until

TOPICS = "abcdefghij"
ALL = dict.fromkeys(TOPICS, 0)
VERSION = 12

pytestmark = pytest.mark.world(topics=TOPICS)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many partitions are looked at in one slice."""
    monkeypatch.setattr(fetch_exchange, "LOOKED_AT_ONCE", 3)
    monkeypatch.setattr(large_fetches, "LOOKED_AT_ONCE", 3)
    return 3


# --- sessions with many partitions that are due ---


def fetch(
    offsets: Mapping[str, int],
    *,
    session: int = 0,
    epoch: int = 0,
    wait_ms: int = 0,
    id_of: Callable[[str], Uuid] | None = None,
    **fields: Any,
) -> records.FetchRequest:
    topics = [
        records.FetchTopic(
            **({"topic": topic} if id_of is None else {"topic_id": id_of(topic)}),
            partitions=[
                records.FetchPartition(
                    partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20
                )
            ],
        )
        for topic, offset in offsets.items()
    ]
    return records.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session, session_epoch=epoch, topics=topics, **fields
    )


def ask(world: FetchWorld, offsets: Mapping[str, int], **options: Any) -> Slot:
    return world.send(fetch(offsets, **options), VERSION, connect(1))


def opened() -> tuple[FetchWorld, int]:
    """A session that has asked for all topics."""
    world = FetchWorld(TOPICS)
    return world, present(ask(world, ALL).response).session_id


def told(slot: Slot) -> list[str]:
    return [topic.topic for topic in present(slot.response).responses]


def commit(world: FetchWorld, topic: str) -> None:
    world.append(topic)
    for replica in (FOLLOWER, OTHER):
        world.acknowledge(topic, replica)
    world.run()


def test_partitions_that_are_due_are_told_some_at_a_time_and_none_is_passed_over(few: int) -> None:
    world, session = opened()
    for topic in TOPICS:
        commit(world, topic)
    order: list[str] = []
    for epoch in range(1, 9):
        slot = ask(world, {}, session=session, epoch=epoch, wait_ms=1000)
        assert len(told(slot)) == few
        order += told(slot)
    # Their offsets stay where they are, so all are due again and again.
    assert sorted(order[:10]) == sorted(order[10:20]) == list(TOPICS)


@pytest.mark.parametrize("is_fenced", [False, True])
def test_partitions_with_errors_do_not_keep_others_from_being_looked_at(few: int, is_fenced: bool) -> None:
    world, session = opened()
    if is_fenced:
        world.set_fenced(True)
    else:
        for topic in TOPICS[:few]:
            world.delete(topic)
        for topic in TOPICS[few:]:
            commit(world, topic)
    order: list[str] = []
    for epoch in range(1, 5):
        order += told(ask(world, {}, session=session, epoch=epoch, wait_ms=1000))
    assert sorted(order[:10]) == list(TOPICS)


def test_waiting_request_looks_at_all_that_are_due_in_later_turns(few: int) -> None:
    world = FetchWorld(TOPICS)
    commit(world, "j")
    session = present(ask(world, ALL | {"j": 1}).response).session_id
    slot = ask(world, ALL, session=session, epoch=1, wait_ms=1000)
    assert told(slot) == ["j"]
    (cached,) = (it for it in world.sessions._sessions.values())
    assert [one.topic for one in cached.due] == ["j"]
    commit(world, "a")
    late = ask(world, {"j": 1}, session=session, epoch=2, wait_ms=1000)
    assert told(late) == ["a"]


def test_waiting_request_is_woken_while_it_still_looks_at_others(few: int) -> None:
    world, session = opened()
    world.turns.deferred.clear()
    slot, request = Slot(VERSION), fetch({}, session=session, epoch=1, wait_ms=1000, isolation_level=1)
    world.begin(request, VERSION, connect(1), slot)
    assert world.turns.deferred and not slot.done
    commit(world, "a")
    assert told(slot) == ["a"]
    assert not world.turns.deferred


def follow(
    world: FetchWorld, offsets: Mapping[str, int], session: int = 0, epoch: int = 0
) -> records.FetchResponse:
    """The answer to a follower."""
    state = records.ReplicaState(replica_id=FOLLOWER, replica_epoch=FOLLOWER_EPOCH)
    request = fetch(offsets, session=session, epoch=epoch, id_of=world.topic_id, replica_state=state)
    return present(world.send(request, 17, connect(1)).response)


def test_offsets_that_a_follower_names_count_at_once_however_many_others_are_due(few: int) -> None:
    world = FetchWorld(TOPICS)
    session = follow(world, ALL).session_id
    for topic in TOPICS:
        world.append(topic)
        world.acknowledge(topic, OTHER)
    assert len(follow(world, {}, session, 1).responses) == few
    follow(world, {"j": 1}, session, 2)
    assert present(world.find("j")).high_watermark == 1
    assert {topic: present(world.find(topic)).high_watermark for topic in "fghi"} == dict.fromkeys("fghi", 0)


def test_partitions_that_are_held_back_do_not_slow_others_down(few: int) -> None:
    world = FetchWorld(TOPICS)
    session = follow(world, ALL).session_id
    quota = world.replicas.quotas.leader
    quota.limit = 1
    quota.record(1 << 20, world.clock.now_ms)
    for topic in TOPICS:
        world.append(topic)
    for topic in "ab":
        world.set_isr(topic, (LEADER, OTHER))
        present(world.find(topic)).set_throttled(as_leader=True, as_follower=False)
    sizes = [len(follow(world, {}, session, epoch).responses) for epoch in range(1, 5)]
    assert sizes == [1, 3, 3, 1]


# --- requests that name many ---


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Every request is handled as a large one is."""
    monkeypatch.setattr(fetch_api, "LARGE_BYTES", 0)


def send_all(
    client: DataClient,
    *,
    offset: int = 0,
    version: int = VERSION,
    topics: str = TOPICS,
    epoch: int = -1,
    **options: Any,
) -> None:
    client.send(fetch(dict.fromkeys(topics, offset), epoch=epoch, **options), version)


def values_of(response: records.FetchResponse) -> dict[str, list[bytes]]:
    return {topic.topic: values_in(topic.partitions[0].records) for topic in response.responses}


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_large_request_is_answered_as_others_are(
    cluster: DataCluster, all_large: None, version: int
) -> None:
    client = await cluster.client(1)
    for topic in TOPICS[::2]:
        await client.produce(make_batch(topic.encode()), topic=topic)
    send_all(client, version=version)
    response = await client.receive()
    assert values_of(response) == {
        topic: [topic.encode()] if topic in TOPICS[::2] else [] for topic in TOPICS
    }
    assert [topic.partitions[0].high_watermark for topic in response.responses] == [1, 0] * 5
    send_all(client, version=version, topics="abz")
    codes = [topic.partitions[0].error_code for topic in (await client.receive()).responses]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_large_request_waits_once_and_then_tells_what_has_come(
    cluster: DataCluster, all_large: None
) -> None:
    client, other = await cluster.client(1), await cluster.client(1)
    send_all(client, wait_ms=300)
    send_all(client)
    await other.produce(make_batch(b"v"), topic="j")
    assert values_of(await client.receive())["j"] == [b"v"]
    assert values_of(await client.receive())["j"] == [b"v"]


async def test_large_request_opens_a_session(
    cluster: DataCluster, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"), topic="a")
    send_all(client, epoch=0, wait_ms=60_000)  # it need not wait: there is a session to go on with
    opened = await client.receive()
    assert opened.session_id > 0 and len(opened.responses) == 10
    monkeypatch.setattr(fetch_api, "LARGE_BYTES", 1 << 20)
    send_all(client, session=opened.session_id, epoch=1, topics="", wait_ms=60_000)
    assert values_of(await client.receive()) == {"a": [b"v"]}
    send_all(client, session=opened.session_id, epoch=2, topics="a", offset=1, wait_ms=60_000)
    other = await cluster.client(1)
    await other.produce(make_batch(b"w"), topic="j")
    assert values_of(await client.receive()) == {"j": [b"w"]}
    monkeypatch.setattr(fetch_api, "LARGE_BYTES", 0)
    send_all(client, session=opened.session_id, epoch=3)
    assert (await client.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cluster.brokers[1].fetch_sessions) == 0
    assert not cluster.partition(1, "a").consumer_sessions


async def test_nothing_is_left_of_a_session_that_is_not_completed(
    cluster: DataCluster,
    all_large: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usual, subscribed = FetchReader.read, []
    client = await cluster.client(1)

    def read(self: FetchReader, *args: Any) -> Found:
        subscribed.append(len(cluster.partition(1, "a").consumer_sessions))
        if len(subscribed) == 3:
            raise ZeroDivisionError
        return usual(self, *args)

    monkeypatch.setattr(FetchReader, "read", read)
    send_all(client, epoch=0)
    with pytest.raises(asyncio.IncompleteReadError):
        await client.receive()
    assert subscribed == [0, 1, 1]
    assert not any(cluster.partition(1, topic).consumer_sessions for topic in TOPICS)
    assert len(cluster.brokers[1].fetch_sessions) == 0
    assert "Fetch failed" in caplog.messages


class SliceByHand(UnlimitedTurn):
    """Each slice waits in ``deferred`` for its turn."""

    def __init__(self) -> None:
        self.deferred: deque[Callable[[], None]] = deque()

    def has_room(self) -> bool:
        return False

    has_time = has_share = has_room

    def defer(self, resume: Callable[[], None], lane: object = BULK) -> None:
        self.deferred.append(resume)


async def test_nothing_is_left_of_a_session_whose_client_is_gone_before_it_is_completed(
    cluster: DataCluster, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Connection] = []
    client, broker, turns = await cluster.client(1), cluster.brokers[1], SliceByHand()
    handler = FetchHandler(broker.services, turns)

    def handle(connection: Connection, *args: Any) -> None:
        connections.append(connection)
        handler.handle(connection, *args)

    monkeypatch.setitem(broker._hot, 1, SimpleNamespace(handle=handle))

    def subscribed() -> list[str]:
        return [topic for topic in TOPICS if cluster.partition(1, topic).consumer_sessions]

    send_all(client, epoch=0)
    while not subscribed():
        await until(lambda: turns.deferred)
        turns.deferred.popleft()()
    connections[0].close("the client is gone")
    while subscribed():
        await until(lambda: turns.deferred or not subscribed())
        while turns.deferred:
            turns.deferred.popleft()()


@pytest.mark.parametrize("version", [4, 12])
async def test_request_is_large_by_its_partitions_however_few_bytes_they_take(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    begun: list[int] = []
    begin = large_fetches.LargeFetches.begin

    def count(self: large_fetches.LargeFetches, connection: Connection, header: Any, *rest: Any) -> None:
        begun.append(header.correlation_id)
        begin(self, connection, header, *rest)

    monkeypatch.setattr(large_fetches.LargeFetches, "begin", count)
    client = await cluster.client(1)
    for most, expected in ((10, []), (9, [2])):
        monkeypatch.setattr(fetch_api, "LARGE_PARTITIONS", most)
        partitions = [records.FetchPartition(partition=0, partition_max_bytes=1)]
        topics = [records.FetchTopic(topic=topic, partitions=partitions) for topic in TOPICS]
        client.send(records.FetchRequest(topics=topics), version)
        assert len((await client.receive()).responses) == 10
        assert begun == expected


def test_session_that_is_closed_ends_at_once_and_unsubscribes_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session, "_CLOSED_AT_ONCE", 3)
    world, session_id = opened()
    session = world.sessions._sessions[session_id]
    closings: list[Generator[None, None, None]] = []
    world.sessions.in_slices = closings.append
    waiting = ask(world, {}, session=session_id, epoch=1, wait_ms=1000)
    answer = present(ask(world, ALL, session=session_id, epoch=-1).response)
    assert len(answer.responses) == 10 and not len(world.sessions)
    assert present(waiting.response).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    (closing,) = closings
    left = []
    for _ in closing:
        left.append(sum(len(present(world.find(topic)).consumer_sessions) for topic in TOPICS))
        commit(world, "a")
    assert left == [7, 4, 1, 0]
    assert not session.due and not session.partitions


async def test_large_request_does_not_wait_for_as_long_as_its_client_likes(
    cluster: DataCluster, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_fetches, "LONGEST_WAIT_MS", 1)
    client = await cluster.client(1)
    send_all(client, wait_ms=(1 << 31) - 1)
    async with asyncio.timeout(10):
        assert len((await client.receive()).responses) == 10


@pytest.mark.parametrize("bound", ["MAX_ITEMS", "MAX_LISTS"])
async def test_request_with_too_many_partitions_is_refused(
    cluster: DataCluster, all_large: None, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(fetch_requests, bound, {"MAX_ITEMS": 19, "MAX_LISTS": 9}[bound])
    client = await cluster.client(1)
    for version in (7, 11, 12):
        send_all(client, version=version)
        response = await client.receive()
        assert (response.error_code, response.responses) == (ErrorCode.INVALID_REQUEST, [])
    send_all(client, topics=TOPICS[:9])
    assert len((await client.receive()).responses) == 9
    send_all(client, version=6)
    with pytest.raises(asyncio.IncompleteReadError):
        await client.receive()


@pytest.mark.world(brokers=(1, 2), topics=TOPICS)
async def test_followers_tell_their_leader_of_very_many_partitions_in_several_requests(
    cluster: DataCluster, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_link, "MOST_NAMED", 3)
    client = await cluster.client(1)
    for round in range(3):
        for topic in TOPICS:
            result = await client.produce(make_batch(b"%d" % round), topic=topic)
            assert result.error_code == ErrorCode.NONE
    await until(lambda: all(cluster.partition(2, topic).high_watermark == 3 for topic in TOPICS))


@pytest.mark.world(brokers=(1, 2), topics=TOPICS)
async def test_followers_have_very_many_partitions_forgotten_in_several_requests(
    cluster: DataCluster, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_link, "MOST_NAMED", few)
    named: list[int] = []
    fetch = cluster.brokers[1]._hot[1]

    def handle(connection: Connection, context: Any, header: RequestHeader, *rest: Any) -> None:
        request = records.FetchRequest.decode(bytes(rest[0]), header.api_version)
        topics: list[Any] = [*request.topics, *request.forgotten_topics_data]
        named.append(sum(len(one.partitions) for one in topics))
        fetch.handle(connection, context, header, *rest)

    monkeypatch.setitem(cluster.brokers[1]._hot, 1, SimpleNamespace(handle=handle))
    sessions = cluster.brokers[1].fetch_sessions._sessions
    await until(lambda: [len(one.partitions) for one in sessions.values()] == [10])
    (session,) = sessions.values()
    (link,) = cluster.brokers[2].data.fetchers._links.values()
    for topic in TOPICS[1:]:
        link.remove(cluster.partition(2, topic))
    link.fetch_soon()
    await until(lambda: len(session.partitions) == 1)
    assert list(sessions.values()) == [session] and max(named) == few


@pytest.mark.world(brokers=(1, 2), topics=TOPICS[:4])
async def test_followers_whose_every_request_is_large_replicate(
    cluster: DataCluster, all_large: None
) -> None:
    client = await cluster.client(1)
    for topic in TOPICS[:4] * 2:
        assert (await client.produce(make_batch(b"v"), topic=topic)).error_code == 0
