"""What later starts find of moves that were cut off: marks, copies, and logs that were set aside long ago."""

import errno

import pytest

from pykraft.broker.logs import log_opening
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.move_marks import Mark, remove_mark
from pykraft.kafka_protocol.ids import Uuid
from pykraft.runtime.disk import Disk
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.crash import EverythingIsLost, abandon
from tests.broker.damage import read_all, values
from tests.broker.data_cluster import TOPIC_ID, DataBroker, DataCluster
from tests.broker.log_managers import KEY, NEW_ID, OLD_ID, create, fill, manager, started
from tests.broker.logs.test_interrupted_moves import MARKED, RECORDED, SWAPPED, move_until, start_without
from tests.broker.logs.test_log_moves import DIRS, begin, directories_of, hold_back
from tests.broker.logs.test_settling_moves import copy_to, create_filled, move
from tests.narrowing import present
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

ABC = ("/a", "/b", "/c")
NOT_MOVED = "not moved"


async def start_logs(
    disk: MemoryDisk, known: str = "", *, without: str = "", settles: bool = True
) -> LogManager:
    """Start, perhaps ``without`` one of three directories; the controller knows the replica in ``known``."""
    if without:
        disk.inject("make_dirs", errno.EIO, path_part=without)
    logs = await started(disk, ABC)
    assert "".join(logs.dirs.offline) == without
    if settles:
        await logs.opening.settle_copies(lambda it: (it.topic_id == OLD_ID, it.log_dir == known))
    return logs


def end_and_abandon(logs: LogManager) -> tuple[str, int] | None:
    """Kill the process; where its log was and where it ended, None if it used none of this topic."""
    abandon(logs)
    opened = logs.logs.get(KEY)
    if opened is None or opened.topic_id != OLD_ID:
        return None
    return opened.log_dir, opened.log.log_end_offset


async def stop_when(point: str, cluster: DataCluster, *, clean: bool = False) -> MemoryDisk:
    """A broker whose log is durable has moved it so far when it stops; its disk."""
    broker = await begin(cluster)
    await broker.logs.flush(("t", 0))
    await broker.logs.checkpoints.write({})
    if point != NOT_MOVED:
        await move_until(point, cluster, broker)
    await broker.stop(clean=clean)
    return cluster.disk(1)


async def start_with_all(cluster: DataCluster) -> DataBroker:
    """Start with directories that all work; the replica has everything that it had."""
    broker = await cluster.reopen(1, log_dirs=DIRS)
    assert cluster.controller.lost == []
    assert await read_all(cluster, 1) == values(12)
    return broker


@pytest.mark.parametrize("goes_back", [False, True])
async def test_log_that_was_moved_twice_is_used_only_where_it_is(goes_back: bool) -> None:
    """It was moved from /a, which failed, to /b, and on to /c; it is about to go back to /b, or not, when the
    process ends. /a works again by then, and still has what the log was.
    """
    disk = MemoryDisk()
    logs = await start_logs(disk)
    old, new = await move(logs)
    logs.failures.fail("/a", OSError(errno.EIO, "broken"))
    await logs.copies.delete_moved(old, new)
    assert end_and_abandon(logs) == ("/b", 20) and disk.is_dir("/a/t-0")
    logs = await start_logs(disk, "/b", without="/a")
    future = await copy_to(logs, "/c", "2" * 32)
    new = present(logs.copies.promote(future))
    await logs.copies.delete_moved(future.source, new)
    fill(new.log, 30)
    await logs.flush(KEY)
    if goes_back:
        await logs.copies.create(KEY, "/b", "3" * 32)
    assert end_and_abandon(logs) == ("/c", 50)
    assert end_and_abandon(await start_logs(disk, "/c", without="/c")) is None
    assert end_and_abandon(await start_logs(disk, "/c", without="/b")) == ("/c", 50)


@pytest.mark.parametrize("first_ends", [False, True])
async def test_mark_of_a_second_move_stays_if_the_first_one_ends_late(first_ends: bool) -> None:
    """A move to /b hangs when it has marked the log, which is to go to /c instead."""
    disk = MemoryDisk()
    logs = await start_logs(disk)
    await create_filled(logs)
    first = await copy_to(logs, "/b", "1" * 32)
    first.is_announced = True
    del logs.futures[KEY]  # it is cancelled, and does not know it yet
    second = await copy_to(logs, "/c", "2" * 32)
    if first_ends:
        await logs.copies.discard(first)
    fill(present(logs.copies.promote(second)).log, 5)
    await logs.flush(KEY)
    disk.flush_dir("/c")
    assert end_and_abandon(logs) == ("/c", 25)
    assert end_and_abandon(await start_logs(disk, "/c", without="/c")) is None
    assert end_and_abandon(await start_logs(disk, "/c")) == ("/c", 25)


@pytest.mark.parametrize("stale_id", [OLD_ID, NEW_ID], ids=["same topic", "earlier topic"])
async def test_marked_log_gives_way_to_no_stale_one_while_its_other_directory_does_not_work(
    stale_id: Uuid,
) -> None:
    """The stale one is in /c, which comes back when /b, with the copy, does not work once."""
    disk = MemoryDisk()
    stale = await started(disk, ("/c",))
    await create(stale, 2, topic_id=stale_id)
    await stale.flush(KEY)
    abandon(stale)
    logs = await started(disk, ("/a", "/b"))
    await create_filled(logs)
    await copy_to(logs, "/b", "1" * 32)
    assert end_and_abandon(logs) == ("/a", 20)
    assert end_and_abandon(await start_logs(disk, "/b", without="/b")) is None
    assert end_and_abandon(await start_logs(disk, "/b")) == ("/a", 20)


async def test_mark_does_not_come_back_after_its_copy_is_gone(cluster: DataCluster) -> None:
    """A killed process removed the mark, not durably; the next start removes the copy; then power is lost."""
    disk = await stop_when(MARKED, cluster)
    (mark,) = [name for name in disk.list("/d1/t-0") if name.startswith("moved-to-")]
    disk.remove(f"/d1/t-0/{mark}")
    again = await cluster.start(1, log_dirs=DIRS)
    again.logs.wanted_dirs.clear()  # the move does not begin again
    await until(lambda: again.table.find("t", 0) is not None)
    assert directories_of(disk) == ["/d1/t-0"]
    disk.flush_dir("/e1")
    disk.crash(EverythingIsLost())
    await again.stop(clean=False)
    third = await start_with_all(cluster)
    assert third.logs.logs["t", 0].log_dir == "/d1"


@pytest.mark.parametrize("operation", ["remove", "flush_dir"])
async def test_directory_that_fails_when_a_start_removes_a_mark_loses_nothing(
    cluster: DataCluster, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = await stop_when(MARKED, cluster)

    def fail_to_remove(_: Disk, log_path: str, mark: Mark) -> None:
        disk.inject(operation, errno.EIO, path_part=log_path)
        remove_mark(disk, log_path, mark)

    with monkeypatch.context() as patched:
        patched.setattr(log_opening, "remove_mark", fail_to_remove)
        again = await cluster.start(1, log_dirs=DIRS)
    await again.data.worklist.idle.wait()
    assert list(again.logs.dirs.offline) == ["/d1"] and cluster.controller.lost == []
    await again.stop(clean=False)
    disk.crash(EverythingIsLost())
    third = await start_with_all(cluster)
    assert third.logs.dirs.online == list(DIRS)


@pytest.mark.parametrize("is_clean", [False, True])
async def test_log_that_was_moved_is_deleted_and_forgotten_by_the_next_start(
    cluster: DataCluster, is_clean: bool
) -> None:
    """A further start, at which the new directory does not work, does not miss it in the old one."""
    disk = await stop_when(SWAPPED, cluster, clean=is_clean)
    again = await start_with_all(cluster)
    assert directories_of(disk) == ["/e1/t-0"]
    await again.stop(clean=False)
    disk.inject("make_dirs", errno.EIO, path_part="/e1")
    third = await cluster.start(1, log_dirs=DIRS)
    assert list(third.logs.dirs.offline) == ["/e1"] and not third.logs.offline
    await third.data.worklist.idle.wait()
    assert third.logs.unavailable.keys() == {("t", 0)} and cluster.controller.lost == []


async def test_start_of_a_moved_log_outlives_a_second_kill(cluster: DataCluster) -> None:
    """Only the old directory has stored it, and the next start deletes the old log."""
    broker, disk = await begin(cluster), cluster.disk(1)
    await hold_back(cluster, broker)
    cluster.partition(1).log.advance_log_start(5)
    await broker.logs.checkpoints.store_log_starts([("t", 0)])
    del broker.logs.copies.promote
    await move_until(SWAPPED, cluster, broker)
    await broker.stop(clean=False)
    for _ in range(2):
        broker = await cluster.reopen(1, log_dirs=DIRS)
        assert directories_of(disk) == ["/e1/t-0"]
        assert cluster.partition(1).log.log_start_offset == 5
        await broker.stop(clean=False)


@pytest.mark.parametrize(("without", "settles"), [("", (False, False)), ("/b", (False, True, False))])
async def test_start_of_a_moved_log_outlives_orderly_stops_before_it_is_used(
    without: str, settles: tuple[bool, ...]
) -> None:
    """The stops come before the logs are settled, or the log's new directory does not work."""
    disk = MemoryDisk()
    logs = await start_logs(disk)
    await move(logs, lambda opened: opened.log.advance_log_start(9))
    disk.flush_dir("/b")
    abandon(logs)
    for settle in settles:
        logs = await start_logs(disk, "/b", without=without, settles=settle)
        assert not logs.offline
        await logs.stop(5, {})
    logs = await start_logs(disk, "/b")
    assert logs.logs[KEY].log.log_start_offset == 9
    assert end_and_abandon(logs) == ("/b", 20)


async def test_moved_log_of_a_topic_that_is_deleted_while_its_directory_does_not_work_is_set_aside(
    cluster: DataCluster,
) -> None:
    disk = await stop_when(SWAPPED, cluster)
    again = await start_without(cluster, "/e1")
    cluster.controller.delete_topic("t")
    await again.data.worklist.idle.wait()
    await again.stop()
    again = await cluster.start(1, log_dirs=DIRS)
    await again.data.worklist.idle.wait()
    await again.data.reconciler.set_aside_strays()
    assert directories_of(disk) == [f"/e1/t-0.{TOPIC_ID.hex()}-stray"]


@pytest.mark.parametrize(
    ("point", "damaged", "failing"),
    [
        (NOT_MOVED, "/e1/t-0.00000000-damaged", "/d1"),
        (RECORDED, "/d1/t-0.00000000-damaged", "/e1"),
        (MARKED, "/e1/t-0.00000000-damaged", "/d1"),
        (SWAPPED, "/d1/t-0.00000000-damaged", "/e1"),
        (SWAPPED, "/d1/t-0", "/e1"),
    ],
)
async def test_replica_is_not_lost_with_a_log_that_it_does_not_use(
    cluster: DataCluster, point: str, damaged: str, failing: str
) -> None:
    """One that was set aside long ago, or is what a moved log was, is damaged; the replica's own log is in a
    directory that does not work.
    """
    disk = await stop_when(point, cluster)
    topic_id = disk.read("/d1/t-0/partition.metadata")
    if damaged == "/d1/t-0":
        disk.remove("/d1/t-0/partition.metadata")
    else:
        disk.make_dirs(damaged)
        disk.write_atomic(f"{damaged}/partition.metadata", topic_id)
    again = await start_without(cluster, failing)
    assert cluster.controller.lost == []
    await again.stop(clean=False)
    await start_with_all(cluster)
    assert cluster.controller.lost == []


async def test_replica_is_not_lost_if_other_directories_fail_at_each_start(
    cluster: DataCluster,
) -> None:
    """The controller knows it in the directory of the copy; a third directory might have it, too."""
    three = ("/f1", *DIRS)
    broker, disk = await begin(cluster), cluster.disk(1)
    await broker.stop()
    broker = await cluster.reopen(1, log_dirs=three)
    await move_until(MARKED, cluster, broker)
    await broker.stop(clean=False)
    for failing in ({"/f1", "/d1"}, {"/d1", "/e1"}):
        for path in failing:
            disk.inject("make_dirs", errno.EIO, path_part=path)
        again = await cluster.start(1, log_dirs=three)
        await again.data.worklist.idle.wait()
        assert again.logs.dirs.offline.keys() == failing and not again.logs.logs
        await until(lambda: not cluster.brokers[1].data.reconciler._assignments._is_reporting)
        await again.stop(clean=False)
    assert cluster.controller.lost == []
    await start_with_all(cluster)


async def test_marked_log_stays_unused_if_the_other_directory_comes_back_empty(
    cluster: DataCluster,
) -> None:
    """It may lack what was acknowledged; the replica starts over, and an operator finds the log."""
    disk = await stop_when(MARKED, cluster)
    disk.remove_tree("/e1")
    again = await cluster.start(1, log_dirs=DIRS)
    await again.data.worklist.idle.wait()
    assert cluster.controller.lost == [(1, "t")]
    assert again.table.find("t", 0) is None and directories_of(disk) == ["/d1/t-0"]


async def test_log_whose_directory_fails_before_copies_are_settled_is_passed_over() -> None:
    """Another outdated log, and a marked one whose other directory does not work, are left."""
    disk = MemoryDisk()
    for path in ("/c", "/d"):
        logs = await started(disk, (path,))
        await create(logs, 2)
        await logs.flush(KEY)
        abandon(logs)
    logs = await started(disk, ("/a", "/b"))
    await create_filled(logs)
    await copy_to(logs, "/b", "1" * 32)
    abandon(logs)
    disk.inject("make_dirs", errno.EIO, path_part="/b")
    logs = manager(disk, ("/a", "/b", "/c", "/d"))
    logs._on_damage = lambda key: None
    await logs.start()
    logs.failures.fail("/c", OSError(errno.EIO, "broken"))
    await until(lambda: KEY in logs.unavailable)
    await logs.opening.settle_copies(lambda opened: (True, False))
    assert not logs.logs
