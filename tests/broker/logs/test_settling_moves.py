"""A log has just been moved, and what it was is still in its old directory."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykraft.broker.logs.future_log import FutureLog
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.log_store.checkpoint import RECOVERY_POINT_CHECKPOINT
from pykraft.log_store.log.log import Log
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.crash import abandon
from tests.broker.log_managers import CONFIG, KEY, NEW_ID, create, fill, started
from tests.broker.logs.test_log_checkpoints import SlowDisk
from tests.narrowing import present


async def copy_to(
    logs: LogManager, path: str, unique: str, while_it_is_copied: Callable[[OpenLog], object] = lambda _: None
) -> FutureLog:
    """A copy that holds all of the log in use, which is marked as one whose place it may have taken."""
    future = present(await logs.copies.create(KEY, path, unique))
    is_first = True
    while not future.is_marked:
        if future.must_follow:
            future.follow(future.take_step())
        piece = future.next_piece(1 << 20)
        if piece is not None:
            future.append(piece, piece.file.pread(piece.position, piece.size_bytes), 0)
            continue
        job = future.log.prepare_flush()
        job.run()
        future.log.complete_flush(job)
        if is_first:
            is_first = False
            while_it_is_copied(future.source)
            await logs.checkpoints.store_log_starts([KEY])
        elif future.lacks_producers:
            await future.store_producers(logs._workers.run)
        else:
            assert await logs.copies.mark(future)
    return future


async def create_filled(logs: LogManager) -> OpenLog:
    """A log of 20 records in /a."""
    opened = await create(logs)
    assert opened.log_dir == "/a"
    fill(opened.log, 20)
    return opened


async def move(
    logs: LogManager, while_it_is_copied: Callable[[OpenLog], object] = lambda _: None
) -> tuple[OpenLog, OpenLog]:
    """A log of 20 records is moved from /a to /b; what it was and what it is."""
    old = await create_filled(logs)
    future = await copy_to(logs, "/b", "1" * 32, while_it_is_copied)
    return old, present(logs.copies.promote(future))


async def test_topic_that_is_created_again_waits_for_it_and_begins_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete, gate = Log.delete, threading.Event()

    def delete_slowly(log: Log) -> None:
        if log.directory.startswith("/a/"):
            gate.wait()
        delete(log)

    disk = MemoryDisk()
    with ThreadPoolExecutor(2) as executor:
        logs = await started(disk, ("/a", "/b"), executor)
        old, new = await move(logs)
        monkeypatch.setattr(Log, "delete", delete_slowly)
        settling = asyncio.create_task(logs.copies.delete_moved(old, new))
        creating = asyncio.create_task(logs.open_or_create([(*KEY, NEW_ID, CONFIG)]))
        for _ in range(50):  # jobs, of which all this takes a few
            await asyncio.get_running_loop().run_in_executor(executor, bool)
        gate.set()
        (created,) = await creating
        await settling
        assert created.log.log_end_offset == 0 and disk.is_dir(created.log.directory)
        assert not logs.table.moved_from and not logs.uses.is_used(KEY)
        created.log.abandon()


@pytest.mark.parametrize("loses_power", [False, True])
async def test_its_log_start_outlives_a_crash(loses_power: bool) -> None:
    """The old directory's file is written before the new one's, which does not have it yet."""
    disk = SlowDisk(f"/b/{RECOVERY_POINT_CHECKPOINT}.new")
    with ThreadPoolExecutor(2) as executor:
        logs = await started(disk, ("/a", "/b"), executor)
        old, new = await move(logs, lambda opened: opened.log.advance_log_start(9))
        assert new.log.log_start_offset == old.log.stored_log_start_offset == 9
        settling = asyncio.create_task(logs.copies.delete_moved(old, new))
        await asyncio.to_thread(disk.is_writing.wait)
        await logs.checkpoints.write_offsets("/a")
        image = disk.copy()
        disk.gate.set()
        await settling
        abandon(logs)
        if loses_power:
            image.crash(random.Random(1))
        again = await started(image, ("/a", "/b"), executor)
        await again.opening.settle_copies(lambda opened: (True, opened.log_dir == "/b"))
        assert (again.logs[KEY].log_dir, again.logs[KEY].log.log_start_offset) == ("/b", 9)
        again.logs[KEY].log.abandon()
