"""Batches to store, and the two disks to store them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykraft.jepsen_like.sim.memory_disk import MemoryDisk
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.log_store.log import Log, LogConfig
from pykraft.runtime.disk import Disk
from pykraft.runtime.os_disk import OsDisk


@dataclass(frozen=True)
class Batch:
    data: bytes
    header: BatchHeader


@dataclass(frozen=True)
class Place:
    """A disk with an existing directory."""

    disk: Disk
    root: str

    def open(self, config: LogConfig | None = None, **options: object) -> Log:
        options.setdefault("now_ms", 0)
        return Log.open(self.disk, f"{self.root}/orders-3", config or LogConfig(), **options)  # type: ignore[arg-type]

    def path(self, name: str) -> str:
        return f"{self.root}/orders-3/{name}"


def _make_batch(
    offset: int, *, records: int = 1, value_bytes: int = 20, epoch: int = 1, times: Sequence[int] = (1000,)
) -> Batch:
    inputs = [
        RecordInput(None, bytes([offset % 251 + 1]) * value_bytes, (), times[min(index, len(times) - 1)])
        for index in range(records)
    ]
    data = encode_batch(inputs, base_offset=offset, leader_epoch=epoch)
    return Batch(data, read_header(data))


def _fill(log: Log, count: int, *, now_ms: int = 0, **options: int) -> list[Batch]:
    """Append ``count`` one-record batches at the log end."""
    batches = []
    for _ in range(count):
        batch = _make_batch(log.log_end_offset, **options)  # type: ignore[arg-type]
        log.append(batch.data, [batch.header], now_ms=now_ms)
        batches.append(batch)
    return batches


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return _make_batch


@pytest.fixture
def fill() -> Callable[..., list[Batch]]:
    return _fill


@pytest.fixture
def stored() -> Callable[[Log], list[bytes]]:
    return lambda log: [data for _, data in log.iter_batches(log.log_start_offset)]


@pytest.fixture
def memory() -> Place:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    return Place(disk, "/data")


@pytest.fixture(params=["memory", "os"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "os":
        yield Place(OsDisk(), str(tmp_path))
    else:
        disk = MemoryDisk()
        disk.make_dirs("/data")
        yield Place(disk, "/data")
