"""Snapshots as files beside the log: Kafka's format and names, written once, checked whenever they are read.

``<end offset>-<epoch>.checkpoint`` holds the committed state below ``end_offset``: a control batch with
SnapshotHeader (and KRaftVersion and Voters if the voter set is in the log), batches of values, and a control
batch with SnapshotFooter (KIP-630). Equal values under an equal id give equal bytes on every replica. A file
is ``.part`` while it is written or fetched and gets its name only when all of it is durable; ``.deleted``
while it is being deleted. Files that a crash leaves of either are removed at the start, since a part may not
have reached the disk.

The 0-0 checkpoint belongs to :mod:`.bootstrap` and is no snapshot. Which snapshots are kept is decided
elsewhere (:mod:`.local_snapshots`). Nothing here is a repair: damage is a :class:`CorruptSnapshotError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pykraft.kafka_protocol.crc import crc32c
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from pykraft.kafka_protocol.value_batches import decode_values, encode_values
from pykraft.lazy_dataclass import dataclass
from pykraft.quorum import control_records as control
from pykraft.quorum.control_records import ControlType, control_record
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import VoterSet
from pykraft.runtime.disk import Disk, DiskFile

__all__ = [
    "CorruptSnapshotError",
    "SnapshotFileWriter",
    "SnapshotId",
    "SnapshotInfo",
    "SnapshotReader",
    "SnapshotStore",
    "snapshot_name",
]

SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
FETCHED_SUFFIX = ".fetched.part"
DELETED_SUFFIX = ".deleted"
BATCH_RECORDS = 1000
BATCH_BYTES = 256 << 10

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_ANY_NAME = re.compile(r"\d{20}-\d{10}\.checkpoint(?P<suffix>\.\S+)")


class CorruptSnapshotError(Exception):
    """A snapshot file does not read back as it was written."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at position {position}: {reason}")
        self.path = path
        self.position = position


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """``checksum``: CRC-32C of the file. ``last_contained_log_time_ms``: wall clock, of the last batch."""

    snapshot_id: SnapshotId
    size_bytes: int
    checksum: int
    last_contained_log_time_ms: int
    voters: VoterSet | None


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


class SnapshotReader:
    """One complete snapshot, opened; stays readable when the file is deleted.

    Iterating gives the values, a tuple for each batch, and raises :class:`CorruptSnapshotError` where the
    file is damaged. ``voters``: None if the voter set is not in the log.
    """

    def __init__(self, file: DiskFile, path: str, snapshot_id: SnapshotId) -> None:
        self._file = file
        self.path = path
        self.snapshot_id = snapshot_id
        self.last_contained_log_time_ms = -1
        self.voters: VoterSet | None = None
        for position, header, data in self._batches():
            self._read_head(position, header, data)
            return

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        for position, header, data in self._batches():
            if not header.is_control:
                try:
                    yield decode_values(data, header)
                except KafkaError as error:
                    raise self._corrupt(position, str(error)) from None

    def verify(self) -> SnapshotInfo:
        """Read everything. :class:`CorruptSnapshotError` unless each batch is intact and none is missing."""
        size_bytes = checksum = 0
        for _, _, data in self._batches():
            size_bytes += len(data)
            checksum = crc32c(data, checksum)
        return SnapshotInfo(
            self.snapshot_id, size_bytes, checksum, self.last_contained_log_time_ms, self.voters
        )

    def close(self) -> None:
        self._file.close()

    def _batches(self) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Whole batches, CRCs checked, from the header to the footer."""
        size_bytes = self._file.size()
        position = next_offset = 0
        is_complete = False
        while position < size_bytes:
            head = self._file.pread(position, HEADER_BYTES)
            if is_complete or len(head) < HEADER_BYTES:
                raise self._corrupt(position, "bytes follow the footer" if is_complete else "a cut batch")
            header = read_header(head)
            if not HEADER_BYTES < header.size_bytes <= size_bytes - position:
                raise self._corrupt(position, f"a batch of {header.size_bytes} bytes does not fit the file")
            data = self._file.pread(position, header.size_bytes)
            if len(data) != header.size_bytes or not crc_is_valid(data, 0, header):
                raise self._corrupt(position, "a batch has a bad CRC")
            if header.base_offset != next_offset or header.is_control is not (
                position == 0 or self._is_footer(position, header, data)
            ):
                raise self._corrupt(position, f"no batch of offset {next_offset} and this kind belongs here")
            is_complete = header.is_control and position > 0
            yield position, header, data
            position, next_offset = position + header.size_bytes, header.next_offset
        if not is_complete:
            raise self._corrupt(position, "it ends without a footer")

    def _is_footer(self, position: int, header: BatchHeader, data: bytes) -> bool:
        return header.is_control and self._kinds(position, header, data) == [ControlType.SNAPSHOT_FOOTER]

    def _kinds(self, position: int, header: BatchHeader, data: bytes) -> list[int]:
        try:
            return [control.control_type(record.key) for record in self._decode(position, header, data)]
        except ValueError as error:
            raise self._corrupt(position, str(error)) from None

    def _read_head(self, position: int, header: BatchHeader, data: bytes) -> None:
        kinds = self._kinds(position, header, data)
        if kinds[0] != ControlType.SNAPSHOT_HEADER:
            raise self._corrupt(position, "it does not begin with a header")
        try:
            for kind, record in zip(kinds, self._decode(position, header, data), strict=True):
                if kind == ControlType.SNAPSHOT_HEADER:
                    time_ms = control.parse_snapshot_header(record.value or b"")
                    self.last_contained_log_time_ms = time_ms
                elif kind == ControlType.KRAFT_VOTERS:
                    self.voters = control.parse_voters_record(record.value or b"")
        except ValueError as error:
            raise self._corrupt(position, str(error)) from None

    def _decode(self, position: int, header: BatchHeader, data: bytes) -> list[Record]:
        try:
            return decode_batch(data, header)
        except KafkaError as error:
            raise self._corrupt(position, str(error)) from None

    def _corrupt(self, position: int, reason: str) -> CorruptSnapshotError:
        return CorruptSnapshotError(self.path, position, reason)


class SnapshotFileWriter:
    """Writes one snapshot into a ``.part`` file: values in order, then :meth:`finish` and :meth:`publish`.

    Batches are divided by number and size alone, so that equal values make equal files however they arrive.
    """

    def __init__(
        self, disk: Disk, directory: str, snapshot_id: SnapshotId, time_ms: int, voters: VoterSet | None
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(snapshot_id)}"
        self._next_offset = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.info = SnapshotInfo(snapshot_id, 0, 0, time_ms, voters)
        disk.remove(self._path + PART_SUFFIX)
        self._file = disk.open(self._path + PART_SUFFIX)
        head = [control_record(ControlType.SNAPSHOT_HEADER, control.snapshot_header(time_ms), time_ms)]
        if voters is not None:
            head += [
                control_record(ControlType.KRAFT_VERSION, control.kraft_version(), time_ms),
                control_record(ControlType.KRAFT_VOTERS, control.voters_record(voters), time_ms),
            ]
        self._write_control(head)

    def append(self, values: Sequence[bytes]) -> None:
        """The next values; written a full batch at a time."""
        for value in values:
            self._pending.append(value)
            self._pending_bytes += len(value)
            if len(self._pending) >= BATCH_RECORDS or self._pending_bytes >= BATCH_BYTES:
                self._write_pending()

    def finish(self) -> None:
        """The last value has been appended: write the rest, and the footer."""
        self._write_pending()
        time_ms = self.info.last_contained_log_time_ms
        foot = control_record(ControlType.SNAPSHOT_FOOTER, control.snapshot_footer(), time_ms)
        self._write_control([foot])

    def publish(self) -> None:
        """Make all of it durable and give it its name. Blocks; touches nothing but this file."""
        self._file.flush()
        self._file.close()
        self._disk.rename(self._path + PART_SUFFIX, self._path)
        self._disk.flush_dir(self._directory)

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._disk.remove(self._path + PART_SUFFIX)

    def _write_pending(self) -> None:
        if self._pending:
            batch = encode_values(
                self._pending,
                base_offset=self._next_offset,
                leader_epoch=self.info.snapshot_id.epoch,
                timestamp_ms=self.info.last_contained_log_time_ms,
            )
            self._write(batch, len(self._pending))
            self._pending.clear()
            self._pending_bytes = 0

    def _write_control(self, records: Sequence[RecordInput]) -> None:
        epoch = self.info.snapshot_id.epoch
        batch = encode_batch(records, base_offset=self._next_offset, leader_epoch=epoch, is_control=True)
        self._write(batch, len(records))

    def _write(self, batch: bytes, record_count: int) -> None:
        info = self.info
        self._file.append(batch)
        self._next_offset += record_count
        self.info = replace(
            info, size_bytes=info.size_bytes + len(batch), checksum=crc32c(batch, info.checksum)
        )


class SnapshotStore:
    """The snapshots of one directory. Not thread-safe, but what it returns may be used in a thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._infos: dict[SnapshotId, SnapshotInfo] = {}

    def open(self) -> list[CorruptSnapshotError]:
        """Remove unfinished files and check every complete snapshot. Blocks.

        :class:`CorruptSnapshotError` names file and position of damage in the newest. Damaged older
        ones, which the newest replaces, are removed and returned.
        """
        ids, damaged = [], []
        for name in self._disk.list(self._directory):
            if match := _NAME.fullmatch(name):
                ids.append(SnapshotId(int(match[1]), int(match[2])))
            elif (match := _ANY_NAME.fullmatch(name)) and match["suffix"].endswith((".part", ".deleted")):
                self._disk.remove(f"{self._directory}/{name}")
        ids = sorted(snapshot_id for snapshot_id in ids if snapshot_id.end_offset > 0)
        self._infos.clear()
        for snapshot_id in reversed(ids):
            try:
                self._infos[snapshot_id] = self._verify(snapshot_id)
            except CorruptSnapshotError as error:
                if snapshot_id == ids[-1]:
                    raise
                damaged.append(error)
                self._disk.remove(self.path(snapshot_id))
        return damaged

    def path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"

    def ids(self) -> tuple[SnapshotId, ...]:
        """Complete snapshots, oldest first."""
        return tuple(sorted(self._infos))

    def infos(self) -> tuple[SnapshotInfo, ...]:
        """The same, with what is known of each."""
        return tuple(self._infos[snapshot_id] for snapshot_id in self.ids())

    def latest(self) -> SnapshotId | None:
        return max(self._infos, default=None)

    def info(self, snapshot_id: SnapshotId) -> SnapshotInfo | None:
        return self._infos.get(snapshot_id)

    def writer(
        self, snapshot_id: SnapshotId, last_contained_log_time_ms: int, voters: VoterSet | None
    ) -> SnapshotFileWriter:
        """Begin a snapshot; :meth:`add` it once it is published. ``voters``: None if not in the log."""
        return SnapshotFileWriter(
            self._disk, self._directory, snapshot_id, last_contained_log_time_ms, voters
        )

    def add(self, info: SnapshotInfo) -> None:
        """The file is complete and durable."""
        self._infos[info.snapshot_id] = info

    def reader(self, snapshot_id: SnapshotId) -> SnapshotReader:
        """:class:`CorruptSnapshotError` if its first batch is damaged already."""
        path = self.path(snapshot_id)
        return SnapshotReader(self._disk.open(path, create=False), path, snapshot_id)

    def delete(self, snapshot_id: SnapshotId) -> None:
        """Readers continue; a crash in between leaves a name that is removed at the start."""
        self._infos.pop(snapshot_id, None)
        path = self.path(snapshot_id)
        self._disk.rename(path, path + DELETED_SUFFIX)
        self._disk.remove(path + DELETED_SUFFIX)

    def _verify(self, snapshot_id: SnapshotId) -> SnapshotInfo:
        reader = self.reader(snapshot_id)
        try:
            return reader.verify()
        finally:
            reader.close()

    # --- fetched by another replica, or from one ----------------------------------------------------------

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.path(snapshot_id), create=False)
        try:
            return file.pread(position, max_bytes)
        finally:
            file.close()

    def append_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Add to what has been fetched of a snapshot; position 0 starts over. Not durable."""
        path = self.path(snapshot_id) + FETCHED_SUFFIX
        if position == 0:
            self._remove_fetched()
        file = self._disk.open(path)
        try:
            assert file.size() == position, f"{path} ends at {file.size()}, the chunk belongs at {position}"
            file.append(data)
        finally:
            file.close()

    def open_download(self, snapshot_id: SnapshotId) -> DiskFile:
        """The fetched file, for :meth:`check_download`: it is kept for the check, whatever comes next."""
        return self._disk.open(self.path(snapshot_id) + FETCHED_SUFFIX, create=False)

    def check_download(self, snapshot_id: SnapshotId, file: DiskFile) -> SnapshotInfo:
        """Make a fetched snapshot durable and read all of it. Blocks; :class:`CorruptSnapshotError`."""
        try:
            file.flush()
            return SnapshotReader(file, self.path(snapshot_id) + FETCHED_SUFFIX, snapshot_id).verify()
        finally:
            file.close()

    def finish_download(self, info: SnapshotInfo) -> None:
        """Give a fetched and checked snapshot its name; durable on return."""
        path = self.path(info.snapshot_id)
        self._disk.rename(path + FETCHED_SUFFIX, path)
        self._disk.flush_dir(self._directory)
        self.add(info)

    def _remove_fetched(self) -> None:
        for name in self._disk.list(self._directory):
            if name.endswith(FETCHED_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")
