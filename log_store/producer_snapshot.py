"""Producer snapshots: the state of a log's producers at one offset, in Kafka's
``<offset>.snapshot``.

Big endian: version (int16, 1), CRC-32C of all that follows it (uint32), number of entries (int32), and 46
bytes per entry (Kafka's ProducerStateManager). A snapshot covers the batches below the offset it is named by.
It must never outlive them: before a log is truncated, the snapshots above the new end are removed. A damaged
file is removed; an older one, or the log itself, holds the same state.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from pykraft.kafka_protocol.crc import crc32c
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.runtime.disk import Disk, UnreadableError

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOT_VERSION = 1
NO_SEQUENCE = -1

_NAME = re.compile(r"(\d{20})\.snapshot")
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    """One producer. Its last batch began ``offset_delta`` before ``last_offset``; -1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int = -1
    current_transaction_first_offset: int = -1

    @property
    def first_sequence(self) -> int:
        """The first sequence of the last batch. Sequences wrap after 2**31 - 1."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF


class FoundSnapshot(NamedTuple):
    """A snapshot that was read. ``is_complete``: there is an empty one at offset 0."""

    offset: int
    entries: list[SnapshotEntry]
    is_complete: bool


def pack_entries(entries: Iterable[SnapshotEntry]) -> bytes:
    """A part of a file."""
    return b"".join([_ENTRY.pack(*entry) for entry in entries])


def encode_snapshot(parts: Iterable[bytes]) -> bytes:
    """The bytes of a file, of :func:`pack_entries`."""
    entries = b"".join(parts)
    body = _COUNT.pack(len(entries) // _ENTRY.size) + entries
    return _HEADER.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> list[SnapshotEntry]:
    """:class:`CorruptCheckpointError` unless version, length and CRC are right."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptCheckpointError(path, f"{len(data)} bytes are not a snapshot")
    version, checksum = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptCheckpointError(path, f"version is {version}, known is {SNAPSHOT_VERSION}")
    if crc32c(data[_HEADER.size :]) != checksum:
        raise CorruptCheckpointError(path, "CRC does not match")
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    entries = memoryview(data)[_HEADER.size + _COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise CorruptCheckpointError(path, f"{count} entries do not fill {len(entries)} bytes")
    return [SnapshotEntry._make(values) for values in _ENTRY.iter_unpack(entries)]


def snapshot_path(directory: str, offset: int) -> str:
    """The path of the snapshot of an offset."""
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def list_snapshots(disk: Disk, directory: str) -> list[int]:
    """The offsets of the existing snapshots, in order."""
    matches = [_NAME.fullmatch(name) for name in disk.list(directory)]
    return [int(match[1]) for match in matches if match is not None]


def remove_unfinished_snapshots(disk: Disk, directory: str) -> None:
    """Remove what an interrupted write left behind; only while no write is under way. Blocks."""
    for name in disk.list(directory):
        if f"{SNAPSHOT_SUFFIX}.new" in name:
            disk.remove(f"{directory}/{name}")


def prepare_snapshot(disk: Disk, directory: str, offset: int, data: bytes) -> str:
    """Write it, durably, under a temporary name, which is returned. Blocks."""
    path = f"{snapshot_path(directory, offset)}.new"
    disk.write_atomic(path, data)
    return path


def read_newest_snapshot(
    disk: Disk, directory: str, first_offset: int, end_offset: int, *, at_most: int | None = None
) -> FoundSnapshot | None:
    """The newest usable snapshot between the two offsets, and not above ``at_most``. Blocks.

    Unreadable ones are removed, and those above the end of the log, whose records are lost.
    """
    remove_snapshots_above(disk, directory, end_offset)
    last = end_offset if at_most is None else min(at_most, end_offset)
    offsets = [offset for offset in list_snapshots(disk, directory) if first_offset <= offset <= last]
    while offsets and offsets[-1] > 0:
        path = snapshot_path(directory, offset := offsets.pop())
        try:
            entries = decode_snapshot(disk.read(path), path)
        except (CorruptCheckpointError, UnreadableError) as error:
            logger.warning("%s; removed", error)
            disk.remove(path)
            continue
        return FoundSnapshot(offset, entries, offsets[:1] == [0])
    return None


def remove_snapshots_above(disk: Disk, directory: str, offset: int) -> None:
    """Remove durably: the log is about to be truncated there. Blocks, as the truncation itself."""
    gone = [found for found in list_snapshots(disk, directory) if found > offset]
    for found in gone:
        disk.remove(snapshot_path(directory, found))
    if gone:
        disk.flush_dir(directory)


def remove_unneeded_snapshots(disk: Disk, directory: str, segment_base_offsets: Iterable[int]) -> None:
    """Keep the snapshots of existing segments, and the newest. Blocks."""
    *older, _ = list_snapshots(disk, directory) or [0]
    kept = frozenset(segment_base_offsets)
    for offset in older:
        if offset not in kept:
            disk.remove(snapshot_path(directory, offset))
