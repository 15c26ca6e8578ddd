"""Transaction markers: the control batches that say how a transaction of a producer ended in a partition.

A marker is one record. Key: version (int16, 0), kind (int16: 0 abort, 1 commit). Value: version (int16, 0)
and the epoch of the coordinator that wrote it (int32). The batch names producer and epoch, and has no
sequence (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import CONTROL_BIT, BatchHeader

ABORT = 0
COMMIT = 1
OTHER = -1
"""Not the end of a transaction."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_NO_COORDINATOR_EPOCH = -1


class Marker(NamedTuple):
    """The content of a control batch: :data:`ABORT`, :data:`COMMIT` or :data:`OTHER`, and who says so."""

    kind: int
    coordinator_epoch: int

    @property
    def ends_transaction(self) -> bool:
        return self.kind != OTHER


class EndOfTransaction(NamedTuple):
    """A marker that a coordinator asks a leader to write.

    ``transaction_version``: which rules the coordinator follows for the producer's epoch.
    """

    producer_id: int
    producer_epoch: int
    marker: Marker
    transaction_version: int = 0


def read_marker(header: BatchHeader, batch: bytes) -> Marker | None:
    """The marker in a whole control batch; None if compaction has left it empty."""
    records = decode_batch(batch, header)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        return Marker(OTHER, _NO_COORDINATOR_EPOCH)
    kind: int = _KEY.unpack_from(key)[1]
    epoch: int = _NO_COORDINATOR_EPOCH
    if value is not None and len(value) >= _VALUE.size:
        epoch = _VALUE.unpack_from(value)[1]
    return Marker(kind if kind in (ABORT, COMMIT) else OTHER, epoch)


def read_kind(header: BatchHeader, batch: bytes) -> int | None:
    """The kind of the marker in a whole control batch; None if compaction has left it empty."""
    marker = read_marker(header, batch)
    return None if marker is None else marker.kind


def with_markers(data: Buffer, headers: Iterable[BatchHeader]) -> Iterator[tuple[BatchHeader, Marker | None]]:
    """Each header with its marker if it is that of a control batch; ``data`` is exactly their batches."""
    position = 0
    for header in headers:
        marker = None
        if header.attributes & CONTROL_BIT:
            marker = read_marker(header, bytes(data[position : position + header.size_bytes]))
        yield header, marker
        position += header.size_bytes


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int) -> bytes:
    """The control batch, without offset and leader epoch."""
    record = RecordInput(
        _KEY.pack(_VERSION, marker.kind),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
        (),
        timestamp_ms,
    )
    return encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_control=True,
        is_transactional=True,
    )
