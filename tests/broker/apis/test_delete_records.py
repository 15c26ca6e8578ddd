"""DeleteRecords: what is refused, what is waited for, and what is left after a restart."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from pykraft.broker.apis.records import delete_records
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykraft.kafka_protocol.records import assign_offset
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.checkpoint import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import refused
from tests.broker.data_cluster import DataCluster, make_batch, running_cluster, values_in
from tests.broker.partitions import always, append, make, replica, state
from tests.waits import until

PATIENCE_MS = 60_000


async def delete(
    cluster: DataCluster, offset: int, *, topic: str = "t", index: int = 0, timeout_ms: int = PATIENCE_MS
) -> DeleteRecordsPartitionResult:
    """Ask broker 1."""
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
    )
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)
    services = cluster.brokers[1].services
    response = await delete_records.handle(services, RequestContext(), request, 2)
    (result,) = response.topics[0].partitions
    return result


async def fill(cluster: DataCluster, count: int = 10) -> None:
    client = await cluster.client(1)
    for number in range(count):
        await client.produce(make_batch(b"%d" % number))


@pytest.mark.world(brokers=(1, 2, 3))
async def test_deleted_records_are_gone_from_every_replica_even_after_a_power_loss(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, 3)
    await fill(cluster)
    async with asyncio.timeout(15):
        result = await delete(cluster, 7)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 7)
    for node_id in (1, 2, 3):
        assert cluster.partition(node_id).log.log_start_offset == 7
        stored = read_offset_checkpoint(cluster.disk(node_id), f"/d{node_id}/{LOG_START_OFFSET_CHECKPOINT}")
        assert stored["t", 0] == 7
    client = await cluster.client(1)
    assert (await client.fetch(6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_in((await client.fetch(7)).records) == [b"7", b"8", b"9"]
    again = await delete(cluster, 3)
    assert (again.error_code, again.low_watermark) == (ErrorCode.NONE, 7)


@pytest.mark.world(brokers=(1, 2))
async def test_follower_reports_a_log_start_only_when_it_is_stored(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    await fill(cluster)
    leader, follower = cluster.brokers[1], cluster.brokers[2]
    may_store, store = asyncio.Event(), follower.logs.checkpoints.store_log_starts

    async def store_later(keys: Iterable[TopicPartition]) -> None:
        await may_store.wait()
        await store(keys)

    follower.logs.checkpoints.store_log_starts = store_later  # type: ignore[method-assign]
    deletion = asyncio.create_task(delete(cluster, 7))
    await until(lambda: cluster.partition(2).log.log_start_offset == 7)
    fetches = leader.received[1]
    await until(lambda: leader.received[1] > fetches + 2)
    assert cluster.partition(1).followers[2].log_start_offset < 7
    assert not deletion.done()
    may_store.set()
    async with asyncio.timeout(15):
        assert (await deletion).low_watermark == 7


async def test_high_watermark_is_the_last_offset_that_can_be_deleted(cluster: DataCluster) -> None:
    await cluster.create(1)
    await fill(cluster)
    for offset in (11, -2):
        assert (await delete(cluster, offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.partition(1).log.log_start_offset == 0
    async with asyncio.timeout(15):
        result = await delete(cluster, -1)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 10)
    assert cluster.partition(1).log.log_start_offset == 10


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("delete", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.NONE),
    ],
)
async def test_records_of_topics_that_are_only_compacted_are_kept(
    cluster: DataCluster, policy: str, code: ErrorCode
) -> None:
    await cluster.create(1, configs={"cleanup.policy": policy})
    assert (await delete(cluster, 0)).error_code == code


@pytest.mark.world(brokers=(1, 2))
async def test_unknown_internal_and_foreign_partitions_are_refused(cluster: DataCluster) -> None:
    await cluster.create(1)
    await cluster.create(2, topic="other")
    await cluster.create(1, topic="__consumer_offsets")
    for topic, index, code in (
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        result = await delete(cluster, 0, topic=topic, index=index)
        assert (result.error_code, result.low_watermark) == (code, -1), topic


async def test_deletion_that_a_replica_does_not_store_in_time_is_answered_with_the_low_watermark(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    partition = cluster.partition(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"), acks=1)
    partition.handle_follower_fetch(2, 1, 100, 0, 0)
    result = await delete(cluster, 1, timeout_ms=50)
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert partition.log.log_start_offset == 1
    assert not partition.log_start_waiters


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
async def test_leaders_own_disk_is_waited_for_beyond_the_clients_time(
    cluster: DataCluster, timeout_ms: int
) -> None:
    """Kafka's answer when there is no other replica, for which librdkafka asks with a timeout of 0."""
    await cluster.create(1)
    await fill(cluster)
    checkpoints = cluster.brokers[1].logs.checkpoints
    may_store, store = asyncio.Event(), checkpoints.store_log_starts

    async def store_later(keys: Iterable[TopicPartition]) -> None:
        await may_store.wait()
        await store(keys)

    checkpoints.store_log_starts = store_later  # type: ignore[method-assign]
    deletion = asyncio.create_task(delete(cluster, 7, timeout_ms=timeout_ms))
    wakeups = cluster.brokers[1].services.wakeups
    await until(lambda: cluster.partition(1).log_start_waiters)
    await until(lambda: not len(wakeups.deadlines))
    assert not deletion.done()
    may_store.set()
    async with asyncio.timeout(15):
        result = await deletion
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 7)


@pytest.mark.parametrize("event", ["deposed", "lagging"])
async def test_late_deletion_that_waits_for_the_leaders_disk_ends_with_what_happens_meanwhile(
    cluster: DataCluster, event: str
) -> None:
    await cluster.create(1, 2)
    controller, partition = cluster.controller, cluster.partition(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"), acks=1)
    partition.handle_follower_fetch(2, 1, 100, 0, 1)
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def store_never(keys: Iterable[TopicPartition]) -> None:
        await stored

    cluster.brokers[1].logs.checkpoints.store_log_starts = store_never  # type: ignore[method-assign]
    deletion = asyncio.create_task(delete(cluster, 1, timeout_ms=0))
    wakeups = cluster.brokers[1].services.wakeups
    await until(lambda: partition.log_start_waiters)
    await until(lambda: not len(wakeups.deadlines))
    assert not deletion.done()
    if event == "deposed":
        controller.elect(2)
        expected = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    else:  # the replica has lost its log, and begins with an empty one
        partition.handle_follower_fetch(2, 1, 200, 0, 0)
        expected = (ErrorCode.REQUEST_TIMED_OUT, 0)
    async with asyncio.timeout(15):
        result = await deletion
    assert (result.error_code, result.low_watermark) == expected
    assert not partition.log_start_waiters
    stored.cancel()


@pytest.mark.parametrize("event", ["deposed", "deleted", "stored", "fenced"])
async def test_waiting_deletion_is_answered_by_the_change_that_decides_it(
    cluster: DataCluster, event: str
) -> None:
    await cluster.create(1, 2)
    controller, partition = cluster.controller, cluster.partition(1)
    client = await cluster.client(1)
    await client.produce(make_batch(b"v"), acks=1)
    partition.handle_follower_fetch(2, 1, 100, 0, 0)
    if event == "fenced":
        second = replace(controller.image.brokers[1], id=2)
        controller._change(brokers=controller.image.brokers.set(2, second))
        controller.elect(1, isr=(1,))
        partition.handle_follower_fetch(2, 1, 100, 0, 0)
    waiting = asyncio.ensure_future(delete(cluster, 1))
    await until(lambda: partition.log_start_waiters)
    await until(lambda: partition.log.stored_log_start_offset == 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    expected = (ErrorCode.NONE, 1)
    if event == "deposed":
        controller.elect(2)
        expected = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    elif event == "deleted":
        controller.delete_topic("t")
        expected = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    elif event == "stored":
        partition.handle_follower_fetch(2, 1, 100, 0, 1)
    else:
        fenced = replace(controller.image.brokers[2], fenced=True)
        old = controller._change(brokers=controller.image.brokers.set(2, fenced))
        delta = MetadataDelta(old, controller.image, changed_brokers=frozenset([2]))
        cluster.brokers[1].data.publisher.publish(delta, controller.image)
    async with asyncio.timeout(15):
        result = await waiting
    assert (result.error_code, result.low_watermark) == expected
    assert not partition.log_start_waiters


async def test_consumer_that_waits_below_the_new_log_start_is_answered_at_once(
    cluster: DataCluster,
) -> None:
    await cluster.create(1)
    await fill(cluster, 2)
    client = await cluster.client(1)
    client.send_fetch(0, max_wait_ms=PATIENCE_MS, min_bytes=10_000)
    await until(lambda: cluster.partition(1).consumer_waiters)
    async with asyncio.timeout(15):
        await delete(cluster, -1)
        response = await client.receive()
    found = response.responses[0].partitions[0]
    assert (found.error_code, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


async def test_follower_that_was_away_starts_over_at_the_new_log_start() -> None:
    disks = {2: MemoryDisk()}
    async with running_cluster((1, 2), disks=dict(disks)) as cluster:
        await cluster.create(1, 2)
        await fill(cluster, 2)
        await cluster.brokers[2].stop()
        await (await cluster.client(1)).produce(make_batch(b"v"), acks=1)
        await cluster.shrink(1)
        controller = cluster.controller
        fenced = replace(controller.image.brokers[2], fenced=True)
        controller._change(brokers=controller.image.brokers.set(2, fenced))
        await fill(cluster, 4)
        assert (await delete(cluster, 6)).low_watermark == 6
        await cluster.start(2)
        await until(lambda: set(controller.partition().isr) == {1, 2})
        log = cluster.partition(2).log
        assert (log.log_start_offset, log.stored_log_start_offset, log.log_end_offset) == (6, 6, 7)


async def test_follower_that_truncates_its_log_first_is_told_the_log_start() -> None:
    disks = {2: MemoryDisk()}
    async with running_cluster((1, 2), disks=dict(disks)) as cluster:
        await cluster.create(1, 2)
        await fill(cluster, 4)
        tail = bytearray(make_batch(b"of a leader that was deposed"))
        assign_offset(tail, 0, 4, 0)
        cluster.partition(2).append_as_follower(memoryview(tail), 0)
        await cluster.brokers[2].stop()
        cluster.controller.elect(1, isr=[1])
        cluster.partition(1).delete_records(2)
        await cluster.start(2)
        await until(lambda: set(cluster.controller.partition().isr) == {1, 2})
        log = cluster.partition(2).log
        assert (log.log_start_offset, log.log_end_offset) == (2, 4)


def test_eligible_replica_that_is_away_holds_back_the_low_watermark() -> None:
    leader = make()
    leader.apply(replace(state(1, isr=(1, 2)), replicas=(1, 2)), 0)
    append(leader)
    leader.handle_follower_fetch(2, 1, 7, 0, 0)
    leader.apply(replace(state(1, version=1, isr=(1,)), replicas=(1, 2), elr=(2,)), 0)
    assert leader.delete_records(-1) == 1
    # Broker 2 may lead as soon as it is back, and would serve the record again.
    assert leader.low_watermark(lambda replica: False) == 0
    leader.apply(replace(state(1, version=2, isr=(1,)), replicas=(1, 2)), 0)
    assert leader.low_watermark(lambda replica: False) == 1
    assert leader.low_watermark(lambda replica: True) == 0


def test_records_that_are_not_committed_are_not_deleted() -> None:
    leader = make()
    leader.apply(replace(state(1, isr=(1, 2)), replicas=(1, 2)), 0)
    append(leader)
    append(leader)
    leader.handle_follower_fetch(2, 1, 7, 0, 0)
    assert (leader.high_watermark, leader.log.log_end_offset) == (1, 2)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        leader.delete_records(2)
    assert leader.log.log_start_offset == 0


def test_follower_joins_the_isr_only_with_the_log_start_stored() -> None:
    leader = replica(state(1, isr=(1,)))
    append(leader)
    leader.delete_records(-1)
    leader.handle_follower_fetch(2, 1, 7, 0, 0)
    assert leader.next_proposal(0, 100, always) is None
    leader.handle_follower_fetch(2, 1, 7, 0, 1)
    proposal = leader.next_proposal(0, 100, always)
    assert proposal is not None and proposal.new_isr == (1, 2)


def test_follower_is_told_a_new_log_start_once() -> None:
    leader = replica(state(1, isr=(1,)))
    append(leader)
    leader.handle_follower_fetch(2, 1, 7, 0, 0)
    assert not leader.must_send_log_start(2)
    leader.delete_records(-1)
    assert leader.must_send_log_start(2)
    leader.handle_follower_fetch(2, 1, 7, 0, 0)  # it has yet to store it
    assert not leader.must_send_log_start(2)
