"""Periodic work on a broker's logs: storing high watermarks, and the flushes that a topic asks for."""

from tests.broker.data_cluster import DataCluster, make_batch


async def test_stored_high_watermark_is_below_what_is_not_committed(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
    broker, partition = cluster.brokers[1], cluster.partition(1)
    partition.handle_follower_fetch(2, 2, 100, 0, 0)
    assert broker.data.maintenance.high_watermarks() == {("t", 0): 2}


async def test_messages_are_flushed_when_there_are_as_many_as_the_topic_says(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, configs={"flush.messages": "3"})
    client = await cluster.client(1)
    for flushed in (0, 0, 3, 3):
        await client.produce(make_batch(b"v"))
        assert cluster.partition(1).log.recovery_point == flushed
