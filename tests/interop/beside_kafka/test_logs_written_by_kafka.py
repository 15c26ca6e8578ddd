"""Logs that Apache Kafka wrote are opened and compacted here, and read by Kafka again."""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.kafka_protocol.markers import ABORT, COMMIT, read_kind
from pykraft.log_store.log.log import Log
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import CODECS, Committed, KafkaBroker, Writer, kafka, newest_of_each_key
from tests.interop.opened_logs import (
    CONFIG,
    TOPIC,
    check_with_kafkas_tool,
    compact,
    read_committed,
    with_logs,
)
from tests.log_store.cleaned_logs import clean

pytestmark = pytest.mark.interop


@dataclass
class Written:
    """A broker of Kafka that was stopped, its log directory, and what was committed in its topic."""

    broker: KafkaBroker
    data: Path
    committed: Committed


@pytest.fixture(scope="module")
def written(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("kafka")
    with kafka(kafka_tools, directory) as broker:
        broker.start()
        broker.create_topic(TOPIC)
        writer = Writer(broker.address, TOPIC, random.Random(1))
        writer.write(rounds=40)
        assert writer.refused_without_key()
        assert broker.read_committed(TOPIC) == writer.committed
        broker.stop()
        yield Written(broker, shutil.copytree(broker.data, directory / "kept"), writer.committed)


@pytest.fixture
def data(written: Written, tmp_path: Path) -> Path:
    """A copy of Kafka's log directory with its checkpoints."""
    return shutil.copytree(written.data, tmp_path / "data")


def test_log_that_kafka_wrote_is_compacted(written: Written, data: Path, kafka_tools: KafkaTools) -> None:
    async def body(logs: LogManager) -> tuple[int, int]:
        opened = logs.logs[TOPIC, 0]
        assert read_committed(opened.log) == written.committed
        before = opened.log.size_bytes
        clean_end = await compact(logs)
        assert opened.log.size_bytes < before / 2
        return clean_end, opened.log.segment_base_offsets[-1]

    clean_end, active = with_logs(data, body)
    assert clean_end == active > 1000
    expected = newest_of_each_key(written.committed, clean_end)

    async def again(logs: LogManager) -> None:
        log = logs.logs[TOPIC, 0].log
        assert read_committed(log) == expected
        for offset in range(log.log_end_offset):  # a reader may begin everywhere
            piece = log.read(offset, 1)
            assert piece is not None and piece.base_offset <= offset

    with_logs(data, again)
    check_with_kafkas_tool(kafka_tools, data / f"{TOPIC}-0")
    # Kafka itself serves what is left: aborted data is found by the transaction indexes written here
    broker = written.broker
    shutil.rmtree(broker.data)
    shutil.copytree(data, broker.data)
    broker.start()
    assert broker.read_committed(TOPIC) == expected
    broker.stop()


def test_deletions_and_markers_go_in_later_rounds(data: Path) -> None:
    """Every codec, tombstones and transactions, up to the third round, each a month after the one before."""
    disk, month_ms = OsDisk(), 30 * 24 * 3600 * 1000
    now_ms = SystemClock().wall_ms()
    with closing(Log.open(disk, str(data / f"{TOPIC}-0"), CONFIG, now_ms=now_ms, clean=True)) as log:
        before = read_committed(log)
        kinds = [read_kind(header, batch) for header, batch in log.iter_batches(0) if header.is_control]
        assert kinds.count(ABORT) > 5 and kinds.count(COMMIT) > 5
        assert len({header.compression for header in log.iter_headers(0)}) == len(CODECS)
        expected = newest_of_each_key(before, log.segment_base_offsets[-1])
        for number in range(3):
            end = clean(log, now_ms=now_ms + number * month_ms)
            assert end == log.segment_base_offsets[-1]
            found = read_committed(log)
            if number == 1:
                expected = {
                    offset: record
                    for offset, record in expected.items()
                    if offset >= end or record[1] is not None
                }
            assert found == expected
        for header, batch in log.iter_batches(0, end):
            assert not header.is_control or read_kind(header, batch) != ABORT


def test_newest_records_of_kafkas_producers_are_known(written: Written, data: Path) -> None:
    """The state of producers is that of Kafka's snapshot, before and after a round."""

    def state(opened: OpenLog) -> dict[int, tuple[int, int, int]]:
        return {
            producer_id: (entry.epoch, entry.batches[-1].last_sequence, entry.batches[-1].next_offset)
            for producer_id, entry in opened.producers.capture().items()
        }

    async def body(logs: LogManager) -> dict[int, tuple[int, int, int]]:
        before = state(logs.logs[TOPIC, 0])
        await compact(logs)
        return before

    before = with_logs(data, body)
    assert len(before) == 2 * len(CODECS)
    for path in (data / f"{TOPIC}-0").glob("*.snapshot"):
        path.unlink()  # the state is read from the batches that the round has left
    assert with_logs(data, body) == before
