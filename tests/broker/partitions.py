"""One replica over a log in memory, and functions that act on it."""

from typing import TypedDict, Unpack

from pykraft.broker.logs.producers.rebuild import ProducerRebuild
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.broker.replicas.partition.leading import AppendInfo
from pykraft.broker.replicas.partition.observer import PartitionObserver
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.interface import CorruptLogError, LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.batch_fields import BatchFields


class Events:
    """No task waits for events: a test looks at the partition itself."""

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def state_changed(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None:
        partition.log.log_start_stored(partition.log.log_start_offset)
        partition.log_start_stored()

    def producers_lost(self, partition: Partition) -> None:
        log = partition.log
        rebuild = ProducerRebuild((), complete=log.log_start_offset == 0)
        for header, marker in log.iter_produced(0):
            rebuild.replay(header, marker)
        log.restore_aborted(rebuild.aborted, 0)
        partition.producers.adopt(rebuild.finish())

    def storage_failed(self, partition: Partition, error: OSError | CorruptLogError) -> None:
        raise error

    def replication_failed(self, partition: Partition, error: Exception) -> None:
        raise error


class Waiter:
    def __init__(self) -> None:
        self.outcome: object = None

    def offset_committed(self) -> None:
        self.outcome = "committed"

    def offset_refused(self, error_code: int) -> None:
        self.outcome = ErrorCode(error_code)


class PartitionOptions(TypedDict, total=False):
    """What tests set of :class:`Partition`."""

    producers: ProducerState
    high_watermark: int
    observer: PartitionObserver


def make(
    node_id: int = 1, *, min_isr: int = 1, disk: MemoryDisk | None = None, **options: Unpack[PartitionOptions]
) -> Partition:
    config = LogConfig(segment_bytes=2000, min_insync_replicas=min_isr)
    log = Log.open(disk or MemoryDisk(), "t-0", config, now_ms=0)
    return Partition("t", Uuid(b"i" * 16), 0, node_id, log, Events(), **options)


def replica(
    registration: PartitionRegistration,
    node_id: int = 1,
    *,
    min_isr: int = 1,
    disk: MemoryDisk | None = None,
    **options: Unpack[PartitionOptions],
) -> Partition:
    partition = make(node_id, min_isr=min_isr, disk=disk, **options)
    partition.apply(registration, 0)
    return partition


def state(
    leader: int, epoch: int = 0, version: int = 0, isr: tuple[int, ...] = (1, 2, 3)
) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3, 4), isr, leader, epoch, version)


def batch(value: bytes = b"v", **fields: Unpack[BatchFields]) -> memoryview:
    return memoryview(bytearray(encode_batch([RecordInput(None, value, (), 1000)], **fields)))


def stored(offset: int, epoch: int, value: bytes = b"v", **fields: Unpack[BatchFields]) -> bytes:
    data = bytearray(encode_batch([RecordInput(None, value, (), 1000)], **fields))
    assign_offset(data, 0, offset, epoch)
    return bytes(data)


def append(
    partition: Partition, value: bytes = b"v", *, all_acks: bool = True, **fields: Unpack[BatchFields]
) -> AppendInfo:
    data = batch(value, **fields)
    return partition.append_as_leader(data, read_header(data), 5000, all_acks=all_acks)


def acknowledge(partition: Partition, offset: int, *replicas: int, epoch: int = 7, now_ms: int = 0) -> None:
    for replica in replicas:
        partition.handle_follower_fetch(replica, offset, epoch, now_ms, 0)


def always(replica: int, epoch: int) -> bool:
    return True
