"""Replication between brokers over real sockets: acknowledgement, ISR, failover, truncation."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_spans import iter_spans
from tests.broker.data_cluster import DataClient, DataCluster, make_batch, values_in
from tests.narrowing import present
from tests.waits import until

pytestmark = pytest.mark.world(brokers=(1, 2))

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
TWO = {"min.insync.replicas": "2"}


@pytest.mark.world(brokers=(1, 2, 3))
@LOOPS
async def test_acks_all_waits_for_every_in_sync_replica(
    cluster: DataCluster, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    await cluster.create(1, 2, 3)
    client = await cluster.client(1)
    for i in range(20):
        result = await client.produce(make_batch(b"v%d" % i))
        assert (result.error_code, result.base_offset) == (0, i)
        assert all(cluster.partition(n).log.log_end_offset >= i + 1 for n in (1, 2, 3))
    await until(lambda: all(cluster.partition(n).high_watermark == 20 for n in (1, 2, 3)))
    assert values_in((await client.fetch(0)).records) == [b"v%d" % i for i in range(20)]


@pytest.mark.world(brokers=(1, 2, 3))
@LOOPS
async def test_pipelined_producers_replicate_byte_for_byte(
    cluster: DataCluster, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    await cluster.create(1, 2, 3)
    clients = [await cluster.client(1) for _ in range(3)]

    async def produce(client: DataClient, size: int) -> None:
        for i in range(100):
            client.send_produce(make_batch(b"%d-%d-" % (size, i) + b"x" * size))
        for _ in range(100):
            assert (await client.produced()).error_code == 0

    await asyncio.gather(*(produce(c, s) for c, s in zip(clients, (10, 3000, 60_000), strict=True)))
    logs = [b"".join(data for _, data in cluster.partition(n).log.iter_batches(0)) for n in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert cluster.partition(1).high_watermark == 300


@pytest.mark.world(brokers=(1, 2, 3))
async def test_dead_follower_leaves_the_isr_and_returns(cluster: DataCluster) -> None:
    await cluster.create(1, 2, 3, configs=TWO)
    client = await cluster.client(1)
    await client.produce(make_batch(b"before"))
    await cluster.brokers[3].stop(clean=False)
    client.send_produce(make_batch(b"while it is gone"))
    await cluster.shrink(1)
    assert (await client.produced()).error_code == 0
    assert cluster.controller.partition().isr == (1, 2)
    await cluster.start(3)
    await until(lambda: set(cluster.controller.partition().isr) == {1, 2, 3})
    assert cluster.partition(3).log.log_end_offset == 2


async def test_too_few_in_sync_replicas_refuse_before_the_append(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=TWO)
    await cluster.brokers[2].stop()
    cluster.controller.elect(1, isr=[1])
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"v"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.partition(1).log.log_end_offset == 0
    assert (await client.produce(make_batch(b"v"), acks=1)).error_code == 0


async def test_isr_that_shrinks_below_the_minimum_is_reported_after_the_append(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, configs=TWO)
    client = await cluster.client(1)
    await cluster.brokers[2].stop()
    client.send_produce(make_batch(b"v"))
    await cluster.shrink(1)
    code = (await client.produced()).error_code
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_unanswered_commit_times_out(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"))
    await cluster.brokers[2].stop()
    result = await client.produce(make_batch(b"w"), timeout_ms=80)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not (await client.fetch(1)).records


@pytest.mark.world(brokers=(1, 2, 3))
async def test_deposed_leader_refuses_waiters_and_drops_what_was_not_committed(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, 3)
    client = await cluster.client(1)
    await client.produce(make_batch(b"committed"))
    for node in (2, 3):  # the followers hear nothing more from 1
        await cluster.brokers[node].data.fetchers.stop()
    client.send_produce(make_batch(b"lost"))
    await until(lambda: cluster.partition(1).log.log_end_offset == 2)
    await cluster.brokers[3].stop()
    await cluster.start(3)
    cluster.controller.elect(2)
    code = (await client.produced()).error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = await cluster.client(2)
    result = await leader.produce(make_batch(b"new"))
    assert (result.error_code, result.base_offset) == (0, 1)
    for node in (1, 2, 3):
        log = cluster.partition(node).log
        data = b"".join(raw for _, raw in log.iter_batches(0))
        assert values_in(data) == [b"committed", b"new"]
    assert (await client.produce(make_batch(b"x"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.world(brokers=(1, 2, 3))
async def test_idempotence_is_exact_across_a_leader_change(cluster: DataCluster) -> None:
    await cluster.create(1, 2, 3)
    first = await cluster.client(1)

    def batch(sequence: int) -> bytes:
        data: bytes = make_batch(b"r%d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
        return data

    for sequence in range(8):
        await first.produce(batch(sequence))
    cluster.controller.elect(2)
    second = await cluster.client(2)
    for sequence in (7, 3, 2, 8, 8):
        result = await second.produce(batch(sequence))
        expected = sequence if sequence != 2 else -1  # five batches are remembered
        assert result.base_offset == expected
    await cluster.brokers[2].stop(clean=False)
    await cluster.start(2)
    cluster.controller.elect(3, isr=[1, 3])
    third = await cluster.client(3)
    assert [(await third.produce(batch(s))).base_offset for s in (8, 9, 9)] == [8, 9, 9]
    got = values_in((await third.fetch(0)).records)
    assert got == [b"r%d" % sequence for sequence in range(10)]


async def test_isr_counts_a_proposed_member_before_the_controller_answers(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"))
    await cluster.brokers[2].stop()
    cluster.controller.elect(1, isr=[1])
    cluster.controller.silent = True
    await cluster.start(2)
    await until(lambda: cluster.controller.proposals)
    await until(lambda: cluster.partition(1).isr.maybe_added)
    await cluster.brokers[2].stop()
    result = await client.produce(make_batch(b"w"), timeout_ms=100)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT  # 2 may already be in the ISR
    cluster.controller.silent = False
    producing = asyncio.ensure_future(client.produce(make_batch(b"x"), timeout_ms=15_000))

    def reconciled() -> bool:
        cluster.brokers[1].check_lag()
        return bool(producing.done())

    await until(reconciled)
    assert (await producing).error_code == 0, "2 was added, and removed again because it does not fetch"


async def test_stale_incarnation_of_a_follower_acknowledges_nothing(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"))
    controller = cluster.controller
    registration = controller.image.brokers[2]
    import dataclasses

    controller._change(brokers=controller.image.brokers.set(2, dataclasses.replace(registration, epoch=999)))
    result = await client.produce(make_batch(b"w"), timeout_ms=100)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.brokers[2].lease.epoch = 999
    result = await client.produce(make_batch(b"x"), timeout_ms=5000)
    assert result.error_code == 0


@pytest.mark.world(brokers=(1,))
async def test_recreated_topic_starts_empty_and_old_id_is_unknown(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"old"))
    controller, broker = cluster.controller, cluster.brokers[1]
    old_topic = present(controller.image.topic("t"))
    from pykraft.metadata_log.delta import MetadataDelta

    old = controller._change(
        topics_by_id=controller.image.topics_by_id.delete(old_topic.id),
        topic_ids=controller.image.topic_ids.delete("t"),
    )
    delta = MetadataDelta(old, controller.image, deleted_topics={old_topic.id: old_topic})
    broker.data.publisher.publish(delta, controller.image)
    assert (await client.fetch(0, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await client.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await until(lambda: not broker.logs.logs)
    await cluster.create(1)
    assert (await client.produce(make_batch(b"new"))).base_offset == 0


class Coordinator:
    """Records what it is told."""

    def __init__(self) -> None:
        self.led: list[tuple[int, int | None]] = []
        self.moved: list[tuple[int, int]] = []

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        self.led.append((partition, leader_epoch))

    def on_resigned(self, partition: int) -> None:
        self.led.append((partition, None))

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self.moved.append((partition, high_watermark))


@pytest.mark.world(brokers=(2, 3))
async def test_coordinator_is_notified_when_its_append_is_committed(cluster: DataCluster) -> None:
    coordinator = Coordinator()
    await cluster.start(1, coordinators={"t": coordinator})
    await cluster.create(1, 2, 3)
    assert coordinator.led == [(0, 0)]
    log = cluster.brokers[1].coordinator_log()
    batch = BatchBuilder()
    batch.add(b"a", b"1")
    batch.add(b"b", b"2")
    end = log.append(0, 0, batch, now_ms=0)
    assert end == 2 and not coordinator.moved
    await until(lambda: coordinator.moved and coordinator.moved[-1] == (0, 2))
    assert log.high_watermark(0) == 2
    ((base_offset, count, body, *_),), next_offset = await log.read(0, 0)
    assert (base_offset, count, next_offset) == (0, 2, 2)
    assert [span.key for span in iter_spans(body, count)] == [b"a", b"b"]
    cluster.controller.elect(2)
    assert coordinator.led[-1] == (0, None)
    for epoch in (0, 1):
        with pytest.raises(KafkaError):
            log.append(0, epoch, batch, now_ms=0)


async def test_wrong_broker_names_the_right_one(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    cluster.controller.elect(1)
    client = await cluster.client(2)
    port = cluster.brokers[1].listener.port
    client.send_produce(make_batch(b"v"), version=10)
    produced = await client.receive()
    client.send_fetch(0, version=16, epoch=0)
    fetched = await client.receive()
    for response, result, code in (
        (produced, produced.responses[0].partition_responses[0], ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (fetched, fetched.responses[0].partitions[0], ErrorCode.FENCED_LEADER_EPOCH),
    ):
        assert result.error_code == code
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (1, 1)
        assert [(n.node_id, n.port) for n in response.node_endpoints] == [(1, port)]
