"""Kafka's DumpLogSegments reads segments that were compacted here, and finds their indexes right."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.compaction.record_filter import ActiveProducers
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.os_disk import OsDisk
from tests.interop.java_jars import KafkaTools
from tests.log_store.cleaned_logs import clean, records

pytestmark = pytest.mark.interop

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = LogConfig(
    segment_bytes=1 << 20,
    index_interval_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
)
NOW_MS = 1_700_000_000_000


def append(log: Log, key: bytes, value: bytes | None, **fields: Any) -> None:
    inputs = [RecordInput(key, value, [("h", b"x")], NOW_MS), RecordInput(key + b"+", b"v", (), NOW_MS + 1)]
    if fields.get("is_control"):
        inputs = [RecordInput(key, value, (), NOW_MS)]
    data = encode_batch(inputs, base_offset=log.log_end_offset, leader_epoch=2, **fields)
    log.append(data, [read_header(data)], now_ms=0)


@pytest.fixture
def compacted(tmp_path: Path) -> Log:
    """Two segments compacted into one: all codecs, tombstones, empty batches, an aborted transaction."""
    log = Log.open(OsDisk(), str(tmp_path / "orders-0"), CONFIG, now_ms=0)
    log.assign_epoch(2, 0)
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1}
    for number in range(20):
        for codec in Compression:
            value = None if number == 19 and codec is Compression.GZIP else b"%d" % number
            append(log, b"key-%d" % codec, value, compression=codec)
        if number == 10:
            append(log, b"aborted", b"1", is_transactional=True, base_sequence=0, **producer)
            marker = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 5)
            append(log, *marker, is_transactional=True, is_control=True, **producer)
            log.roll(0)
        if number == 12:
            append(log, b"key-0", b"of an active producer", base_sequence=2, **producer)
    log.roll(0)
    append(log, b"head", b"1")
    last_of_producer = max(h.last_offset for h in log.iter_headers(0) if h.producer_id == 7)
    clean(log, producers=ActiveProducers({last_of_producer}), now_ms=NOW_MS)
    assert log.segment_base_offsets == (0, log.log_end_offset - 2)
    log.close()
    return log


def test_kafka_dumps_every_record_that_stayed(compacted: Log, kafka_tools: KafkaTools) -> None:
    path = Path(compacted.directory) / f"{0:020d}.log"
    output = kafka_tools.check(DUMP, "--deep-iteration", "--print-data-log", "--files", path)
    assert "isvalid: false" not in output and "deleteHorizonMs: OptionalLong[" in output
    again = Log.open(OsDisk(), compacted.directory, CONFIG, now_ms=0, clean=True)
    stayed = [record for record in records(again) if record.offset < again.segment_base_offsets[-1]]
    dumped = [line for line in output.splitlines() if "| offset: " in line and "endTxnMarker" not in line]
    found = [re.search(r"offset: (\d+) .*?(?: payload: (.*))?$", line) for line in dumped]
    assert [(int(one[1]), one[2]) for one in found if one is not None] == [
        (record.offset, None if record.value is None else record.value.decode()) for record in stayed
    ]
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", output)
    assert [int(base) for base, _, _ in batches[1:]] == [int(last) + 1 for _, last, _ in batches[:-1]]
    assert any(count == "0" for _, _, count in batches)


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_kafka_finds_the_indexes_right(compacted: Log, kafka_tools: KafkaTools, kind: str) -> None:
    path = Path(compacted.directory) / f"{0:020d}.{kind}"
    output = kafka_tools.check(DUMP, "--index-sanity-check", "--files", path)
    if kind != "txnindex":
        output = kafka_tools.check(DUMP, "--files", path)
        assert "Mismatches" not in output and "Misses" not in output and "Found" not in output
    else:
        assert "producerId: 7" in output
