"""AlterReplicaLogDirs: a log moves to another directory of its broker while it is in use.

It is long because each step of a move is met by everything that can happen to a log.
"""

import asyncio
import errno
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pykraft.broker.apis.cluster import alter_replica_log_dirs, describe_log_dirs
from pykraft.broker.logs.future_log import MAX_NAME_BYTES, FutureLog, future_name
from pykraft.broker.logs.log_loading import FUTURE_SUFFIX, OpenLog
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.placement.log_moves import RATE_CONFIG
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.markers import ABORT, EndOfTransaction, Marker
from pykraft.kafka_protocol.messages.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.log_store import checkpoint
from pykraft.log_store.epoch_cache import EpochEntry
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.records import ConfigResourceType
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.answers import as_read
from tests.broker.crash import EverythingIsLost
from tests.broker.damage import CLOSED, SEGMENTS, fill, flip, in_sync, missing, read_all, values
from tests.broker.data_cluster import DataBroker, DataCluster, directory_id, make_batch, running_cluster
from tests.broker.partitions import append
from tests.narrowing import present
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

DIRS = ("/d1", "/e1")
ONE_SEGMENT = f"{0:020d}"


async def alter(broker: DataBroker, path: str, topic: str = "t", index: int = 0) -> ErrorCode:
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])]
    )
    response = as_read(alter_replica_log_dirs.handle(broker.services, RequestContext(), request, 2), 2)
    (result,) = response.results
    assert result.topic_name == topic
    return ErrorCode(result.partitions[0].error_code)


async def described(broker: DataBroker) -> dict[str, list[DescribeLogDirsPartition]]:
    request = DescribeLogDirsRequest(topics=None)
    response = as_read(await describe_log_dirs.handle(broker.services, RequestContext(), request, 4), 4)
    return {result.log_dir: [p for t in result.topics for p in t.partitions] for result in response.results}


def limit(cluster: DataCluster, rate: int) -> None:
    cluster.controller.set_configs(int(ConfigResourceType.BROKER), "1", {RATE_CONFIG: str(rate)})


async def begin(cluster: DataCluster, *replicas: int, count: int = 12) -> DataBroker:
    """Broker 1 with ``t`` in the first of two directories, and ``count`` records in it."""
    broker = await cluster.start(1, log_dirs=DIRS)
    await cluster.create(*(replicas or (1,)), leader=1, configs=SEGMENTS)
    await fill(cluster, 1, count)
    await until(lambda: cluster.controller.partition().directory(1) == directory_id("/d1"))
    return broker


async def hold_back(cluster: DataCluster, broker: DataBroker) -> FutureLog:
    """A move to /e1 that has copied everything, and takes its place when ``promote`` is deleted again."""
    end_offset = cluster.partition(1).log.log_end_offset
    broker.logs.copies.promote = lambda future: None  # type: ignore[method-assign]
    await alter(broker, "/e1")
    await until(lambda: ("t", 0) in broker.logs.futures)
    future = broker.logs.futures["t", 0]
    await until(lambda: future.log.log_end_offset == end_offset)
    return future


class Deletion:
    """Notes the low watermark whenever it is woken after the move of the log."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._old = partition.log
        self.seen: list[int] = []

    def wake(self) -> None:
        if self._partition.log is not self._old:
            self.seen.append(self._partition.low_watermark(lambda _: True))


def is_moved(cluster: DataCluster, broker: DataBroker, path: str = "/e1") -> bool:
    opened = broker.logs.logs.get(("t", 0))
    return opened is not None and opened.log_dir == path and not broker.logs.wanted_dirs


def directories_of(disk: MemoryDisk) -> list[str]:
    return [f"{path}/{name}" for path in DIRS for name in disk.list(path) if name.startswith("t-")]


@pytest.mark.world(brokers=(2,))
async def test_a_log_moves_while_it_is_written_and_read(cluster: DataCluster) -> None:
    broker = await begin(cluster, 1, 2)
    disk, written = cluster.disk(1), values(12)
    stop = asyncio.Event()

    async def write() -> None:
        client = await cluster.client(1)
        while not stop.is_set():
            value = b"%d" % len(written)
            result = await client.produce(make_batch(value))
            assert result.error_code == ErrorCode.NONE
            written.append(value)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        assert await alter(broker, "/e1") is ErrorCode.NONE
        await until(lambda: is_moved(cluster, broker))
        count = len(written)
        await until(lambda: len(written) > count + 10)
        stop.set()
    assert cluster.controller.partition().directory(1) == directory_id("/e1")
    assert cluster.controller.partition().leader == 1
    await until(lambda: directories_of(disk) == ["/e1/t-0"])
    assert await read_all(cluster, 1) == written
    await broker.stop()
    again = await cluster.start(1, log_dirs=DIRS)
    await until(lambda: in_sync(cluster, 1, len(written)))
    assert again.logs.logs["t", 0].log_dir == "/e1"
    assert again.logs.logs["t", 0].log.recovery_report.scanned_batches == 0
    cluster.controller.elect(1, (1, 2))
    await until(lambda: cluster.partition(1).high_watermark == len(written))
    assert await read_all(cluster, 1) == written


async def test_the_log_is_replaced_only_after_the_controller_knows(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    cluster.controller.silent = True
    assert await alter(broker, "/e1") is ErrorCode.NONE
    await until(lambda: ("t", 0) in broker.logs.futures)
    future = broker.logs.futures["t", 0]
    await until(lambda: future.lag == 0 and future.is_announced)
    for _ in range(50):
        await asyncio.sleep(0.002)
    assert broker.logs.logs["t", 0].log_dir == "/d1", "the controller has not answered"
    cluster.controller.silent = False
    await until(lambda: is_moved(cluster, broker))
    assert cluster.controller.partition().directory(1) == directory_id("/e1")


async def test_the_log_is_replaced_only_by_a_copy_with_all_that_was_appended_meanwhile() -> None:
    async with running_cluster(()) as cluster:
        broker = await begin(cluster)
        partition, moves = cluster.partition(1), broker.data.moves
        is_recorded, more = moves._is_recorded, [values(12)]

        def grow_when_recorded(key: TopicPartition, future: FutureLog) -> bool:
            """In two segments: more than the turn of the swap copies."""
            is_known = is_recorded(key, future)
            if is_known and more:
                for number, value in enumerate(more.pop()):
                    if number == 6:
                        partition.log.roll(0)
                    append(partition, value)
            return is_known

        moves._is_recorded = grow_when_recorded  # type: ignore[method-assign]
        assert await alter(broker, "/e1") is ErrorCode.NONE
        await until(lambda: is_moved(cluster, broker))
        assert not more
        assert await read_all(cluster, 1) == 2 * values(12)


async def test_a_move_is_shown_limited_and_cancelled(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    limit(cluster, 1)
    assert await alter(broker, "/e1") is ErrorCode.NONE
    assert await alter(broker, "/e1") is ErrorCode.NONE, "asked for again"
    await until(lambda: ("t", 0) in broker.logs.futures)
    future = broker.logs.futures["t", 0]
    await until(lambda: future.log.log_end_offset > 0)
    assert future.lag > 0, "the limit holds"
    shown = await described(broker)
    assert [(p.is_future_key, p.offset_lag) for p in shown["/d1"]] == [(False, 0)]
    assert [(p.is_future_key, p.offset_lag) for p in shown["/e1"]] == [(True, future.lag)]
    assert await alter(broker, "/d1") is ErrorCode.NONE
    limit(cluster, 1 << 30)
    assert broker.logs.futures == {} and broker.logs.wanted_dirs == {}
    await broker.stop()
    broker = await cluster.reopen(1, log_dirs=DIRS)
    assert await read_all(cluster, 1) == values(12)


async def test_moves_that_wait_for_their_turn_are_shown(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    await cluster.create(1, topic="u")
    await until(lambda: ("u", 0) in broker.logs.logs)
    await fill(cluster, 1, 3, "u")
    limit(cluster, 1)
    source = broker.logs.logs["u", 0].log_dir
    target = "/e1" if source == "/d1" else "/d1"
    await alter(broker, target, "u")
    shown = await described(broker)
    assert [(p.is_future_key, p.offset_lag, p.partition_size) for p in shown[target]][-1] == (
        True,
        3,
        0,
    )
    await until(lambda: ("u", 0) in broker.logs.futures)
    await alter(broker, source, "u")
    shown = await described(broker)
    assert not any(p.is_future_key for path in DIRS for p in shown[path])


async def test_a_cancelled_move_that_the_controller_knew_is_taken_back(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    broker.logs.copies.promote = lambda future: None  # type: ignore[method-assign]
    await alter(broker, "/e1")
    await until(lambda: cluster.controller.partition().directory(1) == directory_id("/e1"))
    await alter(broker, "/d1")
    await until(lambda: cluster.controller.partition().directory(1) == directory_id("/d1"))
    del broker.logs.copies.promote
    await until(lambda: directories_of(cluster.disk(1)) == ["/d1/t-0"])
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker))
    assert await read_all(cluster, 1) == values(12)


@pytest.mark.world(brokers=(2,))
async def test_truncation_and_retention_during_a_move_reach_the_copy(cluster: DataCluster) -> None:
    broker = await begin(cluster, 1, 2)
    await hold_back(cluster, broker)
    cluster.partition(2).truncate_to(7)
    cluster.controller.elect(2, (2,))
    partition = cluster.partition(1)
    partition.log.advance_log_start(4)
    client = await cluster.client(2)
    for number in range(5):
        await client.produce(make_batch(b"new-%d" % number), acks=1)
    await until(
        lambda: partition.log.end_offset_for_epoch(1).end_offset == 12 and partition.log.latest_epoch == 1
    )
    del broker.logs.copies.promote
    await until(lambda: is_moved(cluster, broker))
    moved, old = broker.logs.logs["t", 0].log, cluster.partition(2).log
    assert (moved.log_start_offset, moved.log_end_offset) == (4, 12)
    assert moved.epoch_cache.entries == partition.log.epoch_cache.entries
    assert list(moved.iter_batches(4)) == list(old.iter_batches(4))


async def test_a_log_whose_records_were_all_deleted_meanwhile_moves(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    limit(cluster, 1)
    await alter(broker, "/e1")
    await until(lambda: ("t", 0) in broker.logs.futures)
    cluster.partition(1).log.advance_log_start(12)
    limit(cluster, 1 << 30)
    await until(lambda: is_moved(cluster, broker))
    log = broker.logs.logs["t", 0].log
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)


async def test_a_deletion_of_records_waits_until_the_moved_log_has_stored_its_start(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    cluster.controller.silent = True
    await alter(broker, "/e1")
    await until(lambda: ("t", 0) in broker.logs.futures)
    future = broker.logs.futures["t", 0]
    await until(lambda: future.lag == 0 and future.is_announced)
    partition = cluster.partition(1)
    partition.delete_records(4)
    await until(lambda: partition.log.stored_log_start_offset == 4)
    waiting = Deletion(partition)
    partition.log_start_waiters[waiting] = None
    cluster.controller.silent = False
    await until(lambda: is_moved(cluster, broker))
    await until(lambda: partition.low_watermark(lambda _: True) == 4)
    await until(lambda: waiting.seen, 2)
    assert set(waiting.seen) == {4}, "what was deleted stays so, whatever becomes of the move"


async def test_a_deleted_topic_leaves_no_copy(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    limit(cluster, 100)
    await alter(broker, "/e1")
    await until(lambda: ("t", 0) in broker.logs.futures)
    cluster.controller.delete_topic("t")
    limit(cluster, 1 << 30)
    await until(lambda: directories_of(cluster.disk(1)) == [])
    assert broker.logs.futures == {} and broker.logs.wanted_dirs == {}


@pytest.mark.parametrize("operation", ["append", "flush", "rename", "make_dirs"])
async def test_a_target_that_fails_costs_the_move_and_not_the_log(
    cluster: DataCluster, operation: str
) -> None:
    broker = await begin(cluster)
    cluster.disk(1).inject(operation, errno.EIO, path_part="/e1/t-0")
    await alter(broker, "/e1")
    await until(lambda: broker.logs.dirs.offline.keys() == {"/e1"})
    await until(lambda: not broker.logs.wanted_dirs and not broker.logs.futures)
    assert broker.faults == []
    assert await read_all(cluster, 1) == values(12)
    await until(lambda: cluster.controller.partition().directory(1) == directory_id("/d1"))
    assert await alter(broker, "/e1") is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.world(brokers=(2,))
async def test_damage_is_not_copied(cluster: DataCluster) -> None:
    """The log is copied again from the leader, as after any damage, and the move ends."""
    broker = await begin(cluster, 1, 2)
    cluster.controller.elect(2, (1, 2))
    await until(lambda: cluster.partition(2).is_leader)
    flip(100)(cluster.disk(1), f"/d1/t-0/{ONE_SEGMENT}.log")
    await alter(broker, "/e1")
    await until(lambda: cluster.controller.lost == [(1, "t")])
    await until(lambda: in_sync(cluster, 1, 12))
    assert broker.logs.futures == {}


async def test_directories_of_replicas_that_may_come_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alter_replica_log_dirs, "MOST_REMEMBERED", 2)
    async with running_cluster(()) as cluster:
        broker = await begin(cluster)
        for topic in ("a", "b", "c"):
            assert await alter(broker, "/d1", topic) is ErrorCode.REPLICA_NOT_AVAILABLE
        assert broker.logs.wanted_dirs == {("a", 0): "/d1", ("b", 0): "/d1"}
        assert await alter(broker, "/e1", "a") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert broker.logs.wanted_dirs["a", 0] == "/e1", "the newest is that of one that is remembered"
        await cluster.create(1, topic="a")
        assert await alter(broker, "/d1", "c") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert broker.logs.wanted_dirs == {("b", 0): "/d1", ("c", 0): "/d1"}, "there is room again"
        assert await alter(broker, "/e1") is ErrorCode.NONE, "a replica that is there moves all the same"


@pytest.mark.parametrize("size", [MAX_NAME_BYTES, MAX_NAME_BYTES + 1])
async def test_log_moves_if_the_name_of_its_copy_is_not_too_long(cluster: DataCluster, size: int) -> None:
    broker = await begin(cluster)
    name = "x" * (size - len(future_name("", 0, "0" * 32)))
    refused = size > MAX_NAME_BYTES
    expected = ErrorCode.INVALID_TOPIC_EXCEPTION if refused else ErrorCode.REPLICA_NOT_AVAILABLE
    assert await alter(broker, "/e1", topic=name) is expected


async def test_wrong_requests_are_answered_with_kafkas_errors(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    assert await alter(broker, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await alter(broker, "/e1", topic="x" * 220) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await alter(broker, "/d1") is ErrorCode.NONE, "it is there"
    assert await alter(broker, "/d1", topic="later") is ErrorCode.REPLICA_NOT_AVAILABLE
    await cluster.create(1, topic="later")
    assert broker.logs.logs["later", 0].log_dir == "/d1", "as requested, and not the emptiest"
    assert broker.logs.wanted_dirs == {}


class DyingDisk(MemoryDisk):
    """From one of its changes on, every operation fails: the process is as good as dead."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = -1
        self.is_dead = False

    def is_broken(self, path: str) -> bool:
        return self.is_dead or super().is_broken(path)

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        if self.calls_left >= 0 and operation not in ("read", "list", "open", "usage"):
            self.calls_left -= 1
            self.is_dead = self.is_dead or self.calls_left < 0
        if self.is_dead:
            return errno.EIO
        return super().enter(operation, path, target)


@pytest.mark.parametrize("seed", range(24))
async def test_after_a_crash_at_any_point_the_log_is_whole_in_one_directory(seed: int) -> None:
    rng = random.Random(f"move {seed}")
    disk = DyingDisk()
    async with running_cluster((), disks={1: disk}) as cluster:
        controller = cluster.controller
        broker = await begin(cluster, count=rng.choice((3, 7, 12)))
        written = await read_all(cluster, 1)
        await broker.logs.flush(("t", 0))
        await broker.data.maintenance._checkpoint()
        disk.calls_left = seed + rng.randrange(2)
        await alter(broker, "/e1")
        await until(lambda: disk.is_dead or is_moved(cluster, broker))
        await until(lambda: disk.is_dead or directories_of(disk) == ["/e1/t-0"])
        controller.silent, disk.is_dead = True, True
        await broker.stop(clean=False)
        broker.faults.clear()
        disk.is_dead, disk.calls_left = False, -1
        if rng.random() < 0.5:
            disk.crash(rng)
        controller.silent = False
        known = controller.partition().directory(1)
        again = await cluster.reopen(1, log_dirs=DIRS)
        assert controller.lost == [], "no record had to come from elsewhere"
        assert await read_all(cluster, 1) == written
        await until(lambda: not again.logs.wanted_dirs and not again.logs.futures)
        await until(lambda: len([d for d in directories_of(disk) if d.endswith("t-0")]) == 1)
        assert await read_all(cluster, 1) == written
        here = directory_id(again.logs.logs["t", 0].log_dir)
        await until(lambda: controller.partition().directory(1) == here)
        assert known in (directory_id("/d1"), directory_id("/e1"))
        client = await cluster.client(1)
        result = await client.produce(make_batch(b"next"))
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, len(written))


async def die_when_swapped(cluster: DataCluster, broker: DataBroker) -> None:
    """Move ``t`` to /e1, and end the process when the copy's new name has just become durable."""
    is_swapped = asyncio.Event()

    async def die(old: OpenLog, new: OpenLog) -> None:
        cluster.disk(1).flush_dir(new.log_dir)
        is_swapped.set()
        await asyncio.Event().wait()

    broker.logs.copies.delete_moved = die  # type: ignore[method-assign]
    await alter(broker, "/e1")
    await is_swapped.wait()
    await broker.stop(clean=False)


async def test_copy_is_as_durable_as_the_log_whose_place_it_takes(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    await broker.logs.flush(("t", 0))
    await die_when_swapped(cluster, broker)
    cluster.disk(1).crash(EverythingIsLost())
    again = await cluster.reopen(1, log_dirs=DIRS)
    assert again.logs.logs["t", 0].log_dir == "/e1"
    assert await read_all(cluster, 1) == values(12)


async def test_a_log_that_begins_within_a_batch_moves(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    client = await cluster.client(1)
    assert (await client.produce(make_batch(b"a", b"b", b"c"))).base_offset == 12
    log = cluster.partition(1).log
    log.advance_log_start(13)
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker))
    moved = broker.logs.logs["t", 0].log
    assert (moved.log_start_offset, moved.log_end_offset) == (13, 15)


def append_with_gaps(log: Log, offsets: Sequence[int], epoch: int) -> None:
    for offset in offsets:
        data = encode_batch([RecordInput(b"k", b"v", (), 1)], base_offset=offset, leader_epoch=epoch)
        log.append(data, [read_header(data)], now_ms=0)


async def test_a_log_from_kafka_moves_without_its_gaps(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    log = cluster.partition(1).log
    cluster.controller.elect(1, (1,))
    await until(lambda: log.latest_epoch == 1)
    log.adopt_epochs((EpochEntry(0, 0), EpochEntry(1, 13)))
    append_with_gaps(log, (14, 15, 18), 1)
    log.compacted_offset = 19
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker))
    moved = broker.logs.logs["t", 0].log
    assert moved.compacted_offset == 0
    tail = [(it.base_offset, it.partition_leader_epoch) for it in moved.iter_headers(12)]
    assert tail == [(12, 0), (13, 1), (14, 1), (15, 1), (16, 1), (18, 1)]
    await broker.data.scrubber.scrub_all()
    assert not broker.logs.offline


async def test_a_gap_that_nobody_accepted_is_not_hidden_by_a_move(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    append_with_gaps(cluster.partition(1).log, (12, 14), 0)
    await alter(broker, "/e1")
    await until(lambda: cluster.controller.lost == [(1, "t")])


async def test_a_move_takes_nothing_from_an_earlier_log_of_the_directory(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    stored = broker.logs.checkpoints.files["/e1"]._stored
    stored[checkpoint.CLEANER_OFFSET_CHECKPOINT]["t", 0] = 9
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker))
    await until(lambda: directories_of(cluster.disk(1)) == ["/e1/t-0"])
    assert broker.logs.checkpoints.cleaned_offset(broker.logs.logs["t", 0]) is None


async def test_a_log_is_not_replaced_while_appends_wait_for_its_flush(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    future, log = await hold_back(cluster, broker), cluster.partition(1).log
    log.flush()
    future.log.flush()
    await until(lambda: not future.lacks_producers)
    log.config = replace(log.config, flush_messages=1)
    append_with_gaps(log, (12,), 0)
    piece = present(future.next_piece(1 << 20))
    future.append(piece, piece.file.pread(piece.position, piece.size_bytes), 0)
    del broker.logs.copies.promote
    assert future.holds_everything() and broker.logs.copies.promote(future) is None
    await until(lambda: log.recovery_point == 13)
    await until(lambda: is_moved(cluster, broker))


async def test_a_stored_log_start_outlives_a_crash_after_the_move(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    await hold_back(cluster, broker)
    cluster.partition(1).log.advance_log_start(7)
    await broker.logs.checkpoints.store_log_starts([("t", 0)])
    assert cluster.partition(1).log.stored_log_start_offset == 7
    await broker.logs.flush(("t", 0))
    disk, is_swapped = cluster.disk(1), asyncio.Event()

    async def die(old: OpenLog, new: OpenLog) -> None:
        disk.flush_dir(new.log_dir)
        is_swapped.set()
        await asyncio.Event().wait()

    broker.logs.copies.delete_moved = die  # type: ignore[method-assign]
    del broker.logs.copies.promote
    await is_swapped.wait()
    assert sorted(directories_of(disk)) == ["/d1/t-0", "/e1/t-0"]
    await broker.stop(clean=False)
    disk.crash(random.Random(1))
    again = await cluster.reopen(1, log_dirs=DIRS)
    assert again.logs.logs["t", 0].log.log_start_offset == 7


@pytest.mark.parametrize("log_start", [0, 4])
async def test_an_index_that_a_move_finds_bad_is_built_again(cluster: DataCluster, log_start: int) -> None:
    broker = await begin(cluster)
    log = cluster.partition(1).log
    missing(cluster.disk(1), f"/d1/t-0/{CLOSED}.index")
    log.advance_log_start(log_start)
    for segment in log._segments[:-1]:
        segment.close()
        segment.positions.clear()
        segment._indexes_checked = False
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker))
    assert broker.faults == []
    moved = broker.logs.logs["t", 0].log
    assert (moved.log_start_offset, moved.log_end_offset) == (log_start, 12)


@pytest.mark.parametrize("when", ["creation", "growth"])
async def test_a_full_directory_ends_a_move_to_it_and_nothing_else(cluster: DataCluster, when: str) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    name = "partition.metadata" if when == "creation" else f"{ONE_SEGMENT}.log"
    disk.inject("append", errno.ENOSPC, path_part=f"{FUTURE_SUFFIX}/{name}")
    assert await alter(broker, "/e1") is ErrorCode.NONE
    await until(lambda: not broker.logs.wanted_dirs and not broker.logs.futures)
    await until(lambda: directories_of(disk) == ["/d1/t-0"])
    assert broker.logs.dirs.online == list(DIRS)
    assert await read_all(cluster, 1) == values(12)
    assert await alter(broker, "/e1") is ErrorCode.NONE, "there is room again"
    await until(lambda: is_moved(cluster, broker))
    assert await read_all(cluster, 1) == values(12)


async def test_a_log_start_is_as_durable_after_a_move_as_it_was_before(cluster: DataCluster) -> None:
    broker = await begin(cluster)
    stored: list[tuple[int, int]] = []
    cluster.partition(1).log.advance_log_start(6)
    await hold_back(cluster, broker)
    assert broker.logs.futures["t", 0].log.segment_base_offsets[0] == 6

    async def look(old: OpenLog, new: OpenLog) -> None:
        stored.append((new.log.log_start_offset, new.log.stored_log_start_offset))

    broker.logs.copies.delete_moved = look  # type: ignore[method-assign]
    del broker.logs.copies.promote
    await until(lambda: stored)
    assert stored == [(6, 0)], "no file says so yet"


async def test_the_old_log_stays_if_the_new_directory_fails_before_it_knows_the_log_start(
    cluster: DataCluster,
) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    await hold_back(cluster, broker)
    cluster.partition(1).log.advance_log_start(2)
    await broker.logs.checkpoints.store_log_starts([("t", 0)])
    disk.inject("write_atomic", errno.EIO, path_part="/e1/log-start-offset-checkpoint")
    del broker.logs.copies.promote
    await until(lambda: not broker.logs.dirs.is_online("/e1"))
    await until(lambda: ("t", 0) in broker.logs.unavailable)
    await until(lambda: not broker.data.moves._slots["/e1"].locked())
    await broker.stop(clean=False)
    disk.crash(random.Random(1))
    again = await cluster.reopen(1, log_dirs=DIRS)
    log = again.logs.logs["t", 0].log
    assert (log.log_start_offset, log.log_end_offset) == (2, 12)


async def test_copy_that_is_flushed_less_far_than_its_log_does_not_hold_everything(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    await hold_back(cluster, broker)
    await broker.logs.flush(("t", 0))
    future = broker.logs.futures["t", 0]
    await until(lambda: not future.lacks_producers)
    for flushed, holds in ((11, False), (12, True)):
        future.log.recovery_point = flushed
        assert future.holds_everything() is holds


async def produced_again(cluster: DataCluster) -> tuple[ErrorCode, int]:
    """A producer's only batch, which is at offset 12 if it is written once."""
    client = await cluster.client(1)
    result = await client.produce(make_batch(b"once", producer_id=7, producer_epoch=0, base_sequence=0))
    return ErrorCode(result.error_code), result.base_offset


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ends_transaction", [False, True])
async def test_producer_whose_batches_are_deleted_is_known_after_a_power_loss_right_after_the_move(
    cluster: DataCluster, seed: int, ends_transaction: bool
) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    assert await produced_again(cluster) == (ErrorCode.NONE, 12)
    partition = cluster.partition(1)
    partition.log.roll(0)
    append(partition, producer_id=8, producer_epoch=0, base_sequence=0)
    if ends_transaction:
        partition.end_transaction(EndOfTransaction(9, 0, Marker(ABORT, 0), 1), 5000)
    partition.log.advance_log_start(13)
    await broker.logs.flush(("t", 0))
    broker.logs.producers.write_soon = lambda: None  # type: ignore[method-assign]
    await die_when_swapped(cluster, broker)
    disk.crash(random.Random(seed))
    again = await cluster.reopen(1, log_dirs=DIRS)
    moved = again.logs.logs["t", 0]
    assert moved.log_dir == "/e1" and moved.log.segment_base_offsets[0] == 13
    end_offset = cluster.partition(1).log.log_end_offset
    assert await produced_again(cluster) == (ErrorCode.NONE, 12)
    assert cluster.partition(1).log.log_end_offset == end_offset
