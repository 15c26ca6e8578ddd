"""Batches to store, and the two disks to store them on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store import places
from tests.log_store.places import Fill, MakeBatch, MemoryPlace, Place, Stored


@pytest.fixture
def make_batch() -> MakeBatch:
    return places.make_batch


@pytest.fixture
def fill() -> Fill:
    return places.fill


@pytest.fixture
def stored() -> Stored:
    return lambda log: [data for _, data in log.iter_batches(log.log_start_offset)]


@pytest.fixture
def memory() -> MemoryPlace:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    return MemoryPlace(disk, "/data")


@pytest.fixture(params=["memory", "os"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "os":
        yield Place(OsDisk(), str(tmp_path))
    else:
        disk = MemoryDisk()
        disk.make_dirs("/data")
        yield Place(disk, "/data")
