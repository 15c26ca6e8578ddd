"""What a message table promises to the code that uses it."""

from __future__ import annotations

import pickle

import pytest

from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykraft.kafka_protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData
from pykraft.kafka_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.schema import Message, array, int32, message, string, struct


@struct
class Point:
    x: int = int32()
    label: str | None = string("1+", nullable="2+", tag=None)


@message(versions="0-3", flexible="2+")
class Shape(Message):
    points: list[Point] = array(Point)
    sizes: list[int] | None = array("int32", "1+", nullable="1+")
    extra: str = string("3+", tag=5)


def test_fields_have_kafkas_defaults() -> None:
    request = FetchRequest()
    assert (request.max_bytes, request.session_epoch, request.replica_id) == (2**31 - 1, -1, -1)
    assert MetadataRequest().allow_auto_topic_creation is True
    assert MetadataResponseTopic().topic_id == ZERO_UUID
    assert PartitionData().diverging_epoch == EpochEndOffset(epoch=-1, end_offset=-1)
    assert ConsumerGroupHeartbeatRequest().topic_partitions is None
    assert ConsumerGroupHeartbeatResponse().assignment is None


def test_mutable_defaults_are_not_shared() -> None:
    MetadataRequest().topics.append(MetadataRequestTopic())  # type: ignore[union-attr]
    assert MetadataRequest().topics == []
    body = ConsumerGroupHeartbeatResponse().encode(0)
    first = ConsumerGroupHeartbeatResponse.decode(body, 0)
    first.assignment = Assignment()
    first.assignment.topic_partitions.append(None)  # type: ignore[arg-type]
    assert Assignment().topic_partitions == []


def test_unknown_keyword_or_attribute_is_an_error() -> None:
    with pytest.raises(TypeError):
        Shape(colour=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Shape().colour = 1  # type: ignore[attr-defined]


def test_wire_form_follows_the_version() -> None:
    shape = Shape(points=[Point(x=1, label="p")], sizes=[7], extra="e")
    assert shape.encode(0) == b"\0\0\0\1\0\0\0\1"
    assert shape.encode(1) == b"\0\0\0\1\0\0\0\1\0\1p\0\0\0\1\0\0\0\7"
    assert shape.encode(2) == b"\2\0\0\0\1\2p\0\2\0\0\0\7\0"
    assert shape.encode(3) == b"\2\0\0\0\1\2p\0\2\0\0\0\7\1\5\2\2e"


def test_fields_that_the_version_lacks_decode_to_their_defaults() -> None:
    shape = Shape(points=[Point(x=1, label="p")], sizes=[7], extra="e")
    assert Shape.decode(shape.encode(0), 0) == Shape(points=[Point(x=1)])
    assert Shape.decode(shape.encode(2), 2) == Shape(points=[Point(x=1, label="p")], sizes=[7])
    assert Shape.decode(shape.encode(3), 3) == shape


def test_tagged_field_at_its_default_is_not_written() -> None:
    assert Shape(sizes=None).encode(3) == b"\1\0\0"


def test_long_values_take_longer_lengths() -> None:
    for count in (0, 1, 126, 127, 128, 20_000):
        shape = Shape(sizes=list(range(count)), extra="x" * count)
        for version in (1, 3):
            assert Shape.decode(shape.encode(version), version).sizes == shape.sizes
    assert Shape.decode(shape.encode(3), 3) == shape


def test_message_can_stand_in_the_middle_of_a_buffer() -> None:
    out = bytearray(b"head")
    Shape(sizes=[1]).encode_into(3, out)
    decoded, end = Shape.decode_from(bytes(out) + b"tail", 4, 3)
    assert decoded == Shape(sizes=[1])
    assert end == len(out)


def test_message_survives_pickling() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert pickle.loads(pickle.dumps(request)) == request
