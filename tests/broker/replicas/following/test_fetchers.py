"""Several connections to one leader, and which partition is fetched over which one."""

import pytest

from pykraft.broker.replicas.following.replica_fetcher import fetcher_id
from pykraft.metadata_log.records import ConfigResourceType
from tests.broker.data_cluster import DataCluster, make_batch
from tests.waits import until

TOPICS = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("topic", "index", "fetchers", "expected"),
    [
        # abs(31 * "...".hashCode() + index) % fetchers, computed by Java
        ("orders", 0, 4, 1),
        ("orders", 3, 4, 2),
        ("__consumer_offsets", 49, 7, 6),
        ("payments-eu", 2, 5, 2),
        ("a", 0, 1, 0),
    ],
)
def test_partition_is_fetched_by_the_fetcher_that_kafka_would_choose(
    topic: str, index: int, fetchers: int, expected: int
) -> None:
    assert fetcher_id(topic, index, fetchers) == expected


def links(cluster: DataCluster) -> dict[int, int]:
    """The partitions that broker 2 fetches over each connection to broker 1."""
    fetchers = cluster.brokers[2].data.fetchers
    return {number: len(link._followed) for (_, number), link in fetchers._links.items()}


async def write_to_all(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    for topic in TOPICS:
        assert (await client.produce(make_batch(b"v"), topic=topic)).error_code == 0


@pytest.mark.world(brokers=(1, 2), num_replica_fetchers=2)
async def test_partitions_of_one_leader_are_fetched_over_several_connections(
    cluster: DataCluster,
) -> None:
    for topic in TOPICS:
        await cluster.create(1, 2, topic=topic)
    assert links(cluster) == {0: 2, 1: 2}
    await write_to_all(cluster)
    assert len(cluster.brokers[1].fetch_sessions) == 2


@pytest.mark.world(brokers=(1, 2))
async def test_number_of_fetchers_changes_while_the_broker_runs(cluster: DataCluster) -> None:
    for topic in TOPICS:
        await cluster.create(1, 2, topic=topic)
    for configs, expected in (
        ({"num.replica.fetchers": "2"}, {0: 2, 1: 2}),
        ({}, {0: 4}),
    ):
        cluster.controller.set_configs(ConfigResourceType.BROKER, "", configs)
        assert links(cluster) == expected
        await write_to_all(cluster)


@pytest.mark.world(brokers=(1, 2))
async def test_partition_that_stays_with_its_fetcher_is_told_the_high_watermark(
    cluster: DataCluster,
) -> None:
    for topic in ("b", "d"):
        await cluster.create(1, 2, topic=topic)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"v"), topic="b")).error_code == 0
    # The next answer tells it, and comes when the followed partitions have been given out anew.
    cluster.controller.set_configs(ConfigResourceType.BROKER, "", {"num.replica.fetchers": "2"})
    assert links(cluster) == {0: 2}
    await until(lambda: cluster.partition(2, "b").high_watermark == 1)
