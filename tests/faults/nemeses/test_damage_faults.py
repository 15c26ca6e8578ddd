"""Rotten files of one replica: what is changed, and that real nodes find it and copy the replica again."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykraft.jepsen_like.faults.clients.rereading import consume
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import NotPossibleNowError, ToldRepair
from pykraft.jepsen_like.faults.nemeses.kinds import damage, rot
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset
from pykraft.testing.processes.waits import PATIENCE_S

TOPIC, RECORDS = "t", 60


def log_of(directory: Path, batches: int = 8) -> Path:
    data = bytearray()
    for offset in range(batches):
        batch = bytearray(encode_batch([RecordInput(None, b"x" * 90)]))
        assign_offset(batch, 0, offset, 3)
        data += batch
    path = directory / f"{0:020}.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seed", range(30))
def test_flipped_bits_are_seen_until_the_file_is_replaced(tmp_path: Path, seed: int) -> None:
    path = log_of(tmp_path)
    before = path.read_bytes()
    done = rot.flip_bits(path, 1 + seed % 3, random.Random(seed))
    changed = [at for at, (old, new) in enumerate(zip(before, path.read_bytes(), strict=True)) if old != new]
    assert changed == [at for at, _ in done.changed] and not done.is_found
    size_bytes = len(before) // 8
    assert all(at % size_bytes >= 8 and at % size_bytes not in range(12, 16) for at in changed)
    path.write_bytes(before)
    assert done.is_found and rot.find_fault(tmp_path) is None


def test_checkpoints_get_no_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / rot.CHECKPOINTS[0]
    path.write_bytes(b"0\n1\nt 0 17\n")
    rot.flip_bits(path, 3, random.Random(1))
    with pytest.raises(UnicodeDecodeError):
        path.read_bytes().decode("utf-8")


def test_small_file_has_fewer_bytes_to_change_and_an_emptied_one_none(tmp_path: Path) -> None:
    path = tmp_path / rot.CHECKPOINTS[0]
    path.write_bytes(b"0\n0\n")
    assert len(rot.flip_bits(path, 5, random.Random(1)).changed) == 4
    path.write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        rot.flip_bits(path, 1, random.Random(1))
    with pytest.raises(FileNotFoundError):
        rot.cut(path, random.Random(1), middle=False)


def test_missing_middle_is_seen_and_a_missing_end_where_a_batch_is_torn(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    before = path.read_bytes()
    assert not rot.cut(path, random.Random(2), middle=True).is_found
    path.write_bytes(before)
    assert not rot.cut(path, random.Random(2), middle=False).is_found
    assert len(path.read_bytes()) < len(before)


def test_index_need_only_be_found_once_its_segment_is_full(tmp_path: Path) -> None:
    log_of(tmp_path)
    index = tmp_path / f"{0:020}.index"
    index.write_bytes(bytes(80))
    done = rot.flip_bits(index, 1, random.Random(3))
    assert done.is_found
    (tmp_path / f"{8:020}.log").touch()
    assert not done.is_found
    index.write_bytes(bytes(80))
    assert done.is_found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("damage") / "cluster"
    properties = {**FAST_FAILOVER, "log.scrub.bytes.per.second": "100000000"}
    with ProcessCluster(directory, 3, properties) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic(TOPIC, 1, configs={"min.insync.replicas": "2"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number))
            assert producer.flush(PATIENCE_S) == 0
        yield cluster
        assert cluster.stop() == [], cluster.output_tails()


@pytest.fixture
def only_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others (consumers' offsets) may be there by now."""
    monkeypatch.setattr(rot, "replicas", lambda log_dir: [log_dir / f"{TOPIC}-0"])


@pytest.mark.slow
@pytest.mark.usefixtures("only_the_topic")
@pytest.mark.parametrize("name", ["bit-flip", "cut-file", "bit-flip-running", "cut-file-running"])
def test_damaged_replica_is_copied_again(
    cluster: ProcessCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(rot, "OF_A_LOG", ("*.log",))
    monkeypatch.setattr(damage, "_CHECKPOINT_SHARE", 0.0)
    settings = {"bits": 1.0, "middle": 1.0, "orderly": 0.0}
    fault = Fault(0, name, Target.ANY, 0.0, 1.0, 0.4, settings=settings)
    repair = KINDS[name].inflict(cluster, fault, [2])
    assert isinstance(repair, ToldRepair) and repair.detail["file"] == f"{TOPIC}-0/{0:020}.log"
    assert rot.find_fault(cluster.log_dir(2) / f"{TOPIC}-0") is not None
    repair()
    assert rot.find_fault(cluster.log_dir(2) / f"{TOPIC}-0") is None
    cluster.wait_in_sync(TOPIC, PATIENCE_S)
    assert read_all(cluster) == [str(number) for number in range(RECORDS)]


def read_all(cluster: ProcessCluster) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "check.crcs": True}
    consumer = Consumer(settings)
    values: list[str] = []
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while len(values) < RECORDS:
        messages = consume(consumer, RECORDS, PATIENCE_S)
        assert messages, f"only {len(values)} records"
        values += [(message.value() or b"").decode() for message in messages if message.error() is None]
    consumer.close()
    return values


@pytest.mark.slow
@pytest.mark.usefixtures("only_the_topic")
def test_last_sound_copy_in_sync_is_not_damaged(cluster: ProcessCluster) -> None:
    others = [cluster.log_dir(node_id) / f"{TOPIC}-0" for node_id in (1, 3)]
    kept = {next(other.glob("*.log")): next(other.glob("*.log")).read_bytes() for other in others}
    try:
        for path in kept:
            rot.flip_bits(path, 1, random.Random(0))
        with pytest.raises(NotPossibleNowError, match="in sync and sound"):
            damage._find_replica(cluster, 2, random.Random(0))
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
