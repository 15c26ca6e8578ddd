"""A leader that is named before its log is open: no request is refused, and none overtakes another."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.apis.table import make_apis
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.replicas import openings
from pykraft.broker.replicas.placement import log_reconciler, replica_publisher
from pykraft.broker.serving.request_server import RequestServer
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.connection import Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records
from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import UnlimitedTurn
from tests.broker.data_cluster import DataBroker, DataCluster, make_batch, running_cluster, values_in
from tests.narrowing import present
from tests.stand_ins import stand_in
from tests.unexpected import unexpected
from tests.waits import until


class SlowLogs:
    """Opens the logs of topics once a test allows it; ``asked`` is the order in which they were requested."""

    def __init__(self, broker: DataBroker) -> None:
        self._open_or_create = broker.logs.open_or_create
        self.asked: list[str] = []
        self._gate = asyncio.Event()
        broker.logs.open_or_create = self.open_or_create  # type: ignore[method-assign]

    async def open_or_create(self, wanted: Sequence[tuple[str, int, Uuid, LogConfig]]) -> list[OpenLog]:
        self.asked += [topic for topic, *_ in wanted]
        await self._gate.wait()
        return await self._open_or_create(wanted)

    def let(self) -> None:
        self._gate.set()


def name_leader(cluster: DataCluster, topic: str, *replicas: int) -> None:
    """The controller appoints the first of ``replicas``; the test does not wait for its log."""
    registration = PartitionRegistration(replicas, replicas, replicas[0], 0, 0)
    cluster.controller.set_partition(registration, topic=topic)


def serve_others(broker: DataBroker) -> None:
    """Add ListOffsets and OffsetForLeaderEpoch, served as by the whole broker, to Produce and Fetch."""
    keys = (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    apis = [api for api in make_apis() if api.key in keys]
    slices = Slices(UnlimitedTurn(), "tests")
    services = stand_in(BrokerServices, replicas=broker.replicas, logs=broker.logs, slices=slices)
    server = RequestServer(services, apis, UnlimitedTurn(), unexpected, broker.replicas.hold_until_open)
    hot = broker.handle_frame

    def handle_frame(connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        is_hot = frame[0] == 0 and frame[1] in (0, 1)
        (hot if is_hot else server.handle_frame)(connection, frame, slot)

    broker.handle_frame = handle_frame  # type: ignore[method-assign]


async def held(
    broker: DataBroker, count: int, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    """Wait until so many connections wait for logs of this broker."""
    waiting = broker.data.openings._held
    await until(lambda: sum(len(those) for those in waiting.values()) == count)


async def test_request_to_a_leader_waits_for_its_log_whatever_it_asks(cluster: DataCluster) -> None:
    broker = cluster.brokers[1]
    serve_others(broker)
    slow = SlowLogs(broker)
    name_leader(cluster, "t", 1)
    clients = [await cluster.client(1) for _ in range(5)]
    clients[0].send_produce(make_batch(b"v"), acks=1)
    clients[1].send_produce(make_batch(b"w"), acks=-1, version=13)
    clients[2].send_fetch(0)
    asked = records.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [records.ListOffsetsTopic(name="t", partitions=[asked])]
    clients[3].send(
        records.ListOffsetsRequest(replica_id=-1, topics=topics),
        5,
    )
    epoch_asked = records.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    epoch_topics = [records.OffsetForLeaderTopic(topic="t", partitions=[epoch_asked])]
    clients[4].send(
        records.OffsetForLeaderEpochRequest(replica_id=-1, topics=epoch_topics),
        4,
    )
    await held(broker, 5, until)
    slow.let()
    produced = [await client.produced() for client in clients[:2]]
    assert [one.error_code for one in produced] == [0, 0]
    assert {one.base_offset for one in produced} == {0, 1}
    assert (await clients[2].fetched()).error_code == 0
    assert (await clients[3].receive()).topics[0].partitions[0].error_code == 0
    assert (await clients[4].receive()).topics[0].partitions[0].error_code == 0


async def test_no_request_of_a_connection_overtakes_one_that_waits(cluster: DataCluster) -> None:
    await cluster.create(1, topic="open")
    broker = cluster.brokers[1]
    slow = SlowLogs(broker)
    name_leader(cluster, "new", 1)
    client, other = await cluster.client(1), await cluster.client(1)
    for number in range(20):
        topic = "new" if number % 3 == 0 else "open"
        client.send_produce(make_batch(b"%d" % number), acks=1, topic=topic)
    await held(broker, 1, until)
    assert (await other.produce(make_batch(b"other"), acks=1, topic="open")).base_offset == 0
    assert present(broker.table.find("open", 0)).log.log_end_offset == 1
    slow.let()
    results = [await client.produced() for _ in range(20)]
    assert [result.error_code for result in results] == [0] * 20
    assert [result.base_offset for result in results if result.base_offset >= 0][:3] == [0, 1, 2]
    for topic, skipped in (("new", []), ("open", [b"other"])):
        got = values_in((await other.fetch(0, topic=topic)).records)
        expected = [b"%d" % n for n in range(20) if (n % 3 == 0) is (topic == "new")]
        assert got == skipped + expected


async def test_log_that_does_not_open_in_time_is_answered_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "MAX_HOLD_MS", 50)
    async with running_cluster() as cluster:
        slow = SlowLogs(cluster.brokers[1])
        name_leader(cluster, "t", 1)
        client = await cluster.client(1)
        for number in range(3):
            client.send_produce(make_batch(b"%d" % number), acks=1)
        for _ in range(3):  # each waits again: the log may have been opened meanwhile
            async with asyncio.timeout(15):
                result = await client.produced()
            assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not cluster.brokers[1].data.openings._held
        slow.let()
        await until(lambda: cluster.brokers[1].table.find("t", 0))
        assert (await client.produce(make_batch(b"v"), acks=1)).base_offset == 0


async def test_topic_that_is_deleted_while_its_log_is_opened_ends_the_wait(cluster: DataCluster) -> None:
    broker = cluster.brokers[1]
    slow = SlowLogs(broker)
    name_leader(cluster, "t", 1)
    client = await cluster.client(1)
    client.send_produce(make_batch(b"v"), acks=1)
    await held(broker, 1, until)
    cluster.controller.delete_topic("t")
    slow.let()
    result = await client.produced()
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_client_that_disconnects_while_it_waits_leaves_nothing_behind(cluster: DataCluster) -> None:
    broker = cluster.brokers[1]
    slow = SlowLogs(broker)
    name_leader(cluster, "t", 1)
    client = await cluster.client(1)
    client.send_produce(make_batch(b"v"), acks=1)
    await held(broker, 1, until)
    client.close()
    slow.let()
    await until(lambda: broker.listener.connection_count == 0)
    assert not broker.data.openings._held


async def test_log_with_waiting_requests_is_opened_before_others(cluster: DataCluster) -> None:
    broker = cluster.brokers[1]
    slow = SlowLogs(broker)
    names = [f"t-{number}" for number in range(5 * log_reconciler.OPENED_PER_STEP)]
    for name in names:
        name_leader(cluster, name, 1)
    await until(lambda: slow.asked)
    client = await cluster.client(1)
    client.send_produce(make_batch(b"v"), acks=1, topic=names[-1])
    await held(broker, 1, until)
    first_step = len(slow.asked)
    slow.let()
    assert (await client.produced()).error_code == 0
    await until(lambda: broker.replicas.is_reconciled)
    assert slow.asked[first_step] == names[-1]
    assert sorted(slow.asked) == sorted(names), "each once"


@pytest.mark.world(brokers=(1, 2))
async def test_elected_follower_accepts_writes_before_it_has_applied_its_new_role(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1, 2)
    broker = cluster.brokers[2]
    client = await cluster.client(2)
    await client.produce(make_batch(b"v"), acks=1)
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 0)  # as behind a long queue of changes
    cluster.controller.elect(2)
    assert not cluster.partition(2).is_leader
    client.send_produce(make_batch(b"w"), acks=1)
    await held(broker, 1, until)
    monkeypatch.undo()
    assert (await client.produced()).error_code == 0
    assert cluster.partition(2).is_leader


async def test_fetch_of_a_follower_is_not_held_for_one_of_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openings, "MAX_HOLD_MS", 60_000)
    async with running_cluster((1, 2)) as cluster:
        await cluster.create(1, 2, topic="open")
        slow = SlowLogs(cluster.brokers[1])
        name_leader(cluster, "new", 1, 2)
        client = await cluster.client(1)
        topics = [
            records.FetchTopic(topic=topic, partitions=[records.FetchPartition(partition=0, fetch_offset=0)])
            for topic in ("new", "open")
        ]
        client.send(records.FetchRequest(replica_id=2, topics=topics), 12)
        async with asyncio.timeout(15):
            answer = await client.receive()
        assert [topic.partitions[0].error_code for topic in answer.responses] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NONE,
        ]
        slow.let()


async def test_many_new_topics_are_written_to_at_once_and_no_request_is_refused(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    names = [f"t-{number}" for number in range(100)]
    for name in names:
        name_leader(cluster, name, 1)
        client.send_produce(make_batch(b"v"), acks=1, topic=name)
    results = [await client.produced() for _ in names]
    assert {(result.error_code, result.base_offset) for result in results} == {(0, 0)}
