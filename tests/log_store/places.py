"""Batches to store, and the disks to store them on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.disk import Disk
from pykraft.runtime.simulated.memory_disk import MemoryDisk


@dataclass(frozen=True)
class Batch:
    data: bytes
    header: BatchHeader


class OpenOptions(TypedDict, total=False):
    """What tests set of :meth:`Log.open`."""

    recovery_point: int
    log_start_offset: int
    compacted_offset: int
    clean: bool
    on_batch: Callable[[BatchHeader], None]


class BatchOptions(TypedDict, total=False):
    """The options of :func:`make_batch`."""

    records: int
    value_bytes: int
    epoch: int
    times: Sequence[int]


@dataclass(frozen=True)
class Place:
    """A disk with an existing directory."""

    disk: Disk
    root: str

    def open(
        self, config: LogConfig | None = None, *, now_ms: int = 0, **options: Unpack[OpenOptions]
    ) -> Log:
        return Log.open(self.disk, f"{self.root}/orders-3", config or LogConfig(), now_ms=now_ms, **options)

    def path(self, name: str) -> str:
        return f"{self.root}/orders-3/{name}"


@dataclass(frozen=True)
class MemoryPlace(Place):
    """A place whose disk does what a test tells it to."""

    disk: MemoryDisk


def make_batch(
    offset: int, *, records: int = 1, value_bytes: int = 20, epoch: int = 1, times: Sequence[int] = (1000,)
) -> Batch:
    inputs = [
        RecordInput(None, bytes([offset % 251 + 1]) * value_bytes, (), times[min(index, len(times) - 1)])
        for index in range(records)
    ]
    data = encode_batch(inputs, base_offset=offset, leader_epoch=epoch)
    return Batch(data, read_header(data))


def fill(log: Log, count: int, *, now_ms: int = 0, **options: Unpack[BatchOptions]) -> list[Batch]:
    """Append ``count`` one-record batches at the log end."""
    batches = []
    for _ in range(count):
        batch = make_batch(log.log_end_offset, **options)
        log.append(batch.data, [batch.header], now_ms=now_ms)
        batches.append(batch)
    return batches


class MakeBatch(Protocol):
    """:func:`make_batch`."""

    def __call__(self, offset: int, **options: Unpack[BatchOptions]) -> Batch: ...


class Fill(Protocol):
    """:func:`fill`."""

    def __call__(
        self, log: Log, count: int, *, now_ms: int = 0, **options: Unpack[BatchOptions]
    ) -> list[Batch]: ...


Stored = Callable[[Log], list[bytes]]
