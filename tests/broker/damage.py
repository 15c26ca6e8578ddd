"""Damages the files of a replica, and reads the outcome."""

from collections.abc import Callable
from functools import partial

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.runtime.disk import UnreadableError
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.data_cluster import DataCluster, make_batch, values_in
from tests.waits import until

SEGMENTS = {"segment.bytes": str(1 << 20)}
CLOSED, NEWEST = f"{3:020d}", f"{9:020d}"


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%03d" % number + b"v" * 50 for number in range(start, start + count)]


def _are_at(cluster: DataCluster, topic: str, end_offset: int) -> bool:
    """Whether every replica's log ends there."""
    replicas = (broker.table.find(topic, 0) for broker in cluster.brokers.values())
    return all(replica is None or replica.log.log_end_offset == end_offset for replica in replicas)


async def fill(cluster: DataCluster, leader: int, count: int, topic: str = "t") -> None:
    """One batch for each value, three batches in each segment on every replica."""
    client = await cluster.client(leader)
    for number, value in enumerate(values(count)):
        if number % 3 == 0:
            for broker in cluster.brokers.values():
                partition = broker.table.find(topic, 0)
                if partition is not None and broker.node_id in cluster.controller.brokers:
                    partition.log.roll(0)
        result = await client.produce(make_batch(value), topic=topic)
        assert result.error_code == ErrorCode.NONE
        await until(partial(_are_at, cluster, topic, number + 1))


async def read_all(cluster: DataCluster, node_id: int, topic: str = "t") -> list[bytes]:
    client = await cluster.client(node_id)
    found: list[bytes] = []
    while True:
        result = await client.fetch(len(found), topic=topic)
        assert result.error_code == ErrorCode.NONE
        more = values_in(result.records)
        if not more:
            return found
        found += more


Damage = Callable[[MemoryDisk, str], None]
"""What becomes of a file."""


def cut(disk: MemoryDisk, path: str, size_bytes: int) -> None:
    disk.write_atomic(path, disk.read(path)[:size_bytes])


def flip(position: int) -> Damage:
    return lambda disk, path: disk.flip_bit(path, position, 6)


def half(disk: MemoryDisk, path: str) -> None:
    cut(disk, path, len(disk.read(path)) // 2)


def empty(disk: MemoryDisk, path: str) -> None:
    cut(disk, path, 0)


def missing(disk: MemoryDisk, path: str) -> None:
    disk.remove(path)


def unreadable(disk: MemoryDisk, path: str) -> None:
    disk.make_unreadable(path)


def content(disk: MemoryDisk, path: str) -> bytes | None:
    """None if it does not exist or cannot be read."""
    try:
        return disk.read(path)
    except (FileNotFoundError, UnreadableError):
        return None


def first_batch_only(disk: MemoryDisk, path: str) -> None:
    cut(disk, path, 12 + int.from_bytes(disk.read(path)[8:12], "big"))


def in_sync(cluster: DataCluster, node_id: int, end_offset: int, topic: str = "t") -> bool:
    partition = cluster.brokers[node_id].table.find(topic, 0)
    isr = cluster.controller.partition(topic).isr
    return partition is not None and partition.log.log_end_offset == end_offset and node_id in isr
