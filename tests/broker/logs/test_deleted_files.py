"""The files of deleted segments keep another name for ``file.delete.delay.ms``, and then they are removed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykraft.broker.logs.deleted_files import DeletedFiles
from pykraft.broker.logs.log_work import LogWork
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.virtual_loop import VirtualClock, VirtualLoop
from pykraft.runtime.tasks import TaskSupervisor
from tests.asynchronous import in_loop
from tests.broker.at_once import AtOnce
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.narrowing import as_type
from tests.unexpected import unexpected
from tests.waits import until


class Deletions:
    """Deleted files in virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.disk = MemoryDisk()
        self.tasks = TaskSupervisor(unexpected)
        clock = VirtualClock(loop)
        work = LogWork(clock, lambda log, error: unexpected(error))
        self.files = DeletedFiles(self.disk, clock, AtOnce(), work, self.tasks, lambda path, error: False)

    def delete(self, names: str, delay_ms: int) -> None:
        self.disk.make_dirs("/t-0")
        for name in names:
            self.disk.open(f"/t-0/{name}")
        self.files.add([f"/t-0/{name}" for name in names], delay_ms)

    @property
    def left(self) -> str:
        return "".join(self.disk.list("/t-0"))


@asynccontextmanager
async def begun() -> AsyncIterator[Deletions]:
    yield Deletions(as_type(asyncio.get_running_loop(), VirtualLoop))


deletions = in_loop(begun, VirtualLoop)


async def test_files_are_removed_when_their_own_delay_has_passed(deletions: Deletions) -> None:
    deletions.delete("ab", 60_000)
    await asyncio.sleep(50)
    deletions.delete("cd", 60_000)
    deletions.delete("e", 3_000)
    await asyncio.sleep(2.9)
    assert deletions.left == "abcde"
    await asyncio.sleep(2)
    assert deletions.left == "abcd"
    await asyncio.sleep(6)
    assert deletions.left == "cd"
    await asyncio.sleep(50)
    assert deletions.left == ""
    assert len(deletions.tasks) == 0, "nothing runs while nothing is deleted"
    deletions.delete("f", 0)
    await asyncio.sleep(0.001)
    assert deletions.left == ""


async def test_directory_that_is_gone_does_not_matter(deletions: Deletions) -> None:
    deletions.delete("a", 10)
    deletions.disk.remove_tree("/t-0")
    await asyncio.sleep(1)
    deletions.delete("b", 10)
    await asyncio.sleep(1)
    assert deletions.left == ""


@pytest.mark.parametrize("delay_ms", [0, 3_600_000])
async def test_deleted_segments_of_a_topic_are_renamed_and_removed_at_the_latest_by_a_start(
    cluster: DataCluster, delay_ms: int
) -> None:
    configs = {"retention.bytes": "0", "file.delete.delay.ms": str(delay_ms)}
    await cluster.create(1, configs=configs)
    client, broker = await cluster.client(1), cluster.brokers[1]
    await client.produce(make_batch(b"v"))
    log = cluster.partition(1).log
    log.roll(0)
    held = log.read(0, 1)
    await broker.data.maintenance.delete_old_segments()
    assert log.segment_base_offsets == (1,)
    oldest = f"/d1/t-0/{0:020}"
    assert not broker.disk.exists(f"{oldest}.log")
    assert held is not None and values_in(held.file.pread(0, 1000)) == [b"v"]
    if delay_ms:
        assert [broker.disk.exists(f"{oldest}{s}.deleted") for s in (".log", ".index", ".timeindex")]
        await broker.stop()
        broker = await cluster.start(1)
    await until(lambda: not broker.disk.exists(f"{oldest}.log.deleted"))
    assert not [name for name in broker.disk.list("/d1/t-0") if name.endswith(".deleted")]
