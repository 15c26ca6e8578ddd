"""Damage of a log is found while the broker runs: by readers, followers, the scrub, flushes and the stop."""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from pykraft.broker.apis.records import list_offsets
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.records import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykraft.kafka_protocol.records import iter_headers, read_header
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.disk import UnreadableError
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import as_read, refused
from tests.broker.damage import (
    CLOSED,
    NEWEST,
    SEGMENTS,
    Damage,
    fill,
    first_batch_only,
    flip,
    half,
    in_sync,
    missing,
    read_all,
    unreadable,
    values,
)
from tests.broker.data_cluster import DataCluster, make_batch, running_cluster
from tests.narrowing import present
from tests.waits import until

pytestmark = pytest.mark.world(brokers=(1, 2))


@pytest.mark.world(brokers=(1,))
async def test_damage_found_while_reading_is_a_storage_error_and_takes_the_replica_offline(
    cluster: DataCluster,
) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v" * 50))
    broker = cluster.brokers[1]
    cluster.disk(1).flip_bit(f"{cluster.partition(1).log.directory}/{0:020d}.log", 8, 7)  # batch length
    result = await client.fetch(1)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "corrupt" in broker.logs.offline["t", 0].reason
    for answer in (await client.fetch(1), await client.produce(make_batch(b"v"))):
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.world(brokers=(1,))
async def test_damage_found_by_a_look_up_also_takes_the_replica_offline(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    for time in range(3):
        await client.produce(make_batch(b"v" * 50, timestamp_ms=1_700_000_000_000 + time))
    broker = cluster.brokers[1]
    cluster.disk(1).flip_bit(f"{cluster.partition(1).log.directory}/{0:020d}.log", 8, 7)  # batch length
    asked = ListOffsetsPartition(partition_index=0, timestamp=1_700_000_000_002)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    response = as_read(await list_offsets.handle(broker.services, RequestContext(), request, 9), 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "corrupt" in broker.logs.offline["t", 0].reason


@pytest.mark.parametrize(
    "rot",
    [flip(100), flip(8), flip(7), flip(15), half, first_batch_only, missing, unreadable],
    ids=["record", "length", "offset", "epoch", "cut", "cut at a batch", "missing", "unreadable"],
)
async def test_scrub_finds_damage_that_no_reader_has_met(cluster: DataCluster, rot: Damage) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await cluster.create(1, 2, topic="u")
    await fill(cluster, 1, 12)
    broker = cluster.brokers[1]
    await broker.data.scrubber.scrub_all()
    assert not broker.logs.offline
    rot(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
    await broker.data.scrubber.scrub_all()
    await until(lambda: in_sync(cluster, 1, 12))
    assert cluster.controller.lost == [(1, "t")]
    assert cluster.controller.partition().leader == 2
    assert broker.disk.is_dir("/d1/t-0.00000000-damaged")


@pytest.mark.world(brokers=(1,))
async def test_scrub_does_not_take_a_truncation_or_a_deletion_for_damage(cluster: DataCluster) -> None:
    await cluster.create(1, configs={**SEGMENTS, "retention.ms": "1000"})
    await fill(cluster, 1, 12)
    log, scrubber = cluster.partition(1).log, cluster.brokers[1].data.scrubber
    opened = cluster.brokers[1].logs.logs["t", 0]
    newest = log.scrub_segment(9)
    oldest = log.scrub_segment(0)
    assert newest is not None and oldest is not None
    log.truncate_to(10)
    while await scrubber._is_sound(opened, 0, newest.step):
        assert not newest.is_done
    cuts = log.truncation_count
    assert log.retire_old_segments(cluster.brokers[1].replicas.clock.wall_ms(), limit_offset=9)
    log.delete_retired_segments(log.log_start_offset)
    assert not await scrubber._is_sound(opened, cuts, oldest.step)
    assert not cluster.brokers[1].logs.offline


async def test_bad_sector_that_only_a_consumer_reads_is_found(cluster: DataCluster) -> None:
    """Within a large batch: its header is read for the look-up, its records only when they are sent."""
    await cluster.create(1, 2)
    client = await cluster.client(1)
    large = b"v" * 100_000
    for value in (large, b"w"):
        await client.produce(make_batch(value))
    await until(lambda: cluster.partition(2).high_watermark == 2)
    cluster.disk(1).make_unreadable(f"/d1/t-0/{0:020d}.log", 50_000)
    with pytest.raises(asyncio.IncompleteReadError):
        await client.fetch(0)
    await until(lambda: cluster.controller.lost)  # data that could not be sent is read again first
    await until(lambda: in_sync(cluster, 1, 2))
    assert cluster.controller.lost == [(1, "t")] and cluster.controller.partition().leader == 2
    assert await read_all(cluster, 2) == [large, b"w"]


@pytest.mark.parametrize("bit", [0, 1])
async def test_wrong_leader_epoch_that_a_reader_was_served_is_found(cluster: DataCluster, bit: int) -> None:
    """No CRC covers it. The reader sends the epoch back: one that is unknown here, or of older records."""
    await cluster.create(1, 2)
    cluster.controller.elect(1, (1, 2))
    await until(lambda: cluster.partition(1).leader_epoch == 1)
    await fill(cluster, 1, 3)
    assert cluster.partition(1).log.latest_epoch == 1
    path = f"/d1/t-0/{0:020d}.log"
    cluster.disk(1).flip_bit(path, 15, bit)
    client = await cluster.client(1)
    served = await client.fetch(0)
    ((_, first), *_) = iter_headers(memoryview(bytes(present(served.records))))
    assert first.partition_leader_epoch == 1 ^ (1 << bit)
    await client.fetch(1, last_epoch=first.partition_leader_epoch)
    await until(lambda: cluster.controller.lost)
    await until(lambda: in_sync(cluster, 1, 3))
    assert cluster.controller.lost == [(1, "t")] and cluster.controller.partition().leader == 2


@pytest.mark.world(brokers=(1,))
async def test_reader_that_makes_up_an_epoch_costs_no_replica(cluster: DataCluster) -> None:
    await cluster.create(1)
    await fill(cluster, 1, 3)
    client = await cluster.client(1)
    for offset in (0, 1, 3, 4, -1):
        assert (await client.fetch(offset, last_epoch=7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await cluster.brokers[1].data.scrubber.scrub_all()
    assert not cluster.brokers[1].logs.offline
    assert await read_all(cluster, 1) == values(3)


async def test_late_report_of_a_bad_sector_does_not_cost_the_new_copy_of_the_log(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    await fill(cluster, 1, 3)
    broker = cluster.brokers[1]
    old = present(cluster.partition(1).log.read(0, 1 << 20))
    unreadable(cluster.disk(1), old.file.path)
    await broker.data.scrubber.check_unsent(old)
    await until(lambda: in_sync(cluster, 1, 3))
    with pytest.raises(UnreadableError):
        old.file.pread(0, 100)
    await broker.data.scrubber.check_unsent(old)
    assert cluster.controller.lost == [(1, "t")] and not broker.logs.offline


async def test_follower_that_cannot_read_where_it_must_truncate_starts_over(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    follower = cluster.partition(2)
    cluster.controller.elect(1, (1,))
    more = make_batch(b"never seen by its leader", base_offset=12, leader_epoch=0)
    follower.log.append(more, [read_header(more)], now_ms=0)
    unreadable(cluster.disk(2), f"/d2/t-0/{NEWEST}.log")
    client = await cluster.client(1)
    await client.produce(make_batch(b"w"))
    await until(lambda: in_sync(cluster, 2, 13))
    assert cluster.controller.lost == [(2, "t")]


@pytest.mark.parametrize("rot", [flip(100), unreadable], ids=["crc", "unreadable"])
async def test_coordinator_that_reads_rot_gives_up_its_replica(cluster: DataCluster, rot: Damage) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    broker = cluster.brokers[1]
    rot(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
    coordinator_log = broker.coordinator_log()
    assert (await coordinator_log.read(0, 0))[1] > 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await coordinator_log.read(0, 3)
    await until(lambda: in_sync(cluster, 1, 12))
    assert cluster.controller.partition().leader == 2


async def test_file_that_vanishes_before_a_flush_costs_its_replica_only(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    log = cluster.partition(1).log
    for segment in log._segments[:-1]:
        segment.close()
    missing(cluster.disk(1), log._segments[1].path)
    await cluster.brokers[1].logs.flush(("t", 0))
    await until(lambda: in_sync(cluster, 1, 12))
    assert cluster.controller.lost == [(1, "t")]


async def test_file_found_missing_at_the_stop_is_reported_at_the_next_start(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    log = cluster.partition(2).log
    for segment in log._segments[:-1]:
        segment.close()
    missing(cluster.disk(2), log._segments[1].path)
    await cluster.brokers[2].stop()
    await cluster.start(2)
    await until(lambda: in_sync(cluster, 2, 12))
    assert cluster.controller.lost == [(2, "t")]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
async def test_error_of_the_node_costs_that_scrub_and_neither_the_log_nor_the_node(
    cluster: DataCluster, number: int
) -> None:
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    broker = cluster.brokers[1]
    cluster.disk(1).inject("open", number, path_part=f"{CLOSED}.log")
    await broker.data.scrubber.scrub_all()
    assert broker.logs.work.failures == {"scrub": 1} and not broker.faults
    assert not broker.logs.offline and not cluster.controller.lost
    flip(100)(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
    await broker.data.scrubber.scrub_all()
    assert ("t", 0) in broker.logs.offline


@pytest.mark.world(brokers=(1,))
@pytest.mark.parametrize("operation", ["append", "flush"])
async def test_write_that_failed_halts_the_node_and_sets_nothing_aside(
    cluster: DataCluster, operation: str
) -> None:
    await cluster.create(1)
    await fill(cluster, 1, 3)
    broker = cluster.brokers[1]
    cluster.disk(1).inject(operation, errno.EIO, path_part=".log")
    if operation == "append":
        client = await cluster.client(1)
        result = await client.produce(make_batch(b"w"))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        with pytest.raises(OSError, match="injected"):
            await broker.logs.flush(("t", 0))
    assert broker.faults and not broker.logs.offline
    await broker.stop(clean=False)
    broker.faults.clear()


async def test_wrong_index_entry_misleads_no_reader() -> None:
    disk = MemoryDisk()
    async with running_cluster(disks={1: disk}) as cluster:
        await cluster.create(1, configs={"index.interval.bytes": "0", "segment.bytes": str(1 << 20)})
        client = await cluster.client(1)
        for number, value in enumerate(values(30)):
            batch = make_batch(value, timestamp_ms=1_700_000_000_000 + number)
            assert (await client.produce(batch)).error_code == ErrorCode.NONE
        log = cluster.partition(1).log
        log.roll(0)
        log.on_bad_index = None  # then it is built again at once
        for suffix, entry_bytes in (("index", 8), ("timeindex", 12)):
            path = f"/d1/t-0/{0:020d}.{suffix}"
            intact = disk.read(path)
            assert len(intact) >= 20 * entry_bytes
            for position in range(entry_bytes, len(intact) - entry_bytes):
                disk.write_atomic(path, intact)
                disk.flip_bit(path, position, position % 8)
                log._segments[0].close()
                number = position // entry_bytes
                for offset in range(number, min(30, number + 4)):
                    found = log.read(offset, 1)
                    assert found is not None and found.base_offset == offset
                    at = log.lookup_timestamp(1_700_000_000_000 + offset)
                    assert at is not None and at.offset == offset


@pytest.mark.world(brokers=(1,))
async def test_scrub_reads_no_faster_than_it_may(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    scrubber, paused_ms = cluster.brokers[1].data.scrubber, list[float]()

    async def sleep(delay_ms: float) -> None:
        paused_ms.append(delay_ms)

    monkeypatch.setattr(scrubber, "_tasks", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(scrubber, "_bytes_per_second", 100)
    await scrubber.scrub_all()
    log = cluster.partition(1).log
    closed_bytes = log.size_bytes - log.size_bytes_from(log.segment_base_offsets[-1])
    assert sum(paused_ms) >= closed_bytes * 1000 // 100 - len(paused_ms) > 0
