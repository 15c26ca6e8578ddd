"""Producer snapshots: Kafka's bytes, and which of several is used."""

import struct

import pytest
from crc32c import crc32c

from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.producer_snapshot import (
    FoundSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    pack_entries,
    prepare_snapshot,
    read_newest_snapshot,
    remove_snapshots_above,
    remove_unfinished_snapshots,
    remove_unneeded_snapshots,
    snapshot_path,
)
from tests.log_store.places import MemoryPlace, Place

ENTRIES = [
    SnapshotEntry(7, 1, 41, 1000, 9, 1_700_000_000_000),
    SnapshotEntry(4000, 0, 2**31 - 1, 2**40, 0, -1, 3, 17),
]
BODY = (
    struct.pack(">i", 2)
    + struct.pack(">qhiqiqiq", 7, 1, 41, 1000, 9, 1_700_000_000_000, -1, -1)
    + struct.pack(">qhiqiqiq", 4000, 0, 2**31 - 1, 2**40, 0, -1, 3, 17)
)
FILE = struct.pack(">hI", 1, crc32c(BODY)) + BODY


def test_bytes_are_kafkas() -> None:
    assert encode_snapshot([pack_entries(ENTRIES)]) == FILE
    assert len(FILE) == 6 + 4 + 2 * 46
    assert decode_snapshot(FILE, "p") == ENTRIES
    assert decode_snapshot(encode_snapshot([pack_entries([])]), "p") == []


@pytest.mark.parametrize("position", [0, 1, 2, 5, 6, 9, 10, 60, len(FILE) - 1])
def test_any_changed_byte_is_noticed(position: int) -> None:
    damaged = bytearray(FILE)
    damaged[position] ^= 1
    with pytest.raises(CorruptCheckpointError, match=r"^p: "):
        decode_snapshot(bytes(damaged), "p")


@pytest.mark.parametrize("size_bytes", [0, 5, 9, 10, 55, len(FILE) - 1])
def test_any_lost_end_is_noticed(size_bytes: int) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_snapshot(FILE[:size_bytes], "p")


def entry(offset: int) -> list[SnapshotEntry]:
    return [SnapshotEntry(1, 0, 0, offset - 1, 0, 0)]


def store(place: Place, *offsets: int) -> str:
    directory = f"{place.root}/orders-3"
    place.disk.make_dirs(directory)
    for offset in offsets:
        data = encode_snapshot([pack_entries(entry(offset) if offset else [])])
        place.disk.write_atomic(snapshot_path(directory, offset), data)
    return directory


def test_newest_snapshot_within_the_log_is_used_and_newer_ones_are_removed(place: Place) -> None:
    directory = store(place, 0, 10, 20, 30, 40)
    assert read_newest_snapshot(place.disk, directory, 0, 30) == FoundSnapshot(30, entry(30), True)
    assert list_snapshots(place.disk, directory) == [0, 10, 20, 30]
    assert read_newest_snapshot(place.disk, directory, 15, 25) == FoundSnapshot(20, entry(20), False)
    assert read_newest_snapshot(place.disk, directory, 21, 25) is None


def test_damaged_snapshot_is_replaced_by_an_older_one(place: Place) -> None:
    directory = store(place, 10, 20, 30)
    path = snapshot_path(directory, 30)
    place.disk.write_atomic(path, place.disk.read(path)[:-1])
    assert read_newest_snapshot(place.disk, directory, 0, 30) == FoundSnapshot(20, entry(20), False)
    assert list_snapshots(place.disk, directory) == [10, 20]


def test_unreadable_snapshot_is_replaced_by_an_older_one(memory: MemoryPlace) -> None:
    directory = store(memory, 10, 20, 30)
    memory.disk.make_unreadable(snapshot_path(directory, 30))
    assert read_newest_snapshot(memory.disk, directory, 0, 30) == FoundSnapshot(20, entry(20), False)
    assert list_snapshots(memory.disk, directory) == [10, 20]


def test_empty_snapshot_at_offset_0_is_a_mark_without_state(place: Place) -> None:
    assert read_newest_snapshot(place.disk, store(place, 0), 0, 30) is None


def test_unfinished_snapshots_are_ignored_and_removed(place: Place) -> None:
    directory = store(place, 10)
    prepared = prepare_snapshot(place.disk, directory, 20, encode_snapshot([pack_entries(entry(20))]))
    place.disk.write_atomic(f"{prepared}.tmp", b"")
    assert list_snapshots(place.disk, directory) == [10]
    remove_unfinished_snapshots(place.disk, directory)
    assert place.disk.list(directory) == [f"{10:020d}.snapshot"]


def test_only_snapshots_of_segments_and_the_newest_are_kept(place: Place) -> None:
    directory = store(place, 0, 10, 15, 20, 30, 33)
    remove_unneeded_snapshots(place.disk, directory, (10, 20))
    assert list_snapshots(place.disk, directory) == [10, 20, 33]
    remove_snapshots_above(place.disk, directory, 20)
    assert list_snapshots(place.disk, directory) == [10, 20]
    remove_snapshots_above(place.disk, directory, -1)
    assert list_snapshots(place.disk, directory) == []
    remove_unneeded_snapshots(place.disk, directory, ())
