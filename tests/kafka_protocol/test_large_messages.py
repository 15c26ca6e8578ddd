"""Large messages: in slices they are read and written as at once, and never without a bound."""

import tracemalloc

import pytest

from pykraft.kafka_protocol.codec.pace import MAX_LISTS, SLICE_BYTES, TooManyItemsError, at_once, forget
from pykraft.kafka_protocol.codec.schema import (
    Body,
    EncodedElements,
    Message,
    array,
    int32,
    message,
    string,
    struct,
)
from pykraft.kafka_protocol.codec.tagged import MAX_TAGGED_FIELDS
from pykraft.kafka_protocol.headers import decode_request_header, encode_request
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykraft.kafka_protocol.messages.records import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykraft.kafka_protocol.primitives import ProtocolError, write_uvarint
from pykraft.runtime.network.streams import Pieces
from tests.kafka_protocol.values import Generator

MANY = 1_000_000
LONGEST_ELEMENT = 100
"""Of the messages here, in bytes."""


def test_what_is_read_and_written_in_slices_is_the_same(message_class: type[Message], version: int) -> None:
    value = Generator(f"sliced/{message_class.__name__}/{version}").message(message_class, version)
    encoded = value.encode(version)
    out = Body()
    at_once(value.encode_in_slices(version, out))
    assert bytes(out) == encoded
    assert at_once(message_class.decode_in_slices(encoded, version, MANY)) == message_class.decode(
        encoded, version
    )


def test_malformed_bytes_are_refused_in_slices_too(message_class: type[Message], version: int) -> None:
    encoded = Generator("cut", max_items=1).message(message_class, version).encode(version)
    for cut in range(0, len(encoded), max(1, len(encoded) // 20)):
        with pytest.raises(ProtocolError):
            at_once(message_class.decode_in_slices(encoded[:cut], version, MANY))


def offsets_request(topics: int, partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=f"topic-{n}", partitions=asked) for n in range(topics)]
    )


@pytest.mark.parametrize(("topics", "partitions"), [(4_000, 1), (1, 4_000), (60, 60)])
def test_reader_and_writer_pause_after_each_slice(topics: int, partitions: int) -> None:
    request = offsets_request(topics, partitions)
    out, before, pauses = Body(), 0, 0
    for _ in request.encode_in_slices(10, out):
        assert len(out) - before <= SLICE_BYTES * 2 + LONGEST_ELEMENT
        before = len(out)
        pauses += 1
    assert len(out) - before <= SLICE_BYTES * 2
    assert pauses >= len(out) // (2 * SLICE_BYTES) > 1
    decoding = ListOffsetsRequest.decode_in_slices(bytes(out), 10, MANY)
    assert sum(1 for _ in decoding) >= len(out) // (2 * SLICE_BYTES)


@pytest.mark.parametrize("version", [1, 10])
def test_elements_of_all_arrays_are_counted_together(version: int) -> None:
    encoded = offsets_request(10, 9).encode(version)
    assert at_once(ListOffsetsRequest.decode_in_slices(encoded, version, 100)) == offsets_request(10, 9)
    for allowed in (0, 9, 99):
        with pytest.raises(TooManyItemsError, match=f"more than {allowed} items"):
            at_once(ListOffsetsRequest.decode_in_slices(encoded, version, allowed))


def test_arrays_are_counted_too() -> None:
    """Each topic brings one, and the objects of one cost as much as some elements."""
    encoded = offsets_request(MAX_LISTS - 1, 0).encode(10)
    assert len(at_once(ListOffsetsRequest.decode_in_slices(encoded, 10, MANY)).topics) == MAX_LISTS - 1
    with pytest.raises(TooManyItemsError, match=f"more than {MAX_LISTS} lists"):
        at_once(ListOffsetsRequest.decode_in_slices(offsets_request(MAX_LISTS, 0).encode(10), 10, MANY))


def test_too_many_elements_are_refused_before_objects_are_made_of_them() -> None:
    encoded = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 200_000).encode(12)
    at_once(
        MetadataRequest.decode_in_slices(MetadataRequest().encode(12), 12, 0)
    )  # the code is compiled once
    tracemalloc.start()
    try:
        with pytest.raises(TooManyItemsError):
            at_once(MetadataRequest.decode_in_slices(encoded, 12, 100_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@struct
class Named:
    name: str = string()
    number: int = int32()


@message(versions="0-1", flexible="1+")
class Sets(Message):
    words: list[str] | None = array("string", nullable="0+", distinct=True)
    numbers: list[int] = array("int32", distinct=True)
    named: list[Named] = array(Named, distinct=("name",))
    all_named: list[Named] = array(Named)


@pytest.mark.parametrize("version", [0, 1])
def test_a_list_that_is_a_set_is_read_without_what_is_named_twice(version: int) -> None:
    named = [Named(name="b", number=1), Named(name="a", number=2), Named(name="b", number=3)]
    encoded = Sets(words=["z", "a", "z"], numbers=[3, 1, 3, 3], named=named, all_named=named).encode(version)
    expected = Sets(words=["z", "a"], numbers=[3, 1], named=named[:2], all_named=named)
    assert Sets.decode(encoded, version) == expected
    assert at_once(Sets.decode_in_slices(encoded, version, 13)) == expected
    with pytest.raises(TooManyItemsError):
        at_once(Sets.decode_in_slices(encoded, version, 12))  # what is named twice counts
    assert Sets.decode(Sets(words=None).encode(version), version) == Sets(words=None)


def _tags(count: int) -> bytes:
    out = bytearray()
    write_uvarint(out, count)
    for tag in range(100, 100 + count):
        write_uvarint(out, tag)
        out.append(0)
    return bytes(out)


def test_unknown_tagged_fields_are_skipped_up_to_a_bound() -> None:
    body = MetadataRequest(topics=[]).encode(12)[:-1]
    frame = encode_request(MetadataRequest(topics=[]), 12, 1, "c")
    header = frame[: -len(body) - 2]
    assert MetadataRequest.decode(body + _tags(MAX_TAGGED_FIELDS), 12) == MetadataRequest(topics=[])
    tagged = header + _tags(MAX_TAGGED_FIELDS)
    assert decode_request_header(tagged + body) == (decode_request_header(frame)[0], len(tagged))
    with pytest.raises(ProtocolError, match="tagged fields"):
        MetadataRequest.decode(body + _tags(MAX_TAGGED_FIELDS + 1), 12)
    with pytest.raises(ProtocolError, match="tagged fields"):
        decode_request_header(header + _tags(MAX_TAGGED_FIELDS + 1) + body)


@pytest.mark.parametrize(("count", "size_bytes"), [(0, 1), (3, 5), (300, 2_000), (4, 70_000)])
def test_encoded_elements_are_sent_without_being_joined(count: int, size_bytes: int) -> None:
    body = Body(b"start")
    element = bytes(size_bytes)
    body.add_encoded(b"in between")
    MetadataResponse(topics=EncodedElements([element] * count)).encode_into(9, body)
    assert body.size_bytes == len(body.to_bytes())
    chunks = at_once(body.in_chunks())
    parts: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        pieces = chunk.pieces if isinstance(chunk, Pieces) else [chunk]
        assert not isinstance(chunk, Pieces) or chunk.size_bytes == sum(map(len, chunk.pieces))
        parts += [piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview)]
    assert b"".join(parts) == body.to_bytes()
    if count * size_bytes > 200_000:
        assert sum(part is element for part in parts) >= count * 3 // 4
    else:
        assert len(chunks) == 1


def test_keys_of_a_large_set_are_forgotten_in_slices() -> None:
    """A hundred thousand of them are not freed within a turn."""
    number = 50_000
    named = [Named(name=str(one), number=one) for one in range(number)]
    encoded = Sets(words=[], numbers=[], named=named, all_named=[]).encode(0)
    slices = sum(1 for _ in Sets.decode_in_slices(encoded, 0, number))
    assert slices > number / 1_100 + len(encoded) / SLICE_BYTES - 2

    keys, left = set(range(3_500)), []
    for _ in forget(keys):
        left.append(len(keys))
    assert left == [2_500, 1_500, 500]
