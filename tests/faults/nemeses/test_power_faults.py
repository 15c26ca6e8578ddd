"""Disks that fill, fail, freeze or lose their power under nodes. Needs root and loop devices."""

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.surroundings.loop_disk import FREEZE_WHILE_ASKED, LoopDisk
from pykraft.jepsen_like.faults.surroundings.loop_disks import LoopDisks
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop_disks")]

RECORDS = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path / "disk.img", tmp_path / "mount")
    try:
        disk.make()
        yield disk
    finally:
        disk.unmount()


def test_full_disk_takes_nothing_until_it_is_freed(disk: LoopDisk) -> None:
    disk.fill()
    with pytest.raises(OSError) as refused:
        (disk.mount_point / "file").write_bytes(bytes(100_000))
    assert refused.value.errno == errno.ENOSPC
    disk.free()
    (disk.mount_point / "file").write_bytes(bytes(100_000))


def test_loss_of_power_does_not_fill_a_disk_again_that_was_freed(disk: LoopDisk) -> None:
    disk.fill()
    os.sync()
    disk.free()
    disk.cut_power()
    disk.unmount()
    disk.mount()
    (disk.mount_point / "file").write_bytes(bytes(100_000))


def test_unflushed_data_is_lost_after_a_power_loss(disk: LoopDisk) -> None:
    """Otherwise no run with power losses proves anything."""
    path = disk.mount_point / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"lost")
        disk.cut_power()
        with pytest.raises(OSError):
            file.write(b"refused")
    disk.unmount()
    disk.mount()
    assert not path.exists()


def test_read_only_disk_has_lost_what_was_not_flushed_when_it_is_mounted_again(disk: LoopDisk) -> None:
    path = disk.mount_point / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"flushed")
        os.fsync(file)
        file.write(b", and not")
        disk.turn_read_only()
        with pytest.raises(OSError) as refused:
            file.write(b"refused")
        assert refused.value.errno == errno.EROFS
    assert path.read_bytes() == b"flushed, and not"
    disk.unmount()
    disk.mount()
    assert path.read_bytes() == b"flushed"


def test_frozen_disk_makes_writers_wait_and_is_thawed_before_it_is_unmounted(disk: LoopDisk) -> None:
    path = disk.mount_point / "file"
    path.write_bytes(b"")
    writer = threading.Thread(target=path.write_bytes, args=(b"late",))
    disk.freeze()
    try:
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
    finally:
        disk.thaw()
    writer.join(PATIENCE_S)
    assert path.read_bytes() == b"late"
    disk.freeze()
    disk.unmount()
    disk.mount()


def test_disk_is_thawed_if_the_runner_is_gone_before_it_was_told_that_it_is_frozen(disk: LoopDisk) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = ["sh", "-c", FREEZE_WHILE_ASKED, "freezer", str(disk.mount_point)]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=write_end, check=True)
    finally:
        os.close(write_end)
    (disk.mount_point / "file").write_bytes(b"not frozen")


def test_flushed_records_survive_a_power_loss_of_all_nodes(tmp_path: Path) -> None:
    """``flush.messages=1``: each replica has flushed a record before it is acknowledged."""
    with ProcessCluster(tmp_path, 3, FAST_FAILOVER, surroundings=LoopDisks()) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic("t", 1, 3, {"min.insync.replicas": "2", "flush.messages": "1"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        values = [b"%d" % number for number in range(RECORDS)]
        for value in values:
            producer.produce("t", value)
        assert producer.flush(PATIENCE_S) == 0
        fault = Fault(0, "power-loss-all", Target.ALL, 0.0, 0.0)
        restore = KINDS[fault.kind].inflict(cluster, fault, cluster.members)
        assert not any(node.running for node in cluster.nodes.values())
        restore()
        cluster.wait_ready()
        cluster.wait_in_sync("t", PATIENCE_S)
        assert _read(cluster, "t", len(values)) == values


def test_power_is_restored_although_somebody_has_started_the_node(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 1, surroundings=LoopDisks()) as cluster:
        cluster.surroundings.open(tmp_path, cluster.listeners)
        mounted = cluster.surroundings.disks[1].mount_point
        (mounted / "file").write_bytes(b"")
        node = cluster.nodes[1]
        node.command = ("sh", "-c", f"cd {mounted} && exec sleep 600")
        node.start()
        restore = KINDS["power-loss"].inflict(cluster, Fault(0, "power-loss", Target.ANY, 0.0, 0.0), [1])
        node.start()
        wait_until("it is there", lambda: os.readlink(f"/proc/{node.pid}/cwd") == str(mounted), PATIENCE_S)
        restore()
        assert node.running
        (mounted / "file").write_bytes(b"there is power")


def _read(cluster: ProcessCluster, topic: str, count: int) -> list[bytes | None]:
    """The records from the start to the end."""
    found: list[bytes | None] = []
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "test"})
    try:
        place = TopicPartition(topic, 0, 0)
        consumer.assign([place])
        _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        assert end == count

        def read_on() -> bool:
            found.extend(message.value() for message in consumer.consume(count, 0.2) if not message.error())
            return len(found) >= count

        wait_until("all is read", read_on, PATIENCE_S, interval_s=0)
    finally:
        consumer.close()
    return found
