"""flush.messages and flush.ms: what is acknowledged only when it is flushed, and what is flushed in time."""

import asyncio
import errno
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.log_store.flush import FlushJob
from pykraft.runtime.tasks import Workers
from tests.broker.data_cluster import DataBroker, DataCluster, make_batch, running_cluster, values_in
from tests.waits import until

ONE = {"flush.messages": "1"}
T = TypeVar("T")


class HeldFlushes(Workers):
    """Flushes of a topic's logs wait until they are let go."""

    def __init__(self, broker: DataBroker, topic: str = "t") -> None:
        super().__init__()
        self.directory = f"/{topic}-0"
        self.let_go = asyncio.Event()
        self.begun = 0
        broker.logs._workers = self

    async def run(self, job: Callable[[], T]) -> T:
        owner = getattr(job, "__self__", None)
        if isinstance(owner, FlushJob) and owner.directory.endswith(self.directory):
            self.begun += 1
            await self.let_go.wait()
        return await super().run(job)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_is_acknowledged_when_it_is_flushed(cluster: DataCluster, acks: int) -> None:
    await cluster.create(1, configs=ONE)
    await cluster.create(1, topic="u")
    flushes = HeldFlushes(cluster.brokers[1])
    client, other = await cluster.client(1), await cluster.client(1)
    answer = asyncio.create_task(client.produce(make_batch(b"v"), acks=acks))
    await until(lambda: flushes.begun)
    # nobody else waits, and nobody reads what a power loss may take back
    assert (await other.produce(make_batch(b"w"), topic="u", acks=acks)).error_code == 0
    partition = cluster.partition(1)
    if acks == -1:
        assert partition.high_watermark == 0
    assert (partition.log.log_end_offset, partition.log.recovery_point) == (1, 0)
    assert not answer.done()
    flushes.let_go.set()
    assert (await answer).error_code == 0
    assert (partition.high_watermark, partition.log.recovery_point) == (1, 1)


async def test_batches_that_come_during_a_flush_share_the_next(cluster: DataCluster) -> None:
    await cluster.create(1, configs=ONE)
    flushes = HeldFlushes(cluster.brokers[1])
    client = await cluster.client(1)
    for _ in range(20):
        client.send_produce(make_batch(b"v"), acks=1)
        await until(lambda: flushes.begun)
    await until(lambda: cluster.partition(1).log.log_end_offset == 20)
    flushes.let_go.set()
    for offset in range(20):
        assert (await client.produced()).base_offset == offset
    assert flushes.begun == 2


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_acknowledged_survives_a_power_loss(seed: int) -> None:
    rng = random.Random(seed)
    async with running_cluster() as cluster:
        await cluster.create(1, configs=ONE | {"segment.bytes": "1048576"})
        acknowledged: list[bytes] = []

        async def write(name: int) -> None:
            client = await cluster.client(1)
            for number in range(1000):
                value = b"%d-%d" % (name, number)
                if (await client.produce(make_batch(value), acks=rng.choice((1, -1)))).error_code:
                    return
                acknowledged.append(value)

        writers = [asyncio.create_task(write(name)) for name in range(4)]
        stop_at = rng.randrange(1, 60)
        await until(lambda: len(acknowledged) >= stop_at)
        lost_power = cluster.disk(1).copy()
        promised = list(acknowledged)
        lost_power.crash(rng)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    async with running_cluster(disks={1: lost_power}) as cluster:
        log = cluster.brokers[1].logs.logs["t", 0].log
        kept = {value for _, batch in log.iter_batches(0) for value in values_in(batch)}
        assert kept >= set(promised)


async def test_fewer_messages_are_acknowledged_at_once(cluster: DataCluster) -> None:
    await cluster.create(1, configs={"flush.messages": "3"})
    flushes = HeldFlushes(cluster.brokers[1])
    client = await cluster.client(1)
    for acks in (1, -1):
        assert (await client.produce(make_batch(b"v"), acks=acks)).error_code == 0
    assert flushes.begun == 0
    answer = asyncio.create_task(client.produce(make_batch(b"v"), acks=1))
    await until(lambda: flushes.begun)
    assert not answer.done()
    flushes.let_go.set()
    assert (await answer).error_code == 0


@pytest.mark.world(brokers=(1, 2))
async def test_a_follower_acknowledges_what_it_has_flushed(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=ONE)
    await cluster.create(1, 2, topic="u")
    flushes = HeldFlushes(cluster.brokers[2])
    client, other = await cluster.client(1), await cluster.client(1)
    answer = asyncio.create_task(client.produce(make_batch(b"v")))
    await until(lambda: flushes.begun)
    # its other partitions go on, over the same connection
    for _ in range(3):
        assert (await other.produce(make_batch(b"w"), topic="u")).error_code == 0
    leader = cluster.partition(1)
    assert leader.followers[2].log_end_offset == leader.high_watermark == 0
    assert cluster.partition(2).log.log_end_offset == 1 and not answer.done()
    flushes.let_go.set()
    assert (await answer).error_code == 0
    assert cluster.partition(2).log.recovery_point == 1


@pytest.mark.world(brokers=(1, 2))
async def test_a_leader_commits_nothing_that_only_its_followers_have_flushed(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, configs=ONE)
    flushes = HeldFlushes(cluster.brokers[1])
    client = await cluster.client(1)
    answer = asyncio.create_task(client.produce(make_batch(b"v")))
    leader = cluster.partition(1)
    await until(lambda: flushes.begun and leader.followers[2].log_end_offset == 1)
    assert leader.high_watermark == 0 and not answer.done()
    flushes.let_go.set()
    assert (await answer).error_code == 0


@pytest.mark.world(brokers=(1, 2))
async def test_a_deposed_leader_confirms_nothing_that_it_flushes_later(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=ONE)
    flushes = HeldFlushes(cluster.brokers[1])
    client = await cluster.client(1)
    answer = asyncio.create_task(client.produce(make_batch(b"v"), acks=1))
    await until(lambda: flushes.begun and cluster.partition(2).log.log_end_offset == 1)
    cluster.controller.elect(2, (1, 2))
    assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    flushes.let_go.set()
    await until(lambda: cluster.partition(2).high_watermark == 1)


async def test_a_leader_past_its_lease_confirms_nothing_that_it_has_flushed(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, configs=ONE)
    broker = cluster.brokers[1]
    flushes = HeldFlushes(broker)
    client = await cluster.client(1)
    answer = asyncio.create_task(client.produce(make_batch(b"v"), acks=1))
    await until(lambda: flushes.begun)
    broker.lease.valid = False
    flushes.let_go.set()
    assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_flush_that_takes_too_long_leaves_the_outcome_open(cluster: DataCluster) -> None:
    await cluster.create(1, configs=ONE)
    flushes = HeldFlushes(cluster.brokers[1])
    client = await cluster.client(1)
    result = await client.produce(make_batch(b"v"), acks=1, timeout_ms=20)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    flushes.let_go.set()
    await until(lambda: cluster.partition(1).log.recovery_point == 1)


async def test_a_repeated_batch_is_acknowledged_no_earlier_than_the_original(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, configs=ONE)
    flushes = HeldFlushes(cluster.brokers[1])
    batch = make_batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    answers = []
    for _ in range(2):
        client = await cluster.client(1)
        answers.append(asyncio.create_task(client.produce(batch, acks=1)))
    partition = cluster.partition(1)
    await until(lambda: len(partition.flushed_waiters) == 2)
    flushes.let_go.set()
    assert [(await answer).base_offset for answer in answers] == [0, 0]


async def test_a_record_is_flushed_when_it_has_waited_for_flush_ms(cluster: DataCluster) -> None:
    await cluster.create(1, configs={"flush.ms": "20"})
    flushes = HeldFlushes(cluster.brokers[1])
    client, log = await cluster.client(1), cluster.partition(1).log
    assert (await client.produce(make_batch(b"v"), acks=1)).error_code == 0
    await until(lambda: flushes.begun)
    # its own time passes while the first flush is under way
    assert (await client.produce(make_batch(b"v"), acks=1)).error_code == 0
    deadlines = cluster.brokers[1].data.wakeups.deadlines
    await until(lambda: len(deadlines) == 0)
    assert log.recovery_point == 0
    flushes.let_go.set()
    await until(lambda: log.recovery_point == 2)
    assert flushes.begun == 2


async def test_a_log_has_one_deadline_however_often_it_is_flushed(cluster: DataCluster) -> None:
    await cluster.create(1, configs={"flush.ms": "3600000"})
    client, broker = await cluster.client(1), cluster.brokers[1]
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
        await broker.logs.flush(("t", 0))
    assert len(broker.data.wakeups.deadlines) == 1


async def test_logs_that_ask_for_no_flush_cost_nothing(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    tasks = len(cluster.brokers[1].data.tasks)
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
    assert len(cluster.brokers[1].data.wakeups.deadlines) == 0
    assert len(cluster.brokers[1].data.tasks) == tasks


async def test_a_failed_flush_confirms_nothing(cluster: DataCluster) -> None:
    await cluster.create(1, configs=ONE)
    cluster.disk(1).inject("flush", errno.EIO, path_part=".log")
    client = await cluster.client(1)
    client.send_produce(make_batch(b"v"), acks=1, timeout_ms=50)
    broker = cluster.brokers[1]
    await until(lambda: broker.faults)
    assert (await client.produced()).error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.faults.clear()
    await broker.stop(clean=False)
