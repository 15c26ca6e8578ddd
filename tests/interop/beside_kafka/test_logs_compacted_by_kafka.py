"""Logs that Apache Kafka compacted, or had begun to, are opened, read and compacted again here.

Kafka leaves holes in the offsets where pykraft leaves empty batches.
"""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from pykraft.broker.logs.log_manager import LogManager
from pykraft.log_store.checkpoint import read_offset_checkpoint
from pykraft.log_store.scan import iter_headers
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.processes.waits import wait_until
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import (
    PATIENCE_S,
    Committed,
    KafkaBroker,
    Writer,
    kafka,
    log_files,
    newest_of_each_key,
)
from tests.interop.opened_logs import TOPIC, check_with_kafkas_tool, compact, read_committed, with_logs

pytestmark = pytest.mark.interop


@dataclass
class Compacted:
    """A broker of Kafka that is down, and what was committed in its topic before it was compacted."""

    broker: KafkaBroker
    committed: Committed


@pytest.fixture(scope="module", params=["stopped after a round", "killed midway"])
def compacted(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Compacted]:
    is_killed = request.param == "killed midway"
    with kafka(kafka_tools, tmp_path_factory.mktemp("kafka")) as broker:
        broker.start(**{"log_cleaner_io_max_bytes_per_second": "30000"} if is_killed else {})
        broker.create_topic(TOPIC, min_cleanable_dirty_ratio="1")
        writer = Writer(broker.address, TOPIC, random.Random(2))
        writer.write(rounds=40)
        let_it_compact(broker)
        if is_killed:
            wait_until(
                "a replaced segment",
                lambda: any(broker.partition(TOPIC).glob("*.deleted")),
                PATIENCE_S,
                interval_s=0.001,
            )
            broker.kill()
            # the round may just have ended; then this is the moment before its end was stored
            (broker.data / "cleaner-offset-checkpoint").write_bytes(b"")
            assert holes(broker)
        else:
            wait_until("the end of a round", lambda: cleaned_offset(broker) > 0, PATIENCE_S)
            broker.stop()
            assert holes(broker)
        yield Compacted(broker, writer.committed)


def let_it_compact(broker: KafkaBroker) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def cleaned_offset(broker: KafkaBroker) -> int:
    path = f"{broker.data}/cleaner-offset-checkpoint"
    return read_offset_checkpoint(OsDisk(), path).get((TOPIC, 0), 0)


def holes(broker: KafkaBroker) -> int:
    """How many the batches of the log leave."""
    disk, found, expected = OsDisk(), 0, 0
    for path in log_files(broker.partition(TOPIC)):
        file = disk.open(str(path), create=False)
        for _, header in iter_headers(file, 0, file.size()):
            found += header.base_offset != expected
            expected = header.next_offset
        file.close()
    return found


def test_log_that_kafka_compacted_is_read_and_compacted_again(
    compacted: Compacted, tmp_path: Path, kafka_tools: KafkaTools
) -> None:
    committed = compacted.committed
    data = shutil.copytree(compacted.broker.data, tmp_path / "data")
    partition = data / f"{TOPIC}-0"
    assert any(partition.glob("*.deleted"))

    async def body(logs: LogManager) -> int:
        log = logs.logs[TOPIC, 0].log
        found = read_committed(log)
        assert found.items() <= committed.items()
        assert newest_of_each_key(found, log.log_end_offset) == newest_of_each_key(
            committed, log.log_end_offset
        )
        for offset in range(log.log_end_offset):  # a reader may begin everywhere, in holes, too
            piece = log.read(offset, 1)
            assert piece is not None
        log.roll(0)
        clean_end = await compact(logs)
        assert clean_end == log.segment_base_offsets[-1] > 1000
        return clean_end

    clean_end = with_logs(data, body)
    assert not any(path.suffix in (".deleted", ".cleaned", ".swap") for path in partition.iterdir())
    expected = newest_of_each_key(committed, clean_end)

    async def again(logs: LogManager) -> None:
        assert read_committed(logs.logs[TOPIC, 0].log) == expected

    with_logs(data, again)
    check_with_kafkas_tool(kafka_tools, partition)


def test_kafka_serves_what_was_compacted_by_both(
    compacted: Compacted, tmp_path: Path, kafka_tools: KafkaTools
) -> None:
    data = shutil.copytree(compacted.broker.data, tmp_path / "data")
    clean_end = with_logs(data, compact)
    shutil.rmtree(compacted.broker.data)
    shutil.copytree(data, compacted.broker.data)
    compacted.broker.start()
    let_it_compact(compacted.broker)
    found = compacted.broker.read_committed(TOPIC)
    # Kafka may have compacted further by now, and may not.
    assert found.items() <= newest_of_each_key(compacted.committed, clean_end).items()
    assert newest_of_each_key(compacted.committed, max(compacted.committed) + 1).items() <= found.items()
    compacted.broker.stop()
