"""Throttled replicas: who is held back, for how long, and who is not."""

import asyncio
from dataclasses import replace

import pytest

from pykraft.broker.replicas.replication_quota import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.metadata_log.records import ConfigResourceType
from tests.broker.data_cluster import DataCluster, make_batch
from tests.waits import until

pytestmark = pytest.mark.world(brokers=(1, 2))

LEADER_SIDE = {"rate": LEADER_RATE, "replicas": LEADER_REPLICAS}
FOLLOWER_SIDE = {"rate": FOLLOWER_RATE, "replicas": FOLLOWER_REPLICAS}


async def add_broker(cluster: DataCluster, side: dict[str, str], *topics: str) -> None:
    """Broker 2 is added to the topics that broker 1 leads; topic slow is throttled, its limit is used up."""
    for topic in topics:
        await cluster.create(1, topic=topic)
        client = await cluster.client(1)
        for number in range(3):
            await client.produce(make_batch(b"%d" % number), topic=topic)
    for name in ("1", "2"):
        cluster.controller.set_configs(ConfigResourceType.BROKER, name, {side["rate"]: "1"})
    for broker in cluster.brokers.values():
        quotas = broker.replicas.quotas
        for quota in (quotas.leader, quotas.follower):
            quota.record(1000, broker.clock.monotonic_ms())
    throttled = "0:1" if side is LEADER_SIDE else "0:2"
    cluster.controller.set_configs(ConfigResourceType.TOPIC, "slow", {side["replicas"]: throttled})
    for topic in topics:
        old = cluster.controller.partition(topic)
        added = PartitionRegistration((1, 2), old.isr, 1, old.leader_epoch, old.partition_epoch + 1)
        cluster.controller.set_partition(added, topic=topic)


def end(cluster: DataCluster, topic: str) -> int:
    partition = cluster.brokers[2].table.find(topic, 0)
    return -1 if partition is None else partition.log.log_end_offset


@pytest.mark.parametrize("side", [LEADER_SIDE, FOLLOWER_SIDE], ids=["leader", "follower"])
async def test_throttled_replica_waits_while_others_of_its_connection_are_copied(
    cluster: DataCluster, side: dict[str, str]
) -> None:
    await add_broker(cluster, side, "slow", "fast")
    await until(lambda: end(cluster, "fast") == 3)
    client = await cluster.client(1)
    for number in range(20):
        await client.produce(make_batch(b"%d" % number), topic="fast")
    await until(lambda: end(cluster, "fast") == 23)
    assert end(cluster, "slow") in (-1, 0)
    # Without the limit it is copied at once, and not only when the rate has fallen.
    for broker in ("1", "2"):
        cluster.controller.set_configs(ConfigResourceType.BROKER, broker, {})
    await until(lambda: end(cluster, "slow") == 3, timeout_s=8)


@pytest.mark.parametrize("side", [LEADER_SIDE, FOLLOWER_SIDE], ids=["leader", "follower"])
async def test_lifted_throttle_is_not_waited_for(cluster: DataCluster, side: dict[str, str]) -> None:
    await add_broker(cluster, side, "slow")
    fetches = cluster.brokers[1].received
    await until(lambda: fetches[1] or end(cluster, "slow") == 0)
    for _ in range(20):
        await asyncio.sleep(0)
    for broker in ("1", "2"):
        cluster.controller.set_configs(ConfigResourceType.BROKER, broker, {})
    # It would have waited for eleven seconds.
    await until(lambda: end(cluster, "slow") == 3, timeout_s=8)


@pytest.mark.parametrize("side", [LEADER_SIDE, FOLLOWER_SIDE], ids=["leader", "follower"])
async def test_waiting_for_a_throttle_costs_few_requests(cluster: DataCluster, side: dict[str, str]) -> None:
    await add_broker(cluster, side, "slow", "fast")
    await until(lambda: end(cluster, "fast") == 3)
    broker = cluster.brokers[1]
    before, start_ms = broker.received[1], broker.clock.monotonic_ms()
    await until(lambda: broker.received[1] >= before + 5)
    assert broker.clock.monotonic_ms() - start_ms >= 3 * 200, "each is a long poll of 200 ms"


@pytest.mark.parametrize("joins", [False, True])
async def test_follower_in_sync_is_never_held_back(cluster: DataCluster, joins: bool) -> None:
    controller = cluster.controller
    await cluster.create(*((1,) if joins else (1, 2)))
    if joins:
        old = controller.partition()
        controller.set_partition(replace(old, replicas=(1, 2), partition_epoch=old.partition_epoch + 1))
        await until(lambda: 2 in controller.partition().isr)
    controller.set_configs(ConfigResourceType.TOPIC, "t", {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"})
    rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
    controller.set_configs(ConfigResourceType.BROKER, "", rates)
    client = await cluster.client(1)
    async with asyncio.timeout(8):
        for number in range(10):  # each is far above the rates, and waits for the follower
            produced = await client.produce(make_batch(b"%d" % number))
            assert produced.error_code == 0


async def test_follower_in_sync_is_not_held_back_by_a_new_leader_epoch(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    controller = cluster.controller
    controller.set_configs(ConfigResourceType.TOPIC, "t", {FOLLOWER_REPLICAS: "*"})
    controller.set_configs(ConfigResourceType.BROKER, "", {FOLLOWER_RATE: "1"})
    client = await cluster.client(1)
    await client.produce(make_batch(b"v" * 5000))
    follower = cluster.brokers[2]
    await until(lambda: follower.replicas.quotas.follower.is_exceeded(follower.clock.monotonic_ms()))
    old = controller.partition()
    controller.set_partition(
        replace(old, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
    )
    async with asyncio.timeout(8):
        produced = await client.produce(make_batch(b"w"))
    assert produced.error_code == 0


async def test_copied_bytes_count_on_both_sides(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v" * 5000))
    controller = cluster.controller
    rates = {LEADER_RATE: "100", FOLLOWER_RATE: "100"}
    controller.set_configs(ConfigResourceType.BROKER, "", rates)
    both = {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"}
    controller.set_configs(ConfigResourceType.TOPIC, "t", both)
    quotas = {n: cluster.brokers[n].replicas.quotas for n in (1, 2)}
    now_ms = cluster.brokers[1].clock.monotonic_ms()
    assert not quotas[1].leader.is_exceeded(now_ms)
    old = controller.partition()
    controller.set_partition(replace(old, replicas=(1, 2), partition_epoch=old.partition_epoch + 1))
    await until(lambda: end(cluster, "t") == 1)
    now_ms = cluster.brokers[1].clock.monotonic_ms()
    assert quotas[1].leader.is_exceeded(now_ms) and quotas[2].follower.is_exceeded(now_ms)
    assert not quotas[2].leader.is_exceeded(now_ms) and not quotas[1].follower.is_exceeded(now_ms)
