"""Logs in which Kafka's compaction has left gaps: accepted at the first start, filled, and damage afterwards.

Kafka replaces one group of segments after the other and stores the end of a round last, so gaps may be
anywhere in a log, whatever its checkpoints say.
"""

import random
from collections.abc import Sequence

import pytest

from pykraft.broker.config import CleanerConfig
from pykraft.broker.logs.log_cleaner import LogCleaner
from pykraft.broker.logs.log_manager import LogManager
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import TaskSupervisor, Workers
from tests.broker.crash import abandon
from tests.broker.data_cluster import DataCluster
from tests.broker.log_managers import started
from tests.unexpected import unexpected
from tests.waits import until

KEY = ("t", 0)
GAPS = "/d/gap-offset-checkpoint"
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0
)
SEGMENTS = ((0, 1, 3), (5,), (), (12, 14, 15), (16, 17))
"""The batches that Kafka left of segments that began at 0, 4, 8, 12 and 16."""
LEFT = [offset for segment in SEGMENTS for offset in segment]


def encoded(offset: int, epoch: int = 3, **producer: int) -> bytes:
    record = RecordInput(b"key-%d" % (offset % 5), b"%d" % offset, (), 1)
    return encode_batch([record], base_offset=offset, leader_epoch=epoch, **producer)  # type: ignore[arg-type]


def append(log: Log, offset: int) -> None:
    data = encoded(offset)
    log.append(data, [read_header(data)], now_ms=0)


def write_as_kafka(
    disk: MemoryDisk, *, recovery_point: int = 18, segments: Sequence[Sequence[int]] = SEGMENTS
) -> None:
    """A directory of Kafka: a cleaner that was stopped midway has stored nothing."""
    directory = "/d/t-0"
    disk.make_dirs(directory)
    disk.write_atomic(f"{directory}/partition.metadata", b"version: 0\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ")
    disk.write_atomic(f"{directory}/leader-epoch-checkpoint", b"0\n1\n3 0\n")
    for number, offsets in enumerate(segments):
        path = f"{directory}/{number * 4:020d}.log"
        disk.write_atomic(path, b"".join(map(encoded, offsets)))
    write_offset_checkpoint(disk, "/d/recovery-point-offset-checkpoint", {KEY: recovery_point})
    write_offset_checkpoint(disk, "/d/replication-offset-checkpoint", {KEY: 18})
    disk.write_atomic("/d/log-start-offset-checkpoint", b"0\n0\n")
    disk.write_atomic("/d/cleaner-offset-checkpoint", b"")


async def compact(logs: LogManager) -> None:
    cleaner = LogCleaner(
        logs,
        lambda opened: opened.log.log_end_offset,
        CleanerConfig,
        SystemClock(),
        Workers(),
        TaskSupervisor(unexpected),
    )
    while await cleaner.clean_dirtiest():
        pass


def offsets_in(logs: LogManager) -> list[int]:
    """Of the batches with records."""
    return [header.base_offset for header in logs.logs[KEY].log.iter_headers(0) if header.record_count]


def is_without_gap(log: Log) -> bool:
    headers = list(log.iter_headers(0))
    ends = [0, *(header.next_offset for header in headers)]
    return [header.base_offset for header in headers] == ends[:-1] and ends[-1] == log.log_end_offset


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 4, 5, 9, 18])
async def test_first_start_accepts_every_gap_and_drops_nothing(is_clean: bool, recovery_point: int) -> None:
    disk = MemoryDisk()
    write_as_kafka(disk, recovery_point=18 if is_clean else recovery_point)
    if is_clean:
        disk.write_atomic("/d/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":5}')
    logs = await started(disk, default_config=COMPACT)
    assert not logs.offline and offsets_in(logs) == LEFT
    assert logs.logs[KEY].log.segment_base_offsets == (0, 4, 8, 12, 16)
    assert read_offset_checkpoint(disk, GAPS) == {KEY: 18}
    abandon(logs)
    disk.crash(random.Random(1))
    again = await started(
        disk, default_config=LogConfig()
    )  # before the metadata tell that the topic is compacted
    assert not again.offline and offsets_in(again) == LEFT
    abandon(again)


async def test_a_replacement_that_kafka_did_not_finish_is_finished() -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    for name in (f"{0:020d}.log.swap", f"{12:020d}.log.cleaned", f"{8:020d}.index.deleted"):
        disk.write_atomic(f"/d/t-0/{name}", encoded(3) + encoded(5) if "swap" in name else b"")
    disk.remove(f"/d/t-0/{0:020d}.log")  # was renamed, and so removed by a start
    disk.remove(f"/d/t-0/{12:020d}.log.cleaned")
    logs = await started(disk, default_config=COMPACT)
    assert offsets_in(logs) == [3, 5, *LEFT[4:]]
    assert logs.logs[KEY].log.segment_base_offsets == (0, 8, 12, 16)
    names = disk.list("/d/t-0")
    assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]
    abandon(logs)


async def test_gap_above_what_was_there_at_the_first_start_is_damage() -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    logs = await started(disk, default_config=COMPACT)
    log = logs.logs[KEY].log
    for offset in range(18, 24):
        log.roll(0)
        append(log, offset)
    await logs.stop(1, {KEY: 24})
    disk.remove(f"/d/t-0/{20:020d}.log")
    again = await started(disk, default_config=COMPACT)
    assert list(again.offline) == [KEY]


async def test_a_round_fills_all_gaps_and_ends_the_tolerance() -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    logs = await started(disk, default_config=COMPACT)
    log = logs.logs[KEY].log
    await compact(logs)
    assert read_offset_checkpoint(disk, GAPS) == {KEY: 18}  # the newest segment may have gaps, too
    log.roll(0)
    append(log, 18)
    await compact(logs)
    assert read_offset_checkpoint(disk, GAPS) == {} and log.compacted_offset == 0
    assert is_without_gap(log)
    assert offsets_in(logs) == [3, 14, 15, 16, 17, 18]
    log.roll(0)
    append(log, 19)
    await logs.stop(1, {KEY: 20})
    disk.remove(f"/d/t-0/{18:020d}.log")
    again = await started(disk, default_config=COMPACT)
    assert list(again.offline) == [KEY]


async def test_a_truncation_lowers_how_far_gaps_are_accepted() -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    logs = await started(disk, default_config=COMPACT)
    logs.logs[KEY].log.truncate_to(15)
    assert read_offset_checkpoint(disk, GAPS) == {KEY: 15}
    await logs.delete([KEY])
    assert read_offset_checkpoint(disk, GAPS) == {}
    await logs.open_or_create([("t", 0, Uuid(b"b" * 16), COMPACT)])
    assert logs.logs[KEY].log.compacted_offset == 0
    await logs.stop(1, {})


async def test_a_log_created_here_has_no_gaps_to_accept() -> None:
    disk = MemoryDisk()
    logs = await started(disk, default_config=COMPACT)
    assert read_offset_checkpoint(disk, GAPS) == {} and disk.exists(GAPS)
    (opened,) = await logs.open_or_create([("t", 0, Uuid(b"a" * 16), COMPACT)])
    for offset in range(3):
        append(opened.log, offset)
        opened.log.roll(0)
    await logs.stop(1, {KEY: 3})
    disk.remove(f"/d/t-0/{1:020d}.log")
    again = await started(disk, default_config=COMPACT)
    assert list(again.offline) == [KEY]


@pytest.mark.parametrize("content", [b"rotten", b"0\n2\nt 0 1\n"])
async def test_unreadable_tolerance_costs_no_log(content: bytes) -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    disk.write_atomic(GAPS, content)
    logs = await started(disk, default_config=COMPACT)
    assert not logs.offline and offsets_in(logs) == LEFT
    assert read_offset_checkpoint(disk, GAPS) == {KEY: 18}
    abandon(logs)


async def test_producers_whose_batches_may_have_gone_are_not_expected_at_zero() -> None:
    disk = MemoryDisk()
    write_as_kafka(disk)
    logs = await started(disk, default_config=COMPACT)
    header = read_header(encoded(18, producer_id=7, producer_epoch=0, base_sequence=57))
    assert logs.logs[KEY].producers.check(header) is None
    abandon(logs)


async def test_followers_leave_no_gap(cluster: DataCluster) -> None:
    configs = {"cleanup.policy": "compact"}
    await cluster.create(1, configs=configs)
    leader = cluster.partition(1).log
    for offset in LEFT:
        if offset in (12, 16):
            leader.assign_epoch(1, offset - 1)
        data = encoded(offset, 0 if offset < 12 else 1)
        leader.append(data, [read_header(data)], now_ms=0)
    leader.compacted_offset = 18
    await cluster.start(2)
    cluster.controller.set_partition(PartitionRegistration((1, 2), (1,), 1, 1, 1), configs=configs)
    await until(lambda: cluster.brokers[2].table.find("t", 0))
    await until(lambda: cluster.partition(2).log.log_end_offset == 18)
    follower = cluster.partition(2).log
    assert is_without_gap(follower)
    found = [header.base_offset for header in follower.iter_headers(0) if header.record_count]
    assert found == LEFT
    await cluster.brokers[2].data.scrubber.scrub_all()
    await cluster.brokers[2].stop(clean=False)
    restarted = await cluster.start(2)
    assert not restarted.logs.offline
    client = await cluster.client(1)
    assert (await client.fetch(9)).error_code == ErrorCode.NONE
