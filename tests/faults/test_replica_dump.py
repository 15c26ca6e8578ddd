"""A replica's segments become history events, and damage is named."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check
from pykraft.jepsen_like.faults.clusters.replica_dump import dump_replica
from pykraft.jepsen_like.faults.history import HistoryWriter, read_history
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch


def _batch(base_offset: int, *values: str, compression: Compression = Compression.NONE) -> bytes:
    records = [RecordInput(None, value.encode(), (), 1_000) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=3, compression=compression)


def _partition(tmp_path: Path) -> Path:
    directory = tmp_path / "node-1" / "append-0"
    directory.mkdir(parents=True)
    return directory


def test_dump_holds_every_record_of_every_segment(tmp_path: Path) -> None:
    directory = _partition(tmp_path)
    first = _batch(0, "a", "b") + _batch(2, "c", compression=Compression.ZSTD)
    (directory / "00000000000000000000.log").write_bytes(first)
    (directory / "00000000000000000003.log").write_bytes(_batch(3, "d"))
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        assert dump_replica(tmp_path / "node-1", 1, "append", 0, history) == 4
    (event,) = read_history(tmp_path / "h.jsonl")
    assert (event.process, event.op, event.key) == ("replica-1", "replica", "append-0")
    assert event.records == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert event.detail is not None
    assert [batch[:3] for batch in event.detail["batches"]] == [[0, 1, 3], [2, 2, 3], [3, 3, 3]]
    assert all(batch[4:] == [-1, -1, -1] for batch in event.detail["batches"])


def test_missing_log_is_recorded_as_empty(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        assert dump_replica(tmp_path / "node-1", 1, "append", 0, history) == 0
    (event,) = read_history(tmp_path / "h.jsonl")
    assert event.records == []


@pytest.mark.parametrize("damage", ["bit flipped", "only zeros"])
def test_damage_is_recorded_with_its_place(tmp_path: Path, damage: str) -> None:
    """A log ends in zeros after a loss of power, until its node has started again."""
    whole, damaged = _batch(0, "a"), bytearray(_batch(1, "b"))
    if damage == "bit flipped":
        damaged[-1] ^= 1
    else:
        damaged = bytearray(100)
    (_partition(tmp_path) / "00000000000000000000.log").write_bytes(whole + damaged)
    with HistoryWriter(tmp_path / "h.jsonl") as history:
        dump_replica(tmp_path / "node-1", 1, "append", 0, history)
    found, kept = read_history(tmp_path / "h.jsonl")
    assert found.error is not None and "0.log" in found.error and str(len(whole)) in found.error
    assert kept.records == [(0, "a")]
    (finding,) = check([found])
    assert finding.kind is Anomaly.DIVERGENT_REPLICA
