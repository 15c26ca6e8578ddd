"""What a follower asks its leader for, and what its requests acknowledge."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.broker.apis.records.fetch_reader import FetchReader, Found
from pykraft.broker.fetch_sessions.follower_side import SessionState
from pykraft.broker.replicas.following.leader_connection import Asked, Followed
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.hot.fetch_follower import build_follower_fetch
from pykraft.kafka_protocol.hot.fetch_requests import FetchPartition, FetchRequestView, FetchTopic
from pykraft.kafka_protocol.hot.fetch_responses import FetchResult, build_fetch_response
from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.records import assign_offset
from pykraft.log_store.checkpoint import RECOVERY_POINT_CHECKPOINT, read_offset_checkpoint
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.runtime.simulated.memory_disk import MemoryFile
from tests.broker.data_cluster import TOPIC_ID, DataCluster, make_batch
from tests.stand_ins import interpreted_only
from tests.waits import until

pytestmark = pytest.mark.world(brokers=(1, 2))


async def test_follower_without_records_beyond_its_leaders_end_starts_over(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    cluster.partition(2).restart_at(50)  # as after losing every record above its log start
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"v"))).error_code == 0
    assert cluster.partition(2).log.log_end_offset == 1


async def test_records_of_an_older_epoch_are_replaced_though_the_leader_has_as_many(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    follower = cluster.partition(2)
    behind = cluster.controller.brokers.pop(2)  # it does not hear of the next epoch
    cluster.controller.elect(1)
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
    data = bytearray(make_batch(b"of a leader nobody else heard of"))
    assign_offset(data, 0, 0, 0)
    follower.append_as_follower(memoryview(data), 0)
    cluster.controller.brokers[2] = behind
    cluster.controller.elect(1)
    await until(lambda: follower.log.log_end_offset == 3)
    assert [header.partition_leader_epoch for header, _ in follower.log.iter_batches(0)] == [1, 1, 1]


async def test_answer_to_a_request_of_another_epoch_is_dropped(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    follower = cluster.partition(2)
    link = cluster.brokers[2].data.fetchers._links[1, 0]
    result = FetchResult(0, 0, 1, 0, make_batch(b"of another epoch"))
    chunks = build_fetch_response(17, 1, [(TOPIC_ID, [result])])
    frame = memoryview(
        b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview))
    )[4:]
    link.handle_response(Asked(True, {(TOPIC_ID, 0): Followed(follower, is_in_sync=True)}), frame)
    assert (follower.log.log_end_offset, follower.high_watermark) == (0, 0)


@pytest.mark.world(brokers=(1, 2), replica_fetch_wait_max_ms=3000)
async def test_follower_that_truncates_lowers_its_recovery_point_at_once(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"))
    broker, follower = cluster.brokers[2], cluster.partition(2)
    for offset in (1, 2):
        data = bytearray(make_batch(b"of a leader nobody else heard of"))
        assign_offset(data, 0, offset, 0)
        follower.append_as_follower(memoryview(data), 0)
    await broker.logs.flush(("t", 0))
    await broker.logs.checkpoints.write({})
    path = f"/d2/{RECOVERY_POINT_CHECKPOINT}"
    assert read_offset_checkpoint(broker.disk, path) == {("t", 0): 3}
    cluster.controller.elect(1)
    await until(lambda: follower.log.log_end_offset == 1)
    assert read_offset_checkpoint(broker.disk, path) == {("t", 0): 1}


@pytest.mark.world(brokers=(1,))
async def test_fetch_of_a_diverging_follower_acknowledges_nothing(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    cluster.controller.elect(1)
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
    asked = FetchPartition(0, 1, 3, 0, 0, 1000)  # everything, but written in epoch 0
    client.writer.write(
        build_follower_fetch(
            1,
            "broker-2",
            replica_id=2,
            replica_epoch=102,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            topics=[(TOPIC_ID, [asked])],
        )
    )
    await client.reader.readexactly(4)
    partition = cluster.partition(1)
    assert partition.followers[2].log_end_offset == -1
    assert partition.high_watermark == 0


async def test_follower_that_does_not_know_the_epoch_acknowledges_nothing_in_it(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    leader = cluster.partition(1)
    await until(lambda: leader.followers[2].log_end_offset == 0)
    behind = cluster.controller.brokers.pop(2)
    cluster.controller.elect(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"), acks=1)
    received = cluster.brokers[1].received
    after = received[ApiKey.FETCH] + 3
    await until(lambda: received[ApiKey.FETCH] > after)
    assert (leader.leader_epoch, cluster.partition(2).leader_epoch) == (1, 0)
    assert (leader.followers[2].log_end_offset, leader.high_watermark) == (-1, 0)
    cluster.controller.brokers[2] = behind
    cluster.controller.elect(1)
    await until(lambda: leader.high_watermark == 1)


@pytest.mark.world(brokers=(1, 2), replica_socket_timeout_ms=100)
async def test_follower_leaves_a_leader_that_keeps_the_connection_open_without_answering(
    cluster: DataCluster,
) -> None:
    connections: list[asyncio.StreamWriter] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        move_leader(cluster, server.sockets[0].getsockname()[1])
        await cluster.create(1, 2)
        await until(lambda: len(connections) > 1)
        move_leader(cluster, cluster.brokers[1].listener.port)
        await (await cluster.client(1)).produce(make_batch(b"v"))  # the follower has connected
        for writer in connections:
            writer.close()


async def test_follower_connects_to_its_leaders_current_address(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    await (await cluster.client(1)).produce(make_batch(b"v"))
    arrived = asyncio.Event()

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        writer.close()

    server = await asyncio.start_server(arrive, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        move_leader(cluster, server.sockets[0].getsockname()[1])
        await arrived.wait()


@interpreted_only
async def test_round_trip_costs_what_has_changed(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    read = FetchReader.read

    def counted(reader: FetchReader, request: FetchRequestView, topics: Sequence[FetchTopic]) -> Found:
        looks.append(sum(len(topic.partitions) for topic in topics))
        return read(reader, request, topics)

    for number in range(20):
        await cluster.create(1, 2, topic=f"idle-{number}")
    await cluster.create(1, 2)
    (link,) = cluster.brokers[2].data.fetchers._links.values()
    await until(lambda: link._session.state is SessionState.OPEN)
    (session,) = cluster.brokers[1].fetch_sessions._sessions.values()
    await until(lambda: len(session.partitions) == 21 and not session.due)
    client = await cluster.client(1)
    monkeypatch.setattr(FetchReader, "read", counted)
    for _ in range(5):
        assert (await client.produce(make_batch(b"v"))).error_code == 0
    # The record goes out, the follower asks for the next one, and the poll is opened once more.
    assert looks and max(looks) == 1
    leader = cluster.brokers[1].data
    await until(lambda: not session.due)
    leader.isr_proposals.check_lag(leader.isr_proposals.behind)
    assert leader.isr_proposals.behind == []


async def test_refused_partition_is_asked_for_again_in_an_open_session(cluster: DataCluster) -> None:
    await cluster.create(1, 2, topic="u")
    await cluster.create(1, 2)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"v"))).error_code == 0
    behind = cluster.controller.brokers.pop(1)
    cluster.controller.elect(1)  # the follower knows the new epoch, its leader does not
    (session,) = cluster.brokers[1].fetch_sessions._sessions.values()
    await until(lambda: len(session.partitions) == 1)
    cluster.controller.brokers[1] = behind
    image = cluster.controller.image
    delta = MetadataDelta(
        image,
        image,
        changed_topics=frozenset([TOPIC_ID]),
        changed_partitions={TOPIC_ID: frozenset([0])},
    )
    behind.data.publisher.publish(delta, image)
    assert (await client.produce(make_batch(b"w"))).error_code == 0


async def test_mistake_with_one_partition_keeps_no_other_from_being_fetched(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "u"):
        await cluster.create(1, 2, topic=topic)
    broken, whole = cluster.partition(2, "t"), cluster.partition(2, "u")
    link = cluster.brokers[2].data.fetchers._links[1, 0]
    await until(lambda: link._connection is not None)
    connection, append = link._connection, MemoryFile.append
    with monkeypatch.context() as patched:

        def fail(file: MemoryFile, data: Buffer) -> None:
            if file._disk is cluster.disk(2) and "/t-0/" in file.path:
                raise ValueError("nobody has foreseen it")
            append(file, data)

        patched.setattr(MemoryFile, "append", fail)
        client = await cluster.client(1)
        for topic in ("t", "u"):
            await client.produce(make_batch(b"v"), topic=topic, acks=1)
        failures = cluster.brokers[2].logs.work.failures
        await until(lambda: failures["replication"] > 1)
        await until(lambda: whole.high_watermark == 1)
        assert broken.log.log_end_offset == 0 and link._connection is connection
    assert "t-0: replication has failed and is left undone: ValueError" in caplog.text
    assert "in fail" in caplog.text  # the traceback
    await until(lambda: broken.high_watermark == 1)
    assert link._connection is connection and set(failures) == {"replication"}


@pytest.mark.world(brokers=(1, 2), max_incremental_fetch_session_cache_slots=0)
async def test_broker_without_room_for_sessions_is_followed_nevertheless(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    for _ in range(3):
        assert (await client.produce(make_batch(b"v"))).error_code == 0
    await cluster.create(1, 2, topic="u")
    assert (await client.produce(make_batch(b"v"), topic="u")).error_code == 0


async def test_follower_whose_session_was_closed_goes_on(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    sessions = cluster.brokers[1].fetch_sessions
    for _ in range(3):
        await until(lambda: len(sessions))
        for session in list(sessions._sessions.values()):
            sessions._remove(session)
        assert (await client.produce(make_batch(b"v"))).error_code == 0
    await until(lambda: cluster.partition(2).log.log_end_offset == 3)


def move_leader(cluster: DataCluster, port: int) -> None:
    """Give broker 1 another port in the metadata, and inform every broker."""
    controller = cluster.controller
    known = controller.image.brokers[1]
    moved = replace(known, endpoints=(replace(known.endpoints[0], port=port),))
    old = controller._change(brokers=controller.image.brokers.set(1, moved))
    delta = MetadataDelta(old, controller.image, changed_brokers=frozenset([1]))
    for broker in cluster.brokers.values():
        broker.data.publisher.publish(delta, controller.image)
