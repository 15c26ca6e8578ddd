"""Disk faults of a running or starting node: each ends in a safe stop, or costs one partition."""

import asyncio
import errno
import os

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.node.errors import StartError
from pykraft.runtime.disk import UnreadableError
from pykraft.runtime.os_disk import OsDisk, OsFile
from tests.node.sites import SEGMENT, FaultyDisk, Site, create, run_node, topics

pytestmark = pytest.mark.slow

FAULTS = {
    "full disk under the metadata log": ("append", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.ENOSPC),
    "EIO on fsync of the metadata log": ("flush", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.EIO),
    "EIO on append to the metadata log": ("append", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.EIO),
}


@pytest.mark.parametrize("case", FAULTS)
def test_fault_of_a_running_disk_halts_the_node_and_loses_nothing_acknowledged(site: Site, case: str) -> None:
    operation, part, number = FAULTS[case]
    disk = FaultyDisk(operation, part, number)
    outcome: list[object] = []

    def work() -> None:
        create(site, "t3")
        disk.broken = True
        with AdminClient(site.broker) as admin:
            try:
                outcome.extend(admin.create_topics([NewTopic("t4", 1, 1)], timeout_ms=1_500))
            except Exception as error:
                outcome.append(error)

    fatal = asyncio.run(run_node(site, work, disk))
    assert isinstance(fatal[0], OSError) and fatal[0].errno == number
    (answer,) = outcome
    assert isinstance(answer, Exception) or getattr(answer, "error", None) is not None, (
        "an acknowledged change is lost"
    )
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1", "t2", "t3"}


class BadSectorFile(OsFile):
    """A file that cannot be read."""

    def pread(self, position: int, length_bytes: int) -> bytes:
        raise UnreadableError(errno.EIO, "medium error", self.path)


class BadSectorDisk(OsDisk):
    """Real files, except that those with one name cannot be read."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def open(self, path: str, *, create: bool = True) -> OsFile:
        file = super().open(path, create=create)
        if self._part not in path:
            return file
        file.close()
        return BadSectorFile(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        if self._part in path:
            raise UnreadableError(errno.EIO, "medium error", path)
        return super().read(path)


@pytest.mark.parametrize("name", [SEGMENT, "quorum-state"])
def test_bad_sector_in_the_metadata_log_prevents_the_start(site: Site, name: str) -> None:
    disk = BadSectorDisk(f"{METADATA_LOG_DIRECTORY}/{name}")
    before = site.files()
    with pytest.raises(StartError, match=f"{name}: medium error"):
        asyncio.run(run_node(site, disk=disk))
    assert site.files() == before
    assert asyncio.run(run_node(site)) == []


@pytest.mark.parametrize("name", [SEGMENT, "partition.metadata"])
def test_bad_sector_in_a_partition_never_prevents_a_start(site: Site, name: str) -> None:
    (directory,) = site.root.glob("*/t1-0")
    with (directory / SEGMENT).open("ab") as file:
        file.write(encode_batch([RecordInput(None, b"v", (), 0)], base_offset=0, leader_epoch=0))
    found: set[str] = set()
    for _ in range(2):
        fatal = asyncio.run(run_node(site, lambda: found.update(topics(site)), BadSectorDisk(f"t1-0/{name}")))
        assert fatal == [] and found >= {"t1", "t2"}
    assert len(list(site.root.glob("*/t1-0.00000000-damaged"))) == 1
