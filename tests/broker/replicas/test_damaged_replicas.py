"""A damaged log costs one replica: it leaves the ISR, is set aside, and is copied again from the leader."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from pykraft.broker.apis.cluster import describe_log_dirs
from pykraft.broker.logs.offline_logs import OfflineLog, find_set_aside, set_aside
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import DescribeLogDirsRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.log.log import renamed_directory
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import TaskSupervisor
from tests.broker.answers import as_read
from tests.broker.damage import (
    CLOSED,
    NEWEST,
    SEGMENTS,
    Damage,
    content,
    empty,
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
from tests.unexpected import unexpected
from tests.waits import until

pytestmark = pytest.mark.world(brokers=(1, 2))

# What is damaged, how, and whether the replica must be copied again (or can be repaired, or needs no repair).
DAMAGES: dict[str, tuple[str, Callable[[MemoryDisk, str], None], bool]] = {
    "closed segment removed": (f"t-0/{CLOSED}.log", missing, True),
    "closed segment cut at a batch": (f"t-0/{CLOSED}.log", first_batch_only, True),
    "closed segment cut within a batch": (f"t-0/{CLOSED}.log", half, True),
    "closed segment emptied": (f"t-0/{CLOSED}.log", empty, True),
    "closed segment, a flipped length": (f"t-0/{CLOSED}.log", flip(8), True),
    "closed segment unreadable": (f"t-0/{CLOSED}.log", unreadable, True),
    "oldest segment removed": (f"t-0/{0:020d}.log", missing, True),
    "newest segment cut at a batch": (f"t-0/{NEWEST}.log", first_batch_only, True),
    "newest segment cut within a batch": (f"t-0/{NEWEST}.log", half, True),
    "newest segment, a flipped length": (f"t-0/{NEWEST}.log", flip(8), True),
    "newest segment removed": (f"t-0/{NEWEST}.log", missing, True),
    "newest segment unreadable": (f"t-0/{NEWEST}.log", unreadable, True),
    "topic id flipped": ("t-0/partition.metadata", flip(25), True),
    "topic id cut": ("t-0/partition.metadata", half, True),
    "topic id emptied": ("t-0/partition.metadata", empty, True),
    "topic id removed": ("t-0/partition.metadata", missing, True),
    "topic id unreadable": ("t-0/partition.metadata", unreadable, True),
    "epochs flipped": ("t-0/leader-epoch-checkpoint", flip(4), False),
    "epochs cut": ("t-0/leader-epoch-checkpoint", half, False),
    "epochs removed": ("t-0/leader-epoch-checkpoint", missing, False),
    "epochs unreadable": ("t-0/leader-epoch-checkpoint", unreadable, False),
    "index flipped": (f"t-0/{CLOSED}.index", flip(0), False),
    "index cut": (f"t-0/{CLOSED}.index", half, False),
    "index removed": (f"t-0/{CLOSED}.index", missing, False),
    "index unreadable": (f"t-0/{CLOSED}.index", unreadable, False),
    "time index flipped": (f"t-0/{CLOSED}.timeindex", flip(0), False),
    "time index cut": (f"t-0/{CLOSED}.timeindex", half, False),
    "time index removed": (f"t-0/{CLOSED}.timeindex", missing, False),
    "time index unreadable": (f"t-0/{CLOSED}.timeindex", unreadable, False),
    "recovery points flipped": ("recovery-point-offset-checkpoint", flip(0), False),
    "recovery points cut": ("recovery-point-offset-checkpoint", half, False),
    "recovery points removed": ("recovery-point-offset-checkpoint", missing, False),
    "recovery points unreadable": ("recovery-point-offset-checkpoint", unreadable, False),
    "high watermarks flipped": ("replication-offset-checkpoint", flip(2), False),
    "high watermarks cut": ("replication-offset-checkpoint", half, False),
    "high watermarks removed": ("replication-offset-checkpoint", missing, False),
    "high watermarks unreadable": ("replication-offset-checkpoint", unreadable, False),
    "log starts flipped": ("log-start-offset-checkpoint", flip(0), False),
    "log starts cut": ("log-start-offset-checkpoint", half, False),
    "log starts removed": ("log-start-offset-checkpoint", missing, False),
    "log starts unreadable": ("log-start-offset-checkpoint", unreadable, False),
    "mark of an orderly stop emptied": (".kafka_cleanshutdown", empty, False),
    "mark of an orderly stop unreadable": (".kafka_cleanshutdown", unreadable, False),
}


@pytest.mark.world(brokers=(1, 2, 3))
@pytest.mark.parametrize("case", DAMAGES)
async def test_stopped_replica_that_was_damaged_serves_no_gap_and_no_wrong_byte(
    cluster: DataCluster, case: str
) -> None:
    name, damage, is_lost = DAMAGES[case]
    await cluster.create(1, 2, 3, configs={**SEGMENTS, "index.interval.bytes": "1"})
    await cluster.create(1, 2, 3, topic="u")
    await fill(cluster, 1, 12)
    await fill(cluster, 1, 3, topic="u")
    await cluster.brokers[2].stop()
    disk = cluster.disk(2)
    damage(disk, f"/d2/{name}")
    before = content(disk, f"/d2/{name}")
    broker = await cluster.start(2)
    await until(lambda: broker.replicas.is_reconciled)
    assert cluster.controller.lost == ([(2, "t")] if is_lost else [])
    await until(lambda: in_sync(cluster, 2, 12) and in_sync(cluster, 2, 3, "u"))
    for topic in ("t", "u"):
        cluster.controller.elect(2, (1, 2, 3), topic=topic)
    await until(lambda: cluster.partition(2).is_leader)
    await until(lambda: cluster.partition(2).high_watermark == 12)
    assert await read_all(cluster, 2) == values(12)
    assert await read_all(cluster, 2, "u") == values(3)
    if is_lost and before is not None:
        assert disk.read(f"/d2/t-0.00000000-damaged/{name.rpartition('/')[2]}") == before


@pytest.mark.world(brokers=(1, 2), replica_fetch_max_bytes=200)
@pytest.mark.parametrize(
    "damage",
    [flip(8), flip(100), half, missing, unreadable],
    ids=["length", "crc", "cut", "missing", "unreadable"],
)
async def test_leader_whose_closed_segment_is_damaged_while_it_runs_is_replaced(
    cluster: DataCluster, damage: Damage
) -> None:
    """Found by a follower that has to copy it."""
    await cluster.create(1, 2, configs=SEGMENTS)
    await fill(cluster, 1, 12)
    damage(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
    for segment in cluster.partition(1).log._segments[:-1]:
        segment.close()  # as if it had not been read for a long time
    await cluster.start(3)
    old = cluster.controller.partition()
    cluster.controller.set_partition(
        replace(old, replicas=(1, 2, 3), partition_epoch=old.partition_epoch + 1)
    )
    await until(lambda: in_sync(cluster, 3, 12) and in_sync(cluster, 1, 12))
    assert cluster.controller.lost == [(1, "t")]
    assert cluster.controller.partition().leader == 2
    cluster.controller.elect(1, (1, 2, 3))
    await until(lambda: cluster.partition(1).high_watermark == 12)
    assert await read_all(cluster, 1) == values(12)


async def test_leader_whose_log_has_a_future_epoch_costs_one_replica(cluster: DataCluster) -> None:
    """The leader epoch of a batch is not covered by its CRC."""
    await cluster.create(1, 2, configs=SEGMENTS)
    await cluster.create(1, 2, topic="u")
    await fill(cluster, 1, 12)
    await fill(cluster, 1, 3, topic="u")
    await cluster.brokers[2].stop()
    flip(13)(cluster.disk(2), f"/d2/t-0/{NEWEST}.log")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        cluster.disk(2).remove(f"/d2/{name}")
    for topic in ("t", "u"):
        cluster.controller.elect(2, (1, 2), topic=topic)
    broker = await cluster.start(2)
    await until(lambda: cluster.controller.lost == [(2, "t")])
    await until(lambda: broker.replicas.is_reconciled)
    assert broker.disk.is_dir("/d2/t-0.00000000-damaged")
    await until(lambda: cluster.partition(2, topic="u").high_watermark == 3)
    assert await read_all(cluster, 2, "u") == values(3)
    await until(lambda: cluster.partition(1).is_leader and in_sync(cluster, 2, 12))
    assert await read_all(cluster, 1) == values(12)


async def test_replica_starts_over_only_when_the_controller_no_longer_counts_on_it(
    cluster: DataCluster,
) -> None:
    await cluster.create(1, 2)
    await fill(cluster, 1, 6)
    broker, controller = cluster.brokers[2], cluster.controller
    controller.silent = True
    cluster.partition(2).log._active.file.truncate(10)
    cluster.partition(2).storage_failed(FileNotFoundError("planted"))
    await until(lambda: broker.disk.is_dir("/d2/t-0.00000000-damaged"))
    assert not broker.replicas.is_reconciled, "the controller does not know yet"
    for epoch in range(3):
        controller.elect(1, (1, 2))
        await asyncio.sleep(0)
        assert broker.table.find("t", 0) is None and not broker.disk.is_dir("/d2/t-0"), epoch
    controller.silent = False
    await until(lambda: in_sync(cluster, 2, 6))
    assert controller.lost == [(2, "t")]


async def test_report_is_repeated_with_the_newest_leader_epoch(cluster: DataCluster) -> None:
    await cluster.create(1, 2)
    await fill(cluster, 1, 6)
    controller = cluster.controller
    controller.silent = True
    cluster.partition(2).storage_failed(FileNotFoundError("planted"))
    await until(lambda: controller.reports)
    controller.elect(1, (1, 2))
    controller.silent = False
    await until(lambda: in_sync(cluster, 2, 6))
    first, *_, last = [report.leader_epoch for (report,) in controller.reports]
    assert (first, last) == (0, 1)
    assert controller.partition().leader_epoch == 2


async def test_loss_is_not_reported_before_the_directory_is_set_aside(cluster: DataCluster) -> None:
    """On a device that is gone this never succeeds: the node stops, and its logs count as before."""
    await cluster.create(1, 2)
    await cluster.create(1, 2, topic="u")
    broker, controller = cluster.brokers[2], cluster.controller
    controller.silent = True
    cluster.partition(2).storage_failed(FileNotFoundError("planted"))
    await until(lambda: controller.reports)
    broker.logs.uses.flushing.add(("u", 0))  # it takes a long time
    present(broker.table.find("u", 0)).storage_failed(FileNotFoundError("planted"))
    controller.silent = False
    await until(lambda: (2, "t") in controller.lost)
    reported, is_reconciled = list(controller.lost), broker.replicas.is_reconciled
    broker.logs.uses.flushing.discard(("u", 0))
    broker.logs.uses._released.set()
    assert reported == [(2, "t")] and not is_reconciled
    await until(lambda: in_sync(cluster, 2, 0) and in_sync(cluster, 2, 0, "u"))
    assert controller.lost == [(2, "t"), (2, "u")]


@pytest.mark.world(brokers=(1,))
@pytest.mark.parametrize(
    "case",
    [(f"{CLOSED}.log", missing), (f"{CLOSED}.log", unreadable), ("partition.metadata", unreadable)],
    ids=["missing", "unreadable", "unreadable topic id"],
)
async def test_last_replica_stays_offline_until_an_unclean_election(
    cluster: DataCluster, case: tuple[str, Damage]
) -> None:
    await cluster.create(1)
    await cluster.create(1, topic="u")
    await fill(cluster, 1, 6)
    await cluster.brokers[1].stop()
    name, damage = case
    damage(cluster.disk(1), f"/d1/t-0/{name}")
    broker = await cluster.start(1)
    await until(lambda: broker.replicas.is_reconciled)
    assert cluster.controller.partition().leader == -1
    client = await cluster.client(1)
    assert (await client.fetch(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce(make_batch(b"w"), topic="u")).error_code == ErrorCode.NONE
    request = DescribeLogDirsRequest(topics=None)
    answer = as_read(await describe_log_dirs.handle(broker.services, RequestContext(), request, 4), 4)
    whole, damaged = answer.results
    assert [topic.name for topic in whole.topics] == ["u"]
    assert damaged.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert damaged.log_dir == "/d1/t-0.00000000-damaged"
    assert damaged.topics[0].name == "t" and damaged.topics[0].partitions[0].partition_size > 0
    await broker.stop()
    broker = await cluster.start(1)
    await until(lambda: broker.replicas.is_reconciled)
    assert broker.table.find("t", 0) is None, "a restart must not elect it"
    cluster.controller.elect(1, (1,))
    await until(lambda: broker.table.find("t", 0) is not None)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"w"))).base_offset == 0
    assert broker.disk.is_dir("/d1/t-0.00000000-damaged")


async def test_many_damaged_replicas_are_reported_together(cluster: DataCluster) -> None:
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        await cluster.create(1, 2, topic=topic)
    await cluster.brokers[2].stop()
    for topic in topics:
        disk = cluster.disk(2)
        disk.write_atomic(f"/d2/{topic}-0/partition.metadata", b"rot")
    broker = await cluster.start(2)
    await until(lambda: all(in_sync(cluster, 2, 0, topic) for topic in topics))
    assert sorted(cluster.controller.lost) == sorted((2, topic) for topic in topics)
    assert not broker.logs.offline


def test_long_names_are_shortened_when_a_directory_gets_another_suffix() -> None:
    for suffix in ("." + "0" * 32 + "-delete", ".00000000-damaged", "." + "f" * 32 + "-stray"):
        path = renamed_directory("/d/" + "n" * 249 + "-12", suffix)
        assert path.endswith("n-12" + suffix) and len(path.rpartition("/")[2]) == 255
        assert renamed_directory("/d/t-0", suffix) == "/d/t-0" + suffix


async def test_retention_in_progress_does_not_touch_the_log_that_replaced_a_damaged_one() -> None:
    async with running_cluster((1, 2)) as cluster:
        await cluster.create(1, 2, topic="a")
        await cluster.create(2, 1, configs={"retention.ms": "1000"})
        client = await cluster.client(2)
        await client.produce(make_batch(b"v", timestamp_ms=1000))
        await client.produce(make_batch(b"w", timestamp_ms=1000))
        await until(lambda: cluster.partition(1).high_watermark == 2)
        damaged = cluster.partition(1)
        broker = cluster.brokers[1]

        class CopiedAgain(TaskSupervisor):
            """What may happen while the retention check waits for its next turn."""

            async def sleep(self, duration_ms: int) -> None:
                if broker.table.find("t", 0) is damaged:
                    damaged.storage_failed(CorruptLogError(damaged.log.directory, 0, "planted"))
                    await until(
                        lambda: (new := broker.table.find("t", 0)) is not None and new.log.log_end_offset == 2
                    )

        broker.data.maintenance._tasks = CopiedAgain(unexpected)
        await broker.data.maintenance.delete_old_segments()
        log = cluster.partition(1).log
        assert log is not damaged.log
        names = cluster.brokers[1].disk.list(log.directory)
        assert [name for name in names if name.endswith(".log")] == [f"{0:020d}.log"]


def test_directories_are_set_aside_under_one_number_after_another() -> None:
    disk = MemoryDisk()
    for number in range(3):
        disk.make_dirs("/d/t-0")
        offline = OfflineLog(None, "/d", "/d/t-0", "damaged")
        set_aside(disk, offline)
        assert offline.directory == f"/d/t-0.{number:08d}-damaged" and offline.is_set_aside
    assert find_set_aside(disk, "/d")["t", 0].directory == "/d/t-0.00000002-damaged", "the newest"
