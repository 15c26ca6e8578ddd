"""Snapshot files: Kafka's format, which damage is noticed, and what a crash leaves behind."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.quorum import control_records
from pykraft.quorum.control_records import ControlType
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.local_snapshots import choose_log_start
from pykraft.quorum.snapshots import (
    BATCH_BYTES,
    BATCH_RECORDS,
    CorruptSnapshotError,
    SnapshotId,
    SnapshotInfo,
    SnapshotStore,
    snapshot_name,
)
from pykraft.runtime.address import Address
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.narrowing import present

DIRECTORY = "/data/__cluster_metadata-0"
ID = SnapshotId(500, 7)
VOTERS = VoterSet([Voter(ReplicaKey(1, Uuid(b"\1" * 16)), Address("host", 9093))])
VALUES = [b"value %d" % number for number in range(2 * BATCH_RECORDS + 17)]


def _disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs(DIRECTORY)
    return disk


def _write(
    disk: MemoryDisk,
    snapshot_id: SnapshotId = ID,
    values: Sequence[bytes] = VALUES,
    voters: VoterSet | None = VOTERS,
    piece: int = 97,
) -> SnapshotStore:
    store = SnapshotStore(disk, DIRECTORY)
    store.open()
    writer = store.writer(snapshot_id, 1_700_000_000_000, voters)
    for start in range(0, len(values), piece):
        writer.append(values[start : start + piece])
    writer.finish()
    writer.publish()
    store.add(writer.info)
    return store


def _path(snapshot_id: SnapshotId = ID) -> str:
    return f"{DIRECTORY}/{snapshot_name(snapshot_id)}"


def test_file_is_named_and_framed_as_kafkas() -> None:
    disk = _disk()
    _write(disk)
    assert disk.list(DIRECTORY) == ["00000000000000000500-0000000007.checkpoint"]
    data = disk.read(_path())
    batches = [(header, decode_batch(data[at:], header)) for at, header in iter_headers(data)]
    assert [header.is_control for header, _ in batches] == [True, False, False, False, True]
    assert all(header.partition_leader_epoch == 7 for header, _ in batches)
    offsets = [record.offset for _, records in batches for record in records]
    assert offsets == list(range(len(VALUES) + 4))
    head = [control_records.control_type(record.key) for record in batches[0][1]]
    assert head == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert [control_records.control_type(r.key) for r in batches[-1][1]] == [ControlType.SNAPSHOT_FOOTER]


def test_values_time_and_voters_read_back() -> None:
    reader = _write(_disk()).reader(ID)
    assert [value for values in reader for value in values] == VALUES
    assert (reader.last_contained_log_time_ms, reader.voters) == (1_700_000_000_000, VOTERS)
    assert max(len(values) for values in reader) == BATCH_RECORDS


def test_voters_of_the_configuration_are_not_in_it() -> None:
    disk = _disk()
    assert _write(disk, voters=None).reader(ID).voters is None
    header = next(iter_headers(disk.read(_path())))[1]
    assert header.record_count == 1


def test_values_share_a_batch_again_after_one_that_was_full_by_its_bytes() -> None:
    disk = _disk()
    _write(disk, values=[bytes(BATCH_BYTES), *[b"small"] * 10], piece=1)
    counts = [header.record_count for _, header in iter_headers(disk.read(_path()))]
    assert counts == [3, 1, 10, 1]


def test_file_that_begins_with_other_control_records_is_damaged() -> None:
    disk = _disk()
    _write(disk)
    data = disk.read(_path())
    head = next(iter_headers(data))[1]
    footer = control_records.control_record(
        ControlType.SNAPSHOT_FOOTER, control_records.snapshot_footer(), 1_700_000_000_000
    )
    other = encode_batch([footer] * head.record_count, leader_epoch=7, is_control=True)
    disk.write_atomic(_path(), other + data[head.size_bytes :])
    with pytest.raises(CorruptSnapshotError, match="does not begin with a header"):
        SnapshotStore(disk, DIRECTORY).open()


def test_equal_values_make_equal_files_however_they_are_batched() -> None:
    one, other = _disk(), _disk()
    _write(one, piece=1)
    store = _write(other, piece=1999)
    assert one.read(_path()) == other.read(_path())
    reopened = SnapshotStore(one, DIRECTORY)
    assert reopened.open() == []
    assert reopened.infos() == store.infos()


def test_snapshot_without_values_is_complete() -> None:
    store = _write(_disk(), values=[])
    assert list(store.reader(ID)) == []
    assert store.reader(ID).verify() == store.info(ID)


@pytest.mark.parametrize("seed", range(40))
def test_any_flipped_bit_is_noticed_with_file_and_position(seed: int) -> None:
    rng = random.Random(seed)
    disk = _disk()
    store = _write(disk)
    size = present(store.info(ID)).size_bytes
    at = rng.randrange(size)
    # the CRC of a batch does not cover its base offset, its length, its epoch and its magic byte
    starts = [(p, h.size_bytes) for p, h in iter_headers(disk.read(_path()))]
    in_epoch = any(12 <= at - p < 16 for p, _ in starts)
    disk.flip_bit(_path(), at, rng.randrange(8))
    if in_epoch:
        pytest.skip("the epoch in the header of a batch is not covered by its CRC, and not read")
    with pytest.raises(CorruptSnapshotError, match=r"checkpoint is corrupt at position \d+") as caught:
        SnapshotStore(disk, DIRECTORY).open()
    assert caught.value.path == _path()
    assert any(caught.value.position == p and p <= at < p + n for p, n in starts) or caught.value.position


@pytest.mark.parametrize("keep", ["nothing", "the head", "no footer", "half a batch"])
def test_truncated_file_is_noticed(keep: str) -> None:
    disk = _disk()
    _write(disk)
    starts = [position for position, _ in iter_headers(disk.read(_path()))]
    size = {"nothing": 0, "the head": starts[1], "no footer": starts[-1], "half a batch": starts[2] + 100}[
        keep
    ]
    file = disk.open(_path())
    file.truncate(size)
    with pytest.raises(CorruptSnapshotError):
        SnapshotStore(disk, DIRECTORY).open()


def test_bytes_after_the_footer_are_noticed() -> None:
    disk = _disk()
    _write(disk)
    disk.open(_path()).append(b"\0")
    with pytest.raises(CorruptSnapshotError, match="follow the footer"):
        SnapshotStore(disk, DIRECTORY).open()


def test_damaged_older_snapshot_is_removed_and_named() -> None:
    disk = _disk()
    older = SnapshotId(100, 3)
    _write(disk, older)
    _write(disk)
    disk.flip_bit(_path(older), 30)
    store = SnapshotStore(disk, DIRECTORY)
    (damage,) = store.open()
    assert damage.path == _path(older)
    assert store.ids() == (ID,) and not disk.exists(_path(older))


def test_unfinished_files_are_removed_at_start_and_the_bootstrap_checkpoint_is_no_snapshot() -> None:
    disk = _disk()
    store = _write(disk)
    store.writer(SnapshotId(900, 8), 0, None).append([b"x"])
    store.append_chunk(SnapshotId(950, 8), 0, b"y")
    disk.rename(_path(), _path() + ".deleted")
    bootstrap = f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint"
    disk.write_atomic(bootstrap, b"not looked at")
    names = ["00000000000000000100.log", "leader-epoch-checkpoint", "quorum-state"]
    for name in names:
        disk.write_atomic(f"{DIRECTORY}/{name}", b"")
    store = SnapshotStore(disk, DIRECTORY)
    store.open()
    assert store.ids() == () and store.latest() is None
    assert disk.list(DIRECTORY) == sorted([*names, bootstrap.rpartition("/")[2]])


@pytest.mark.parametrize("seed", range(30))
def test_crash_while_writing_leaves_all_of_a_snapshot_or_nothing(seed: int) -> None:
    rng = random.Random(seed)
    disk = _disk()
    store = SnapshotStore(disk, DIRECTORY)
    writer = store.writer(ID, 5, VOTERS)
    steps = [lambda: writer.append(VALUES), writer.finish, writer.publish]
    for step in steps[: rng.randrange(4)]:
        step()
    disk.crash(rng, zero_tails=rng.random() < 0.5)
    reopened = SnapshotStore(disk, DIRECTORY)
    reopened.open()
    if reopened.ids():
        assert [value for values in reopened.reader(ID) for value in values] == VALUES
    else:
        assert disk.list(DIRECTORY) == []


def test_published_snapshot_survives_a_power_loss() -> None:
    disk = _disk()
    _write(disk)
    disk.crash(random.Random(1))
    store = SnapshotStore(disk, DIRECTORY)
    store.open()
    assert store.ids() == (ID,)


def test_fetched_pieces_become_the_same_file() -> None:
    source, target = _write(_disk()), _disk()
    store = SnapshotStore(target, DIRECTORY)
    position = 0
    while chunk := source.read_chunk(ID, position, 1000):
        store.append_chunk(ID, position, chunk)
        position += len(chunk)
    assert position == present(source.info(ID)).size_bytes and store.ids() == ()
    info = store.check_download(ID, store.open_download(ID))
    assert info == source.info(ID)
    store.finish_download(info)
    target.crash(random.Random(2))
    reopened = SnapshotStore(target, DIRECTORY)
    reopened.open()
    assert reopened.infos() == (info,)


def test_fetching_again_drops_earlier_pieces() -> None:
    disk = _disk()
    store = SnapshotStore(disk, DIRECTORY)
    store.append_chunk(ID, 0, b"old")
    store.append_chunk(SnapshotId(600, 7), 0, b"other")
    store.append_chunk(ID, 0, b"new")
    assert disk.list(DIRECTORY) == [snapshot_name(ID) + ".fetched.part"]
    with pytest.raises(CorruptSnapshotError):
        store.check_download(ID, store.open_download(ID))


# --- what is kept ----------------------------------------------------------------------------------------


def _info(end_offset: int, size_bytes: int = 10, time_ms: int = 0) -> SnapshotInfo:
    return SnapshotInfo(SnapshotId(end_offset, 1), size_bytes, 0, time_ms, None)


def _choose(
    infos: Sequence[SnapshotInfo],
    start_offset: int = 0,
    log_bytes: Callable[[int], int] = lambda offset: 400 - offset,
    **limits: int,
) -> int | None:
    limits = {"now_ms": 1_000, "max_bytes": -1, "max_ms": -1, **limits}
    chosen = choose_log_start(infos, start_offset, log_bytes, **limits)
    return chosen and chosen.end_offset


def test_without_limits_everything_is_kept() -> None:
    assert _choose([_info(100), _info(200)]) is None
    assert _choose([], max_bytes=0, max_ms=0) is None


def test_no_more_is_deleted_than_brings_log_and_snapshots_below_the_limit() -> None:
    infos = [_info(100), _info(200), _info(300)]
    assert _choose(infos, max_bytes=430) is None
    assert _choose(infos, max_bytes=429) == 100
    assert _choose(infos, max_bytes=329) == 200
    assert _choose(infos, max_bytes=0) == 300  # the newest stays, whatever its size


def test_snapshots_expire_by_the_time_of_their_last_batch() -> None:
    infos = [_info(100, time_ms=100), _info(200, time_ms=500), _info(300, time_ms=900)]
    assert _choose(infos, max_ms=900) is None
    assert _choose(infos, max_ms=800) == 100
    assert _choose(infos, max_ms=200) == 200
    assert _choose(infos, start_offset=200, max_ms=200) is None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads descriptors in /proc")
@pytest.mark.parametrize("published", [True, False])
def test_file_of_a_snapshot_is_closed_as_soon_as_it_is_published_or_discarded(
    tmp_path: Path, published: bool
) -> None:
    """Whoever wrote it may hold the writer for long, and a broken one would keep its bytes on the disk."""

    def opened() -> list[str]:
        paths = [descriptor.resolve().name for descriptor in Path("/proc/self/fd").iterdir()]
        return [name for name in paths if name.startswith(snapshot_name(ID))]

    store = SnapshotStore(OsDisk(), str(tmp_path))
    store.open()
    writer = store.writer(ID, 0, VOTERS)
    writer.append(VALUES)
    assert opened() == [snapshot_name(ID) + ".part"]
    if published:
        writer.finish()
        writer.publish()
    else:
        writer.discard()
    assert opened() == []
    assert [path.name for path in tmp_path.iterdir()] == [snapshot_name(ID)] * published
