"""The bytes of ``__consumer_offsets`` records are Kafka's."""

import pytest

from pykraft.group_coordinator.state.codec import decode_record, encode_record
from pykraft.group_coordinator.state.records import (
    ClassicMemberMetadata,
    ClassicMemberValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    RegularExpressionKey,
    ResolvedRegex,
    TargetAssignmentMemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataKey,
    TargetAssignmentMetadataValue,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import ProtocolError

TOPIC = Uuid(bytes(range(16)))
TOPIC_HEX = TOPIC.hex()

GOLDEN = [
    (
        GroupRecord(OffsetCommitKey("g", "t", 7), OffsetCommitValue(5, 3, "m", 1_000)),
        "000100016700017400000007",
        "0004000000000000000500000003026d00000000000003e800",
    ),
    (
        GroupRecord(OffsetCommitKey("g", "t", 7), OffsetCommitValue(5, 3, "m", 1_000, topic_id=TOPIC)),
        "000100016700017400000007",
        "0004000000000000000500000003026d00000000000003e8010010" + TOPIC_HEX,
    ),
    (
        GroupRecord(OffsetCommitKey("g", "t", 7), OffsetCommitValue(5, -1, "", 1_000, 2_000)),
        "000100016700017400000007",
        "00010000000000000005000000000000000003e800000000000007d0",
    ),
    (
        GroupRecord(
            GroupMetadataKey("g"),
            GroupMetadataValue(
                "consumer", 2, "range", "a", 9, (ClassicMemberValue("a", None, "c", "/h", 6, 5, b"S", b"AB"),)
            ),
        ),
        "0002000167",
        "0003"
        "0008636f6e73756d6572"
        "00000002"
        "000572616e6765"
        "000161"
        "0000000000000009"
        "00000001"
        "000161"
        "ffff"
        "000163"
        "00022f68"
        "00000006"
        "00000005"
        "0000000153"
        "000000024142",
    ),
    (
        GroupRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(4)),
        "0003000167",
        "00000000000400",
    ),
    (
        GroupRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(4, -2)),
        "0003000167",
        "000000000004010008fffffffffffffffe",
    ),
    (
        GroupRecord(
            ConsumerGroupMemberMetadataKey("g", "m"),
            ConsumerGroupMemberMetadataValue("i", None, "c", "/h", ("t", "u"), None, 60_000, "range"),
        ),
        "000500016700016d",
        "00000269000263032f680302740275000000ea600672616e676500",
    ),
    (
        GroupRecord(TargetAssignmentMetadataKey("g"), TargetAssignmentMetadataValue(4)),
        "0006000167",
        "00000000000400",
    ),
    (
        GroupRecord(
            TargetAssignmentMemberKey("g", "m"),
            TargetAssignmentMemberValue(frozenset({(TOPIC, 1), (TOPIC, 0)})),
        ),
        "000700016700016d",
        "000002" + TOPIC_HEX + "0300000000000000010000",
    ),
    (
        GroupRecord(
            CurrentAssignmentKey("g", "m"),
            CurrentAssignmentValue(
                5,
                4,
                1,
                frozenset({(TOPIC, 0), (TOPIC, 2)}),
                frozenset({(TOPIC, 1)}),
                {(TOPIC, 0): 5, (TOPIC, 2): 3, (TOPIC, 1): 2},
            ),
        ),
        "000800016700016d",
        "0000000000050000000401"
        "02" + TOPIC_HEX + "0300000000000000020100090300000005000000030"
        "2" + TOPIC_HEX + "020000000101000502000000020" + "0",
    ),
    (
        GroupRecord(TargetAssignmentMetadataKey("g"), TargetAssignmentMetadataValue(4, 9)),
        "0006000167",
        "00000000000401000800000000000000" + "09",
    ),
    (
        GroupRecord(RegularExpressionKey("g", "t.*"), ResolvedRegex(("t", "u"), 7, 9)),
        "0010000167" + "0003742e2a",
        "0000" + "0302740275" + "0000000000000007" + "0000000000000009" + "00",
    ),
    (
        GroupRecord(
            ConsumerGroupMemberMetadataKey("g", "m"),
            ConsumerGroupMemberMetadataValue(
                None, "r", "c", "/h", (), "t.*", 7, None, ClassicMemberMetadata(9, (("range", b"AB"),))
            ),
        ),
        "000500016700016d",
        "0000" + "00" + "0272" + "0263" + "032f68" + "01" + "04742e2a" + "00000007" + "00"
        "010011" + "01" + "00000009" + "02" + "0672616e6765" + "034142" + "00" + "00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_record_has_kafkas_bytes_and_reads_back(record: GroupRecord, key: str, value: str) -> None:
    encoded_key, encoded_value = encode_record(record)
    assert encoded_key.hex() == key
    assert encoded_value is not None
    assert encoded_value.hex() == value
    assert decode_record(encoded_key, encoded_value) == record


@pytest.mark.parametrize("record", [record for record, _, _ in GOLDEN])
def test_tombstone_keeps_the_key_and_has_no_value(record: GroupRecord) -> None:
    key, value = encode_record(GroupRecord(record.key, None))
    assert value is None
    assert decode_record(key, None) == GroupRecord(record.key, None)


@pytest.mark.parametrize("record_type", [9, 17, 99])
def test_unknown_record_type_is_skipped(record_type: int) -> None:
    assert decode_record(record_type.to_bytes(2, "big") + b"\x00\x01g", b"anything") is None


def test_old_partition_metadata_record_is_ignored() -> None:
    record = decode_record(bytes.fromhex("0004000167"), b"\x00\x00whatever")
    assert record == GroupRecord(ConsumerGroupPartitionMetadataKey("g"), None)


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        (0, "000000000000000500016d00000000000003e8", OffsetCommitValue(5, -1, "m", 1_000)),
        (2, "000000000000000500016d00000000000003e8", OffsetCommitValue(5, -1, "m", 1_000)),
        (4, "000000000000000500000003026d00000000000003e800", OffsetCommitValue(5, 3, "m", 1_000)),
        (
            4,
            "000000000000000500000003026d00000000000003e8010010" + TOPIC_HEX,
            OffsetCommitValue(5, 3, "m", 1_000, topic_id=TOPIC),
        ),
        (3, "00000000000000050000000300016d00000000000003e8", OffsetCommitValue(5, 3, "m", 1_000)),
    ],
)
def test_every_version_of_an_offset_is_read(version: int, body: str, expected: OffsetCommitValue) -> None:
    key = bytes.fromhex("000000016700017400000007")
    record = decode_record(key, version.to_bytes(2, "big") + bytes.fromhex(body))
    assert record == GroupRecord(OffsetCommitKey("g", "t", 7), expected)


def test_first_version_of_a_classic_group_is_read() -> None:
    body = "0000000000000001ffffffff0000000100016100016300022f68000000050000000000000000"
    record = decode_record(bytes.fromhex("0002000167"), bytes.fromhex(body))
    member = ClassicMemberValue("a", None, "c", "/h", 5, 5, b"", b"")
    assert record == GroupRecord(GroupMetadataKey("g"), GroupMetadataValue("", 1, None, None, -1, (member,)))


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_truncated_value_is_refused_not_misread(record: GroupRecord, key: str, value: str) -> None:
    raw = bytes.fromhex(value)
    for length in range(len(raw)):
        with pytest.raises(ProtocolError):
            decode_record(bytes.fromhex(key), raw[:length])


def test_huge_array_count_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(ProtocolError):
        decode_record(bytes.fromhex("000700016700016d"), bytes.fromhex("0000ffffffff0f"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0003000167", "000000000004010003fffffe"),  # a tagged hash of three bytes
        ("000700016700016d", "00000000"),  # no array of partitions at all
        ("0003000167", "000500000004"),  # a future version
    ],
)
def test_malformed_value_is_refused(key: str, value: str) -> None:
    with pytest.raises(ProtocolError):
        decode_record(bytes.fromhex(key), bytes.fromhex(value))
