"""Brokers on real sockets, each with something wrong that must not stay unnoticed or hurt others."""

from __future__ import annotations

import asyncio
from typing import Any

from pykraft.broker.apis import list_offsets
from pykraft.broker.replicas.maintenance import LogMaintenance
from pykraft.broker.replicas.replica_fetcher import _Followed
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.fetch_fast import FetchPartition, FetchResult, build_fetch_response
from pykraft.kafka_protocol.fetch_follower import build_follower_fetch
from pykraft.kafka_protocol.messages import produce
from pykraft.kafka_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pykraft.kafka_protocol.records import assign_offset
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.checkpoint import RECOVERY_POINT_CHECKPOINT, read_offset_checkpoint
from pykraft.metadata_log.delta import MetadataDelta


def test_follower_without_records_beyond_its_leaders_end_starts_over(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1, 2) as cluster:
            await cluster.create(1, 2)
            cluster.partition(2).restart_at(50)  # as after losing all that lay behind its log start
            client = await cluster.client(1)
            assert (await client.produce(data_plane.batch(b"v"))).error_code == 0
            assert cluster.partition(2).log.log_end_offset == 1

    data_plane.run(body)


def test_damage_met_while_reading_is_a_storage_error_and_takes_the_replica_offline(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            client = await cluster.client(1)
            for _ in range(3):
                await client.produce(data_plane.batch(b"v" * 50))
            broker = cluster.brokers[1]
            broker.disk.flip_bit(f"{cluster.partition(1).log.directory}/{0:020d}.log", 8, 7)  # batch length
            result = await client.fetch(1)
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "corrupt" in broker.logs.offline["t", 0].reason
            for answer in (await client.fetch(1), await client.produce(data_plane.batch(b"v"))):
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    data_plane.run(body)


def test_one_expiry_that_fails_does_not_keep_others_waiting_for_ever(data_plane: Any) -> None:
    class Failing:
        bucket = -1

        def expire(self) -> None:
            raise RuntimeError("planted")

    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            wakeups = cluster.brokers[1].replicas.wakeups
            seen: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
            client = await cluster.client(1)
            wakeups.wait_until(Failing(), cluster.brokers[1].replicas.clock.monotonic_ms() + 30)
            client.send_fetch(0, max_wait_ms=30)
            client.send_fetch(0, max_wait_ms=120)
            for _ in range(2):
                async with asyncio.timeout(5):
                    await client.receive()
            assert len(seen) == 1

    data_plane.run(body)


def test_what_a_diverging_follower_asks_for_acknowledges_nothing(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1, 2)
            cluster.controller.elect(1)
            client = await cluster.client(1)
            for _ in range(3):
                await client.produce(data_plane.batch(b"v"), acks=1)
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
                    topics=[(data_plane.topic_id, [asked])],
                )
            )
            await client.reader.readexactly(4)
            partition = cluster.partition(1)
            assert partition.followers[2].log_end_offset == -1
            assert partition.high_watermark == 0

    data_plane.run(body)


def test_answer_asked_for_in_another_epoch_is_dropped(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1, 2) as cluster:
            await cluster.create(1, 2)
            follower = cluster.partition(2)
            link = cluster.brokers[2].fetchers._links[1]
            result = FetchResult(0, 0, 1, 0, data_plane.batch(b"of another epoch"))
            chunks = build_fetch_response(17, 1, [(data_plane.topic_id, [result])])
            frame = memoryview(b"".join(bytes(chunk) for chunk in chunks))[4:]
            link.handle_response({(data_plane.topic_id, 0): _Followed(follower)}, frame)
            assert (follower.log.log_end_offset, follower.high_watermark) == (0, 0)

    data_plane.run(body)


def test_produce_is_answered_when_the_last_of_its_batches_is_committed(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1, 2)
            second = data_plane.Registration((1, 2, 3), (1, 2, 3), 1, 1, 1)
            cluster.controller.set_partition(second)
            client = await cluster.client(1)
            data = [produce.PartitionProduceData(index=0, records=data_plane.batch(b"v"))]
            topics = [produce.TopicProduceData(name="t", partition_data=data * 2)]
            request = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
            client.send(request, 9, produce.ProduceResponse)
            partition = cluster.partition(1)
            await data_plane.until(lambda: len(partition.committed_waiters) == 2)
            answer = asyncio.ensure_future(client.receive())
            for offset in (1, 2):
                assert not answer.done()
                for replica in (2, 3):
                    partition.handle_follower_fetch(replica, offset, 100, 0)
                with_time_to_answer = asyncio.wait([answer], timeout=0.1 if offset == 1 else 5)
                await with_time_to_answer
            assert [r.error_code for r in answer.result().responses[0].partition_responses] == [0, 0]

    data_plane.run(body)


def test_damage_met_by_a_look_up_takes_the_replica_offline_too(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            client = await cluster.client(1)
            for time in range(3):
                await client.produce(data_plane.batch(b"v" * 50, timestamp_ms=1_700_000_000_000 + time))
            broker = cluster.brokers[1]
            broker.disk.flip_bit(f"{cluster.partition(1).log.directory}/{0:020d}.log", 8, 7)  # batch length
            asked = ListOffsetsPartition(partition_index=0, timestamp=1_700_000_000_002)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
            )
            response = await list_offsets.handle(broker.services, RequestContext(), request, 9)
            assert response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "corrupt" in broker.logs.offline["t", 0].reason

    data_plane.run(body)


def test_who_waits_for_a_topic_is_answered_when_it_is_deleted(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1, 2)
            producer, consumer = await cluster.client(1), await cluster.client(1)
            producer.send_produce(data_plane.batch(b"v"), timeout_ms=60_000)
            consumer.send_fetch(0, max_wait_ms=60_000)
            partition = cluster.partition(1)
            await data_plane.until(lambda: len(partition.committed_waiters) and partition.consumer_waiters)
            old = cluster.controller.image
            topic = old.topic("t")
            gone = cluster.controller._change(
                topics_by_id=old.topics_by_id.delete(topic.id), topic_ids=old.topic_ids.delete("t")
            )
            delta = MetadataDelta(gone, cluster.controller.image, deleted_topics={topic.id: topic})
            cluster.brokers[1].replicas.publish(delta, cluster.controller.image)
            async with asyncio.timeout(5):
                produced = (await producer.receive()).responses[0].partition_responses[0]
                fetched = (await consumer.receive()).responses[0].partitions[0]
            assert produced.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert not partition.consumer_waiters and not partition.committed_waiters
            await data_plane.until(lambda: not cluster.brokers[1].logs.logs)

    data_plane.run(body)


def test_retention_spares_what_is_not_committed(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1, 2, configs={"retention.bytes": "0"})
            client = await cluster.client(1)
            for _ in range(3):
                await client.produce(data_plane.batch(b"v"), acks=1)
            broker, partition = cluster.brokers[1], cluster.partition(1)
            maintenance = LogMaintenance(broker.replicas, broker.logs)
            await maintenance.delete_old_segments()
            assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 3)
            partition.handle_follower_fetch(2, 3, 100, 0)
            await maintenance.delete_old_segments()
            assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 3)

    data_plane.run(body)


def test_follower_told_to_truncate_takes_its_recovery_point_back_at_once(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1, 2, replica_fetch_wait_max_ms=3000) as cluster:
            await cluster.create(1, 2)
            client = await cluster.client(1)
            await client.produce(data_plane.batch(b"v"))
            broker, follower = cluster.brokers[2], cluster.partition(2)
            for offset in (1, 2):
                data = bytearray(data_plane.batch(b"of a leader nobody else heard of"))
                assign_offset(data, 0, offset, 0)
                follower.append_as_follower(memoryview(data), 0)
            await broker.logs.flush(("t", 0))
            await broker.logs.write_checkpoints({})
            path = f"/d2/{RECOVERY_POINT_CHECKPOINT}"
            assert read_offset_checkpoint(broker.disk, path) == {("t", 0): 3}
            cluster.controller.elect(1)
            await data_plane.until(lambda: follower.log.log_end_offset == 1)
            assert read_offset_checkpoint(broker.disk, path) == {("t", 0): 1}

    data_plane.run(body)


def test_follower_that_has_not_heard_of_the_epoch_acknowledges_nothing_in_it(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1, 2) as cluster:
            await cluster.create(1, 2)
            behind = cluster.controller.brokers.pop(2)
            cluster.controller.elect(1)
            client = await cluster.client(1)
            await client.produce(data_plane.batch(b"v"), acks=1)
            await asyncio.sleep(0.3)  # several fetches
            leader = cluster.partition(1)
            assert (leader.leader_epoch, cluster.partition(2).leader_epoch) == (1, 0)
            assert (leader.followers[2].log_end_offset, leader.high_watermark) == (-1, 0)
            cluster.controller.brokers[2] = behind
            cluster.controller.elect(1)
            await data_plane.until(lambda: leader.high_watermark == 1)

    data_plane.run(body)


def test_long_poll_ends_with_the_commit_and_not_with_its_time(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1, 2)
            consumer, producer = await cluster.client(1), await cluster.client(1)
            consumer.send_fetch(0, max_wait_ms=60_000)
            partition = cluster.partition(1)
            await data_plane.until(lambda: partition.consumer_waiters)
            await producer.produce(data_plane.batch(b"v"), acks=1)
            assert partition.consumer_waiters
            partition.handle_follower_fetch(2, 1, 100, 0)
            async with asyncio.timeout(5):
                fetched = (await consumer.receive()).responses[0].partitions[0]
            assert data_plane.values(fetched.records) == [b"v"]

    data_plane.run(body)
