"""How ``pykraft consumer`` prints records, without a cluster."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace

import click
import pytest

from pykraft.group_coordinator.state import codec as group_codec
from pykraft.group_coordinator.state.records import (
    ClassicMemberValue,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.node.cli.console.consumed_record import ConsumedRecord, Formatter, UnprintableError
from pykraft.node.cli.console.coordinator_formatters import group_metadata, offsets, transaction_log
from pykraft.node.cli.console.record_formatters import find_formatter
from pykraft.node.cli.console.text_formatters import json_formatter
from pykraft.node.cli.shared.property_options import GivenProperties
from pykraft.transaction_coordinator.log import codec as transaction_codec
from pykraft.transaction_coordinator.log.records import TransactionRecord, record_of
from pykraft.transaction_coordinator.transaction import Transaction, TransactionState, TransactionVersion

RECORD = ConsumedRecord(
    "t", 2, 7, 5, "CreateTime", 99, (("h1", b"v1"), ("h2", None)), b"\0\0\0\x2a", '"ä"'.encode()
)


def formatter(name: str = "default", **given: str) -> Formatter:
    values = {key.replace("_", "."): value for key, value in given.items()}
    return find_formatter(name, GivenProperties(values, "--formatter-property"))


# --- records to lines --------------------------------------------------------------------------------------


def test_value_alone_is_printed_as_it_is() -> None:
    assert formatter()(replace(RECORD, value=b"\xff")) == b"\xff\n"
    assert formatter(null_literal="NIL")(replace(RECORD, value=None)) == b"NIL\n"
    assert formatter(print_value="false")(RECORD) == b""


def test_parts_are_printed_in_the_order_of_kafkas_formatter() -> None:
    parts = "timestamp partition offset delivery epoch headers key".split()
    shown = formatter(
        **{f"print_{part}": "true" for part in parts},
        key_separator="|",
        line_separator=";",
        headers_separator=" ",
        key_deserializer="integer",
    )
    assert (
        shown(RECORD)
        == 'CreateTime:99|Partition:2|Offset:7|Delivery:NOT_PRESENT|Epoch:5|h1:v1 h2:null|42|"ä";'.encode()
    )
    bare = replace(RECORD, timestamp_type=None, leader_epoch=None, headers=())
    assert shown(bare).startswith(
        b"NO_TIMESTAMP|Partition:2|Offset:7|Delivery:NOT_PRESENT|Epoch:NOT_PRESENT|NO_HEADERS|"
    )


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.StringDeserializer", b"a\xff", "a\ufffd"),
        ("ByteArrayDeserializer", "ä".encode(), "ä"),
        ("bytes", b"a\\\0", r"a\x5C\x00"),
        ("short", struct.pack(">h", -2), "-2"),
        ("IntegerDeserializer", struct.pack(">i", 7), "7"),
        ("long", struct.pack(">q", 1 << 40), str(1 << 40)),
        ("float", struct.pack(">f", 0.5), "0.5"),
        ("double", struct.pack(">d", 1.25), "1.25"),
        ("boolean", b"\1", "true"),
        ("uuid", b"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("org.apache.kafka.connect.json.JsonDeserializer", b'{"a": [1, null]}', '{"a":[1,null]}'),
    ],
)
def test_deserializers_have_kafkas_names_and_short_ones(name: str, data: bytes, text: str) -> None:
    assert formatter(value_deserializer=name)(replace(RECORD, value=data)).decode() == text + "\n"


@pytest.mark.parametrize("name", ["integer", "boolean", "uuid", "void", "json"])
def test_bytes_that_are_no_such_value_cannot_be_printed(name: str) -> None:
    with pytest.raises(UnprintableError, match="the record at offset 7 of t-2 cannot be printed: "):
        formatter(value_deserializer=name)(replace(RECORD, value=b"[" * 5000))


def test_string_is_decoded_with_its_encoding() -> None:
    latin = formatter(value_deserializer="string", value_deserializer_deserializer_encoding="iso8859-1")
    assert latin(replace(RECORD, value=b"\xe4")) == "ä\n".encode()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("org.example.MyMessageFormatter", {}, "there is none here, only default, logging"),
        ("default", {"value_deserializer": "a.Mine"}, "value.deserializer: there is no deserializer a.Mine"),
        ("default", {"print_headrs": "true"}, "did you mean print.headers?"),
        ("default", {"key_deserializer": "integer", "key_deserializer_x": "1"}, "has no setting x"),
        ("default", {"key_deserializer": "string", "key_deserializer_encoding": "no"}, "no encoding 'no'"),
        ("noop", {"print_key": "true"}, "print.key: unknown"),
    ],
)  # fmt: skip
def test_unknown_class_or_property_is_refused(name: str, given: Mapping[str, str], said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        formatter(name, **given)
    assert said in refused.value.message


def test_record_as_json_keeps_what_is_no_text() -> None:
    shown = json.loads(json_formatter(GivenProperties({"key.deserializer": "integer"}, ""))(RECORD))
    assert shown == {
        "topic": "t", "partition": 2, "offset": 7, "leaderEpoch": 5,
        "timestampType": "CreateTime", "timestamp": 99,
        "headers": [{"key": "h1", "value": "v1"}, {"key": "h2", "value": None}], "key": 42, "value": '"ä"',
    }  # fmt: skip
    plain = json.loads(formatter("json")(replace(RECORD, value=b"\xff\0", timestamp_type=None)))
    assert (plain["value"], plain["key"], plain["timestamp"]) == ({"base64": "/wA="}, "\0\0\0*", None)


# --- records of coordinators -------------------------------------------------------------------------------


def of_bytes(key: bytes | None, value: bytes | None) -> ConsumedRecord:
    return replace(RECORD, key=key, value=value)


def test_committed_offset_is_shown_as_by_kafka() -> None:
    key = OffsetCommitKey("g", "t", 3)
    value = OffsetCommitValue(42, 1, "note", 1000, topic_id=Uuid(bytes(15) + b"\2"))
    record = of_bytes(*group_codec.encode_record(GroupRecord(key, value)))
    assert offsets(record) == (
        b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},"value":{"version":4,"data":'
        b'{"offset":42,"leaderEpoch":1,"metadata":"note","commitTimestamp":1000,"topicId":"AAAAAAAAAAAAAAAAAAAAAg"}}}\n'
    )
    expiring = replace(value, expire_timestamp_ms=2000, topic_id=Uuid(bytes(16)))
    shown = json.loads(offsets(of_bytes(*group_codec.encode_record(GroupRecord(key, expiring)))))
    assert shown["value"] == {
        "version": 1,
        "data": {"offset": 42, "metadata": "note", "commitTimestamp": 1000, "expireTimestamp": 2000},
    }
    assert json.loads(offsets(of_bytes(*group_codec.encode_record(GroupRecord(key, None)))))["value"] is None


def test_classic_group_is_shown_as_by_kafka() -> None:
    member = ClassicMemberValue("m", None, "c", "/h", 1, 2, b"\1\2", b"")
    value = GroupMetadataValue("consumer", 5, "range", None, 9, (member,))
    record = of_bytes(*group_codec.encode_record(GroupRecord(GroupMetadataKey("g"), value)))
    shown = json.loads(group_metadata(record))
    assert shown["key"] == {"type": 2, "data": {"group": "g"}}
    assert shown["value"]["data"] == {
        "protocolType": "consumer", "generation": 5, "protocol": "range", "leader": None,
        "currentStateTimestamp": 9,
        "members": [{
            "memberId": "m", "groupInstanceId": None, "clientId": "c", "clientHost": "/h",
            "rebalanceTimeout": 1, "sessionTimeout": 2, "subscription": "AQI=", "assignment": "",
        }],
    }  # fmt: skip


def test_transaction_is_shown_as_by_kafka() -> None:
    value = Transaction(
        "x", 4, 1, 60_000, TransactionState.ONGOING, frozenset({("t", 1), ("t", 0)}), 7, 6,
        client_version=TransactionVersion.TV_2,
    )  # fmt: skip
    encoded = transaction_codec.encode_record(record_of(value), TransactionVersion.TV_2)
    shown = json.loads(transaction_log(of_bytes(*encoded)))
    assert shown == {
        "key": {"type": 0, "data": {"transactionalId": "x"}},
        "value": {"version": 1, "data": {
            "producerId": 4, "producerEpoch": 1, "transactionTimeoutMs": 60_000, "transactionStatus": 1,
            "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}],
            "transactionLastUpdateTimestampMs": 7, "transactionStartTimestampMs": 6,
            "clientTransactionVersion": 2,
        }},
    }  # fmt: skip
    deleted = transaction_codec.encode_record(TransactionRecord("x", None), TransactionVersion.TV_2)
    assert json.loads(transaction_log(of_bytes(*deleted)))["value"] is None


def test_record_of_another_kind_prints_nothing_and_a_damaged_one_is_named() -> None:
    other, _ = group_codec.encode_record(GroupRecord(ConsumerGroupMetadataKey("g"), None))
    assert offsets(of_bytes(other, None)) == group_metadata(of_bytes(other, None)) == b""
    assert offsets(of_bytes(None, b"x")) == b""
    with pytest.raises(UnprintableError, match="Could not read record at offset 7 due to: "):
        offsets(of_bytes(b"\0\1\0", None))
    commit, _ = group_codec.encode_record(GroupRecord(OffsetCommitKey("g", "t", 3), None))
    with pytest.raises(UnprintableError, match="has no version 99"):
        offsets(of_bytes(commit, b"\0\x63"))
