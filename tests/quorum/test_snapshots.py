"""Whole nodes: they write snapshots, delete the log before them, and start from them.

It is long because every fault of a snapshot file is tried at each of these three moments.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.quorum import storage
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import CheckSnapshot
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.snapshot import note_snapshot
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import SnapshotId
from pykraft.quorum.flushed_mark import FLUSHED_OFFSET_FILE
from pykraft.quorum.snapshots import SnapshotInfo, SnapshotStore, snapshot_name
from pykraft.quorum.state_store import QUORUM_STATE_FILE, QuorumStateError, QuorumStateStore
from pykraft.quorum.storage import QuorumStorage
from pykraft.runtime.address import Address
from pykraft.runtime.disk import DiskFile
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.narrowing import present
from tests.quorum.nodes import (
    DIRECTORY,
    FAST,
    Cluster,
    Recorder,
    Replica,
    running_cluster,
)

SMALL = replace(FAST, max_retention_bytes=0)


PIECES = replace(SMALL, fetch_snapshot_max_bytes=300)


async def take_snapshot(replica: Replica) -> SnapshotId:
    """A snapshot of all values that the replica's listener has got."""
    node = replica.live
    writer = node.start_snapshot(replica.listener.next_offset, replica.listener.batches[-1].append_time_ms)
    assert writer is not None
    writer.append(replica.listener.values)
    snapshot_id = await writer.finish()
    assert snapshot_id is not None
    return snapshot_id


async def restart(replica: Replica, *, crash: bool) -> None:
    if crash:
        await replica.crash(random.Random(7))
    else:
        await replica.stop()
    await replica.start()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("config", [FAST, SMALL], ids=["log kept", "log cut"])
@pytest.mark.loop(new=VirtualLoop)
async def test_replica_starts_from_its_snapshot_and_the_log_after_it(
    config: QuorumConfig, crash: bool
) -> None:
    async with running_cluster(config=config) as cluster:
        await cluster.commit(b"a", b"b")
        await cluster.commit(b"c")
        replica = cluster.replicas[0]
        snapshot_id = await take_snapshot(replica)
        await cluster.commit(b"d")
        await cluster.commit(b"e")
        values = list(replica.listener.values)
        await restart(replica, crash=crash)
        await cluster.until(lambda: replica.listener.values == values)
        assert present(replica.listener.snapshot)[0] == snapshot_id
        assert (
            replica.live.high_watermark
            >= snapshot_id.end_offset
            == present(replica.live.latest_snapshot).end_offset
        )
        assert replica.log.log_start_offset == (snapshot_id.end_offset if config is SMALL else 0)
        await cluster.commit(b"f")


@pytest.mark.world(config=SMALL)
async def test_log_and_older_snapshots_are_deleted_after_a_snapshot(cluster: Cluster) -> None:
    replica = cluster.replicas[0]
    for value in (b"a", b"b", b"c"):
        await cluster.commit(value)
        newest = await take_snapshot(replica)
    names = replica.disk.list(DIRECTORY)
    assert [name for name in names if "checkpoint" in name and name[0] == "0"] == [snapshot_name(newest)]
    bases = replica.log.segment_base_offsets
    assert replica.log.log_start_offset == newest.end_offset and bases[0] > 0
    assert newest == SnapshotId(newest.end_offset, replica.live.leader.epoch)


async def test_snapshot_starts_only_at_the_end_of_a_committed_batch_and_never_twice(cluster: Cluster) -> None:
    offset = await cluster.commit(b"a", b"b", b"c")
    replica = cluster.replicas[0]
    node = replica.live
    assert node.start_snapshot(0, 0) is None
    assert node.start_snapshot(offset, 0) is None  # inside the batch
    assert node.start_snapshot(offset + 2, 0) is None  # not yet there
    first = node.start_snapshot(offset + 1, 0)
    assert first is not None and node.start_snapshot(offset + 1, 0) is None
    first.abort()
    assert await first.finish() is None
    assert not [name for name in replica.disk.list(DIRECTORY) if name.endswith(".part")]
    assert await take_snapshot(replica) == SnapshotId(offset + 1, node.leader.epoch)
    assert node.start_snapshot(offset + 1, 0) is None  # no newer than the newest


async def test_snapshot_of_many_values_is_delivered_in_slices(cluster: Cluster) -> None:
    replica = cluster.replicas[0]
    for _ in range(3):
        await cluster.commit(*[b"v"] * 1500)
    await take_snapshot(replica)
    sizes = []
    await replica.stop()
    inner = type(replica.listener).handle_snapshot_values

    def watch(listener: Recorder, values: Sequence[bytes]) -> None:
        sizes.append(len(values))
        inner(listener, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(replica.listener), "handle_snapshot_values", watch)
        await replica.start()
        await cluster.until(lambda: len(replica.listener.values) == 4500)
    assert len(sizes) == 5 and max(sizes) <= 1000


async def test_writer_of_a_halted_replica_produces_no_snapshot(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    replica = cluster.replicas[0]
    writer = replica.live.start_snapshot(replica.listener.next_offset, 0)
    await replica.stop()
    present(writer).append([b"a"])
    assert await present(writer).finish() is None
    present(writer).abort()
    await replica.start()
    assert replica.live.latest_snapshot is None


@pytest.mark.parametrize(
    ("operation", "part"), [("append", ".part"), ("flush", ".part"), ("rename", ".part")]
)
@pytest.mark.loop(new=VirtualLoop)
async def test_disk_fault_while_writing_a_snapshot_halts_the_replica(operation: str, part: str) -> None:
    cluster = Cluster(1)
    await cluster.start()
    await cluster.commit(b"a")
    replica = cluster.replicas[0]
    writer = replica.live.start_snapshot(replica.listener.next_offset, 0)
    replica.memory_disk.inject(operation, errno.EIO, path_part=part)
    present(writer).append([b"a"])
    assert await present(writer).finish() is None
    (error,) = replica.fatal
    assert isinstance(error, OSError)
    assert replica.live.latest_snapshot is None
    await cluster.stop()


# --- fetched by those that lag behind --------------------------------------------------------------------


async def follower_of(cluster: Cluster) -> Replica:
    leader = await cluster.leader()
    return next(replica for replica in cluster.replicas if replica is not leader)


async def leave_behind(cluster: Cluster, replica: Replica, values: int = 20) -> SnapshotId:
    """Stop ``replica``, commit more, and let every other one delete its log before a snapshot."""
    await replica.stop()
    for number in range(values):
        await cluster.commit(b"%d " % number * 50)
    others = [other for other in cluster.replicas if other.node is not None]
    ids = [await take_snapshot(other) for other in others]
    assert len(set(ids)) == 1
    return ids[0]


@pytest.mark.parametrize("disk", ["its own", "empty"])
@pytest.mark.world(config=PIECES)
async def test_replica_behind_the_log_start_fetches_the_snapshot_and_continues_after_it(
    cluster: Cluster, disk: str
) -> None:
    await cluster.commit(b"a")
    replica = await follower_of(cluster)
    snapshot_id = await leave_behind(cluster, replica)
    if disk == "empty":
        for name in replica.disk.list(DIRECTORY):
            if name not in (QUORUM_STATE_FILE, FLUSHED_OFFSET_FILE):
                replica.disk.remove(f"{DIRECTORY}/{name}")
    await replica.start()
    assert (present(replica.live._core).state.recovery is not None) is (disk == "empty")
    await cluster.commit(b"z")
    leader = await cluster.leader()
    assert replica.listener.values == leader.listener.values
    assert present(replica.listener.snapshot)[0] == snapshot_id == replica.live.latest_snapshot
    assert replica.log.log_start_offset == snapshot_id.end_offset
    assert not [name for name in replica.disk.list(DIRECTORY) if name.endswith(".part")]
    values = list(replica.listener.values)
    await restart(replica, crash=True)
    await cluster.until(lambda: replica.listener.values == values)


@pytest.mark.world(observers=1, config=PIECES)
async def test_observer_also_fetches_the_snapshot(cluster: Cluster) -> None:
    observer = cluster.replicas[-1]
    snapshot_id = await leave_behind(cluster, observer)
    await observer.start()
    await cluster.commit(b"z")
    assert present(observer.listener.snapshot)[0] == snapshot_id


@pytest.mark.world(config=PIECES)
async def test_snapshot_damaged_in_transit_is_fetched_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.commit(b"a")
    replica = await follower_of(cluster)
    snapshot_id = await leave_behind(cluster, replica)
    inner = SnapshotStore.append_chunk
    damaged: list[bytes] = []

    def append_chunk(store: SnapshotStore, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        if position == 300 and not damaged:
            damaged.append(data)
            data = bytes(len(data))
        inner(store, snapshot_id, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotStore, "append_chunk", append_chunk)
        await replica.start()
        await cluster.commit(b"z")
    assert damaged and present(replica.listener.snapshot)[0] == snapshot_id
    assert "is fetched again" in caplog.text


@pytest.mark.parametrize(
    ("operation", "part"),
    [("append", ".fetched.part"), ("flush", ".fetched.part"), ("rename", ".fetched.part"), ("flush_dir", "")],
)
@pytest.mark.loop(new=VirtualLoop)
async def test_disk_fault_while_fetching_or_installing_halts_the_replica(operation: str, part: str) -> None:
    cluster = Cluster(3, config=PIECES)
    await cluster.start()
    await cluster.commit(b"a")
    replica = await follower_of(cluster)
    await leave_behind(cluster, replica)
    await replica.start()
    replica.memory_disk.inject(operation, errno.EIO, path_part=part)
    async with asyncio.timeout(20):
        while not replica.fatal:
            await asyncio.sleep(0.002)
    (error,) = replica.fatal
    assert isinstance(error, OSError)
    replica.fatal.clear()
    await cluster.stop()


class _DyingDisk:
    """Forwards a number of operations; then the machine is gone."""

    def __init__(self, disk: MemoryDisk, operations: int) -> None:
        self._disk = disk
        self.left = operations

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._disk, name)
        if name not in ("rename", "remove", "flush_dir", "open", "write_atomic"):
            return found

        def call(*arguments: object, **keywords: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EIO, "the machine is gone")
            return found(*arguments, **keywords)

        return call


@pytest.mark.parametrize("operations", range(21))
@pytest.mark.loop(new=VirtualLoop)
async def test_state_after_any_crash_while_installing_is_the_one_before(operations: int) -> None:
    """The disk fails at each operation in turn and then loses power; the next start has lost nothing."""
    cluster = Cluster(3, config=PIECES)
    await cluster.start()
    await cluster.commit(b"a", b"b")
    replica = await follower_of(cluster)
    await leave_behind(cluster, replica, values=6)
    values = list((await cluster.leader()).listener.values)
    replica.disk = _DyingDisk(replica.memory_disk, operations)
    died = False
    try:
        await replica.start()
        await cluster.until(lambda: replica.listener.values == values)
    except (AssertionError, OSError):
        died = True
    assert died or operations >= 15
    await _power_cycle(cluster, replica, operations, values)


@pytest.mark.parametrize("operations", range(26))
@pytest.mark.loop(new=VirtualLoop)
async def test_state_after_any_crash_while_writing_a_snapshot_and_deleting_the_log_is_the_one_before(
    operations: int,
) -> None:
    cluster = Cluster(3, config=SMALL)
    await cluster.start()
    replica = await follower_of(cluster)
    for value in (b"a", b"b"):
        await cluster.commit(value)
        await take_snapshot(replica)
    await cluster.commit(b"c", b"d")
    values = list(replica.listener.values)
    replica.disk = _DyingDisk(replica.memory_disk, 1 << 30)
    await restart(replica, crash=False)
    await cluster.until(lambda: replica.listener.values == values)
    await cluster.commit(b"e")
    values.append(b"e")
    replica.disk.left = operations
    writer = replica.live.start_snapshot(replica.listener.next_offset, 0)
    if writer is not None:
        writer.append(values)
        await writer.finish()
    assert replica.fatal or operations >= 12
    await _power_cycle(cluster, replica, operations, values)


async def _power_cycle(cluster: Cluster, replica: Replica, seed: int, values: Sequence[bytes]) -> None:
    """After a power loss the replica returns with everything, and takes part."""
    replica.disk = replica.memory_disk
    if replica.node is not None:
        await replica.crash(random.Random(seed))
    else:
        replica.memory_disk.crash(random.Random(seed))
    replica.fatal.clear()
    await replica.start()
    await cluster.until(lambda: replica.listener.values == values)
    await cluster.commit(b"z")
    await cluster.stop()


# --- what does not start ---------------------------------------------------------------------------------


async def _stopped_with_two_snapshots(cluster: Cluster) -> tuple[Replica, list[SnapshotId]]:
    replica = cluster.replicas[0]
    ids = []
    for value in (b"a", b"b"):
        await cluster.commit(value)
        ids.append(await take_snapshot(replica))
    await replica.stop()
    return replica, ids


async def test_damaged_newest_snapshot_stops_the_start_with_its_name_and_position(cluster: Cluster) -> None:
    replica, ids = await _stopped_with_two_snapshots(cluster)
    path = f"{DIRECTORY}/{snapshot_name(ids[-1])}"
    replica.memory_disk.flip_bit(path, 70)
    with pytest.raises(QuorumStateError, match=rf"{path} is corrupt at position 0"):
        await replica.start()
    replica.node = None


async def test_damaged_older_snapshot_does_not_matter(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    replica, ids = await _stopped_with_two_snapshots(cluster)
    replica.memory_disk.flip_bit(f"{DIRECTORY}/{snapshot_name(ids[0])}", 70)
    await replica.start()
    await cluster.until(lambda: replica.listener.values == [b"a", b"b"])
    assert "An older snapshot is removed" in caplog.text


@pytest.mark.world(config=SMALL)
async def test_log_that_begins_after_the_newest_snapshot_does_not_start(cluster: Cluster) -> None:
    replica, ids = await _stopped_with_two_snapshots(cluster)
    for snapshot_id in ids:
        replica.disk.remove(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")
    with pytest.raises(QuorumStateError, match=r"the log begins at offset \d+, and there is no snapshot"):
        await replica.start()
    replica.node = None


@pytest.mark.parametrize("log", ["shorter", "of another epoch", "gone"])
async def test_log_that_a_snapshot_overtook_starts_over_at_its_end(cluster: Cluster, log: str) -> None:
    """As a crash leaves it between the rename of a fetched snapshot and the deletion of the log."""
    replica = cluster.replicas[0]
    await cluster.commit(b"a")
    await cluster.commit(b"b")
    await replica.stop()
    end_offset, epoch = replica.log.log_end_offset, replica.log.latest_epoch
    snapshot_id = {
        "shorter": SnapshotId(end_offset + 50, epoch),
        "of another epoch": SnapshotId(end_offset - 1, epoch + 1),
        "gone": SnapshotId(end_offset, epoch),
    }[log]
    if log == "gone":
        for name in replica.disk.list(DIRECTORY):
            if name.endswith((".log", ".index", ".timeindex")):
                replica.disk.remove(f"{DIRECTORY}/{name}")
    writer = SnapshotStore(replica.disk, DIRECTORY).writer(snapshot_id, 9, None)
    writer.append([b"state"])
    writer.finish()
    writer.publish()
    QuorumStateStore(replica.disk, DIRECTORY).write(ElectionState(epoch + 1))
    node = await replica.start()
    assert replica.log.log_start_offset == snapshot_id.end_offset == node.high_watermark
    assert replica.listener.leaders == [] and replica.log.log_end_offset >= snapshot_id.end_offset
    for other in cluster.replicas[1:]:
        await other.stop()
    await cluster.until(lambda: replica.listener.values == [b"state"])


@pytest.mark.world(config=PIECES)
async def test_check_of_a_snapshot_that_was_replaced_meanwhile_has_no_effect(cluster: Cluster) -> None:
    """The leader has deleted it, its successor is being fetched, and the thread has not read it back yet."""
    await cluster.commit(b"a")
    replica: Replica = await follower_of(cluster)
    first = await leave_behind(cluster, replica)
    begun, read_back = [], []
    prepare, inner = storage.QuorumStorage.prepare_check, SnapshotStore.check_download

    def late() -> float:
        del replica.threads.delay_s
        return 5.0

    def begin(store: QuorumStorage, effect: CheckSnapshot) -> Callable[[], SnapshotInfo]:
        begun.append(effect.snapshot_id)
        if effect.snapshot_id == first:
            replica.threads.delay_s = late  # type: ignore[method-assign]
        return prepare(store, effect)

    def check(store: SnapshotStore, snapshot_id: SnapshotId, file: DiskFile) -> SnapshotInfo:
        read_back.append(snapshot_id)
        return inner(store, snapshot_id, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.QuorumStorage, "prepare_check", begin)
        patch.setattr(SnapshotStore, "check_download", check)
        patch.setattr(storage, "SERVED_RECENTLY_MS", 0)
        await replica.start()
        await cluster.until(lambda: begun == [first])
        others = [other for other in cluster.replicas if other is not replica]
        leader = await cluster.leader()
        assert leader.node is not None and leader.node is not replica.node
        offset = leader.live.propose(leader.live.leader.epoch, [b"b"])
        await cluster.until(lambda: all(other.listener.next_offset > offset for other in others))
        second, _ = [await take_snapshot(other) for other in others]
        await cluster.until(lambda: replica.node and replica.live.latest_snapshot == second)
        assert read_back == [second]
        await cluster.until(lambda: first in read_back)
        await cluster.commit(b"z")
    assert replica.listener.snapshot is not None and replica.listener.snapshot[0] == second


@pytest.mark.parametrize("voters", ["in the log", "of the configuration"])
@pytest.mark.loop(new=VirtualLoop)
async def test_snapshot_of_an_id_is_the_same_file_on_every_replica(voters: str) -> None:
    """Also on a replica that was not given the voters and asks the bootstrap servers."""
    servers = tuple(Address("test", 9000 + node_id) for node_id in range(1, 4))
    cluster = Cluster(3, 1, replace(FAST, bootstrap_servers=servers), NO_VOTERS)
    if voters == "of the configuration":
        cluster.voters = VoterSet([Voter(ReplicaKey(v.key.id), v.address) for v in cluster.voters])
    await cluster.start()
    await cluster.commit(b"a")
    ends = [batch.last_offset + 1 for batch in cluster.replicas[0].listener.batches]
    files: dict[int, set[bytes]] = {}
    for end_offset in ends:
        for replica in cluster.replicas:
            assert replica.node is not None
            writer = replica.live.start_snapshot(end_offset, 7)
            if writer is not None:
                snapshot_id = await writer.finish()
                assert snapshot_id is not None and snapshot_id.end_offset == end_offset
                data = replica.disk.read(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")
                files.setdefault(end_offset, set()).add(data)
    assert {len(different) for different in files.values()} == {1}
    assert ends[-1] in files
    await cluster.stop()


def test_snapshot_that_a_newer_one_has_overtaken_is_not_the_newest() -> None:
    state = cast(CoreState, SimpleNamespace(high_watermark=20, snapshot=None))
    for taken, newest in ((7, 7), (5, 7), (9, 9)):
        note_snapshot(state, SnapshotId(taken, 1))
        assert state.snapshot == SnapshotId(newest, 1)
