"""Moves of logs that end without effect, are cancelled, asked for again, turned round, or stopped."""

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from pykraft.broker.logs import log_copies
from pykraft.broker.logs.move_marks import Mark, write_mark
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.log_store.checkpoint import RECOVERY_POINT_CHECKPOINT
from pykraft.runtime.disk import Disk
from tests.broker.crash import abandon
from tests.broker.damage import read_all, values
from tests.broker.data_cluster import TOPIC_ID, DataBroker, DataCluster, directory_id, make_batch
from tests.broker.log_managers import KEY, started
from tests.broker.logs.test_interrupted_moves import MARKED, RECORDED, move_until, start_without
from tests.broker.logs.test_log_checkpoints import SlowDisk
from tests.broker.logs.test_log_moves import DIRS, alter, begin, directories_of, is_moved
from tests.broker.logs.test_settling_moves import move
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())


def fail_to_mark(monkeypatch: pytest.MonkeyPatch, error_number: int, times: int = 1) -> None:
    """A mark is written, but cannot be made durable; with ``times=2`` its removal cannot be, either."""

    def write(disk: Disk, log_path: str, mark: Mark) -> None:
        disk.inject("flush_dir", error_number, path_part=log_path, times=times)  # type: ignore[attr-defined]
        write_mark(disk, log_path, mark)

    monkeypatch.setattr(log_copies, "write_mark", write)


def is_over(broker: DataBroker, path: str = "/e1") -> bool:
    """Whether no move to a directory is under way."""
    return not broker.data.moves._slots[path].locked()


@pytest.mark.parametrize(
    "found", ["before the mark", "by the mark", "when it is marked", "by a flush when it is marked"]
)
async def test_log_whose_directory_fails_while_it_is_moved_is_whole_after_the_next_start(
    cluster: DataCluster, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the log has a mark depends on what has ``found`` it."""
    broker, disk = await begin(cluster), cluster.disk(1)
    if found == "by the mark":
        fail_to_mark(monkeypatch, errno.EIO)
        await alter(broker, "/e1")
    else:
        await move_until(RECORDED if found == "before the mark" else MARKED, cluster, broker)
        if found.startswith("by a flush"):
            disk.break_directory("/d1")
            await broker.logs.flush(("t", 0))
            await broker.logs.checkpoints.write({})
        else:
            broker.logs.failures.fail("/d1", OSError(errno.EIO, "broken"))
    await until(lambda: ("t", 0) in broker.logs.unavailable)
    if found != "before the mark":
        await until(lambda: is_over(broker))
    disk.mend_directory("/d1")
    await broker.stop()
    await cluster.reopen(1, log_dirs=DIRS)
    assert cluster.controller.lost == []
    assert await read_all(cluster, 1) == values(12)


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENOSPC])
async def test_mark_that_can_neither_be_kept_nor_removed_for_now_costs_only_the_move(
    cluster: DataCluster, lacking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of a descriptor or room; the next start finds the copy and the mark, and moves the log."""
    broker, disk = await begin(cluster), cluster.disk(1)
    with monkeypatch.context() as patched:
        fail_to_mark(patched, lacking, times=2)
        await alter(broker, "/e1")
        await until(lambda: not broker.logs.wanted_dirs and is_over(broker))
    assert broker.faults == [] and broker.logs.dirs.online == list(DIRS)
    assert await read_all(cluster, 1) == values(12)
    await broker.stop(clean=False)
    again = await cluster.start(1, log_dirs=DIRS)
    await until(lambda: is_moved(cluster, again))
    await until(lambda: directories_of(disk) == ["/e1/t-0"])
    assert await read_all(cluster, 1) == values(12)


async def test_log_whose_move_is_stopped_in_order_is_used_without_the_other_directory(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    await move_until(MARKED, cluster, broker)
    await broker.stop()
    again = await start_without(cluster, "/e1")
    assert again.logs.logs["t", 0].log_dir == "/d1"
    assert await read_all(cluster, 1) == values(12)


async def test_move_that_is_asked_for_again_right_after_it_was_cancelled_takes_place(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    await move_until(MARKED, cluster, broker)
    await alter(broker, "/d1")
    await alter(broker, "/e1")
    del broker.logs.copies.promote
    await until(lambda: not broker.logs.wanted_dirs)
    assert broker.logs.logs["t", 0].log_dir == "/e1"


async def test_log_goes_back_to_a_directory_that_still_has_what_it_was(cluster: DataCluster) -> None:
    """The old log was not deleted, since the new directory's checkpoint lacked a descriptor."""
    broker, disk = await begin(cluster), cluster.disk(1)
    disk.inject("write_atomic", errno.EMFILE, path_part=f"/e1/{RECOVERY_POINT_CHECKPOINT}")
    await alter(broker, "/e1")
    await until(lambda: is_moved(cluster, broker) and is_over(broker))
    assert directories_of(disk) == ["/d1/t-0", "/e1/t-0"]
    assert await alter(broker, "/d1") is ErrorCode.NONE
    await until(lambda: is_over(broker, "/d1") and not broker.logs.wanted_dirs)
    assert broker.logs.logs["t", 0].log_dir == "/d1" and not broker.logs.dirs.offline
    old = f"/d1/t-0.{TOPIC_ID.hex()}-stray"
    await until(lambda: directories_of(disk) == ["/d1/t-0", old])
    assert await read_all(cluster, 1) == values(12)


async def test_log_that_goes_back_before_its_first_move_has_settled_keeps_its_start() -> None:
    """The way back begins when only the old directory has stored the start; then the process ends."""
    disk = SlowDisk(f"/b/{RECOVERY_POINT_CHECKPOINT}.new")
    with ThreadPoolExecutor(3) as executor:
        logs = await started(disk, ("/a", "/b"), executor)
        old, new = await move(logs, lambda opened: opened.log.advance_log_start(9))
        settling = asyncio.create_task(logs.copies.delete_moved(old, new))
        await asyncio.to_thread(disk.is_writing.wait)
        going_back = asyncio.create_task(logs.copies.create(KEY, "/a", "2" * 32))
        for _ in range(50):  # jobs, of which a copy takes a few
            await asyncio.get_running_loop().run_in_executor(executor, bool)
        image = disk.copy()
        disk.gate.set()
        await settling
        assert await going_back is not None
        abandon(logs)
        again = await started(image, ("/a", "/b"), executor)
        await again.opening.settle_copies(lambda opened: (True, opened.log_dir == "/b"))
        assert (again.logs[KEY].log_dir, again.logs[KEY].log.log_start_offset) == ("/b", 9)
        abandon(again)


async def test_log_that_is_flushed_with_every_message_moves_while_it_is_written(
    cluster: DataCluster,
) -> None:
    broker = await cluster.start(1, log_dirs=DIRS)
    await cluster.create(1, leader=1, configs={"flush.messages": "1"})
    written: list[bytes] = []
    stop = asyncio.Event()

    async def write() -> None:
        client = await cluster.client(1)
        while not stop.is_set():
            value = b"%d" % len(written)
            written.append(value)
            assert (await client.produce(make_batch(value))).error_code == ErrorCode.NONE

    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(write())
        await until(lambda: len(written) > 20)
        await alter(broker, "/e1")
        try:
            await until(lambda: is_moved(cluster, broker))
        finally:
            stop.set()
    assert sorted(await read_all(cluster, 1)) == sorted(written)


@pytest.mark.parametrize("known", ["/e1", "/d1"])
async def test_log_whose_move_is_cancelled_a_second_time_is_used_after_the_next_start(
    cluster: DataCluster, known: str
) -> None:
    """When the second move begins, the controller still knows the directory of the first one."""
    broker, disk = await begin(cluster), cluster.disk(1)
    await move_until(MARKED, cluster, broker)
    await alter(broker, "/d1")
    await alter(broker, "/e1")
    futures = broker.logs.futures
    await until(lambda: ("t", 0) in futures and futures["t", 0].is_marked)
    await alter(broker, "/d1")
    await until(lambda: is_over(broker) and directories_of(disk) == ["/d1/t-0"])
    if known == "/d1":
        told = directory_id(known)
        await until(lambda: cluster.controller.partition().directory(1) == told)
    await broker.stop(clean=False)
    again = await cluster.start(1, log_dirs=DIRS)
    await again.data.worklist.idle.wait()
    assert cluster.controller.lost == []
    assert await read_all(cluster, 1) == values(12)
