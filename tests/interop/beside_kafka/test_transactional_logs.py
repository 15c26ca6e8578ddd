"""Transactions in logs of Apache Kafka are read here as by Kafka's consumer, and the other way round."""

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.producers.rebuild import rebuild, snapshot_entries
from pykraft.broker.logs.producers.verification import UNVERIFIED
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers, read_header
from pykraft.log_store.producer_snapshot import decode_snapshot
from pykraft.metadata_log.image import PartitionRegistration
from tests.broker.partitions import Events
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import Committed, KafkaBroker, Writer, kafka
from tests.interop.opened_logs import DUMP, TOPIC, with_logs

pytestmark = pytest.mark.interop

FIRST_OWN_ID = 900_000
NOW_MS = 1_800_000_000_000


@dataclass
class Written:
    """A broker of Kafka that is down, its log directory, and what its consumer has read as committed."""

    broker: KafkaBroker
    data: Path
    committed: Committed
    after: Committed
    """What was written behind the transaction that was left open."""


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("kafka")
    with kafka(kafka_tools, directory) as broker:
        broker.start()
        broker.create_topic(TOPIC, cleanup_policy="delete")
        writer = Writer(broker.address, TOPIC, random.Random(3))
        writer.write(rounds=40)
        committed = dict(writer.committed)
        left_open = writer.producer(transactional_id="left-open", transaction_timeout_ms=900_000)
        left_open.init_transactions(60)
        left_open.begin_transaction()
        writer.send(left_open, 5, {})
        after: Committed = {}
        writer.send(writer.producer(), 5, after)
        assert broker.read_committed(TOPIC) == committed
        if request.param == "killed":
            broker.kill()
        else:
            broker.stop()
        yield Written(broker, shutil.copytree(broker.data, directory / "kept"), committed, after)


@pytest.fixture
def data(written: Written, tmp_path: Path) -> Path:
    """A copy of Kafka's log directory with its checkpoints."""
    return shutil.copytree(written.data, tmp_path / "data")


def lead(logs: LogManager) -> Partition:
    """The replica that leads the partition, alone."""
    opened = logs.logs[TOPIC, 0]
    partition = Partition(
        *(TOPIC, opened.topic_id, 0, 1), opened.log, Events(), producers=opened.producers, high_watermark=0
    )
    epoch = opened.log.latest_epoch + 1
    partition.apply(PartitionRegistration((1,), (1,), 1, epoch, epoch), 0)
    return partition


def read(partition: Partition) -> Committed:
    """As a consumer of committed transactions reads, in small pieces."""
    found: Committed = {}
    offset = partition.log.log_start_offset
    while (piece := partition.read_stable(offset, 3000, at_least_one=True)) is not None:
        data = memoryview(piece.file.pread(piece.position, piece.size_bytes))
        headers = list(iter_headers(data))
        aborted = [(one.producer_id, one.first_offset) for one in partition.aborted_in(piece, offset)]
        for position, header in visible_batches(data, headers, aborted):
            for record in decode_batch(data[position : position + header.size_bytes], header):
                assert record.key is not None
                found[record.offset] = record.key, record.value
        offset = headers[-1][1].next_offset
    return found


def transaction_indexes(data: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (data / f"{TOPIC}-0").glob("*.txnindex")}
    return {name: content for name, content in found.items() if content}


def write_transactions(partition: Partition, rng: random.Random) -> Committed:
    """Some of each outcome, by own producers; what is committed of it."""
    committed: Committed = {}
    for number in range(60):
        id = FIRST_OWN_ID + number % 5
        sent: Committed = {}
        for _ in range(rng.randint(1, 3)):
            entry = partition.producers.entry(id)
            sequence = 0 if entry is None else entry.batches[-1].last_sequence + 1
            key, value = b"own-%d" % number, b"x" * rng.randint(1, 300)
            batch = memoryview(
                bytearray(
                    encode_batch(
                        [RecordInput(key, value, (), NOW_MS)],
                        producer_id=id,
                        producer_epoch=0,
                        base_sequence=sequence,
                        is_transactional=True,
                    )
                )
            )
            info = partition.append_as_leader(
                batch, read_header(batch), NOW_MS, all_acks=True, guard=UNVERIFIED
            )
            sent[info.base_offset] = key, value
        kind = rng.choice((ABORT, COMMIT))
        partition.end_transaction(EndOfTransaction(id, 0, Marker(kind, 70 + number)), NOW_MS)
        if kind == COMMIT:
            committed |= sent
    return committed


def test_committed_records_of_kafka_are_read_as_by_its_consumer(written: Written, data: Path) -> None:
    by_kafka = transaction_indexes(data)
    assert by_kafka

    async def body(logs: LogManager) -> None:
        partition = lead(logs)
        assert partition.last_stable_offset < partition.high_watermark == partition.log.log_end_offset
        assert read(partition) == written.committed
        open_ones = [one for one in partition.producers.capture().values() if one.first_offset >= 0]
        assert [one.first_offset for one in open_ones] == [partition.last_stable_offset]

    with_logs(data, body)
    assert transaction_indexes(data) == by_kafka  # those that were written anew, too
    for name in by_kafka:
        (data / f"{TOPIC}-0" / name).unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (data / name).unlink()
    with_logs(data, body)
    assert transaction_indexes(data) == by_kafka


def test_state_of_producers_is_that_of_kafkas_snapshots(written: Written, data: Path) -> None:
    paths = sorted((data / f"{TOPIC}-0").glob("*.snapshot"))
    by_kafka = {int(path.stem): decode_snapshot(path.read_bytes(), str(path)) for path in paths}
    assert len(by_kafka) > 3

    async def body(logs: LogManager) -> None:
        log = logs.logs[TOPIC, 0].log
        for offset, entries in by_kafka.items():
            state = rebuild(log.iter_produced(0, offset), log_start_offset=0)
            own = snapshot_entries(state.capture())
            assert own == sorted(entries), f"at offset {offset}"

    with_logs(data, body)


def test_kafka_reads_transactions_that_were_written_here(
    written: Written, data: Path, kafka_tools: KafkaTools
) -> None:
    async def body(logs: LogManager) -> Committed:
        partition = lead(logs)
        (open_id,) = [id for id, entry in partition.producers.capture().items() if entry.first_offset >= 0]
        entry = partition.producers.entry(open_id)
        assert entry is not None
        partition.end_transaction(
            EndOfTransaction(open_id, entry.epoch, Marker(ABORT, entry.coordinator_epoch + 1)), NOW_MS
        )
        own = write_transactions(partition, random.Random(4))
        expected = written.committed | written.after | own
        assert read(partition) == expected
        return expected

    expected = with_logs(data, body)
    directory = data / f"{TOPIC}-0"
    dumped = "".join(
        kafka_tools.check(DUMP, "--deep-iteration", "--print-data-log", "--files", path)
        for path in sorted(directory.glob("*.log"))
        if path.stat().st_size
    )
    assert "isvalid: false" not in dumped
    assert re.search(rf"producerId: {FIRST_OWN_ID} .*isControl: true", dumped)
    assert set(re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: 1[01]\d", dumped)) == {
        "ABORT",
        "COMMIT",
    }
    entries = ""
    for path in sorted(directory.glob("*.txnindex")):
        kafka_tools.check(DUMP, "--index-sanity-check", "--files", path)
        entries += kafka_tools.check(DUMP, "--files", path)
    own_entries = re.findall(rf"producerId: {FIRST_OWN_ID + 1}\b.*firstOffset: (\d+)", entries)
    assert own_entries
    newest = max(directory.glob("*.snapshot"))
    assert f"producerId: {FIRST_OWN_ID}" in kafka_tools.check(DUMP, "--files", newest)
    broker = written.broker
    shutil.rmtree(broker.data)
    shutil.copytree(data, broker.data)
    broker.start()
    assert broker.read_committed(TOPIC) == expected
    broker.stop()
