"""Malformed bytes: always ProtocolError, quickly, and without the memory that they ask for."""

import random
import struct
import tracemalloc
from typing import TypeVar

import pytest

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.messages.groups import HeartbeatRequest
from pykraft.kafka_protocol.messages.records import (
    FetchRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykraft.kafka_protocol.primitives import ProtocolError, write_uvarint
from tests.kafka_protocol.values import Generator

M = TypeVar("M", bound=Message)
MAX_CUTS = 250
UNKNOWN_TAGS = b"\x02\x63\x03abc\xe4\x07\x00"
"""Two fields that no table has: tag 99 with three bytes and tag 996 with none."""


def small_message(message_class: type[M], version: int) -> M:
    return Generator(f"small/{message_class.__name__}/{version}", max_items=1).message(message_class, version)


def test_truncation_at_every_byte_is_refused(message_class: type[Message], version: int) -> None:
    encoded = small_message(message_class, version).encode(version)
    step = max(1, len(encoded) // MAX_CUTS)
    for cut in range(0, len(encoded), step):
        with pytest.raises(ProtocolError):
            message_class.decode(encoded[:cut], version)


def test_trailing_bytes_are_refused(message_class: type[Message], version: int) -> None:
    encoded = small_message(message_class, version).encode(version)
    with pytest.raises(ProtocolError, match="follow"):
        message_class.decode(encoded + b"\x00", version)


def test_random_bytes_never_raise_anything_else(message_class: type[Message], version: int) -> None:
    rng = random.Random(f"random/{message_class.__name__}/{version}")
    encoded = small_message(message_class, version).encode(version)
    for _ in range(15):
        damaged = bytearray(encoded) or bytearray(b"\x00")
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        decode_or_refuse(message_class, bytes(damaged), version)
        decode_or_refuse(message_class, rng.randbytes(rng.randint(0, 60)), version)


def decode_or_refuse(message_class: type[Message], data: bytes, version: int) -> None:
    try:
        decoded = message_class.decode(data, version)
    except ProtocolError:
        return
    decoded.encode(version)


def test_memoryview_decodes_to_the_same(message_class: type[Message], version: int) -> None:
    message = small_message(message_class, version)
    encoded = message.encode(version)
    assert message_class.decode(memoryview(bytearray(encoded)), version) == message


def test_unknown_tagged_fields_are_skipped(message_class: type[Message], flexible_version: int) -> None:
    message = small_message(message_class, flexible_version)
    for spec in message_class.FIELDS:
        if spec.tag is not None:
            setattr(message, spec.name, getattr(message_class(), spec.name))
    encoded = message.encode(flexible_version)
    assert encoded[-1] == 0
    assert message_class.decode(encoded[:-1] + UNKNOWN_TAGS, flexible_version) == message
    for cut in range(1, len(UNKNOWN_TAGS)):
        with pytest.raises(ProtocolError):
            message_class.decode(encoded[:-1] + UNKNOWN_TAGS[:cut], flexible_version)


def test_unknown_tagged_fields_of_nested_structs_are_skipped() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    encoded = message.encode(9)
    name_end = encoded.index(b"a") + 1
    assert encoded[name_end] == 0
    tagged = encoded[:name_end] + UNKNOWN_TAGS + encoded[name_end + 1 :]
    assert MetadataRequest.decode(tagged, 9) == message


def test_unknown_tag_next_to_a_known_one_is_skipped() -> None:
    message = FetchRequest(cluster_id="c")
    encoded = message.encode(12)
    known = b"\x01\x00\x02\x02c"
    assert encoded.endswith(known)
    assert FetchRequest.decode(encoded[: -len(known)] + b"\x02\x00\x02\x02c\x63\x01x", 12) == message


def test_known_tag_of_wrong_size_is_refused() -> None:
    encoded = FetchRequest(cluster_id="c").encode(12)
    with pytest.raises(ProtocolError, match="tagged field 0"):
        FetchRequest.decode(encoded[:-5] + b"\x01\x00\x03\x02cc", 12)


@pytest.mark.parametrize("count", [3, 1000, 2**31 - 1])
@pytest.mark.parametrize("version", [1, 9])
def test_count_above_the_bytes_left_is_refused_without_allocating(count: int, version: int) -> None:
    body = bytearray()
    if version < MetadataRequest.FLEXIBLE_FROM:
        body += struct.pack(">i", count)
    else:
        write_uvarint(body, count + 1)
    body += b"\x00\x00\x00"
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            MetadataRequest.decode(bytes(body), version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 << 10


@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_negative_count_that_is_not_null_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        MetadataRequest.decode(struct.pack(">i", length), 1)


def test_null_where_null_is_not_allowed_is_refused_both_ways() -> None:
    with pytest.raises(ProtocolError, match="null"):
        MetadataRequest.decode(struct.pack(">i", -1), 0)
    with pytest.raises(ProtocolError, match="null"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(ProtocolError, match="null"):
        MetadataResponse(topics=[MetadataResponseTopic(name=None)]).encode(11)


def test_string_that_is_not_utf8_is_refused() -> None:
    encoded = HeartbeatRequest(group_id="gg").encode(0)
    with pytest.raises(ProtocolError, match="UTF-8"):
        HeartbeatRequest.decode(encoded.replace(b"gg", b"\xff\xfe"), 0)


@pytest.mark.parametrize("version", [0, 4])
def test_string_above_the_limit_is_refused(version: int) -> None:
    HeartbeatRequest(group_id="g" * 32767).encode(version)
    with pytest.raises(ProtocolError, match="longer"):
        HeartbeatRequest(group_id="g" * 32768).encode(version)


def test_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="varint"):
        MetadataRequest.decode(b"\xff\xff\xff\xff\xff\x01" + bytes(40), 9)


def test_tagged_section_that_announces_billions_is_refused_quickly() -> None:
    encoded = MetadataRequest(topics=[]).encode(9)
    with pytest.raises(ProtocolError, match="tagged"):
        MetadataRequest.decode(encoded[:-1] + b"\xff\xff\xff\xff\x0f", 9)


def test_integer_out_of_range_cannot_be_encoded() -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        HeartbeatRequest(generation_id=2**31).encode(0)


def test_id_of_wrong_size_cannot_be_encoded() -> None:
    with pytest.raises(ProtocolError, match="sixteen"):
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]).encode(12)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [-1, 14])
def test_version_that_does_not_exist_is_refused(version: int) -> None:
    for attempt in (
        lambda: MetadataRequest().encode(version),
        lambda: MetadataRequest.decode(b"", version),
    ):
        with pytest.raises(ProtocolError) as refusal:
            attempt()
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_records_of_a_memoryview_are_not_copied() -> None:
    partition = PartitionProduceData(records=b"batch bytes")
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    frame = memoryview(bytearray(request.encode(9)))
    decoded = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is frame.obj
    assert bytes(decoded) == b"batch bytes"
