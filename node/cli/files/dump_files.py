"""Files beside logs for ``pykraft dump-log``: checkpoints, topic ids, aborted transactions, indexes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.kafka_protocol.records import HEADER_BYTES, read_header
from pykraft.log_store.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    GAP_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    read_partition_metadata,
)
from pykraft.log_store.epoch_cache import LEADER_EPOCH_CHECKPOINT, decode_entries
from pykraft.runtime.disk import Disk, DiskFile

Entry = dict[str, object]

_TRANSACTION = struct.Struct(">hqqqq")
_OFFSETS = (
    CLEANER_OFFSET_CHECKPOINT,
    GAP_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)


def read_offsets(disk: Disk, path: str) -> Iterator[Entry]:
    """:class:`CorruptCheckpointError` if the file is damaged, here and below."""
    for (topic, partition), offset in read_offset_checkpoint(disk, path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def read_epochs(disk: Disk, path: str) -> Iterator[Entry]:
    for entry in decode_entries(disk.read(path), path):
        yield {"epoch": entry.epoch, "startOffset": entry.start_offset}


def read_topic_id(disk: Disk, path: str) -> Iterator[Entry]:
    yield {
        "version": 0,
        "topicId": uuid_to_str(read_partition_metadata(disk, path.rpartition("/")[0] or ".")),
    }


TEXT_FILES: dict[str, Callable[[Disk, str], Iterator[Entry]]] = {
    **dict.fromkeys(_OFFSETS, read_offsets),
    LEADER_EPOCH_CHECKPOINT: read_epochs,
    PARTITION_METADATA: read_topic_id,
}
"""By the name of the file."""


def read_transactions(data: bytes) -> Iterator[Entry]:
    """The aborted transactions of a ``.txnindex``, as Kafka's tool names their fields."""
    whole = len(data) - len(data) % _TRANSACTION.size
    for version, producer_id, first, last, stable in _TRANSACTION.iter_unpack(data[:whole]):
        yield {
            "version": version,
            "producerId": producer_id,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }


def is_whole_transactions(data: bytes) -> bool:
    return len(data) % _TRANSACTION.size == 0


def find_offset_mismatch(log: DiskFile, offset: int, position: int) -> int | None:
    """The last offset of the batch that an index entry leads to, if it is another; -1 if there is no batch."""
    head = log.pread(position, HEADER_BYTES) if position >= 0 else b""
    found = read_header(head).last_offset if len(head) == HEADER_BYTES else -1
    return None if found == offset else found
