"""Requests that wait for a commit, for data or for a topic: when each is answered."""

import asyncio
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import records
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import PartitionRegistration
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.narrowing import present
from tests.waits import until


async def test_failed_expiry_does_not_keep_others_waiting(cluster: DataCluster) -> None:
    class Failing:
        bucket = -1

        def expire(self) -> None:
            raise RuntimeError("planted")

    await cluster.create(1)
    wakeups = cluster.brokers[1].data.wakeups
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    client = await cluster.client(1)
    wakeups.wait_until(Failing(), cluster.brokers[1].replicas.clock.monotonic_ms() + 30)
    client.send_fetch(0, max_wait_ms=30)
    client.send_fetch(0, max_wait_ms=120)
    for _ in range(2):
        async with asyncio.timeout(5):
            await client.receive()
    assert len(seen) == 1


async def test_produce_is_answered_when_the_last_of_its_batches_is_committed(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    second = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 1, 1)
    cluster.controller.set_partition(second)
    client = await cluster.client(1)
    data = [records.PartitionProduceData(index=0, records=make_batch(b"v"))]
    topics = [records.TopicProduceData(name="t", partition_data=data * 2)]
    request = records.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
    client.send(request, 9)
    partition = cluster.partition(1)
    await until(lambda: len(partition.committed_waiters) == 2)
    answer = asyncio.ensure_future(client.receive())
    for offset in (1, 2):
        assert not answer.done()
        for replica in (2, 3):
            partition.handle_follower_fetch(replica, offset, 100, 0, 0)
        with_time_to_answer = asyncio.wait([answer], timeout=0.1 if offset == 1 else 5)
        await with_time_to_answer
    assert [r.error_code for r in answer.result().responses[0].partition_responses] == [0, 0]


async def test_request_that_waits_for_a_topic_is_answered_when_it_is_deleted(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    producer, consumer = await cluster.client(1), await cluster.client(1)
    producer.send_produce(make_batch(b"v"), timeout_ms=60_000)
    consumer.send_fetch(0, max_wait_ms=60_000)
    partition = cluster.partition(1)
    await until(lambda: len(partition.committed_waiters) and partition.consumer_waiters)
    old = cluster.controller.image
    topic = present(old.topic("t"))
    gone = cluster.controller._change(
        topics_by_id=old.topics_by_id.delete(topic.id), topic_ids=old.topic_ids.delete("t")
    )
    delta = MetadataDelta(gone, cluster.controller.image, deleted_topics={topic.id: topic})
    cluster.brokers[1].data.publisher.publish(delta, cluster.controller.image)
    async with asyncio.timeout(5):
        produced = await producer.produced()
        fetched = await consumer.fetched()
    assert produced.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not partition.consumer_waiters and not partition.committed_waiters
    await until(lambda: not cluster.brokers[1].logs.logs)


async def test_long_poll_ends_with_the_commit_and_not_at_its_timeout(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    consumer, producer = await cluster.client(1), await cluster.client(1)
    consumer.send_fetch(0, max_wait_ms=60_000)
    partition = cluster.partition(1)
    await until(lambda: partition.consumer_waiters)
    await producer.produce(make_batch(b"v"), acks=1)
    assert partition.consumer_waiters
    partition.handle_follower_fetch(2, 1, 100, 0, 0)
    async with asyncio.timeout(5):
        fetched = await consumer.fetched()
    assert values_in(fetched.records) == [b"v"]


async def test_stop_in_which_a_refusal_fails_leaves_no_task_running(cluster: DataCluster) -> None:
    class Failing:
        def offset_committed(self) -> None: ...

        def offset_refused(self, error_code: int) -> None:
            raise RuntimeError("planted")

    await cluster.create(1)
    data = cluster.brokers[1].data
    cluster.partition(1).committed_waiters.add(1, Failing())
    with pytest.raises(RuntimeError, match="planted"):
        await data.stop()
    assert len(data.tasks) == 0
