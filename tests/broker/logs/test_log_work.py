"""An error that nobody has foreseen in the background work on one log costs that work, never the broker; an
error of the disk costs the log's directory, as everywhere.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pykraft.broker.logs import deleted_files, index_rebuilds
from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.log_copies import LogCopies
from pykraft.broker.logs.log_work import LogWork
from pykraft.broker.logs.producers import jobs as producer_jobs
from pykraft.broker.logs.producers.snapshots import SnapshotWriter
from pykraft.compiled import form
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.log_store import checkpoint
from pykraft.log_store.compaction.cleaning import CleaningRound
from pykraft.log_store.flush import FlushJob
from pykraft.log_store.index_build import IndexBuild
from pykraft.log_store.log.log import Log
from pykraft.log_store.producer_snapshot import list_snapshots
from pykraft.log_store.scrub import Scrub
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from tests.broker.answers import refused
from tests.broker.damage import CLOSED, flip
from tests.broker.data_cluster import DataBroker, DataCluster, make_batch, running_cluster
from tests.broker.logs.test_bad_indexes import release
from tests.broker.logs.test_failed_directories import DIRS
from tests.broker.logs.test_log_moves import alter
from tests.narrowing import as_type
from tests.stand_ins import stand_in
from tests.unexpected import unexpected
from tests.waits import until

CONFIGS = {
    "internal.segment.bytes": "400",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}
COMPACTED = {**CONFIGS, "cleanup.policy": "compact"}
FIRST_MS = 1_700_000_000_000
DELETED = {**CONFIGS, "retention.bytes": "300"}


class Mistake(Exception):
    """What nobody has foreseen."""


@dataclass
class Bug:
    """An error in a method, wherever an argument belongs to the log of ``t``; ``met``: how often."""

    error: Exception
    met: int = 0
    is_mended: bool = False

    def plant(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def broken(*args: Any, **named: Any) -> Any:
            if not self.is_mended and any(_is_of_t(argument) for argument in args):
                self.met += 1
                raise self.error
            return method(*args, **named)

        monkeypatch.setattr(owner, name, broken)

    def expect_met(self) -> None:
        if not self.met and form() == "compiled":
            pytest.skip("compiled code calls it without looking it up")
        assert self.met > 0


def _is_of_t(argument: object) -> bool:
    """Whether it is the log of ``t``, a part of it, or something made for it."""
    if isinstance(argument, Log):
        return argument.name == "t-0"
    for name in ("source", "log", "_log", "segment"):
        part = getattr(argument, name, None)
        if part is not None:
            return _is_of_t(part)
    paths = [getattr(argument, name, "") for name in ("directory", "_directory", "path", "_path")]
    return any(f"{path}/".find("/t-0/") >= 0 for path in paths) or argument == {("t", 0): 0}


async def fill_both(cluster: DataCluster, configs: dict[str, str], count: int = 12) -> DataBroker:
    """``t`` and ``u`` with the same records, in directories of their own."""
    broker = await cluster.start(1, log_dirs=DIRS)
    for topic in ("t", "u"):
        await cluster.create(1, topic=topic, configs=configs)
        await produce(cluster, topic, count)
    assert [broker.logs.logs[topic, 0].log_dir for topic in ("t", "u")] == list(DIRS)
    return broker


async def produce(cluster: DataCluster, topic: str, count: int = 1) -> None:
    client = await cluster.client(1)
    entry = cluster.partition(1, topic).producers.entry(7)
    first = 0 if entry is None else entry.batches[-1].last_sequence + 1
    for number in range(first, first + count):
        record = RecordInput(b"%d" % (number % 2), b"v" * 50, (), FIRST_MS + number)
        batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=number)
        assert (await client.produce(batch, topic=topic)).error_code == ErrorCode.NONE
    client.close()


async def compact(broker: DataBroker) -> None:
    while await broker.data.cleaner.clean_dirtiest():
        pass


async def scrub(broker: DataBroker) -> None:
    broker.data.scrubber._bytes_per_second = 1 << 30
    await broker.data.scrubber.scrub_all()


async def retire(broker: DataBroker) -> None:
    await broker.data.maintenance.delete_old_segments()


async def flush(broker: DataBroker) -> None:
    await broker.data.maintenance._checkpoint()


async def write_snapshots(broker: DataBroker) -> None:
    for opened in broker.logs.logs.values():
        opened.log.roll(0)
    await until(lambda: not broker.logs.producers._due)
    await broker.logs.producers.stop()


def is_compacted(broker: DataBroker, topic: str) -> bool:
    opened = broker.logs.logs.get((topic, 0))
    return opened is not None and (broker.logs.checkpoints.cleaned_offset(opened) or 0) > 0


def is_retired(broker: DataBroker, topic: str) -> bool:
    opened = broker.logs.logs.get((topic, 0))
    return opened is not None and len(opened.log.segment_base_offsets) < 4


def is_flushed(broker: DataBroker, topic: str) -> bool:
    opened = broker.logs.logs.get((topic, 0))
    return opened is not None and opened.log.recovery_point == opened.log.log_end_offset


def has_snapshot(broker: DataBroker, topic: str) -> bool:
    opened = broker.logs.logs.get((topic, 0))
    return opened is not None and 12 in list_snapshots(broker.disk, opened.log.directory)


def is_scrubbed(broker: DataBroker, topic: str) -> bool:
    """Told by the damage that is found."""
    return (topic, 0) in broker.logs.offline


Run = Callable[[DataBroker], Awaitable[None]]
IsDone = Callable[[DataBroker, str], bool]

WORKS: list[tuple[str, Any, str, dict[str, str], Run, IsDone]] = [
    ("compaction", CleaningRound, "steps", COMPACTED, compact, is_compacted),
    ("compaction", CleaningRound, "discard", COMPACTED, compact, is_compacted),
    ("compaction", Log, "find_cleanable", COMPACTED, compact, is_compacted),
    ("compaction", Log, "begin_cleaning", COMPACTED, compact, is_compacted),
    ("compaction", Log, "replace_segments", COMPACTED, compact, is_compacted),
    ("scrub", Log, "scrub_segment", COMPACTED, scrub, is_scrubbed),
    ("scrub", Scrub, "step", COMPACTED, scrub, is_scrubbed),
    ("retention", Log, "retire_old_segments", DELETED, retire, is_retired),
    ("retention", Log, "delete_retired_segments", DELETED, retire, is_retired),
    ("retention", SnapshotWriter, "remove_unneeded", DELETED, retire, is_retired),
    ("flush", Log, "prepare_flush", COMPACTED, flush, is_flushed),
    ("flush", FlushJob, "run", COMPACTED, flush, is_flushed),
    ("producer snapshot", SnapshotWriter, "write", DELETED, write_snapshots, has_snapshot),
]


@pytest.mark.parametrize(("work", "owner", "name", "configs", "run", "is_done"), WORKS)
async def test_mistake_in_the_work_on_one_log_costs_that_work(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    work: str,
    owner: Any,
    name: str,
    configs: dict[str, str],
    run: Run,
    is_done: IsDone,
) -> None:
    with caplog.at_level(logging.ERROR):
        async with running_cluster(()) as cluster:
            broker = await fill_both(cluster, configs)
            if is_done is is_scrubbed:
                flip(100)(cluster.disk(1), f"/e1/u-0/{CLOSED}.log")
            bug = Bug(Mistake("overflow"))
            bug.plant(monkeypatch, owner, name)
            await run(broker)
            await run(broker)
            bug.expect_met()
            assert is_done(broker, "u")
            assert broker.logs.work.failures == {work: bug.met}
            assert f"t-0: {work} has failed and is left undone: Mistake('overflow')" in caplog.text
            assert "in broken" in caplog.text  # the traceback
            assert ("t", 0) in broker.logs.logs and not broker.faults
            await produce(cluster, "t")
            if work == "compaction":  # once: until the next start
                assert bug.met == 1 and broker.data.cleaner.uncleanable("/d1") == 1
                assert broker.data.cleaner.uncleanable("/e1") == 0
            elif name != "delete_retired_segments":
                bug.is_mended = True
                if is_done is is_scrubbed:
                    flip(100)(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
                await run(broker)
                assert is_done(broker, "t") or work == "producer snapshot"


@pytest.mark.parametrize(("work", "owner", "name", "configs", "run", "is_done"), WORKS)
async def test_error_of_the_disk_in_the_same_work_costs_the_directory(
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    owner: Any,
    name: str,
    configs: dict[str, str],
    run: Run,
    is_done: IsDone,
) -> None:
    if (owner, name) == (CleaningRound, "steps"):
        pytest.skip("what a round cannot read or write of its own files ends that round")
    async with running_cluster(()) as cluster:
        broker = await fill_both(cluster, configs)
        bug = Bug(OSError(errno.EROFS, "read-only"))
        bug.plant(monkeypatch, owner, name)
        await run(broker)
        await run(broker)
        if is_done is is_scrubbed:
            return
        bug.expect_met()
        await until(lambda: ("t", 0) in broker.logs.unavailable)
        assert set(broker.logs.dirs.offline) == {"/d1"} and is_done(broker, "u")
        assert not broker.logs.work.failures


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize(("work", "owner", "name", "configs", "run", "is_done"), WORKS)
async def test_want_of_the_process_costs_that_work_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    owner: Any,
    name: str,
    configs: dict[str, str],
    run: Run,
    is_done: IsDone,
    number: int,
) -> None:
    is_final = name in ("replace_segments", "discard", "delete_retired_segments")
    if is_final or (work, number) == ("flush", errno.ENOMEM):
        pytest.skip("it opens no file; what was begun, and may be half done, is final")
    async with running_cluster(()) as cluster:
        broker = await fill_both(cluster, configs)
        bug = Bug(OSError(number, "wanting"))
        bug.plant(monkeypatch, owner, name)
        await run(broker)
        bug.expect_met()
        assert broker.logs.work.failures == {work: bug.met}
        assert not broker.faults and not broker.logs.dirs.offline and not broker.logs.offline
        bug.is_mended = True
        await produce(cluster, "t")
        if work == "compaction":
            assert broker.data.cleaner.uncleanable("/d1") == 1
            broker.data.cleaner._clock = stand_in(SystemClock, monotonic_ms=lambda _: 1 << 50)
        if is_done is is_scrubbed:
            flip(100)(cluster.disk(1), f"/d1/t-0/{CLOSED}.log")
        await run(broker)
        assert is_done(broker, "t") or work == "producer snapshot"
        assert broker.logs.work.failures == {work: bug.met}


@pytest.mark.world(brokers=())
async def test_move_for_which_the_process_lacks_descriptors_ends_without_effect(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await fill_both(cluster, CONFIGS)
    for owner, name in ((FutureLog, "create"), (FutureLog, "append"), (FutureLog, "next_piece")):
        with monkeypatch.context() as patched:
            bug = Bug(OSError(errno.EMFILE, "wanting"))
            bug.plant(patched, owner, name)
            await alter(broker, "/e1")
            await until(lambda: not broker.logs.wanted_dirs)
        assert bug.met == 1 and not broker.faults and not broker.logs.dirs.offline
        await until(lambda: not [at for at in cluster.disk(1).list("/e1") if at.startswith("t-0")])
    await alter(broker, "/e1")
    await until(lambda: broker.logs.logs["t", 0].log_dir == "/e1")


async def test_deleted_file_that_the_process_cannot_remove_now_is_removed_later(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, disk = cluster.brokers[1], cluster.disk(1)
    monkeypatch.setattr(deleted_files, "RETRY_MS", 1)
    disk.write_atomic("/d1/old", b"")
    disk.inject("remove", errno.ENOMEM, path_part="/d1/old")
    broker.logs.remove_later(["/d1/old"], 0)
    await until(lambda: not disk.exists("/d1/old"))
    assert broker.logs.work.failures == {"removal": 1} and not broker.faults


async def test_checkpoint_that_cannot_be_written_by_mistake_is_written_the_next_time(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1)
    await produce(cluster, "t", 3)
    broker = cluster.brokers[1]
    maintenance, failures = broker.data.maintenance, broker.logs.work.failures

    def broken(disk: MemoryDisk, path: str, data: bytes) -> None:
        raise Mistake

    with monkeypatch.context() as patched:
        patched.setattr(MemoryDisk, "write_atomic", broken)
        await maintenance._checkpoint_high_watermarks()
        await maintenance._checkpoint()
        cluster.partition(1).delete_records(2)
        await until(lambda: failures["checkpoint"] == 3)
    await maintenance._checkpoint()
    path = f"/d1/{checkpoint.REPLICATION_OFFSET_CHECKPOINT}"
    assert checkpoint.read_offset_checkpoint(broker.disk, path) == {("t", 0): 3}
    assert cluster.partition(1).log.stored_log_start_offset == 2


async def test_appends_that_wait_for_a_flush_are_acknowledged_by_the_next_one(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1, configs={"flush.messages": "1"})
    bug = Bug(Mistake())
    bug.plant(monkeypatch, FlushJob, "run")
    first, second = await cluster.client(1), await cluster.client(1)
    first.send_produce(make_batch(b"v"))
    broker = cluster.brokers[1]
    await until(lambda: broker.logs.work.failures["flush"] == 1)
    assert cluster.partition(1).high_watermark == 0
    bug.is_mended = True
    assert (await second.produce(make_batch(b"v"))).error_code == ErrorCode.NONE
    assert (await first.produced()).base_offset == 0


async def test_flush_in_time_that_fails_by_mistake_costs_that_flush(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1, configs={"flush.ms": "5"})
    bug = Bug(Mistake())
    bug.plant(monkeypatch, FlushJob, "run")
    await produce(cluster, "t")
    failures = cluster.brokers[1].logs.work.failures
    await until(lambda: failures["flush"] == 1)
    bug.is_mended = True
    await produce(cluster, "t")
    await until(lambda: cluster.partition(1).log.recovery_point == 2)


@pytest.mark.world(brokers=())
@pytest.mark.parametrize(("owner", "name"), [(FutureLog, "append"), (FutureLog, "next_piece"), (Log, "read")])
async def test_move_that_fails_by_mistake_ends_without_effect(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    broker = await fill_both(cluster, CONFIGS)
    bug = Bug(Mistake())
    bug.plant(monkeypatch, owner, name)
    await alter(broker, "/e1")
    await alter(broker, "/d1", topic="u")
    await until(lambda: not broker.logs.wanted_dirs)
    assert broker.logs.work.failures == {"move": bug.met} == {"move": 1}
    await until(lambda: broker.logs.logs["u", 0].log_dir == "/d1")
    assert broker.logs.logs["t", 0].log_dir == "/d1" and not broker.logs.futures
    assert not [at for at in cluster.disk(1).list("/e1") if at.startswith("t-0")]
    await produce(cluster, "t")
    bug.is_mended = True
    await alter(broker, "/e1")
    await until(lambda: broker.logs.logs["t", 0].log_dir == "/e1")
    assert cluster.partition(1).high_watermark == 13


@pytest.mark.world(brokers=())
@pytest.mark.parametrize("name", ["create", "delete_moved"])
async def test_move_that_fails_by_mistake_before_or_after_the_copy(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broker = await fill_both(cluster, CONFIGS)
    method = getattr(LogCopies, name)

    async def broken(*args: Any) -> Any:
        raise Mistake

    monkeypatch.setattr(LogCopies, name, broken)
    await alter(broker, "/e1")
    await until(lambda: broker.logs.work.failures["move"] == 1)
    monkeypatch.setattr(LogCopies, name, method)
    assert not broker.logs.wanted_dirs and not broker.logs.futures
    assert broker.logs.logs["t", 0].log_dir == ("/d1" if name == "create" else "/e1")
    await produce(cluster, "t")
    await broker.stop()
    await cluster.reopen(1, log_dirs=DIRS)
    assert cluster.partition(1).log.log_end_offset == 13


async def test_producers_that_could_not_be_rebuilt_are_read_again(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1)
    await produce(cluster, "t", 3)
    monkeypatch.setattr(producer_jobs, "RETRY_MS", 1)
    bug = Bug(Mistake())
    bug.plant(monkeypatch, producer_jobs, "rebuild_producers")
    partition, broker = cluster.partition(1), cluster.brokers[1]
    partition.producers.fall_behind()
    partition.producers.complete = False
    broker.data.tasks.start(broker.logs.producers.rebuild(("t", 0), 3), "rebuild")
    await until(lambda: broker.logs.work.failures["rebuild of producers"] > 2)
    bug.is_mended = True
    await until(lambda: not partition.producers.is_behind)
    await produce(cluster, "t")


async def test_index_that_cannot_be_built_by_mistake_is_left_for_a_while(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(1, configs=CONFIGS)
    await produce(cluster, "t", 12)
    broker, log = cluster.brokers[1], cluster.partition(1).log
    flip(7)(cluster.disk(1), f"/d1/t-0/{0:020d}.index")
    release(log)
    bug = Bug(Mistake())
    bug.plant(monkeypatch, IndexBuild, "run")
    client = await cluster.client(1)
    for _ in range(3):
        assert not (await client.fetch(1)).records
    for _ in range(3):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            await broker.logs.time_lookups.look_up(log, FIRST_MS + 1)
    assert broker.logs.work.failures == {"index rebuild": 1}
    bug.is_mended = True
    monkeypatch.setattr(index_rebuilds, "RETRY_MS", 0)
    broker.logs.index_rebuilds._retry_ms.clear()
    assert (await client.fetch(1, max_wait_ms=600_000)).records
    assert await broker.logs.time_lookups.look_up(log, FIRST_MS + 1) == (FIRST_MS + 1, 1, 0)


@pytest.mark.loop(new=VirtualLoop)
async def test_failures_are_all_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(as_type(asyncio.get_running_loop(), VirtualLoop))
    work = LogWork(clock, lambda log, error: unexpected(error))
    for _ in range(50):
        for name in ("retention", "scrub"):
            with work.guarding_all(name, "t-0"):
                raise Mistake
        await asyncio.sleep(0.5)
    assert work.failures == {"retention": 50, "scrub": 50}
    assert len(caplog.records) == 6
    assert "(19 more like it were not logged)" in caplog.text
    with pytest.raises(OSError), work.guarding_all("checkpoint", "/d1"):
        raise OSError(errno.EIO, "broken")
