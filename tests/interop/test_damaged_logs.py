"""Damaged logs on real processes and disks: replicas are repaired, and consumers see every record."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykraft.jepsen_like.faults.clusters.replica_dump import iter_batches
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.interop.clusters import create_in_sync, own_cluster, printed_by

pytestmark = pytest.mark.interop

RECORDS, VALUE_BYTES = 400, 10_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_cluster(3, {"log.scrub.bytes.per.second": "1000000000"}) as cluster:
        for topic in ("t", "u"):
            create_in_sync(cluster, topic, 1, {"segment.bytes": str(1 << 20)})
        yield cluster


def fill(cluster: Cluster, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True}
    )
    for number in range(RECORDS):
        producer.produce(topic, f"{number}".zfill(VALUE_BYTES))
        if number % 20 == 0:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def consume(cluster: Cluster, topic: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "check.crcs": True}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while len(found) < RECORDS:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None, (len(found), message and message.error())
            found.append(int((message.value() or b"")[-6:]))
        return found
    finally:
        consumer.close()


def closed_segment(cluster: Cluster, node_id: int, topic: str) -> Path:
    segments = sorted((cluster.log_dirs[node_id] / f"{topic}-0").glob("*.log"))
    assert len(segments) >= 4
    return segments[1]


def remove(path: Path) -> None:
    path.unlink()


def flip_a_length(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [remove, flip_a_length], ids=["removed", "flipped"])
def test_replica_damaged_while_stopped_is_copied_again(
    cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    for topic in ("t", "u"):
        fill(cluster, topic)
    cluster.shut_down(2)
    path = closed_segment(cluster, 2, "t")
    damage(path)
    cluster.restart(2)
    wait_until("the damage is found", lambda: "t-0 is damaged" in printed_by(cluster, 2), PATIENCE_S)
    for topic in ("t", "u"):
        cluster.wait_in_sync(topic, PATIENCE_S)
    assert consume(cluster, "t") == consume(cluster, "u") == list(range(RECORDS))
    for node in cluster.nodes:
        cluster.shut_down(node)
    found = {
        topic: [list(iter_batches(at / f"{topic}-0")) for at in cluster.log_dirs.values()] for topic in "tu"
    }
    for copies in found.values():
        assert len(copies) == 3
        assert len({tuple(header.packed() for header, _ in copy) for copy in copies}) == 1
    assert "u-0 is damaged" not in printed_by(cluster, 2)
    assert len(list(cluster.log_dirs[2].glob("t-0.00000000-damaged/*.log"))) >= 3
