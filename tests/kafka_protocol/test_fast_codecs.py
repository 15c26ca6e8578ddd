"""The hand-written Produce and Fetch codecs against the table-driven messages: every version, both ways."""

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.headers import decode_request_header, encode_response_header
from pykraft.kafka_protocol.hot import fetch_follower, fetch_requests, fetch_responses
from pykraft.kafka_protocol.hot import produce as produce_fast
from pykraft.kafka_protocol.hot.wire import NodeEndpoint
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.runtime.disk import DiskFile
from pykraft.runtime.network.streams import Chunk

i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16).map(Uuid)
names = st.text(max_size=20)
maybe_text = st.none() | st.text(max_size=200)
produce_versions = st.integers(records.ProduceRequest.MIN_VERSION, records.ProduceRequest.MAX_VERSION)
fetch_versions = st.integers(records.FetchRequest.MIN_VERSION, records.FetchRequest.MAX_VERSION)
EXAMPLES = settings(max_examples=150, deadline=None)


@st.composite
def produce_requests(draw: st.DrawFn, version: int) -> records.ProduceRequest:
    partition = st.builds(
        records.PartitionProduceData, index=i32, records=st.none() | st.binary(max_size=400)
    )
    key = {"topic_id": ids} if version >= 13 else {"name": names}
    topic = st.builds(records.TopicProduceData, partition_data=st.lists(partition, max_size=3), **key)
    return records.ProduceRequest(
        transactional_id=draw(maybe_text),
        acks=draw(i16),
        timeout_ms=draw(i32),
        topic_data=draw(st.lists(topic, max_size=3)),
    )


def parse_produce_request(body: memoryview, position: int, version: int) -> produce_fast.ProduceRequestView:
    """In slices; at once there is the same, or nothing if there are several slices."""
    slices = produce_fast.parse_in_slices(body, position, version)
    number, request = 0, None
    while request is None:
        number += 1
        try:
            next(slices)
        except StopIteration as end:
            request = end.value
    assert produce_fast.parse_if_short(body, position, version) == (request if number == 1 else None)
    parsed: produce_fast.ProduceRequestView = request
    return parsed


@EXAMPLES
@given(st.data(), produce_versions, st.integers(0, 9))
def test_produce_requests_parse_to_what_was_encoded(data: st.DataObject, version: int, prefix: int) -> None:
    request = data.draw(produce_requests(version))
    body = memoryview(bytearray(b"p" * prefix + request.encode(version)))
    parsed = parse_produce_request(body, prefix, version)
    assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    topics = [
        (None if version >= 13 else t.name, t.topic_id if version >= 13 else None, t.partition_data)
        for t in request.topic_data
    ]
    assert parsed.topics == [(id or name, len(data)) for name, id, data in topics]
    got = [
        (row.topic, row.topic_id, row.partition, None if row.records is None else bytes(row.records))
        for row in parsed.rows
    ]
    assert got == [(name, id, p.index, p.records) for name, id, data in topics for p in data]


@EXAMPLES
@given(st.data(), produce_versions)
def test_produce_responses_decode_to_what_was_built(data: st.DataObject, version: int) -> None:
    result = st.builds(
        produce_fast.ProduceResult,
        partition=i32,
        error_code=i16,
        base_offset=i64,
        log_append_time_ms=i64,
        log_start_offset=i64,
        error_message=maybe_text,
        leader=st.none() | st.tuples(i32, i32),
        record_errors=st.lists(st.tuples(i32, names), max_size=3),
    )
    key: st.SearchStrategy[str | Uuid] = ids if version >= 13 else names
    topics = data.draw(st.lists(st.tuples(key, st.lists(result, max_size=3)), max_size=3))
    nodes = data.draw(st.lists(st.builds(NodeEndpoint, i32, names, i32, maybe_text), max_size=2))
    counts, results = [(key, len(made)) for key, made in topics], [one for _, made in topics for one in made]
    frame = bytearray()
    at_once(
        produce_fast.build_in_slices(frame, version, 77, counts, results, throttle_time_ms=5, endpoints=nodes)
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = encode_response_header(0, version, 77)
    assert frame[4 : 4 + len(header)] == header
    response = records.ProduceResponse.decode(bytes(frame[4 + len(header) :]), version)
    assert response.throttle_time_ms == 5
    assert [n.host for n in response.node_endpoints] == ([n.host for n in nodes] if version >= 10 else [])
    for (topic, results), decoded in zip(topics, response.responses, strict=True):
        assert topic == (decoded.topic_id if version >= 13 else decoded.name)
        for sent, got in zip(results, decoded.partition_responses, strict=True):
            assert (got.index, got.error_code) == (sent.partition, sent.error_code)
            assert (got.base_offset, got.log_append_time_ms) == (sent.base_offset, sent.log_append_time_ms)
            assert got.log_start_offset == (sent.log_start_offset if version >= 5 else -1)
            assert got.error_message == (sent.error_message if version >= 8 else None)
            refused = [(error.batch_index, error.batch_index_error_message) for error in got.record_errors]
            assert refused == (sent.record_errors if version >= 8 else [])
            if version >= 10 and sent.leader is not None:
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == sent.leader


@st.composite
def drawn_fetches(draw: st.DrawFn, version: int) -> records.FetchRequest:
    fields: dict[str, st.SearchStrategy[object]] = {
        "partition": i32,
        "fetch_offset": i64,
        "partition_max_bytes": i32,
    }
    if version >= 5:
        fields["log_start_offset"] = i64
    if version >= 9:
        fields["current_leader_epoch"] = i32
    if version >= 12:
        fields["last_fetched_epoch"] = i32
    if version >= 17:
        fields["replica_directory_id"] = ids
    if version >= 18:
        fields["high_watermark"] = i64
    key = {"topic_id": ids} if version >= 13 else {"topic": names}
    partitions = st.lists(st.builds(records.FetchPartition, **fields), max_size=3)
    request = records.FetchRequest(
        max_wait_ms=draw(i32),
        min_bytes=draw(i32),
        max_bytes=draw(i32),
        isolation_level=draw(st.integers(0, 1)),
        topics=draw(st.lists(st.builds(records.FetchTopic, partitions=partitions, **key), max_size=3)),
    )
    if version >= 15:
        request.replica_state = draw(st.builds(records.ReplicaState, replica_id=i32, replica_epoch=i64))
    else:
        request.replica_id = draw(i32)
    if version >= 12:
        request.cluster_id = draw(maybe_text)
    if version >= 7:
        request.session_id, request.session_epoch = draw(i32), draw(i32)
        forgotten = st.builds(records.ForgottenTopic, partitions=st.lists(i32, max_size=3), **key)
        request.forgotten_topics_data = draw(st.lists(forgotten, max_size=2))
    if version >= 11:
        request.rack_id = draw(names)
    return request


@EXAMPLES
@given(st.data(), fetch_versions, st.integers(0, 9))
def test_fetch_requests_parse_to_what_was_encoded(data: st.DataObject, version: int, prefix: int) -> None:
    request = data.draw(drawn_fetches(version))
    body = memoryview(b"p" * prefix + request.encode(version))
    parsed = fetch_requests.parse_fetch_request(body, prefix, version)
    replica = request.replica_state.replica_id if version >= 15 else request.replica_id
    assert (parsed.replica_id, parsed.max_wait_ms, parsed.min_bytes, parsed.max_bytes) == (
        replica,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
    )
    assert parsed.replica_epoch == (request.replica_state.replica_epoch if version >= 15 else -1)
    assert (parsed.session_id, parsed.session_epoch) == (request.session_id, request.session_epoch)
    assert (parsed.isolation_level, parsed.rack_id, parsed.cluster_id) == (
        request.isolation_level,
        request.rack_id if version >= 11 else None,
        request.cluster_id,
    )
    for got, sent in zip(parsed.topics, request.topics, strict=True):
        assert (got.topic_id if version >= 13 else got.name) == (
            sent.topic_id if version >= 13 else sent.topic
        )
        for p, q in zip(got.partitions, sent.partitions, strict=True):
            assert p == fetch_requests.FetchPartition(
                q.partition,
                q.current_leader_epoch,
                q.fetch_offset,
                q.last_fetched_epoch,
                q.log_start_offset,
                q.partition_max_bytes,
            )
    forgotten = [(f.topic_id if version >= 13 else f.name, f.partitions) for f in parsed.forgotten]
    assert forgotten == [
        (f.topic_id if version >= 13 else f.topic, f.partitions) for f in request.forgotten_topics_data
    ]


@dataclasses.dataclass
class Slice:
    """A file range whose bytes the test knows."""

    data: bytes
    file: DiskFile | None = None
    position: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)


def content(chunk: Chunk) -> bytes:
    if isinstance(chunk, Slice):
        return chunk.data
    assert isinstance(chunk, bytes | bytearray | memoryview)
    return bytes(chunk)


def flatten(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(map(content, chunks))


results = st.builds(
    fetch_responses.FetchResult,
    partition=i32,
    error_code=i16,
    high_watermark=i64,
    log_start_offset=i64,
    records=st.none() | st.binary(max_size=300) | st.builds(Slice, st.binary(min_size=1, max_size=300)),
    diverging=st.none() | st.tuples(i32, i64),
    leader=st.none() | st.tuples(i32, i32),
    preferred_read_replica=i32,
    last_stable_offset=i64,
    aborted=st.none() | st.lists(st.tuples(i64, i64), max_size=3),
)


def records_of(result: fetch_responses.FetchResult) -> bytes:
    return b"" if result.records is None else content(result.records)


@EXAMPLES
@given(st.data(), fetch_versions)
def test_fetch_responses_decode_to_what_was_built(data: st.DataObject, version: int) -> None:
    key: st.SearchStrategy[str | Uuid] = ids if version >= 13 else names
    topics = data.draw(st.lists(st.tuples(key, st.lists(results, max_size=3)), max_size=3))
    nodes = data.draw(st.lists(st.builds(NodeEndpoint, i32, names, i32, maybe_text), max_size=2))
    frame = flatten(
        fetch_responses.build_fetch_response(version, 9, topics, session_id=3, error_code=71, endpoints=nodes)
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = encode_response_header(1, version, 9)
    response = records.FetchResponse.decode(frame[4 + len(header) :], version)
    assert (response.session_id, response.error_code) == ((3, 71) if version >= 7 else (0, 0))
    for (topic, sent_results), decoded in zip(topics, response.responses, strict=True):
        assert topic == (decoded.topic_id if version >= 13 else decoded.topic)
        for sent, got in zip(sent_results, decoded.partitions, strict=True):
            assert (got.partition_index, got.error_code) == (sent.partition, sent.error_code)
            assert got.high_watermark == sent.high_watermark
            assert got.last_stable_offset == sent.last_stable_offset
            aborted = got.aborted_transactions
            assert sent.aborted == (
                None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
            )
            assert got.records is not None and bytes(got.records) == records_of(sent)
            if version >= 12 and sent.diverging is not None:
                assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == sent.diverging
            if version >= 12 and sent.leader is not None:
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == sent.leader


@EXAMPLES
@given(st.lists(st.tuples(ids, st.lists(results, max_size=3)), max_size=3))
def test_follower_reads_what_a_leader_answers(
    topics: list[tuple[Uuid, list[fetch_responses.FetchResult]]],
) -> None:
    frame = flatten(fetch_responses.build_fetch_response(17, 12, topics, error_code=3, session_id=9))
    response = fetch_follower.parse_follower_response(memoryview(frame)[4:])
    assert (response.correlation_id, response.error_code, response.session_id) == (12, 3, 9)
    expected = [(topic_id, result) for topic_id, sent in topics for result in sent]
    for (topic_id, sent), got in zip(expected, response.results, strict=True):
        assert (got.topic_id, got.partition, got.error_code) == (topic_id, sent.partition, sent.error_code)
        assert (got.high_watermark, got.log_start_offset) == (sent.high_watermark, sent.log_start_offset)
        assert (got.diverging, got.leader) == (sent.diverging, sent.leader)
        assert bytes(got.records) == records_of(sent)


@EXAMPLES
@given(st.data())
def test_follower_requests_are_real_fetch_requests(data: st.DataObject) -> None:
    partition = st.builds(fetch_requests.FetchPartition, i32, i32, i64, i32, i64, i32)
    topics = data.draw(st.lists(st.tuples(ids, st.lists(partition, max_size=3)), max_size=3))
    forgotten = data.draw(st.lists(st.tuples(ids, st.lists(i32, max_size=3)), max_size=3))
    session_id, session_epoch = data.draw(i32), data.draw(i32)
    frame = fetch_follower.build_follower_fetch(
        5,
        "broker-1-fetcher",
        replica_id=1,
        replica_epoch=42,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=topics,
        session_id=session_id,
        session_epoch=session_epoch,
        forgotten=forgotten,
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version, header.client_id) == (1, 17, "broker-1-fetcher")
    request = records.FetchRequest.decode(bytes(frame[4 + position :]), 17)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 42)
    parsed = fetch_requests.parse_fetch_request(memoryview(frame)[4:], position, 17)
    assert parsed.topics == [fetch_requests.FetchTopic(None, *named) for named in topics]
    assert parsed.forgotten == [fetch_requests.ForgottenTopic(None, *named) for named in forgotten]
    assert (parsed.replica_id, parsed.replica_epoch) == (1, 42)
    assert (parsed.session_id, parsed.session_epoch) == (session_id, session_epoch)


@pytest.mark.parametrize(
    "version", range(records.FetchRequest.MIN_VERSION, records.FetchRequest.MAX_VERSION + 1)
)
def test_every_truncation_of_a_fetch_request_is_refused(version: int) -> None:
    key = {"topic_id": b"i" * 16} if version >= 13 else {"topic": "topic"}
    request = records.FetchRequest(
        topics=[records.FetchTopic(partitions=[records.FetchPartition(partition=1)], **key)], rack_id=""
    )
    body = request.encode(version)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            fetch_requests.parse_fetch_request(memoryview(body)[:end], 0, version)
    with pytest.raises(ProtocolError):
        fetch_requests.parse_fetch_request(memoryview(body + b"x"), 0, version)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_long_fetch_messages_take_several_slices(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(fetch_requests, "SLICE_BYTES", 64)
    named = {"topic_id": b"i" * 16} if version >= 13 else {"topic": "topic"}

    def slices_of(topics: int, partitions: int, forgotten: int) -> int:
        asked = records.FetchTopic(partitions=[records.FetchPartition(partition=1)] * partitions, **named)
        gone = records.ForgottenTopic(partitions=[1, 2], **named)
        request = records.FetchRequest(topics=[asked] * topics, forgotten_topics_data=[gone] * forgotten)
        body = memoryview(request.encode(version))
        parsed = fetch_requests.parse_fetch_request(body, 0, version)
        assert [len(topic.partitions) for topic in parsed.topics] == [partitions] * topics
        assert [topic.partitions for topic in parsed.forgotten] == [[1, 2]] * forgotten
        return 1 + sum(1 for _ in fetch_requests.parse_in_slices(body, 0, version))

    assert slices_of(1, 1, 0) == 1
    assert slices_of(40, 0, 0) > 2 and slices_of(20, 1, 0) > 2 and slices_of(1, 40, 0) > 2
    assert version < 7 or slices_of(0, 0, 40) > 2

    result = fetch_responses.FetchResult(1, 0, 5, 0, b"records")
    key: str | Uuid = Uuid(b"t" * 16) if version >= 13 else "t"
    for counts, slices in ([499], 1), ([600, *[0] * 600], 3):
        topics = [(key, [result] * count) for count in counts]
        assert slices == 1 + sum(1 for _ in fetch_responses.build_in_slices(version, 1, topics))
        frame = flatten(fetch_responses.build_fetch_response(version, 1, topics))
        response = records.FetchResponse.decode(
            frame[4 + len(encode_response_header(1, version, 1)) :], version
        )
        assert [len(topic.partitions) for topic in response.responses] == counts


@pytest.mark.parametrize("version", [8, 12, 13])
def test_long_produce_messages_take_several_slices_whatever_their_records(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(produce_fast, "SLICE_BYTES", 64)
    monkeypatch.setattr(produce_fast, "RESULTS_PER_SLICE", 4)

    def slices_of(topics: int, partitions: int, record_bytes: int) -> int:
        data = [records.PartitionProduceData(index=7, records=bytes(record_bytes))] * partitions
        topic = records.TopicProduceData(name="topic", partition_data=data)
        body = memoryview(bytearray(records.ProduceRequest(topic_data=[topic] * topics).encode(version)))
        assert len(parse_produce_request(body, 0, version).topics) == topics
        return 1 + sum(1 for _ in produce_fast.parse_in_slices(body, 0, version))

    assert slices_of(1, 1, 100_000) == slices_of(1, 3, 1000) == 1
    for shape in ((40, 0), (20, 1), (1, 40)):
        assert slices_of(*shape, 0) > 2
        assert slices_of(*shape, 1000) == slices_of(*shape, 900)

    result = produce_fast.ProduceResult(1, 0, record_errors=[(0, "refused")])
    key: str | Uuid = Uuid(b"t" * 16) if version >= 13 else "t"
    answers = version, 1, [(key, 8), *[(key, 0)] * 16], [result] * 8
    frame, whole = bytearray(), bytearray()
    assert sum(1 for _ in produce_fast.build_in_slices(frame, *answers)) >= 7
    monkeypatch.setattr(produce_fast, "RESULTS_PER_SLICE", 1000)
    assert not list(produce_fast.build_in_slices(whole, *answers))
    assert frame == whole


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("partitions", [0, 20])
def test_produce_request_for_more_partitions_than_any_broker_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: int, partitions: int
) -> None:
    """100 MB of partitions would become gigabytes of objects, and half a minute without heartbeats."""
    partition = records.PartitionProduceData(index=0, records=None)
    topic = records.TopicProduceData(name="t", partition_data=[partition] * partitions)
    request = records.ProduceRequest(topic_data=[topic] * 30)
    body = memoryview(bytearray(request.encode(version)))
    monkeypatch.setattr(produce_fast, "MAX_ELEMENTS", 30 * (1 + partitions))
    assert len(parse_produce_request(body, 0, version).topics) == 30
    monkeypatch.setattr(produce_fast, "MAX_ELEMENTS", 30 * (1 + partitions) - 1)
    with pytest.raises(ProtocolError, match="more than"):
        parse_produce_request(body, 0, version)


@pytest.mark.parametrize(
    "version", range(records.ProduceRequest.MIN_VERSION, records.ProduceRequest.MAX_VERSION + 1)
)
def test_every_truncation_of_a_produce_request_is_refused(version: int) -> None:
    key = {"topic_id": b"i" * 16} if version >= 13 else {"name": "topic"}
    data = [records.PartitionProduceData(index=1, records=b"r" * 40)]
    body = records.ProduceRequest(
        acks=-1, topic_data=[records.TopicProduceData(partition_data=data, **key)]
    ).encode(version)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            parse_produce_request(memoryview(body)[:end], 0, version)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=120), fetch_versions, produce_versions)
def test_random_bodies_never_raise_anything_else(
    body: bytes, fetch_version: int, produce_version: int
) -> None:
    for parse, version in (
        (fetch_requests.parse_fetch_request, fetch_version),
        (parse_produce_request, produce_version),
    ):
        try:
            parse(memoryview(body), 0, version)
        except ProtocolError:
            continue
