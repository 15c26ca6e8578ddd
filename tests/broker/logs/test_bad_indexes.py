"""An index that is found wrong while it is used is built again from the log, off the event loop, and nobody
gets an error.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.index_build import IndexBuild
from pykraft.log_store.log.log import Log
from pykraft.log_store.segment.reading import ReadableSegment
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import Workers
from tests.broker.damage import (
    CLOSED,
    SEGMENTS,
    Damage,
    empty,
    fill,
    flip,
    half,
    missing,
    read_all,
    unreadable,
    values,
)
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.stand_ins import interpreted_only
from tests.waits import until

CONFIGS = {**SEGMENTS, "index.interval.bytes": "0"}
INDEX, TIME_INDEX = f"/d1/t-0/{CLOSED}.index", f"/d1/t-0/{CLOSED}.timeindex"


def release(log: Log) -> None:
    """As if the files had not been read for a long time."""
    for segment in log._segments[:-1]:
        segment.close()


@pytest.mark.parametrize("damage", [flip(3), flip(7), half, empty, missing, unreadable])
async def test_consumer_gets_every_record_and_no_error_while_the_index_is_built_again(
    cluster: DataCluster, damage: Damage
) -> None:
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 12)
    disk, broker = cluster.disk(1), cluster.brokers[1]
    before = disk.read(INDEX)
    damage(disk, INDEX)
    release(cluster.partition(1).log)
    client = await cluster.client(1)
    for offset, value in enumerate(values(12)):
        async with asyncio.timeout(15):  # only where the fetch is forgotten
            result = await client.fetch(offset, max_wait_ms=600_000)
        assert (result.error_code, values_in(result.records)[0]) == (ErrorCode.NONE, value)
    if disk.read(INDEX) != before:  # the index leads to every batch, although not at once
        await broker.data.scrubber.scrub_all()
        await until(lambda: disk.read(INDEX) == before)
    assert not broker.logs.offline and not broker.faults
    assert await read_all(cluster, 1) == values(12)


class Counting(Workers):
    """Counts the jobs, and holds them until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self.may_go = asyncio.Event()

    async def run(self, job: Callable[[], object]) -> object:  # type: ignore[override]
        self.jobs += 1
        await self.may_go.wait()
        return job()


async def test_many_fetches_of_a_segment_cost_one_build_and_other_segments_are_served_meanwhile(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 12)
    broker, log = cluster.brokers[1], cluster.partition(1).log
    workers = broker.logs.index_rebuilds._workers = Counting()
    flip(7)(cluster.disk(1), INDEX)
    release(log)
    waiting = [await cluster.client(1) for _ in range(5)]
    for one in waiting:
        one.send_fetch(4, max_wait_ms=60_000)
    reader = await cluster.client(1)
    assert values_in((await reader.fetch(7)).records)[0] == values(12)[7]
    await until(lambda: sum(len(w) for w in [cluster.partition(1).consumer_waiters]) == 5)
    assert workers.jobs == 1
    workers.may_go.set()
    for one in waiting:
        records = (await one.fetched()).records
        assert values_in(records)[0] == values(12)[4]
    assert workers.jobs == 1


async def test_truncation_during_a_build_makes_it_begin_again(cluster: DataCluster) -> None:
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 6)
    broker, log = cluster.brokers[1], cluster.partition(1).log
    workers = broker.logs.index_rebuilds._workers = Counting()
    segment = log._active
    log.doubt_indexes(segment.base_offset)
    await until(lambda: workers.jobs == 1)
    log.truncate_to(5)
    workers.may_go.set()
    await until(lambda: not broker.logs.index_rebuilds._rebuilding)
    assert workers.jobs == 2 and not broker.logs.offline
    assert segment.offset_index.last_entry is not None and segment.offset_index.last_entry[0] == 4


@pytest.mark.parametrize("damage", [flip(5), half, empty, unreadable])
async def test_retention_does_not_believe_a_wrong_time(cluster: DataCluster, damage: Damage) -> None:
    """A segment whose time index is wrong is as old as its records say."""
    await cluster.create(1, configs={**CONFIGS, "retention.ms": "3600000"})
    client, broker = await cluster.client(1), cluster.brokers[1]
    log, now_ms = cluster.partition(1).log, broker.clock.wall_ms()
    for _ in range(3):
        await client.produce(make_batch(b"v", timestamp_ms=now_ms))
    log.roll(0)
    oldest = log._segments[0]
    oldest._max_timestamp = None  # as after a start that did not read it
    release(log)
    disk = cluster.disk(1)
    damage(disk, f"/d1/t-0/{0:020}.timeindex")
    await broker.data.maintenance.delete_old_segments()
    await until(lambda: not broker.logs.index_rebuilds._rebuilding)
    await broker.data.maintenance.delete_old_segments()
    assert log.log_start_offset == 0
    assert oldest.max_timestamp == (now_ms, 0)


async def test_scrub_has_an_index_with_an_entry_too_few_built_again(cluster: DataCluster) -> None:
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 12)
    disk, scrubber = cluster.disk(1), cluster.brokers[1].data.scrubber
    for path in (INDEX, TIME_INDEX):
        before = disk.read(path)
        half(disk, path)
        release(cluster.partition(1).log)
        await scrubber.scrub_all()
        await until(partial(_is, disk, path, before))


def _is(disk: MemoryDisk, path: str, content: bytes) -> bool:
    return disk.read(path) == content


@interpreted_only
async def test_a_look_up_in_a_log_that_is_gone_ends(cluster: DataCluster) -> None:
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 12)
    broker, log = cluster.brokers[1], cluster.partition(1).log
    empty(cluster.disk(1), TIME_INDEX)
    missing(cluster.disk(1), INDEX)
    release(log)
    for segment in log._segments:
        segment._max_timestamp, segment._indexes_checked = None, False
    prepare = log.prepare_index_build

    def prepare_late(segment: ReadableSegment) -> IndexBuild | None:
        if ("t", 0) in broker.logs.logs:
            broker.logs.table.take_out(("t", 0))
        return prepare(segment)

    log.prepare_index_build = prepare_late  # type: ignore[method-assign]
    async with asyncio.timeout(15):  # only where it is repeated for ever
        with pytest.raises(KafkaError) as refused:
            await broker.logs.time_lookups.look_up(log, 1_800_000_000_000)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.world(brokers=())
async def test_a_look_up_beside_a_move_costs_no_replica(cluster: DataCluster) -> None:
    broker = await cluster.start(1, log_dirs=("/d1", "/e1"))
    await cluster.create(1, configs=CONFIGS)
    await fill(cluster, 1, 12)
    log, held = cluster.partition(1).log, Counting()
    release(log)
    workers, broker.logs.time_lookups._workers = broker.logs.time_lookups._workers, held
    look_up = asyncio.create_task(broker.logs.time_lookups.look_up(log, 1))
    await until(lambda: held.jobs == 1)
    broker.logs.time_lookups._workers = workers
    broker.data.moves.move(("t", 0), "/e1")
    await until(lambda: not broker.disk.exists("/d1/t-0"))
    held.may_go.set()
    async with asyncio.timeout(15):  # only where it is repeated for ever
        with pytest.raises(KafkaError) as refused:
            await look_up
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.logs.logs["t", 0].log_dir == "/e1" and not broker.logs.offline
