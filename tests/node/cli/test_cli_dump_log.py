"""dump-log and metadata-shell on the files that a node writes."""

import errno
import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykraft.group_coordinator.state import codec as group_codec
from pykraft.group_coordinator.state.records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
)
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.log_store.producer_snapshot import SnapshotEntry, encode_snapshot, pack_entries
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from pykraft.node.cli.root import cli
from pykraft.quorum import control_records
from pykraft.quorum.control_records import ControlType, control_record
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from pykraft.transaction_coordinator.log.codec import encode_record as encode_transaction
from pykraft.transaction_coordinator.log.records import TransactionRecord
from pykraft.transaction_coordinator.transaction import Transaction, TransactionState, TransactionVersion

TOPIC_ID = Uuid(bytes(range(1, 17)))
OTHER_ID = Uuid(bytes(range(2, 18)))
KEY = ReplicaKey(1, Uuid(b"d" * 16))

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: object, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)

    return invoke


def metadata_batch(base_offset: int, records: Sequence[Record]) -> bytes:
    values = [RecordInput(None, encode_record(record), (), 1000 + base_offset) for record in records]
    return encode_batch(values, base_offset=base_offset, leader_epoch=1)


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """A leader change, a topic of two partitions, and in a second segment a change of one of them."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    change = control_record(ControlType.LEADER_CHANGE, control_records.leader_change(1, [KEY], [KEY]), 1000)
    records: list[Record] = [
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(0, TOPIC_ID, (1, 2), (1, 2), 1),
        PartitionRecord(1, TOPIC_ID, (2, 1), (2, 1), 2),
        ConfigRecord(2, "orders", "retention.ms", "5"),
        FeatureLevelRecord("metadata.version", 7),
    ]
    (directory / f"{0:020d}.log").write_bytes(
        encode_batch([change], base_offset=0, leader_epoch=1, is_control=True) + metadata_batch(1, records)
    )
    (directory / f"{6:020d}.log").write_bytes(
        metadata_batch(6, [PartitionChangeRecord(1, TOPIC_ID, isr=(1,), leader=1)])
    )
    return directory


def test_metadata_records_are_dumped_as_json(run: Run, log_directory: Path) -> None:
    files = ",".join(map(str, sorted(log_directory.glob("*.log"))))
    result = run("dump-log", "--cluster-metadata-decoder", "--json", "--files", files)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["offset"] for line in lines] == list(range(7))
    assert lines[0]["type"] == "LEADER_CHANGE"
    voters = [{"voterId": 1}]
    assert lines[0]["data"] == {"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": voters}
    assert lines[1]["type"] == "TOPIC_RECORD"
    assert lines[1]["data"] == {"name": "orders", "topicId": "AQIDBAUGBwgJCgsMDQ4PEA"}
    assert lines[6]["type"] == "PARTITION_CHANGE_RECORD"
    assert lines[6]["data"] == {
        "partitionId": 1,
        "topicId": "AQIDBAUGBwgJCgsMDQ4PEA",
        "isr": [1],
        "leader": 1,
    }


def test_batches_are_listed_with_kafkas_labels(run: Run, log_directory: Path) -> None:
    result = run("dump-log", "--files", log_directory / f"{0:020d}.log")
    first, starting, leader_change, batch = result.output.splitlines()
    assert first == f"Dumping {log_directory}/{0:020d}.log" and starting == "Log starting offset: 0"
    assert "isControl: true" in leader_change
    assert batch.startswith("baseOffset: 1 lastOffset: 5 count: 5 ") and batch.endswith("isvalid: true")


def test_leader_change_with_directory_ids_is_shown(run: Run, tmp_path: Path) -> None:
    key = b"\0\0\0\x01" + KEY.directory_id + b"\0"
    value = b"\0\x01\0\0\0\x01" + b"\x02" + key + b"\x02" + key + b"\0"
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch([control_record(ControlType.LEADER_CHANGE, value, 0)], is_control=True))
    result = run("dump-log", "--cluster-metadata-decoder", "--json", "--files", path)
    voters = [{"voterId": 1, "voterDirectoryId": uuid_to_str(KEY.directory_id)}]
    assert json.loads(result.output)["data"] == {
        "version": 1,
        "leaderId": 1,
        "voters": voters,
        "grantingVoters": voters,
    }


def test_voters_and_snapshot_frames_are_shown(run: Run, tmp_path: Path) -> None:
    voters = VoterSet([Voter(KEY, Address("host1", 9093))])
    frames = [
        control_record(ControlType.SNAPSHOT_HEADER, control_records.snapshot_header(77), 0),
        control_record(ControlType.KRAFT_VERSION, control_records.kraft_version(), 0),
        control_record(ControlType.KRAFT_VOTERS, control_records.voters_record(voters), 0),
        control_record(ControlType.SNAPSHOT_FOOTER, control_records.snapshot_footer(), 0),
    ]
    path = tmp_path / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(encode_batch(frames, is_control=True))
    result = run("dump-log", "--cluster-metadata-decoder", "--json", "--files", path)
    header, version, shown, footer = [json.loads(line) for line in result.output.splitlines()]
    assert header["data"]["lastContainedLogTimestamp"] == 77 and version["data"]["kRaftVersion"] == 1
    assert shown["data"]["voters"][0]["voterId"] == 1
    assert shown["data"]["voters"][0]["endpoints"] == [{"host": "host1", "port": 9093}]
    assert footer["type"] == "SNAPSHOT_FOOTER"


def test_files_that_may_only_be_read_are_dumped(
    run: Run, log_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is mounted for reading, or with files of another user."""
    opened = os.open

    def refuse_writers(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse_writers)
    dumped = run("dump-log", "--files", log_directory / f"{0:020d}.log")
    shown = run("metadata-shell", "--directory", log_directory, "ls", "/image/topics/byName")
    assert (dumped.exit_code, shown.exit_code) == (0, 0), dumped.output + shown.output


def test_a_wrong_crc_and_a_torn_end_are_named(run: Run, log_directory: Path) -> None:
    path = log_directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data + b"torn")
    result = run("dump-log", "--files", path)
    assert result.exit_code == 1
    assert "isvalid: false" in result.output
    assert f"4 bytes at position {len(data)} are not a whole batch" in result.output
    assert f"damaged: {path}" in result.output.splitlines()[-1]


def test_a_record_of_newer_code_is_shown_in_hex(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch([RecordInput(None, b"\x92\x63\x00", (), 0)]))
    result = run("dump-log", "--cluster-metadata-decoder", "--json", "--files", path)
    shown = json.loads(result.output)
    assert shown["hex"] == "926300" and "newer than the code" in shown["error"]


def test_committed_offsets_are_dumped(run: Run, tmp_path: Path) -> None:
    record = GroupRecord(OffsetCommitKey("g", "orders", 3), OffsetCommitValue(41, 1, "note", 5))
    key, value = group_codec.encode_record(record)
    path = tmp_path / f"{9:020d}.log"
    path.write_bytes(encode_batch([RecordInput(key, value, (), 0)], base_offset=9))
    result = run("dump-log", "--offsets-decoder", "--json", "--files", path)
    shown = json.loads(result.output)
    assert shown["offset"] == 9 and shown["key"] == {"groupId": "g", "topic": "orders", "partition": 3}
    assert shown["value"]["offset"] == 41 and shown["value"]["metadata"] == "note"


def test_transactions_are_dumped(run: Run, tmp_path: Path) -> None:
    value = Transaction("id", 7, 1, 60_000, TransactionState.ONGOING, frozenset({("t", 0)}), 5)
    encoded = [
        encode_transaction(TransactionRecord("id", it), TransactionVersion.TV_2) for it in (value, None)
    ]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch([RecordInput(key, data, (), 0) for key, data in encoded]))
    dump = ("dump-log", "--transaction-log-decoder", "--files", path)
    first, second = map(json.loads, run(*dump, "--json").output.splitlines())
    assert first["key"] == {"transactionalId": "id"} and second["value"] is None
    assert (first["value"]["producerId"], first["value"]["state"]) == (7, "Ongoing")
    assert first["value"]["partitions"] == [["t", 0]]
    *_, line, deleted = run(*dump).output.splitlines()
    key = 'key: {"type":"TransactionMetadata","data":{"transactionalId":"id"}} payload: '
    assert f'{key}{{"transactionalId":"id","producerId":7,' in line
    assert deleted.endswith(f"{key}<DELETE>")


def test_assignments_are_dumped(run: Run, tmp_path: Path) -> None:
    topic_id = Uuid(b"0123456789abcdef")
    value = TargetAssignmentMemberValue(frozenset({(topic_id, 2), (topic_id, 1)}))
    key_bytes, value_bytes = group_codec.encode_record(
        GroupRecord(TargetAssignmentMemberKey("g", "m"), value)
    )
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch([RecordInput(key_bytes, value_bytes, (), 0)], base_offset=0))
    shown = json.loads(run("dump-log", "--offsets-decoder", "--json", "--files", path).output)
    text = uuid_to_str(topic_id)
    assert shown["value"] == {"partitions": [[text, 1], [text, 2]]}


def test_indexes_are_dumped_with_absolute_offsets(run: Run, tmp_path: Path) -> None:
    index, times = tmp_path / f"{100:020d}.index", tmp_path / f"{100:020d}.timeindex"
    index.write_bytes(struct.pack(">iiii", 5, 4096, 9, 8192))
    times.write_bytes(struct.pack(">qi", 1234, 9))
    result = run("dump-log", "--files", f"{index},{times}")
    assert [line for line in result.output.splitlines() if not line.startswith("Dumping")] == [
        "offset: 105 position: 4096",
        "offset: 109 position: 8192",
        "timestamp: 1234 offset: 109",
    ]


def test_entries_of_an_index_are_dumped_as_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{100:020d}.index"
    path.write_bytes(struct.pack(">ii", 5, 4096))
    result = run("dump-log", "--json", "--files", path)
    assert json.loads(result.output) == {"offset": 105, "position": 4096}


def test_shell_shows_the_result_of_the_whole_log(run: Run, log_directory: Path) -> None:
    def shell(*words: str) -> str:
        result = run("metadata-shell", "--directory", log_directory, *words)
        assert result.exit_code == 0, result.output
        return result.output

    assert shell("ls", "/image").split() == [
        "cluster/", "configs/", "features/", "producerIds/", "provenance", "topics/",
    ]  # fmt: skip
    assert json.loads(shell("cat", "/image/topics/byName/orders/1"))["isr"] == [1]
    assert json.loads(shell("cat", "/image/topics/byId/AQIDBAUGBwgJCgsMDQ4PEA/0"))["leader"] == 1
    assert shell("cat", "/image/configs/TOPIC/orders/retention.ms") == "5\n"
    assert shell("cat", "/image/provenance") == "offset 6, epoch 1\n"
    assert shell("ls", "/image/topics/*/*/1").splitlines() == [
        "/image/topics/byId/AQIDBAUGBwgJCgsMDQ4PEA/1",
        "/image/topics/byName/orders/1",
    ]
    assert "  metadata.version:\n    7\n" in shell("tree", "/image/features")


def test_shell_follows_a_deleted_topic(run: Run, log_directory: Path) -> None:
    (log_directory / f"{7:020d}.log").write_bytes(
        metadata_batch(7, [RemoveTopicRecord(TOPIC_ID), TopicRecord("later", OTHER_ID)])
    )
    assert (
        run("metadata-shell", "--directory", log_directory, "ls", "/image/topics/byName").output == "later/\n"
    )
    assert run("metadata-shell", "--directory", log_directory, "ls", "/image/configs").output == ""


def write_snapshot(directory: Path, end_offset: int, records: Sequence[Record]) -> Path:
    header = control_record(ControlType.SNAPSHOT_HEADER, control_records.snapshot_header(0), 0)
    footer = control_record(ControlType.SNAPSHOT_FOOTER, control_records.snapshot_footer(), 0)
    path = directory / f"{end_offset:020d}-{1:010d}.checkpoint"
    path.write_bytes(
        encode_batch([header], is_control=True)
        + metadata_batch(1, records)
        + encode_batch([footer], base_offset=1 + len(records), is_control=True)
    )
    return path


def test_shell_reads_a_snapshot_and_the_log_after_it(run: Run, log_directory: Path) -> None:
    (log_directory / f"{0:020d}.log").unlink()
    records: list[Record] = [TopicRecord("orders", TOPIC_ID), PartitionRecord(0, TOPIC_ID, (1, 2), (1, 2), 1),
               PartitionRecord(1, TOPIC_ID, (2, 1), (2, 1), 2)]  # fmt: skip
    snapshot = write_snapshot(log_directory, 6, records)
    alone = run("metadata-shell", "--snapshot", snapshot, "cat", "/image/topics/byName/orders/1")
    assert json.loads(alone.output)["leader"] == 2
    both = run("metadata-shell", "--directory", log_directory, "cat", "/image/topics/byName/orders/1")
    assert json.loads(both.output)["leader"] == 1
    dumped = run("dump-log", "--cluster-metadata-decoder", "--json", "--files", snapshot)
    types = [json.loads(line)["type"] for line in dumped.output.splitlines()]
    assert types == ["SNAPSHOT_HEADER", "TOPIC_RECORD", *["PARTITION_RECORD"] * 2, "SNAPSHOT_FOOTER"]


def test_shell_refuses_a_log_whose_beginning_is_missing(run: Run, log_directory: Path) -> None:
    result = run("metadata-shell", "--snapshot", log_directory / f"{6:020d}.log", "ls")
    assert result.exit_code == 1 and "continues at offset 6" in result.output


def test_shell_refuses_damage(run: Run, log_directory: Path) -> None:
    path = log_directory / f"{6:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = run("metadata-shell", "--directory", log_directory, "ls")
    assert result.exit_code == 1 and f"{path} is damaged" in result.output and "position 0" in result.output


def test_producer_snapshots_are_shown_as_kafka_shows_them(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{42:020d}.snapshot"
    entries = [SnapshotEntry(7, 1, 41, 1000, 9, 1_700_000_000_000), SnapshotEntry(8, 0, -1, -1, 0, 5, 3, 17)]
    path.write_bytes(encode_snapshot([pack_entries(entries)]))
    shown = run("dump-log", "--files", path)
    assert shown.exit_code == 0
    assert shown.output.splitlines()[1:] == [
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000000 firstSequence: 32 lastSequence: 41 lastOffset: 1000 offsetDelta: 9 "
        "timestamp: 1700000000000",
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong[17] "
        "lastTimestamp: 5",
    ]
    path.write_bytes(path.read_bytes()[:-1])
    assert run("dump-log", "--files", path).exit_code == 1
