"""The hand-written OffsetCommit codec against the table-driven messages: every version, both ways."""

import struct
from collections.abc import Iterator
from itertools import repeat
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.framing import SIZE_BYTES
from pykraft.kafka_protocol.headers import encode_response_header
from pykraft.kafka_protocol.hot import offset_commit as fast
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykraft.kafka_protocol.primitives import ProtocolError

VERSIONS = range(OffsetCommitRequest.MIN_VERSION, OffsetCommitRequest.MAX_VERSION + 1)
EXAMPLES = settings(max_examples=60, deadline=None)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16).map(Uuid)
texts = st.text(max_size=20)
versions = st.sampled_from(VERSIONS)
rare_metadata = st.sampled_from([None, "", "", None, "note"])
"""Mostly none, so that whole topics are read as columns, and columns are broken off at any place."""


def partitions(metadata: st.SearchStrategy[str | None]) -> st.SearchStrategy[OffsetCommitRequestPartition]:
    return st.builds(
        OffsetCommitRequestPartition,
        partition_index=i32,
        committed_offset=i64,
        committed_leader_epoch=i32,
        committed_metadata=metadata,
    )


topics = st.builds(
    OffsetCommitRequestTopic,
    name=texts,
    topic_id=ids,
    partitions=st.lists(partitions(st.sampled_from([None, ""])), max_size=9)
    | st.lists(partitions(rare_metadata), max_size=9)
    | st.lists(partitions(st.none() | st.text(max_size=150)), max_size=3),
)
requests = st.builds(
    OffsetCommitRequest,
    group_id=texts,
    generation_id_or_member_epoch=i32,
    member_id=texts,
    retention_time_ms=i64,
    group_instance_id=st.none() | texts,
    topics=st.lists(topics, max_size=3),
)


def as_tables(view: fast.CommitRequestView, version: int) -> OffsetCommitRequest:
    """What was parsed, as the table-driven codec would have it: empty metadata counts as none."""
    return OffsetCommitRequest(
        group_id=view.group_id,
        generation_id_or_member_epoch=view.generation_id_or_member_epoch,
        member_id=view.member_id,
        retention_time_ms=view.retention_time_ms,
        group_instance_id=view.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=(topic.metadata[place] if topic.metadata else None) or None,
                    )
                    for place, (index, (offset, epoch)) in enumerate(
                        zip(topic.partitions, fast.FIELDS.iter_unpack(topic.fields), strict=True)
                    )
                ],
            )
            for topic in view.topics
        ],
    )


def without_empty_metadata(request: OffsetCommitRequest) -> OffsetCommitRequest:
    for topic in request.topics:
        for partition in topic.partitions:
            partition.committed_metadata = partition.committed_metadata or None
    return request


def table_driven(body: bytes, version: int) -> OffsetCommitRequest:
    return without_empty_metadata(OffsetCommitRequest.decode_from(body, 0, version)[0])


@EXAMPLES
@given(requests, versions, st.integers(0, 9), st.binary(max_size=3))
def test_requests_parse_to_what_was_encoded(
    request: OffsetCommitRequest, version: int, prefix: int, rest: bytes
) -> None:
    body = request.encode(version)
    view = fast.parse_offset_commit(memoryview(b"p" * prefix + body + rest), prefix, version)
    assert as_tables(view, version) == table_driven(body, version)


@EXAMPLES
@given(requests, requests, versions, versions, st.binary(max_size=3), st.data())
def test_usual_commit_is_recognized_and_no_other(
    first: OffsetCommitRequest,
    other: OffsetCommitRequest,
    version: int,
    other_version: int,
    rest: bytes,
    data: st.DataObject,
) -> None:
    """Whatever it recognizes is what parsing would have found, and of the usual kind it recognizes all."""
    first.topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
    body = first.encode(version) + rest
    view = fast.parse_offset_commit(memoryview(body), 0, version)
    if view.fields_at < 0:
        assert version < 6
        return
    usual = fast.UsualCommit(memoryview(body), version, view)
    fields = data.draw(st.binary(min_size=fast.FIELDS_BYTES, max_size=fast.FIELDS_BYTES))
    again = body[: view.fields_at] + fields + body[view.fields_at + fast.FIELDS_BYTES :]
    assert usual.recognize(memoryview(again), version) == fast.parse_offset_commit(
        memoryview(again), 0, version
    )
    place = data.draw(st.integers(0, len(again) - 1))
    changed = bytearray(again)
    changed[place] ^= data.draw(st.integers(1, 255))
    for one, as_version in (
        (bytes(changed), version),
        (again + b"\0", version),
        (again[:-1], version),
        (other.encode(other_version), other_version),
        (again, other_version),
    ):
        found = usual.recognize(memoryview(one), as_version)
        is_usual = (
            as_version == version
            and len(one) == len(body)
            and one[: view.fields_at] == body[: view.fields_at]
            and one[view.fields_at + fast.FIELDS_BYTES :] == body[view.fields_at + fast.FIELDS_BYTES :]
        )
        assert (found is not None) is is_usual
        if found is not None:
            assert found == fast.parse_offset_commit(memoryview(one), 0, as_version)
    for correlation_id in (5, -7):
        assert usual.accept(correlation_id) == fast.build_offset_commit_response(
            version, correlation_id, view.topics, [0]
        )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_partition_with_tagged_fields_is_skipped_to_its_end(place: int) -> None:
    """The fields hold the bytes of one more partition without metadata."""
    version = VERSIONS[-1]
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=40 + index, committed_metadata=None
        )
        for index in range(3)
    ]
    topic = OffsetCommitRequestTopic(topic_id=Uuid(b"t" * 16), partitions=partitions)
    body = OffsetCommitRequest(group_id="g", topics=[topic]).encode(version)
    at = body.index(fast.FIELDS.pack(40 + place, -1)) - 4
    bare = body[at : at + 18]
    body = body[: at + 17] + b"\1\0\x10" + bare[:16] + body[at + 18 :]
    view = fast.parse_offset_commit(memoryview(body), 0, version)
    assert as_tables(view, version) == table_driven(body, version)
    assert view.topics[0].partitions == (0, 1, 2)


class LongNumbers:
    """Encodes a flexible request with lengths and counts that have more bytes than they need."""

    def __init__(self, widths: Iterator[int]) -> None:
        self._widths = widths
        self.out = bytearray()

    def number(self, value: int) -> None:
        width = max(next(self._widths), (value.bit_length() + 6) // 7)
        for shift in range(0, 7 * (width - 1), 7):
            self.out.append(value >> shift & 0x7F | 0x80)
        self.out.append(value >> 7 * (width - 1))

    def text(self, text: str | None) -> None:
        raw = b"" if text is None else text.encode()
        self.number(0 if text is None else len(raw) + 1)
        self.out += raw

    def request(self, request: OffsetCommitRequest, version: int) -> bytes:
        self.text(request.group_id)
        self.out += struct.pack(">i", request.generation_id_or_member_epoch)
        self.text(request.member_id)
        self.text(request.group_instance_id)
        self.number(len(request.topics) + 1)
        for topic in request.topics:
            if version >= 10:
                self.out += topic.topic_id
            else:
                self.text(topic.name)
            self.number(len(topic.partitions) + 1)
            for one in topic.partitions:
                fields = one.partition_index, one.committed_offset, one.committed_leader_epoch
                self.out += struct.pack(">iqi", *fields)
                self.text(one.committed_metadata)
                self.number(0)
            self.number(0)
        self.number(0)
        return bytes(self.out)


@EXAMPLES
@given(requests, st.sampled_from([8, 9, 10]), st.randoms(use_true_random=False))
def test_numbers_with_more_bytes_than_they_need_are_read(
    request: OffsetCommitRequest, version: int, rng: Random
) -> None:
    widths = iter(lambda: rng.choice([1, 1, 1, 2, 5]), 0)
    body = LongNumbers(widths).request(request, version)
    view = fast.parse_offset_commit(memoryview(body), 0, version)
    assert as_tables(view, version) == table_driven(body, version)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_null_of_any_width_is_read(width: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", member_id="m", topics=[topic])
    body = LongNumbers(repeat(width)).request(request, 9)
    view = fast.parse_offset_commit(memoryview(body), 0, 9)
    assert (view.group_instance_id, view.topics[0].partitions, view.topics[0].metadata) == (None, (1,), None)
    assert as_tables(view, 9) == table_driven(body, 9)


@EXAMPLES
@given(requests, versions)
def test_nothing_that_is_parsed_refers_to_the_frame(request: OffsetCommitRequest, version: int) -> None:
    body = request.encode(version)
    frame = bytearray(body)
    view = fast.parse_offset_commit(memoryview(frame), 0, version)
    frame[:] = b"\xff" * len(frame)
    assert as_tables(view, version) == table_driven(body, version)


@EXAMPLES
@given(st.data(), requests, versions)
def test_what_the_tables_refuse_is_refused(
    data: st.DataObject, request: OffsetCommitRequest, version: int
) -> None:
    """Cut short, or with a byte changed. What both read, both read alike."""
    body = bytearray(request.encode(version))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    else:
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = table_driven(bytes(body), version)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            fast.parse_offset_commit(memoryview(body), 0, version)
    else:
        assert as_tables(fast.parse_offset_commit(memoryview(body), 0, version), version) == expected


@EXAMPLES
@given(st.data(), requests, versions)
def test_responses_decode_to_what_was_built(
    data: st.DataObject, request: OffsetCommitRequest, version: int
) -> None:
    view = fast.parse_offset_commit(memoryview(request.encode(version)), 0, version)
    errors = st.integers(-(2**15), 2**15 - 1)
    codes: int | list[int | list[int]] = data.draw(errors)
    if data.draw(st.booleans()):
        sizes = [len(topic.partitions) for topic in view.topics]
        codes = [data.draw(errors | st.lists(errors, min_size=n, max_size=n)) for n in sizes]
    frame = bytes(fast.build_offset_commit_response(version, 7, view.topics, codes))
    header = encode_response_header(ApiKey.OFFSET_COMMIT, version, 7)
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    assert frame[SIZE_BYTES:].startswith(header)

    def code(topic: int, place: int) -> int:
        if isinstance(codes, int):
            return codes
        of_topic = codes[topic]
        return of_topic if isinstance(of_topic, int) else of_topic[place]

    assert OffsetCommitResponse.decode(frame[SIZE_BYTES + len(header) :], version) == OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name if version < 10 else "",
                topic_id=topic.topic_id if version >= 10 else ZERO_UUID,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code(number, place))
                    for place, index in enumerate(topic.partitions)
                ],
            )
            for number, topic in enumerate(view.topics)
        ]
    )
