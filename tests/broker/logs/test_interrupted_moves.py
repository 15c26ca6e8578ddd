"""A broker dies while a log is moved, and one of the two directories does not work when it starts again."""

import asyncio
import errno

import pytest

from pykraft.broker.logs.future_log import FutureLog
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.crash import EverythingIsLost, abandon
from tests.broker.damage import read_all, values
from tests.broker.data_cluster import DataBroker, DataCluster, directory_id, make_batch
from tests.broker.log_managers import KEY, NEW_ID, OLD_ID, create, started
from tests.broker.log_managers import fill as fill_log
from tests.broker.logs.test_log_moves import DIRS, alter, begin, directories_of, hold_back
from tests.broker.logs.test_settling_moves import move
from tests.waits import until

pytestmark = pytest.mark.world(brokers=())

RECORDED, MARKED, SWAPPED = "recorded", "marked", "swapped"

USED_WITHOUT = {
    (RECORDED, "/d1"): None,
    (RECORDED, "/e1"): "/d1",
    (MARKED, "/d1"): None,
    (MARKED, "/e1"): None,  # the log of /e1 may have more
    (SWAPPED, "/d1"): "/e1",
    (SWAPPED, "/e1"): None,
}
"""Where the log is after a move that got so far, if a directory does not work; None: nowhere."""


async def move_until(point: str, cluster: DataCluster, broker: DataBroker) -> None:
    """Move ``t`` to /e1; the move stands still for ever when it has got so far."""
    reached, copies = asyncio.Event(), broker.logs.copies

    async def stand_still(*logs: object) -> bool:
        for path in DIRS:
            cluster.disk(1).flush_dir(path)
        reached.set()
        return await asyncio.Event().wait()

    def hold(future: FutureLog) -> None:
        assert cluster.controller.partition().directory(1) == directory_id("/e1")
        reached.set()

    if point == RECORDED:
        copies.mark = stand_still  # type: ignore[method-assign, assignment]
    elif point == MARKED:
        copies.promote = hold  # type: ignore[method-assign]
    else:
        copies.delete_moved = stand_still  # type: ignore[method-assign, assignment]
    await alter(broker, "/e1")
    await reached.wait()


async def produce_more(cluster: DataCluster) -> None:
    """Seven records after the twelve that there are."""
    client = await cluster.client(1)
    for value in values(19)[12:]:
        assert (await client.produce(make_batch(value))).error_code == ErrorCode.NONE


async def start_without(cluster: DataCluster, path: str, *, is_readable: bool = True) -> DataBroker:
    """Start with a directory of which only the id, or nothing, can be read."""
    disk = cluster.disk(1)
    if is_readable:
        disk.inject("make_dirs", errno.EIO, path_part=path)
    else:
        disk.break_directory(path)
    broker = await cluster.start(1, log_dirs=DIRS)
    disk.mend_directory(path)
    assert list(broker.logs.dirs.offline) == [path] and (path in broker.logs.dirs.ids) is is_readable
    await broker.data.worklist.idle.wait()
    return broker


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize(("point", "failing"), USED_WITHOUT)
async def test_log_is_used_only_if_it_has_all_that_was_acknowledged(
    cluster: DataCluster, point: str, failing: str, loses_power: bool
) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    await move_until(point, cluster, broker)
    await produce_more(cluster)
    await broker.logs.flush(("t", 0))
    await broker.stop(clean=False)
    if loses_power:
        disk.crash(EverythingIsLost())
    used = USED_WITHOUT[point, failing]
    for is_readable in (False, True):  # a start changes nothing that the next one would miss
        again = await start_without(cluster, failing, is_readable=is_readable)
        if used is None:
            assert cluster.brokers[1].table.find("t", 0) is None
            assert again.logs.unavailable["t", 0][1] in ("", failing)
        else:
            assert again.logs.logs["t", 0].log_dir == used
            assert await read_all(cluster, 1) == values(19)
        await again.stop(clean=loses_power)
    again = await cluster.reopen(1, log_dirs=DIRS)
    assert await read_all(cluster, 1) == values(19)
    assert cluster.controller.lost == [], "no record had to come from elsewhere"
    await until(lambda: not again.logs.wanted_dirs and not again.logs.table.moved_from)
    here = again.logs.logs["t", 0].log_dir
    await until(lambda: cluster.controller.partition().directory(1) == directory_id(here))


@pytest.mark.parametrize("ends", ["is cancelled", "fails"])
async def test_log_whose_move_has_ended_without_effect_is_used_without_the_other_directory(
    cluster: DataCluster, ends: str
) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    await move_until(MARKED, cluster, broker)
    if ends == "fails":
        broker.logs.failures.fail("/e1", OSError(errno.EIO, "broken"))
    else:
        await alter(broker, "/d1")
    await until(lambda: not broker.data.moves._slots["/e1"].locked())
    disk.crash(EverythingIsLost())
    await broker.stop(clean=False)
    again = await start_without(cluster, "/e1")
    assert again.logs.logs["t", 0].log_dir == "/d1" and not again.logs.unavailable


async def test_move_whose_mark_has_no_room_ends_without_effect(cluster: DataCluster) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    disk.inject("open", errno.ENOSPC, path_part="/moved-to-")
    await alter(broker, "/e1")
    await until(lambda: not broker.logs.wanted_dirs)
    await until(lambda: directories_of(disk) == ["/d1/t-0"])
    assert broker.logs.dirs.online == list(DIRS)
    assert await read_all(cluster, 1) == values(12)


async def test_replica_whose_moved_log_is_damaged_does_not_take_the_old_one(
    cluster: DataCluster,
) -> None:
    broker, disk = await begin(cluster), cluster.disk(1)
    await move_until(SWAPPED, cluster, broker)
    await produce_more(cluster)
    await broker.stop(clean=False)
    disk.remove("/e1/t-0/partition.metadata")
    again = await cluster.start(1, log_dirs=DIRS)
    await until(lambda: cluster.controller.lost == [(1, "t")])
    assert again.table.find("t", 0) is None


@pytest.mark.parametrize("restarts", [False, True])
async def test_topic_that_is_created_again_does_not_begin_with_what_was_moved(restarts: bool) -> None:
    """The new directory has failed before the old log was deleted."""
    disk = MemoryDisk()
    logs = await started(disk, ("/a", "/b"))
    old, new = await move(logs)
    if restarts:
        abandon(logs)
        disk.inject("make_dirs", errno.EIO, path_part="/b")
        logs = await started(disk, ("/a", "/b"))
        await logs.opening.settle_copies(lambda opened: (True, False))
    else:
        logs.failures.fail("/b", OSError(errno.EIO, "broken"))
        await logs.copies.delete_moved(old, new)
        await until(lambda: KEY in logs.unavailable)
    assert logs.table.moved_from == {(KEY, "/a")} and not logs.logs
    created = await create(logs, topic_id=NEW_ID)
    assert created.log.directory == "/a/t-0" and created.log.log_end_offset == 0
    assert f"t-0.{OLD_ID.hex()}-stray" in disk.list("/a") and not logs.table.moved_from
    fill_log(created.log, 3)
    abandon(logs)
    again = await started(disk, ("/a",))
    assert (again.logs[KEY].topic_id, again.logs[KEY].log.log_end_offset) == (NEW_ID, 3)
    abandon(again)


async def test_start_of_a_moved_log_is_kept_until_its_directory_works_again(
    cluster: DataCluster,
) -> None:
    broker = await begin(cluster)
    await hold_back(cluster, broker)
    cluster.partition(1).log.advance_log_start(5)
    await broker.logs.checkpoints.store_log_starts([("t", 0)])
    del broker.logs.copies.promote
    await move_until(SWAPPED, cluster, broker)
    await broker.stop(clean=False)
    again = await start_without(cluster, "/e1")
    await again.logs.checkpoints.write({})
    await again.stop()
    again = await cluster.reopen(1, log_dirs=DIRS)
    log = again.logs.logs["t", 0].log
    assert (log.directory, log.log_start_offset, log.log_end_offset) == ("/e1/t-0", 5, 12)
