"""Checkpoints use topic names: those of a deleted topic must not apply to its successor."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from pykraft.broker.logs.log_manager import LogManager
from pykraft.log_store.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from pykraft.log_store.interface import CorruptLogError
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import Workers
from tests.broker.crash import EverythingIsLost, abandon
from tests.broker.log_managers import CONFIG, KEY, NEW_ID, OLD_ID, create, fill, started
from tests.waits import settle

OTHER = ("other", 0)


async def with_old_topic(disk: MemoryDisk) -> LogManager:
    """A topic of 100 records: all flushed and committed, half of them deleted; checkpoints are written."""
    logs = await started(disk)
    opened = await create(logs, 100)
    opened.log.advance_log_start(50)
    await logs.flush(KEY)
    await logs.checkpoints.write({KEY: 90})
    return logs


def stored(disk: MemoryDisk) -> dict[str, int]:
    names = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
    found = {name: read_offset_checkpoint(disk, f"/d/{name}").get(KEY) for name in names}
    return {name: offset for name, offset in found.items() if offset is not None}


@contextmanager
def slow_disk(executor: Executor) -> Iterator[None]:
    """What is written meanwhile is written only after the block."""
    gate = threading.Event()
    executor.submit(gate.wait)
    try:
        yield
    finally:
        gate.set()


async def after_power_loss(disk: MemoryDisk) -> LogManager:
    disk.crash(random.Random(0))
    return await started(disk)


async def test_recreated_topic_does_not_inherit_checkpoints_of_its_namesake() -> None:
    disk = MemoryDisk()
    logs = await with_old_topic(disk)
    assert len(stored(disk)) == 3
    await logs.delete([KEY])
    await create(logs, 120, topic_id=NEW_ID)
    abandon(logs)  # kill -9 before the next checkpoint
    again = await started(disk)
    reopened = again.logs[KEY]
    assert (reopened.log.log_start_offset, reopened.log.log_end_offset) == (0, 120)
    assert reopened.high_watermark == 0
    assert reopened.log.recovery_report.scanned_batches == 120  # nothing is trusted unseen


async def test_namesake_deleted_before_a_restart_leaves_no_checkpoint() -> None:
    disk = MemoryDisk()
    logs = await with_old_topic(disk)
    await logs.delete([KEY])
    abandon(logs)
    again = await started(disk)
    await create(again, 120, topic_id=NEW_ID)
    abandon(again)
    third = await started(disk)
    assert third.logs[KEY].high_watermark == 0
    assert third.logs[KEY].log.log_start_offset == 0
    assert third.logs[KEY].log.recovery_report.scanned_batches == 120


async def test_wiped_partition_directory_does_not_inherit_its_own_checkpoints() -> None:
    disk = MemoryDisk()
    logs = await with_old_topic(disk)
    abandon(logs)
    disk.remove_tree("/d/t-0")
    again = await started(disk)
    opened = await create(again)
    assert (opened.log.log_start_offset, opened.high_watermark) == (0, 0)
    assert not stored(disk)


async def test_high_watermarks_being_written_do_not_reach_a_new_namesake() -> None:
    disk = MemoryDisk()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        await create(logs, 100)
        writing = asyncio.create_task(logs.checkpoints.write({KEY: 90}))
        recreating = asyncio.create_task(logs.open_or_create([("t", 0, NEW_ID, CONFIG)]))
        await asyncio.gather(writing, recreating)
        assert logs.logs[KEY].topic_id == NEW_ID
        assert stored(disk).get(REPLICATION_OFFSET_CHECKPOINT, 0) == 0
        assert stored(disk).get(RECOVERY_POINT_CHECKPOINT, 0) == 0
        abandon(logs)


async def test_recovery_point_above_the_recovered_log_is_lowered_before_anything_is_appended() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs, 100)
    await logs.flush(KEY)
    await logs.checkpoints.write({KEY: 90})
    opened.log.truncate_to(60)
    abandon(logs)  # kill -9 between the truncation and its checkpoint
    again = await started(disk)
    fill(again.logs[KEY].log, 60)
    assert stored(disk)[RECOVERY_POINT_CHECKPOINT] == 60
    abandon(again)


@pytest.mark.parametrize(("assigned", "kept"), [("/a", "/a"), ("/b", "/b"), ("", "/b")])
async def test_of_a_partition_in_two_directories_the_one_that_the_controller_knows_is_kept(
    assigned: str, kept: str
) -> None:
    """If it knows none, the one with more records. The other is set aside, whole."""
    disk = MemoryDisk()
    for path, count in (("/a", 3), ("/b", 4)):
        logs = await started(disk, (path,))
        await create(logs, count)
        await logs.stop(1, {})
    both = await started(disk, ("/a", "/b"))
    await both.opening.settle_copies(lambda it: (True, it.log_dir == assigned))
    assert both.logs[KEY].log_dir == kept
    other = "/b" if kept == "/a" else "/a"
    assert not disk.exists(f"{other}/t-0")
    (stray,) = [name for name in disk.list(other) if name.endswith("-stray")]
    assert f"{0:020}.log" in disk.list(f"{other}/{stray}")
    await both.stop(2, {})
    again = await started(disk, ("/a", "/b"))
    assert again.logs[KEY].log_dir == kept and again.logs[KEY].log.log_end_offset in (3, 4)


async def test_killed_broker_finds_its_log_start_and_high_watermark_again() -> None:
    disk = MemoryDisk()
    abandon(await with_old_topic(disk))
    again = await started(disk)
    assert (again.logs[KEY].log.log_start_offset, again.logs[KEY].high_watermark) == (50, 90)


async def test_log_starts_being_written_do_not_outlive_a_truncation() -> None:
    disk = MemoryDisk()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        log = (await create(logs, 100)).log
        with slow_disk(executor):
            storing = asyncio.create_task(logs.checkpoints.store_log_starts([KEY]))
            await settle(2)
            log.truncate_fully_and_start_at(500)  # its leader starts there
        await storing
        abandon(logs)  # kill -9 before the next checkpoint
    again = await started(disk)
    assert not again.offline
    assert again.logs[KEY].log.log_end_offset == 500


async def test_log_starts_that_wait_to_be_written_do_not_outlive_a_truncation() -> None:
    """Two moves are stored one after the other; the log begins anew before the turn of the second."""
    disk = MemoryDisk()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        log = (await create(logs, 100)).log
        with slow_disk(executor):
            storing = [asyncio.create_task(logs.checkpoints.store_log_starts([KEY])) for _ in range(2)]
            await settle(2)
            log.truncate_fully_and_start_at(500)  # its leader starts there
        await asyncio.gather(*storing)
        abandon(logs)
    again = await after_power_loss(disk)
    assert not again.offline
    assert again.logs[KEY].log.log_start_offset == 500


@pytest.mark.parametrize("end_offset", [80, 50])
async def test_stored_log_start_outlives_a_cut_above_or_at_it(end_offset: int) -> None:
    disk = MemoryDisk()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        log = (await create(logs, 100)).log
        log.advance_log_start(50)
        await logs.checkpoints.store_log_starts([KEY])
        assert log.stored_log_start_offset == 50
        with slow_disk(executor):
            storing = asyncio.create_task(logs.checkpoints.store_log_starts([KEY]))
            await settle(2)
            log.truncate_to(end_offset)  # another leader wrote other records there
        await storing
        abandon(logs)
    again = await after_power_loss(disk)
    assert again.logs[KEY].log.log_start_offset == 50


async def test_deleted_records_do_not_return_when_a_log_is_cut_in_the_batch_of_its_start() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs)
    log = opened.log
    fill(log, 50)
    fill(log, 1, records=3)
    log.advance_log_start(51)
    await logs.checkpoints.write({KEY: 53})
    log.truncate_to(51)  # the whole batch goes
    assert log.log_start_offset == log.log_end_offset == 50
    abandon(logs)
    again = await started(disk)
    assert again.logs[KEY].log.log_start_offset == 50


async def test_log_start_counts_as_stored_only_once_its_file_is_durable() -> None:
    disk = MemoryDisk()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        log = (await create(logs, 100)).log
        log.advance_log_start(50)
        with slow_disk(executor):
            storing = asyncio.create_task(logs.checkpoints.store_log_starts([KEY]))
            await asyncio.sleep(0)
            assert log.stored_log_start_offset == 0
        while log.stored_log_start_offset == 0:
            assert not storing.done()
            await asyncio.sleep(0)
        await storing
        abandon(logs)
    again = await after_power_loss(disk)
    assert again.logs[KEY].log.log_start_offset == 50


async def test_log_start_that_a_killed_process_was_writing_is_durable_once_it_is_used() -> None:
    disk = MemoryDisk()
    abandon(await with_old_topic(disk))
    path, other = f"/d/{LOG_START_OFFSET_CHECKPOINT}", MemoryDisk()
    other.make_dirs("/d")
    write_offset_checkpoint(other, path, {KEY: 70})
    written = disk.open(f"{path}.tmp")
    written.append(other.read(path))
    written.flush()
    disk.rename(f"{path}.tmp", path)  # and no flush of the directory
    again = await started(disk)
    assert again.logs[KEY].log.stored_log_start_offset == 70
    abandon(again)
    disk.crash(EverythingIsLost())
    last = await started(disk)
    assert last.logs[KEY].log.log_start_offset == 70


async def test_stored_log_start_does_not_outlive_a_truncation() -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs, 100)
    await logs.checkpoints.write({KEY: 90})
    opened.log.truncate_fully_and_start_at(500)  # its leader starts there
    abandon(logs)  # kill -9 before the next checkpoint
    again = await started(disk)
    assert not again.offline
    assert again.logs[KEY].log.log_end_offset == 500


class AtOnce(Executor):
    """Runs each job at once; while it ``is_holding``, only when they are released."""

    def __init__(self) -> None:
        self.is_holding = False
        self._held: list[Callable[[], None]] = []

    def submit(self, job: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            future.set_result(job(*args, **named))

        if self.is_holding:
            self._held.append(run)
        else:
            run()
        return future

    def release(self) -> None:
        for run in self._held:
            run()


class SlowDisk(MemoryDisk):
    """Writing ``slow_path`` ends only when ``gate`` is set."""

    def __init__(self, slow_path: str) -> None:
        super().__init__()
        self.slow_path = slow_path
        self.is_writing, self.gate = threading.Event(), threading.Event()

    def write_atomic(self, path: str, data: bytes) -> None:
        if path == self.slow_path:
            self.is_writing.set()
            self.gate.wait()
        super().write_atomic(path, data)


async def test_high_watermarks_waiting_for_another_directory_do_not_reach_a_new_namesake() -> None:
    disk = SlowDisk(f"/d/{REPLICATION_OFFSET_CHECKPOINT}.new")
    with ThreadPoolExecutor(2) as executor:
        logs = await started(disk, ("/d", "/e"), executor)
        await logs.open_or_create([(*OTHER, OLD_ID, CONFIG)])
        opened = await create(logs)
        assert opened.log_dir == "/e"
        fill(opened.log, 100)
        writing = asyncio.create_task(logs.checkpoints.write_high_watermarks({OTHER: 0, KEY: 90}))
        await asyncio.to_thread(disk.is_writing.wait)
        opened = await create(logs, 100, topic_id=NEW_ID)
        disk.gate.set()
        await writing
        abandon(logs)  # kill -9 before the next checkpoint
    again = await started(disk, ("/d", "/e"))
    assert again.logs[KEY].topic_id == NEW_ID
    assert again.logs[KEY].high_watermark == 0


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("is_forgetting", [True, False])
@pytest.mark.parametrize("is_renamed", [True, False])
async def test_recovery_points_being_written_do_not_outlive_a_truncation(
    is_stored: bool, is_forgetting: bool, is_renamed: bool
) -> None:
    """Neither where the lower one had to be stored, nor where it was below the stored one all along; with the
    old ones about to be written, or about to be renamed.
    """
    disk = SlowDisk(f"/d/{RECOVERY_POINT_CHECKPOINT}.new")
    disk.gate.set()
    with ThreadPoolExecutor(1) as executor:
        logs = await started(disk, executor=executor)
        for key, count in ((OTHER, 10), (KEY, 50)):
            opened = await create(logs, count, key)
            await logs.flush(key)
        files = logs.checkpoints.files["/d"]
        await files.write_recovery_points()
        fill(opened.log, 50)
        await logs.flush(KEY)
        if is_stored:
            await files.write_recovery_points()
        disk.gate.clear()
        disk.is_writing.clear()
        work = logs.delete([OTHER]) if is_forgetting else files.write_recovery_points()
        writing = asyncio.create_task(work)
        await asyncio.to_thread(disk.is_writing.wait)
        if is_renamed:
            disk.gate.set()
            executor.submit(lambda: None).result()  # no turn of the event loop in between
        opened.log.truncate_to(60)
        fill(opened.log, 60)
        disk.gate.set()
        await writing
        kept = 50 if is_forgetting and not is_stored else 60  # it forgets, no more
        assert stored(disk)[RECOVERY_POINT_CHECKPOINT] == kept
        assert files._stored[RECOVERY_POINT_CHECKPOINT].get(OTHER) == (None if is_forgetting else 10)
        abandon(logs)
    again = await after_power_loss(disk)
    assert not again.offline and again.logs[KEY].log.log_end_offset >= 60


async def test_write_whose_caller_was_cancelled_does_not_replace_a_later_one() -> None:
    disk = MemoryDisk()
    logs = await with_old_topic(disk)
    files, path = logs.checkpoints.files["/d"], f"/d/{RECOVERY_POINT_CHECKPOINT}.new"
    with ThreadPoolExecutor(1) as executor:
        late, files._workers = files._prepare, Workers(executor)
        fill(logs.logs[KEY].log, 1)
        await logs.flush(KEY)
        await files.write_recovery_points()
        late(path, {KEY: 100})
    assert not disk.exists(path)
    assert stored(disk)[RECOVERY_POINT_CHECKPOINT] == 101
    abandon(logs)


@pytest.mark.parametrize("name", ["write_recovery_points", "write_log_starts"])
async def test_log_deleted_while_offsets_are_written_leaves_its_namesake_none(name: str) -> None:
    disk, executor = MemoryDisk(), AtOnce()
    logs = await started(disk, executor=executor)
    opened = await create(logs, 100)
    opened.log.advance_log_start(50)
    await logs.flush(KEY)
    executor.is_holding = True
    writing = asyncio.create_task(getattr(logs.checkpoints.files["/d"], name)())
    await asyncio.sleep(0)
    executor.is_holding = False
    recreating = asyncio.create_task(logs.open_or_create([(*KEY, NEW_ID, CONFIG)]))
    for _ in range(100):
        await asyncio.sleep(0)
    executor.release()
    await asyncio.gather(writing, recreating)
    assert logs.logs[KEY].topic_id == NEW_ID
    assert not stored(disk)
    abandon(logs)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_log_found_damaged_right_before_the_stop_is_damaged_at_the_next_start(is_clean: bool) -> None:
    disk = MemoryDisk()
    logs = await started(disk)
    opened = await create(logs)
    for _ in range(3):
        fill(opened.log, 10)
        opened.log.roll(0)
    await logs.flush(KEY)
    await logs.checkpoints.write({KEY: 30})
    if not is_clean:
        disk.remove(f"{opened.log.directory}/{10:020d}.log")
    logs.damaged.take_offline(
        opened, CorruptLogError(opened.log.directory, 0, "planted")
    )  # and not set aside
    if is_clean:
        await logs.stop(1, {})
    else:
        await logs.checkpoints.write({})
        abandon(logs)  # kill -9
    again = await started(disk)
    assert KEY in again.offline and KEY not in again.logs
