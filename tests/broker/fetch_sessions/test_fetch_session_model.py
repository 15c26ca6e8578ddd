"""A client with a fetch session beside one that asks for everything each time: both know the same.

Two equal brokers go through the same events. The client of the first uses sessions, as a follower does
(:class:`~pykraft.broker.fetch_sessions.follower_side.FetchSessionHandler`); that of the second names
everything in every request. After each answer both clients know the same of every partition and have got the
same records. After each event both leaders think the same of the follower: what it has acknowledged, when it
had everything, and what is committed.
"""

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykraft.broker.apis.records import fetch_exchange
from pykraft.broker.fetch_sessions.follower_side import SESSION_ERRORS, FetchNames, FetchSessionHandler
from pykraft.broker.fetch_sessions.session import FINAL_EPOCH
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition
from pykraft.kafka_protocol.messages import records as record_messages
from tests.broker.fetch_world import (
    FOLLOWER,
    FOLLOWER_EPOCH,
    LEADER,
    OTHER,
    REPLICAS,
    FetchWorld,
    Slot,
    connect,
)

TOPICS = "abcd"
VERSIONS = {"names": 12, "ids": 13, "follower": 17}
EVENTS = "append append others all delete_records lose lead isr delete create fence".split()
CLIENT = "fetch fetch fetch advance advance epochs forget ask lost evict small poll late".split()
STEPS = st.lists(
    st.tuples(st.sampled_from(EVENTS + CLIENT), st.integers(0, 3), st.integers(0, 400)), max_size=60
)

Known = tuple[int, int, int, bytes]
"""Error, high watermark, log start, records."""


class Client:
    """Both clients have the same offsets and epochs; they differ in what their requests name."""

    def __init__(self, world: FetchWorld, kind: str, *, has_session: bool) -> None:
        self.world = world
        self.kind = kind
        self.version = VERSIONS[kind]
        self.handler = FetchSessionHandler() if has_session else None
        self.asked: dict[Any, FetchPartition] = {}
        self.forgotten: set[Any] = set()
        self.known: dict[Any, Known] = {}
        self.connections = 1
        self.last: record_messages.FetchRequest | None = None
        self.waiting: deque[Slot] = deque()

    def key(self, topic: str) -> Any:
        return (topic.encode() if self.kind == "names" else self.world.topic_id(topic)), 0

    def named(self, topic: Any) -> dict[str, Any]:
        """The field of a request that says which topic."""
        return {"topic": topic.decode()} if self.kind == "names" else {"topic_id": topic}

    def ask(self, topic: str) -> None:
        partition = self.world.find(topic)
        epoch = partition.leader_epoch if partition is not None and self.kind == "follower" else -1
        self.asked.setdefault(self.key(topic), FetchPartition(0, epoch, 0, -1, 0, 1 << 20))
        self.forgotten.discard(self.key(topic))

    def forget(self, topic: str) -> None:
        for key in [key for key in self.asked if key == self.key(topic)]:
            del self.asked[key]
            self.forgotten.add(key)

    def change(self, topic: str, **fields: int) -> None:
        key = self.key(topic)
        if key in self.asked:
            self.asked[key] = replace(self.asked[key], **fields)

    def may_send(self) -> bool:
        """A consumer has one request in flight, a follower two if its session is open."""
        most = 1 if self.handler is None else 2
        if self.handler is not None and not self.handler.may_send(len(self.waiting), self.world.clock.now_ms):
            return False
        return len(self.waiting) < (most if self.kind == "follower" else 1)

    def exchange(self, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20, lose: str = "") -> None:
        """One exchange; ``lose`` the request or its answer."""
        request = self.build(max_wait_ms, max_bytes)
        if request is None:
            return
        self.last = None if lose == "request" else request
        if lose == "request":
            self.disconnect()
            return
        slot = self.world.send(request, self.version, connect(self.connections))
        self.waiting.append(slot)
        if lose == "answer":
            self.disconnect()
            slot.abandoned = True
            if slot.on_abandon is not None:
                slot.on_abandon()
            return
        if self.receive():
            self.exchange(max_wait_ms=max_wait_ms, max_bytes=max_bytes)

    def receive(self) -> bool:
        """Take the answers that are there; whether the session has ended, so that all must be asked again."""
        has_ended = False
        while self.waiting and (response := self.waiting[0].response) is not None:
            self.waiting.popleft()
            has_ended |= self._take(response)
        return has_ended

    def _take(self, response: record_messages.FetchResponse) -> bool:
        now_ms = self.world.clock.now_ms
        if response.error_code:
            assert self.handler is not None and response.error_code in SESSION_ERRORS
            self.handler.refused(response.error_code, now_ms)
            return True
        if self.handler is not None:
            self.handler.answered(response.session_id, now_ms)
        for key, known in self.known.items():
            self.known[key] = (*known[:3], b"")
        for topic in response.responses:
            for one in topic.partitions:
                key = (topic.topic.encode() if self.kind == "names" else topic.topic_id), one.partition_index
                if key in self.asked:
                    records = bytes(one.records or b"")
                    self.known[key] = one.error_code, one.high_watermark, one.log_start_offset, records
        return False

    def disconnect(self) -> None:
        self.waiting.clear()
        self.connections += 1
        if self.handler is not None:
            self.handler.connection_lost()

    def build(self, max_wait_ms: int, max_bytes: int) -> record_messages.FetchRequest | None:
        if self.handler is None:
            topics: dict[Any, list[FetchPartition]] = {}
            for (topic, _), asked in self.asked.items():
                topics.setdefault(topic, []).append(asked)
            names = FetchNames(0, FINAL_EPOCH, topics, {}) if topics else None
        else:
            names = self.handler.build({**dict.fromkeys(self.forgotten), **self.asked})
        for key in self.forgotten:
            self.known.pop(key, None)
        self.forgotten.clear()
        if names is None:
            return None
        request = record_messages.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=names.session_id,
            session_epoch=names.epoch,
            topics=[
                record_messages.FetchTopic(
                    **self.named(topic),
                    partitions=[
                        record_messages.FetchPartition(
                            partition=one.partition,
                            current_leader_epoch=one.current_leader_epoch,
                            fetch_offset=one.fetch_offset,
                            last_fetched_epoch=one.last_fetched_epoch,
                            log_start_offset=one.log_start_offset,
                            partition_max_bytes=one.max_bytes,
                        )
                        for one in partitions
                    ],
                )
                for topic, partitions in names.topics.items()
            ],
            forgotten_topics_data=[
                record_messages.ForgottenTopic(**self.named(topic), partitions=indexes)
                for topic, indexes in names.forgotten.items()
            ],
        )
        if self.kind == "follower":
            request.replica_state = record_messages.ReplicaState(
                replica_id=FOLLOWER, replica_epoch=FOLLOWER_EPOCH
            )
        return request


class Twins:
    """The same in both worlds."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.clients = [
            Client(FetchWorld(TOPICS), kind, has_session=has_session) for has_session in (True, False)
        ]
        self.is_limited = False
        for client in self.clients:
            for topic in TOPICS[:3]:
                client.ask(topic)

    def step(self, action: str, number: int, amount: int) -> None:
        topic = TOPICS[number]
        for client in self.clients:
            client.world.clock.now_ms += amount
        if action in CLIENT:
            self.client_step(action, topic, amount)
        else:
            for client in self.clients:
                happen(client, action, topic, amount)
        self.finish_poll()
        self.compare()

    def client_step(self, action: str, topic: str, amount: int) -> None:
        if action in ("fetch", "small", "poll", "lost", "evict") and not all(
            one.may_send() for one in self.clients
        ):
            return
        if action == "evict":
            evict(self.clients[0])
            for client in self.clients:
                client.exchange()
        elif action == "late":
            self.send_again()
        else:
            for client in self.clients:
                client_acts(client, action, topic, amount)
        self.is_limited = action == "small" or (self.is_limited and action != "fetch")

    def send_again(self) -> None:
        """A copy of the last request arrives once more, on another connection."""
        client = self.clients[0]
        if client.last is not None and (self.kind != "follower" or client.last.session_epoch > 0):
            client.world.send(client.last, client.version, connect(99))

    def finish_poll(self) -> None:
        """A session hears of some changes earlier; the other client is not left to wait longer."""
        with_session, in_full = self.clients
        for client in self.clients:
            if client.receive():
                client.exchange()
        if with_session.waiting:
            assert in_full.waiting, "the session misses a change"
        elif in_full.waiting:
            for client in self.clients:
                client.world.clock.now_ms += 1000
                client.world.run()
                client.receive()
        assert len(with_session.waiting) <= len(in_full.waiting)

    def compare(self) -> None:
        with_session, in_full = self.clients
        if not with_session.waiting and not in_full.waiting:
            count = 3 if self.is_limited else 4
            assert {key: known[:count] for key, known in with_session.known.items()} == {
                key: known[:count] for key, known in in_full.known.items()
            }
        for topic in TOPICS:
            mine, other = with_session.world.find(topic), in_full.world.find(topic)
            if mine is not None and other is not None and mine.is_leader:
                assert leaders_view(mine) == leaders_view(other)
                # Each request of a follower that is not in the ISR is an occasion to propose it.
                assert (mine in with_session.world.proposed) == (other in in_full.world.proposed)
        for client in self.clients:
            client.world.proposed.clear()


def leaders_view(partition: Partition) -> tuple[object, ...]:
    follower = partition.followers[FOLLOWER]
    return (
        partition.high_watermark,
        follower.log_end_offset,
        follower.broker_epoch,
        follower.last_caught_up_ms,
    )


def client_acts(client: Client, action: str, topic: str, amount: int) -> None:
    partition = client.world.find(topic)
    match action:
        case "fetch":
            client.exchange()
        case "small":
            client.exchange(max_bytes=60)
        case "poll":
            client.exchange(max_wait_ms=1 + amount)
        case "lost":
            client.exchange(lose="request" if amount % 2 else "answer")
        case "advance" if partition is not None:
            is_follower = client.kind == "follower"
            end = partition.log.log_end_offset if is_follower else partition.high_watermark
            client.change(topic, fetch_offset=end if amount % 3 else max(0, end - 1))
        case "epochs" if partition is not None and client.kind == "follower":
            client.change(topic, current_leader_epoch=partition.leader_epoch)
        case "forget":
            client.forget(topic)
        case "ask":
            client.ask(topic)


def happen(client: Client, event: str, topic: str, amount: int) -> None:
    world = client.world
    match event:
        case "append":
            world.append(topic)
        case "others":
            world.acknowledge(topic, OTHER)
        case "all":
            world.acknowledge(topic, *((OTHER,) if client.kind == "follower" else (FOLLOWER, OTHER)))
        case "delete_records":
            world.delete_records(topic)
        case "lose":
            world.elect(topic, OTHER)
        case "lead":
            world.elect(topic, LEADER)
        case "isr":
            world.set_isr(topic, (REPLICAS, (LEADER, OTHER), (LEADER, FOLLOWER))[amount % 3])
        case "delete":
            world.delete(topic)
        case "create":
            world.create(topic)
        case "fence":
            world.set_fenced(amount % 2 == 0)
    world.run()


def evict(client: Client) -> None:
    """The broker forgets all sessions."""
    sessions = client.world.sessions
    for session in list(sessions._sessions.values()):
        sessions._remove(session)


@pytest.mark.parametrize("kind", VERSIONS)
@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
@example([("fetch", 0, 0), ("delete", 0, 0), ("fetch", 0, 0)])
@example([("fetch", 0, 0), ("lose", 0, 0), ("fetch", 0, 0)])
@example([("isr", 0, 1), ("fetch", 0, 0), ("fetch", 0, 0)])
def test_session_tells_what_full_answers_would(kind: str, steps: list[tuple[str, int, int]]) -> None:
    twins = Twins(kind)
    for action, number, amount in steps:
        twins.step(action, number, amount)


class SlowTwins(Twins):
    """The first broker looks at few partitions at a time, so that its client asks more often."""

    def compare(self) -> None:
        with_session, in_full = self.clients
        # What a follower names counts at once, whatever else is due.
        self.compare_leaders(3)
        if not with_session.waiting and all(one.may_send() for one in self.clients):
            for client in self.clients * 10:
                client.exchange()
            assert {key: known[:3] for key, known in with_session.known.items()} == {
                key: known[:3] for key, known in in_full.known.items()
            }
            self.compare_leaders(4)

    def compare_leaders(self, count: int) -> None:
        for topic in TOPICS:
            mine, other = (client.world.find(topic) for client in self.clients)
            if mine is not None and other is not None and mine.is_leader:
                assert leaders_view(mine)[:count] == leaders_view(other)[:count]


@pytest.mark.parametrize("kind", VERSIONS)
@settings(max_examples=100, deadline=None)
@given(few=st.integers(1, 3), steps=STEPS)
def test_session_that_looks_at_few_at_a_time_tells_all_soon(
    kind: str, few: int, steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_exchange, "LOOKED_AT_ONCE", few)
        twins = SlowTwins(kind)
        for action, number, amount in steps:
            twins.step(action, number, amount)
