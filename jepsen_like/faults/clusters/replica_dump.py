"""Reads one replica's own log files, as they lie in its data directory, into a history.

The node must have stopped. Reads the segments in order with the record codec alone, not with the broker's log
code, so that a fault in the latter cannot hide itself.
"""

from collections.abc import Iterator
from pathlib import Path

from pykraft.jepsen_like.faults.history import HistoryWriter
from pykraft.jepsen_like.faults.record_text import record_text
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, iter_headers

RECORDS_PER_EVENT = 5_000


class CorruptReplicaError(ValueError):
    """A replica's log holds something else than whole batches; the message names file and position."""


def dump_replica(log_dir: Path, node_id: int, topic: str, partition: int, history: HistoryWriter) -> int:
    """Record what this replica holds; the number of records. An empty or missing log is recorded as such, and
    ``replica-damaged`` if it cannot be read."""
    process, key = f"replica-{node_id}", f"{topic}-{partition}"
    records: list[tuple[int, str]] = []
    batches: list[tuple[int, ...]] = []
    total = 0

    def write() -> None:
        history.record("ok", process, "replica", key=key, records=records, detail={"batches": batches})

    try:
        for header, batch in iter_batches(log_dir / f"{topic}-{partition}"):
            offsets = (header.base_offset, header.last_offset)
            producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            batches.append((*offsets, header.partition_leader_epoch, header.crc, *producer))
            if not header.is_control:
                records += [
                    (record.offset, record_text(record.key, record.value))
                    for record in decode_batch(batch, header)
                ]
            if len(records) >= RECORDS_PER_EVENT:
                write()
                total += len(records)
                records, batches = [], []
    except CorruptReplicaError as error:
        history.record("info", process, "replica-damaged", key=key, error=str(error))
    write()
    return total + len(records)


def iter_batches(directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a partition directory in order. :class:`CorruptReplicaError` if one is damaged."""
    for segment in sorted(directory.glob("*.log")):
        data = memoryview(segment.read_bytes())
        try:
            for position, header in iter_headers(data):
                if not crc_is_valid(data, position, header):
                    raise CorruptReplicaError(
                        f"{segment} at byte {position}: the CRC of the batch does not match"
                    )
                yield header, data[position : position + header.size_bytes]
        except KafkaError as error:
            raise CorruptReplicaError(f"{segment}: {error.message}") from error
