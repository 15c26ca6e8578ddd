"""The image that the files of a metadata log contain, read without a node: for tools.

Takes a log directory, one segment, or one snapshot. Replays everything in it, including the uncommitted end
of a log, and changes nothing. Damage raises a :class:`ValueError` that names file and position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.dump import Remainder, read_batches
from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.replay import replay
from pykraft.metadata_log.snapshot import ImageBuilder
from pykraft.runtime.disk import Disk

_SNAPSHOT_SUFFIX = ".checkpoint"
_FIRST_VOTERS = f"{0:020d}-{0:010d}{_SNAPSHOT_SUFFIX}"


def read_image(disk: Disk, path: str) -> MetadataImage:
    """The newest image in ``path``. Raises :class:`OSError` if it cannot be read."""
    if path.endswith(_SNAPSHOT_SUFFIX):
        return _read_snapshot(disk, path)
    if not disk.is_dir(path):
        return _read_segments(disk, [path], EMPTY_IMAGE)
    names = disk.list(path)
    segments = [f"{path}/{name}" for name in names if name.endswith(".log")]
    snapshots = [name for name in names if name.endswith(_SNAPSHOT_SUFFIX) and name > _FIRST_VOTERS]
    if not segments and not snapshots:
        raise ValueError(f"{path} holds no segment of a metadata log")
    image = _read_snapshot(disk, f"{path}/{snapshots[-1]}") if snapshots else EMPTY_IMAGE
    return _read_segments(disk, segments, image)


def _read_snapshot(disk: Disk, path: str) -> MetadataImage:
    """A snapshot is named by the offset it ends at (exclusive) and the epoch of its last record."""
    end_offset, _, epoch = path.rsplit("/", 1)[-1].removesuffix(_SNAPSHOT_SUFFIX).partition("-")
    if not (end_offset.isdecimal() and epoch.isdecimal()):
        raise ValueError(f"{path} is not named like a snapshot of a metadata log")
    builder = ImageBuilder()
    for data, header in _batches(disk, path, torn_end=False):
        if not header.is_control:
            builder.load([record.value or b"" for record in decode_batch(data, header)])
    image, _ = builder.finish(int(end_offset) - 1, int(epoch))
    return image


def _read_segments(disk: Disk, paths: list[str], image: MetadataImage) -> MetadataImage:
    for path in paths:
        for data, header in _batches(disk, path):
            if header.last_offset <= image.offset:
                continue
            if header.base_offset != image.offset + 1:
                raise ValueError(
                    f"{path} continues at offset {header.base_offset}, offset {image.offset + 1} is missing:"
                    " give the whole directory, or a snapshot"
                )
            if header.is_control:
                image = replace(image, offset=header.last_offset, epoch=header.partition_leader_epoch)
            else:
                records = [decode_record(record.value or b"") for record in decode_batch(data, header)]
                image, _ = replay(image, records, header.base_offset, header.partition_leader_epoch)
    return image


def _batches(disk: Disk, path: str, *, torn_end: bool = True) -> Iterator[tuple[bytes, BatchHeader]]:
    """The batches of a file. If ``torn_end``, a torn end is left out, as recovery would truncate it."""
    file = disk.open(path, create=False)
    try:
        for found in read_batches(file):
            if isinstance(found, Remainder):
                if not torn_end:
                    raise ValueError(f"{path} is damaged: no whole batch at position {found.position}")
                return
            if not found.is_valid:
                raise ValueError(
                    f"{path} is damaged: the CRC of the batch at position {found.position} is wrong"
                )
            yield found.data, found.header
    finally:
        file.close()
