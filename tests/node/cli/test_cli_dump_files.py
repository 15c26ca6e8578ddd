"""dump-log on the files beside logs, and its flags for logs and indexes."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store import checkpoint
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.node.cli.root import cli
from pykraft.runtime.os_disk import OsDisk

Dump = Callable[..., Result]


@pytest.fixture
def dump() -> Dump:
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(cli, ["dump-log", *(str(argument) for argument in arguments)])

    return invoke


def lines(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if not line.startswith("Dumping")]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """The .log of a closed segment of four batches, with its indexes."""
    log = Log.open(OsDisk(), str(tmp_path / "t-0"), LogConfig(index_interval_bytes=0), now_ms=0)
    for offset in range(4):
        inputs = [RecordInput(b"k", b"v", (), 1000 + offset)]
        data = encode_batch(inputs, base_offset=offset, leader_epoch=3)
        log.append(data, [read_header(data)], now_ms=0)
    log.roll(0)
    log.close()
    return tmp_path / "t-0" / f"{0:020}.log"


def test_checkpoints_epochs_and_topic_ids_are_dumped(dump: Dump, tmp_path: Path, segment: Path) -> None:
    disk, points = OsDisk(), tmp_path / checkpoint.RECOVERY_POINT_CHECKPOINT
    checkpoint.write_offset_checkpoint(disk, str(points), {("t", 0): 4, ("u", 2): 7})
    checkpoint.write_partition_metadata(disk, str(segment.parent), Uuid(b"i" * 16))
    epochs, topic_id = segment.parent / "leader-epoch-checkpoint", segment.parent / "partition.metadata"
    result = dump("--files", f"{points},{epochs},{topic_id}")
    assert (result.exit_code, lines(result)) == (
        0,
        [
            "topic: t partition: 0 offset: 4",
            "topic: u partition: 2 offset: 7",
            "epoch: 3 startOffset: 0",
            f"version: 0 topicId: {uuid_to_str(Uuid(b'i' * 16))}",
        ],
    )
    points.write_text("0\n5\n")
    damaged = dump("--files", points)
    assert damaged.exit_code == 1 and "the count line" in damaged.stderr


def test_aborted_transactions_are_dumped_and_a_cut_file_is_damage(dump: Dump, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 10, 20, 21) + b"more")
    result = dump("--files", path)
    assert lines(result) == ["version: 0 producerId: 7 firstOffset: 10 lastOffset: 20 lastStableOffset: 21"]
    assert result.exit_code == 1


def test_no_more_bytes_are_read_than_asked_for(dump: Dump, segment: Path) -> None:
    size = segment.stat().st_size // 4
    for limit, batches in ((1, 0), (size, 1), (size + 1, 1), (10 * size, 4)):
        found = lines(dump("--files", segment, "--max-bytes", limit))
        assert len([line for line in found if line.startswith("baseOffset")]) == batches


def test_deep_iteration_opens_records_and_prints_no_payload(dump: Dump, segment: Path) -> None:
    shallow, deep = dump("--files", segment), dump("--files", segment, "--deep-iteration")
    assert not [line for line in lines(shallow) if line.startswith("| offset")]
    records = [line for line in lines(deep) if line.startswith("| offset")]
    assert len(records) == 4 and not [line for line in records if "payload" in line]


def test_index_is_compared_with_its_log(dump: Dump, segment: Path) -> None:
    index, size = segment.with_suffix(".index"), segment.stat().st_size // 4
    whole = dump("--files", index)
    assert (whole.exit_code, lines(whole)[0]) == (0, f"offset: 1 position: {size}")
    assert lines(dump("--files", index, "--verify-index-only")) == []
    assert lines(dump("--files", index, "--index-sanity-check")) == [f"{index} passed sanity check."]
    index.write_bytes(struct.pack(">iiii", 1, size, 2, 3 * size))
    wrong = dump("--files", index, "--verify-index-only")
    assert wrong.exit_code == 1
    assert wrong.stderr.splitlines()[:2] == [f"Mismatches in :{index}", "  Index offset: 2, log offset: 3"]
    index.write_bytes(b"")
    assert lines(dump("--files", index)) == [f"{index} is empty."]
