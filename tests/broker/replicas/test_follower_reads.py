"""Consumers that read from followers (KIP-392): which replica, up to where, and how soon."""

import asyncio
from typing import Any

import pytest

from pykraft.broker.replicas.replica_selector import RACK_AWARE_SELECTOR, ReplicaView, select_follower
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import records as record_messages
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.broker.fetch_world import FOLLOWER, LEADER, OTHER, FetchWorld, connect
from tests.narrowing import present
from tests.waits import until


@pytest.mark.parametrize(
    ("rack", "leader", "followers", "selected"),
    [
        ("", "a", [("b", 9, 0)], None),
        ("a", "a", [("a", 9, 0)], None),
        ("b", "a", [("c", 9, 0), (None, 9, 0)], None),
        ("b", "a", [("b", 8, 5), ("b", 9, 0)], 1),
        ("b", "a", [("b", 9, 5), ("b", 9, 4)], 0),
        ("b", None, [("b", 9, 0)], 0),
    ],
)
def test_follower_in_the_rack_of_the_consumer_is_selected(
    rack: str, leader: str | None, followers: list[tuple[str | None, int, int]], selected: int | None
) -> None:
    views = [ReplicaView(number, *follower) for number, follower in enumerate(followers)]
    assert select_follower(rack, leader, views) == selected


def ask(
    world: FetchWorld, offset: int, *, rack: str = "r2", version: int = 11, max_wait_ms: int = 1000
) -> record_messages.PartitionData:
    """The answer must come at once."""
    partition = record_messages.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = [record_messages.FetchTopic(topic="a", partitions=[partition])]
    request = record_messages.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics, rack_id=rack)
    response = present(world.send(request, version, connect(1)).response)
    return response.responses[0].partitions[0]


def replicated() -> FetchWorld:
    """Brokers 1 to 3 are in racks r1 to r3; two records, and the followers have both."""
    world = FetchWorld("a", selector=RACK_AWARE_SELECTOR)
    for _ in range(2):
        world.append("a")
    for replica in (FOLLOWER, OTHER):
        world.acknowledge("a", replica)
    return world


def progress(world: FetchWorld) -> Any:
    partition = present(world.find("a"))
    return partition.followers[FOLLOWER]


def test_leader_names_the_replica_in_the_rack_of_the_consumer_at_once() -> None:
    world = replicated()
    for offset in (0, 2):
        answer = ask(world, offset)
        assert (answer.error_code, answer.preferred_read_replica, answer.high_watermark) == (0, FOLLOWER, 2)
        assert not answer.records


@pytest.mark.parametrize("rack", ["", "r1", "elsewhere"])
def test_leader_serves_other_consumers_itself(rack: str) -> None:
    answer = ask(replicated(), 0, rack=rack)
    assert answer.preferred_read_replica == -1 and answer.records


def test_follower_without_what_the_consumer_reads_is_not_named() -> None:
    world = replicated()
    progress(world).log_end_offset = 1
    assert ask(world, 1).preferred_read_replica == FOLLOWER
    world = replicated()
    progress(world).log_end_offset = 0
    assert ask(world, 1).preferred_read_replica == -1
    world = replicated()
    progress(world).log_start_offset = 1
    assert ask(world, 0).preferred_read_replica == -1
    assert ask(world, 1).preferred_read_replica == FOLLOWER


def test_follower_outside_the_isr_is_not_named() -> None:
    world = replicated()
    world.set_isr("a", (LEADER, OTHER))
    assert ask(world, 0).preferred_read_replica == -1


def test_consumer_that_knows_no_racks_is_served_by_the_leader_only() -> None:
    world = replicated()
    assert ask(world, 0, version=10).records
    world.elect("a", OTHER)
    assert ask(world, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(world, 0, version=11).records


def test_follower_serves_up_to_its_own_high_watermark() -> None:
    world = replicated()
    world.append("a")
    world.elect("a", OTHER)
    answer = ask(world, 2, max_wait_ms=0)
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 2)
    assert ask(world, 3, max_wait_ms=0).error_code == 0
    assert ask(world, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.world(
    brokers=(1, 2, 3), replica_selector_class=RACK_AWARE_SELECTOR, replica_fetch_wait_max_ms=600000
)
async def test_followers_hear_of_the_high_watermark_at_once(cluster: DataCluster) -> None:
    """Also the one whose fetch waits already when the other one acknowledges the record."""
    await cluster.create(1, 2, 3)
    producer = await cluster.client(1)
    consumers = {node_id: await cluster.client(node_id) for node_id in (2, 3)}
    for number in range(3):
        for node_id, consumer in consumers.items():
            consumer.send_fetch(number, max_wait_ms=600_000)
            await until(cluster.partition(node_id).consumer_waiters.__len__)
        assert (await producer.produce(make_batch(b"%d" % number))).error_code == 0
        for consumer in consumers.values():
            async with asyncio.timeout(15):
                records = (await consumer.fetched()).records
            assert values_in(records) == [b"%d" % number]
