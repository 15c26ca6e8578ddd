"""The text files next to the segments, byte for byte, and how damaged ones are handled."""

import random

import pytest

from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.log_store.places import MemoryPlace, Place

TOPIC_ID = Uuid(bytes(range(16)))


def test_offset_checkpoint_has_kafkas_bytes(place: Place) -> None:
    path = f"{place.root}/{checkpoint.REPLICATION_OFFSET_CHECKPOINT}"
    assert checkpoint.read_offset_checkpoint(place.disk, path) == {}
    offsets = {("orders", 10): 7, ("orders", 2): 1 << 40, ("a-b.c_d", 0): 0}
    checkpoint.write_offset_checkpoint(place.disk, path, offsets)
    assert place.disk.read(path) == b"0\n3\norders 10 7\norders 2 1099511627776\na-b.c_d 0 0\n"
    assert checkpoint.read_offset_checkpoint(place.disk, path) == offsets
    checkpoint.write_offset_checkpoint(place.disk, path, {})
    assert place.disk.read(path) == b"0\n0\n"
    assert checkpoint.read_offset_checkpoint(place.disk, path) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n0\n", b"0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt x 1\n", b"0\n1\nt 0 1 2\n", b"\xff"],
)
def test_malformed_offset_checkpoint_is_an_error_that_names_the_file(
    memory: MemoryPlace, content: bytes
) -> None:
    path = f"{memory.root}/{checkpoint.RECOVERY_POINT_CHECKPOINT}"
    memory.disk.write_atomic(path, content)
    with pytest.raises(CorruptCheckpointError, match="recovery-point-offset-checkpoint"):
        checkpoint.read_offset_checkpoint(memory.disk, path)


def test_empty_checkpoint_of_kafkas_cleaner_is_no_error(memory: MemoryPlace) -> None:
    path = f"{memory.root}/{checkpoint.CLEANER_OFFSET_CHECKPOINT}"
    memory.disk.write_atomic(path, b"")
    assert checkpoint.read_offset_checkpoint(memory.disk, path) == {}


def test_partition_metadata_has_kafkas_bytes(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.read_partition_metadata(place.disk, place.root)
    checkpoint.write_partition_metadata(place.disk, place.root, TOPIC_ID)
    expected = f"version: 0\ntopic_id: {uuid_to_str(TOPIC_ID)}\n".encode()
    assert place.disk.read(f"{place.root}/partition.metadata") == expected
    assert checkpoint.read_partition_metadata(place.disk, place.root) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [b"", b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", b"version: 0\ntopic_id: x\n"],
)
def test_malformed_partition_metadata_is_an_error(memory: MemoryPlace, content: bytes) -> None:
    memory.disk.write_atomic(f"{memory.root}/partition.metadata", content)
    with pytest.raises(CorruptCheckpointError, match=r"partition\.metadata"):
        checkpoint.read_partition_metadata(memory.disk, memory.root)


def test_clean_shutdown_marker_exists_until_removed(place: Place) -> None:
    assert checkpoint.read_clean_shutdown(place.disk, place.root) is None
    checkpoint.write_clean_shutdown(place.disk, place.root, 42)
    path = f"{place.root}/.kafka_cleanshutdown"
    assert place.disk.read(path) == b'{"version":0,"brokerEpoch":42}'
    assert checkpoint.read_clean_shutdown(place.disk, place.root) == 42
    checkpoint.remove_clean_shutdown(place.disk, place.root)
    assert checkpoint.read_clean_shutdown(place.disk, place.root) is None
    place.disk.write_atomic(path, b"")
    assert checkpoint.read_clean_shutdown(place.disk, place.root) == -1


def test_meta_properties_survive_a_round_trip_and_java_comments(place: Place) -> None:
    root = f"{place.root}/new/logs"
    assert read_meta_properties(place.disk, root) is None
    meta = MetaProperties(1, "q1Sh-9_ISia_zwGINzRvyQ", 3, TOPIC_ID)
    write_meta_properties(place.disk, root, meta)
    text = f"cluster.id=q1Sh-9_ISia_zwGINzRvyQ\ndirectory.id={uuid_to_str(TOPIC_ID)}\nnode.id=3\nversion=1\n"
    assert place.disk.read(f"{root}/meta.properties") == text.encode()
    assert read_meta_properties(place.disk, root) == meta
    commented = b"#\n#Fri Nov 20 16:00:00 UTC 2026\n\n" + text.replace("-9", "\\=9").encode()
    place.disk.write_atomic(f"{root}/meta.properties", commented)
    found = read_meta_properties(place.disk, root)
    assert found is not None and found.cluster_id == "q1Sh=9_ISia_zwGINzRvyQ"


@pytest.mark.parametrize(
    "content",
    [
        b"cluster.id=c\nnode.id=1\nversion=1\n",
        b"cluster.id=c\nnode.id=x\nversion=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        b"cluster.id=c\nnode.id=1\nversion=0\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        b"nonsense",
    ],
)
def test_malformed_meta_properties_are_an_error(memory: MemoryPlace, content: bytes) -> None:
    memory.disk.write_atomic(f"{memory.root}/meta.properties", content)
    with pytest.raises(CorruptCheckpointError, match=r"meta\.properties"):
        read_meta_properties(memory.disk, memory.root)


def test_removed_marker_does_not_return_after_a_power_loss() -> None:
    for seed in range(20):
        disk = MemoryDisk()
        disk.make_dirs("/data")
        checkpoint.write_clean_shutdown(disk, "/data", 7)
        checkpoint.remove_clean_shutdown(disk, "/data")
        disk.crash(random.Random(seed))
        assert checkpoint.read_clean_shutdown(disk, "/data") is None
