"""Groups of unmodified clients while the broker that coordinates them is killed or paused.

The tests have their own cluster, in which a silent broker is replaced within seconds. Committed offsets never
go back, every record is consumed, and the members share the partitions again in bounded time. What
every client does when its coordinator dies is tested in test_group_fleets.py.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pykraft.coordinator.partitioning import partition_for_key
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER
from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, WaitError, wait_until
from tests.interop.clusters import addresses_of, create_in_sync, own_cluster, probing

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
Settings = dict[str, object]

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 5
PARTITIONS = 6
TIMEOUT_S = PATIENCE_S
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "300",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    **FAST_FAILOVER,
}
CLASSIC: Settings = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 5000,
    "heartbeat.interval.ms": 300,
}
# Shorter than a failover takes: every member's own session runs out before there is a coordinator.
STATIC = CLASSIC | {"session.timeout.ms": 2500}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, PROPERTIES) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, fresh: Fresh) -> str:
    name = fresh("failover")
    create_in_sync(cluster, name, PARTITIONS)
    return name


def coordinator_of(cluster: Cluster, group: str, *, other_than: int = 0) -> int:
    """The serving node that says that it coordinates ``group``."""
    index = partition_for_key(group, OFFSETS_PARTITIONS)
    found: list[int] = []
    with probing(cluster) as probe:

        def known() -> bool:
            for node_id in cluster.running_nodes:
                view = probe.topic(node_id, OFFSETS_TOPIC)
                if view is not None and index in view.partitions:
                    leader = view.partitions[index].leader
                    if leader == node_id != other_than:
                        found.append(leader)
            return bool(found)

        wait_until(f"a coordinator of {group}", known, TIMEOUT_S)
    return found[0]


def heal(cluster: Cluster, topic: str) -> None:
    cluster.heal()
    cluster.wait_in_sync(topic, TIMEOUT_S)
    cluster.wait_in_sync(OFFSETS_TOPIC, TIMEOUT_S)


def settings_for(cluster: Cluster, group: str, settings: Settings = CLASSIC) -> Settings:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
        **settings,
    }


class Ledger:
    """What was produced, consumed and committed, and whether a committed offset ever went back."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.consumed: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = {}
        self._ends = [0] * PARTITIONS
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )

    def produce(self, count: int = 60) -> None:
        def delivered(error: object, message: object) -> None:
            assert error is None, error

        for n in range(count):
            self._producer.produce(self.topic, b"x", partition=n % PARTITIONS, on_delivery=delivered)
            self._ends[n % PARTITIONS] += 1
        assert self._producer.flush(TIMEOUT_S) == 0

    @property
    def all_consumed(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> list[tuple[int, int]]:
        """(partition, offset) of acknowledged records that are not consumed yet."""
        expected = ((index, n) for index, end in enumerate(self._ends) for n in range(end))
        return [record for record in expected if record not in self.consumed]

    def commit(self, ask: Callable[[], Sequence[TopicPartition] | None]) -> None:
        """Commit, or read back: ``ask`` must return offsets that are not older than those seen before."""
        before = dict(self.committed)
        for item in ask() or ():
            if item.error is None and item.offset >= 0:
                floor = before.get(item.partition, 0)
                assert item.offset >= floor, f"{item.partition}: {floor} was committed, now {item.offset}"
                self.committed[item.partition] = max(item.offset, self.committed.get(item.partition, 0))


class Member:
    """A consumer in a thread of its own that polls, and commits what it polled, until it is stopped.

    Each has its own thread, because a commit waits in its connection behind the member's own JoinGroup, which
    waits for all other members to poll: one thread for several members would wait for itself.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.consumer = Consumer(settings)
        self.consumer.subscribe([ledger.topic])
        self.ledger = ledger
        self.owned: list[int] = []
        """This and ``positions`` are as of its latest turn. No other thread may use the consumer."""
        self.positions: list[int] = []
        self._stopping = Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def look(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._running.done():
            self._running.result()

    def stop(self) -> None:
        """Leave the group. Others must go on polling until they are stopped, too."""
        self._stopping.set()
        self._pool.shutdown()
        self.consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._poll_and_commit()
            assigned = self.consumer.assignment()
            self.positions = [item.offset for item in self.consumer.position(assigned)]
            self.owned = [item.partition for item in assigned]

    def _poll_and_commit(self) -> None:
        messages = self.consumer.consume(500, 0.05)
        if not messages:
            return
        for message in messages:
            error = message.error()
            assert error is None or not error.fatal(), error
            if error is None:
                self.ledger.consumed.add((int(message.partition() or 0), int(message.offset() or 0)))
        try:
            self.ledger.commit(lambda: self.consumer.commit(asynchronous=False))
        except KafkaException as error:
            assert not error.args[0].fatal(), error


def wait_for(members: Sequence[Member], done: Callable[[], bool], what: str) -> None:
    def looked() -> bool:
        for member in members:
            member.look()
        return done()

    try:
        wait_until(what, looked, TIMEOUT_S)
    except WaitError as error:
        ledger = members[0].ledger
        raise WaitError(
            f"{error}; owned {[m.owned for m in members]}, at {[m.positions for m in members]},"
            f" committed {ledger.committed}, missing {ledger.missing}"
        ) from None


def shared(members: Sequence[Member], count: int) -> bool:
    """Whether every partition has one owner, and the owners are ``count`` members with equal shares."""
    owned = [member.owned for member in members]
    sizes = {len(part) for part in owned}
    return sorted(index for part in owned for index in part) == list(range(PARTITIONS)) and sizes == {
        PARTITIONS // count
    }


def test_static_members_whose_sessions_run_out_while_there_is_no_coordinator_share_again(
    cluster: Cluster, topic: str, fresh: Fresh
) -> None:
    group = fresh("group")
    settings = settings_for(cluster, group, STATIC)
    ledger = Ledger(cluster, topic)

    def member(n: int) -> Member:
        return Member(settings | {"client.id": f"m{n}", "group.instance.id": f"i{n}"}, ledger)

    members = [member(0), member(1)]
    try:
        ledger.produce()
        wait_for(members, lambda: ledger.all_consumed and shared(members, 2), "two members share")
        members.append(member(2))
        wait_for(members, lambda: not shared(members[:2], 2), "a rebalance has begun")
        cluster.kill(coordinator_of(cluster, group))
        ledger.produce()
        wait_for(members, lambda: ledger.all_consumed and shared(members, 3), "three members share")
        assert max(ledger.committed.values()) >= 10
        with closing(Consumer(settings_for(cluster, group))) as reader:
            partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
            ledger.commit(lambda: reader.committed(partitions, timeout=PATIENCE_S))
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.stop, members))
        heal(cluster, topic)


def test_stalled_coordinator_does_not_answer_with_outdated_offsets(
    cluster: Cluster, topic: str, fresh: Fresh
) -> None:
    """A request that waits in its socket is handled before the broker knows what it missed."""
    group = fresh("group")
    committer = Consumer(settings_for(cluster, group))
    paused = 0
    try:
        committer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
        paused = coordinator_of(cluster, group)
        address = addresses_of(cluster)[paused]
        with socket.create_connection((address.host, address.port), timeout=TIMEOUT_S) as asking:
            cluster.pause(paused)
            coordinator_of(cluster, group, other_than=paused)
            with closing(Consumer(settings_for(cluster, group))) as newer:
                newer.commit(offsets=[TopicPartition(topic, 0, 20)], asynchronous=False)
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
            frame = encode_request(request, 8, 1, "asking")
            asking.sendall(len(frame).to_bytes(4, "big") + frame)
            cluster.resume(paused)
            with asking.makefile("rb") as stream:
                answer = stream.read(int.from_bytes(stream.read(4), "big"))
        _, body_at = decode_response_header(OffsetFetchRequest.API_KEY, 8, answer)
        (result,) = OffsetFetchResponse.decode(answer[body_at:], 8).groups
        offsets = [p.committed_offset for t in result.topics for p in t.partitions]
        assert result.error_code != 0 or offsets == [20], (result.error_code, offsets)
    finally:
        committer.close()
        heal(cluster, topic)
