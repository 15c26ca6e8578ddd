"""What the users of a message table rely on."""

import pickle
import tracemalloc

import pytest

from pykraft.kafka_protocol.codec.schema import (
    EncodedElements,
    Message,
    array,
    int32,
    message,
    string,
    struct,
)
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)
from pykraft.kafka_protocol.messages.records import DivergingEpoch, FetchRequest, PartitionData
from pykraft.kafka_protocol.primitives import ProtocolError, write_uvarint


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
    assert PartitionData().diverging_epoch == DivergingEpoch(epoch=-1, end_offset=-1)
    assert ConsumerGroupHeartbeatRequest().topic_partitions is None
    assert ConsumerGroupHeartbeatResponse().assignment is None


def test_mutable_defaults_are_not_shared() -> None:
    MetadataRequest().topics.append(MetadataRequestTopic())  # type: ignore[union-attr]
    assert MetadataRequest().topics == []
    body = ConsumerGroupHeartbeatResponse().encode(0)
    first = ConsumerGroupHeartbeatResponse.decode(body, 0)
    first.assignment = HeartbeatAssignment()
    first.assignment.topic_partitions.append(None)  # type: ignore[arg-type]
    assert HeartbeatAssignment().topic_partitions == []


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


def test_message_can_be_in_the_middle_of_a_buffer() -> None:
    out = bytearray(b"head")
    Shape(sizes=[1]).encode_into(3, out)
    decoded, end = Shape.decode_from(bytes(out) + b"tail", 4, 3)
    assert decoded == Shape(sizes=[1])
    assert end == len(out)


@message(versions="0-1", flexible="1+")
class Arrays(Message):
    structs: list[Point] = array(Point)
    numbers: list[int] = array("int64")
    ids: list[Uuid] = array("uuid")
    names: list[str] = array("string")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("count", [8, 2**31 - 2])
def test_count_above_the_bytes_left_is_refused_before_anything_is_allocated(
    version: int, position: int, count: int
) -> None:
    """Four empty arrays, of which one announces more elements than the remaining bytes can hold."""
    lengths = [0, 0, 0, 0]
    lengths[position] = count
    body = bytearray()
    for length in lengths[: position + 1]:
        if version == 0:
            body += length.to_bytes(4)
        else:
            write_uvarint(body, length + 1)
    body += bytes(7)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="truncated or oversized: Arrays"):
            Arrays.decode(bytes(body), version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_arrays_of_every_kind_round_trip() -> None:
    arrays = Arrays(structs=[Point(x=1)], numbers=[-1, 2**40], ids=[ZERO_UUID], names=["", "n"])
    for version in (0, 1):
        assert Arrays.decode(arrays.encode(version), version) == arrays


@pytest.mark.parametrize("tail", [b"\1\5\3\2e", b"\1\5\2\3e", b"\1\6\x7f", b"\2\6\0"])
def test_tagged_field_that_reaches_past_the_buffer_is_refused(tail: bytes) -> None:
    body = Shape(sizes=None).encode(3)[:-1] + tail
    with pytest.raises(ProtocolError):
        Shape.decode_from(body, 0, 3)


def test_message_survives_pickling() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert pickle.loads(pickle.dumps(request)) == request


def test_elements_that_are_already_encoded_are_where_the_codec_puts_them() -> None:
    topics = [MetadataResponseTopic(name=name, topic_id=Uuid(b"i" * 16)) for name in ("a", "bc")]
    for version in range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1):
        plain = MetadataResponse(cluster_id="c", topics=topics)
        encoded = EncodedElements(MetadataResponse.encode_part(topic, version) for topic in topics)
        spliced = MetadataResponse(cluster_id="c", topics=encoded)
        assert spliced.encode(version) == plain.encode(version)
        out = bytearray(b"before")
        spliced.encode_into(version, out)
        assert out == b"before" + plain.encode(version)
