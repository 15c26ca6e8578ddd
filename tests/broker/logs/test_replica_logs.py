"""Log directories: clean and unclean starts, damage, faults, topics that are created and deleted."""

import asyncio
import dataclasses
import errno
import gc
import random
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest

from pykraft.broker.logs import log_opening, offline_logs
from pykraft.broker.logs.log_config import build_log_config
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.log_store.checkpoint import read_offset_checkpoint
from pykraft.log_store.interface import CorruptLogError
from pykraft.runtime.disk import Disk
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.crash import abandon
from tests.broker.data_cluster import DataCluster, PausedWorkers, make_batch, running_cluster
from tests.broker.log_managers import CONFIG, KEY, NEW_ID, OLD_ID, create, fill, started
from tests.narrowing import as_type

T = TypeVar("T")


async def test_clean_stop_is_distinguished_from_a_crash() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    assert logs.previous_broker_epoch is None
    await create(logs, 5)
    await logs.stop(77, {KEY: 4})
    disk.crash(random.Random(1))
    again = await started(disk)
    assert again.previous_broker_epoch == 77
    reopened = again.logs[KEY]
    assert (reopened.log.log_end_offset, reopened.high_watermark, reopened.topic_id) == (5, 4, OLD_ID)
    assert not reopened.log.recovery_report.scanned_batches
    abandon(again)
    third = await started(disk)
    assert third.previous_broker_epoch is None
    assert third.logs[KEY].log.log_end_offset == 5


async def test_files_of_a_deleted_log_are_closed_without_a_garbage_collection() -> None:
    """The system gives the room of a removed file back when it is closed."""
    logs = await started(MemoryDisk())
    opened = await create(logs, 5)
    segment = weakref.ref(opened.log._segments[-1])
    del opened
    gc.disable()
    try:
        await logs.delete([KEY])
        async with asyncio.timeout(20):
            while segment() is not None:  # the worker thread may not have dropped its job yet
                await asyncio.sleep(0.001)
    finally:
        gc.enable()


async def test_damage_in_the_flushed_part_costs_one_log_and_is_reported_with_its_place() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    config = build_log_config({"segment.bytes": str(1 << 20)}, {})
    opened, other = await logs.open_or_create([("t", 0, OLD_ID, config), ("u", 0, NEW_ID, config)])
    opened.log.config = dataclasses.replace(config, segment_bytes=300)
    fill(opened.log, 12)
    fill(other.log, 3)
    abandon(logs)
    disk.flip_bit("/d/t-0/00000000000000000000.log", 70)
    held = sorted(disk.list("/d/t-0"))
    again = await started(disk)
    offline = again.offline[KEY]
    assert "00000000000000000000.log is corrupt at position 0: CRC does not match" in offline.reason
    assert offline.topic_id == OLD_ID and offline.directory == "/d/t-0.00000000-damaged"
    assert set(held) <= set(disk.list(offline.directory))
    assert list(again.logs) == [("u", 0)] and again.logs["u", 0].log.log_end_offset == 3
    third = await started(disk)
    assert third.offline[KEY].directory == offline.directory, "the replica has not started over yet"
    await third.open_or_create([("t", 0, OLD_ID, config)])
    await third.stop(1, {})
    fourth = await started(disk)
    assert not fourth.offline and KEY in fourth.logs


async def test_failure_to_set_a_damaged_log_aside_is_reported_although_no_task_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: list[str] = []
    logs = await started(
        MemoryDisk(),
        on_fatal=lambda error: faults.append(str(error)),
        on_damage=lambda key: faults.append("{}-{}".format(*key)),
    )
    opened = await create(logs)
    logs.damaged.report(opened.log, CorruptLogError("/d/t-0", 0, "a hole"))
    monkeypatch.setattr(offline_logs, "set_aside", None)
    waiting = asyncio.ensure_future(logs.damaged.set_aside(KEY))
    await asyncio.sleep(0)
    waiting.cancel()
    while len(faults) < 2:
        await asyncio.sleep(0)
    assert faults == ["t-0", "the first argument must be callable"]


async def test_directory_without_a_topic_id_is_damage_only_if_it_has_a_log() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/d/t-0")
    logs = await started(disk)
    assert not disk.exists("/d/t-0") and not logs.logs
    await create(logs)
    abandon(logs)
    disk.remove("/d/t-0/partition.metadata")
    again = await started(disk)
    assert "partition.metadata is corrupt at position 0: is missing" in again.offline[KEY].reason
    assert disk.exists("/d/t-0.00000000-damaged/00000000000000000000.log")


async def test_topic_of_the_same_name_gets_a_new_log() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs, 3)
    same = await create(logs)
    assert same is opened
    new = await create(logs, topic_id=NEW_ID)
    assert new.log.log_end_offset == 0
    await logs.set_aside([KEY])
    assert [name for name in disk.list("/d") if name.endswith("-stray")]
    await started(disk)


async def test_log_is_not_created_while_a_stray_log_of_its_name_exists() -> None:
    disks: dict[int, Disk] = {}
    async with running_cluster(disks=disks) as cluster:
        await cluster.create(1)
        client = await cluster.client(1)
        await client.produce(make_batch(b"old"))
    async with running_cluster(disks=disks) as cluster:
        data = cluster.brokers[1].data
        await data.worklist.idle.wait()
        renaming = asyncio.Event()

        async def pause(job: Callable[[], object]) -> None:
            if getattr(job, "func", None) is log_opening.set_aside_stray:
                renaming.set()
                for _ in range(100):  # other work would have finished by now
                    await asyncio.sleep(0)

        as_type(data.workers, PausedWorkers).before = pause
        async with asyncio.TaskGroup() as group:
            group.create_task(data.reconciler.set_aside_strays())
            await renaming.wait()
            group.create_task(cluster.create(1))
        assert cluster.partition(1).log.log_end_offset == 0
        names = {name for name in disks[1].list("/d1") if name.startswith("t-0")}
        assert "t-0" in names and any(name.endswith("-stray") for name in names)


async def test_new_logs_are_created_in_the_emptiest_directory() -> None:
    logs = await started(MemoryDisk(), dirs=("/a", "/b"))
    opened = await logs.open_or_create([("t", index, OLD_ID, CONFIG) for index in range(4)])
    assert [one.log_dir for one in opened] == ["/a", "/b", "/a", "/b"]


async def test_truncation_lowers_the_stored_recovery_point_at_once() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs, 5)
    await logs.flush(KEY)
    await logs.checkpoints.write({})
    path = "/d/recovery-point-offset-checkpoint"
    assert read_offset_checkpoint(disk, path) == {KEY: 5}
    opened.log.truncate_to(2)
    assert read_offset_checkpoint(disk, path) == {KEY: 2}


async def test_failed_flush_is_a_fault_of_the_node() -> None:
    disk = MemoryDisk()
    faults: list[BaseException] = []
    logs = await started(disk, on_fatal=faults.append)
    opened = await create(logs, 1)
    disk.inject("flush", errno.EIO, path_part=".log")
    with pytest.raises(OSError):
        await logs.flush(KEY)
    assert len(faults) == 1 and opened.log.recovery_point == 0


async def test_failed_append_is_reported_to_the_client_and_halts_the_node(cluster: DataCluster) -> None:
    await cluster.create(1)
    client = await cluster.client(1)
    cluster.disk(1).inject("append", errno.ENOSPC, path_part=".log")
    result = await client.produce(make_batch(b"v"))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(cluster.brokers[1].faults) == 1
    cluster.brokers[1].faults.clear()


async def test_retention_and_flush_follow_the_topics_settings(cluster: DataCluster) -> None:
    await cluster.create(1, configs={"flush.messages": "1", "retention.ms": "1000"})
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v", timestamp_ms=1000))
    broker = cluster.brokers[1]
    maintenance = broker.data.maintenance
    log = cluster.partition(1).log
    assert log.recovery_point == 3
    await maintenance.delete_old_segments()
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert (await client.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await client.produce(make_batch(b"w"))).base_offset == 3


async def test_log_start_is_stored_before_its_segments_are_deleted() -> None:
    disk = MemoryDisk()
    async with running_cluster(disks={1: disk}) as cluster:
        await cluster.create(1, configs={"retention.ms": "1000"})
        client = await cluster.client(1)
        await client.produce(make_batch(b"v", timestamp_ms=1000))
        broker = cluster.brokers[1]
        disk.calls.clear()
        await broker.data.maintenance.delete_old_segments()
        calls = [(call.operation, call.path.rpartition("/")[2]) for call in disk.calls]
        stored = calls.index(("rename", "log-start-offset-checkpoint.new"))
        assert stored < calls.index(("rename", "00000000000000000000.log"))
        assert read_offset_checkpoint(disk, "/d1/log-start-offset-checkpoint") == {KEY: 1}
        await broker.stop(clean=False)
        again = await cluster.start(1)
        assert again.logs.logs[KEY].log.log_start_offset == 1


async def test_retention_keeps_what_is_not_committed(cluster: DataCluster) -> None:
    await cluster.create(1, 2, configs={"retention.bytes": "0"})
    client = await cluster.client(1)
    for _ in range(3):
        await client.produce(make_batch(b"v"), acks=1)
    broker, partition = cluster.brokers[1], cluster.partition(1)
    maintenance = broker.data.maintenance
    await maintenance.delete_old_segments()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 3)
    partition.handle_follower_fetch(2, 3, 100, 0, 0)
    await maintenance.delete_old_segments()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 3)
