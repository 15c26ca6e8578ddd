"""Core messages through protobuf and back, and random bytes with the node's answers to them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.quorum import rpc
from pykraft.quorum.core import messages as m
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.voters import Announcement, ReplicaKey, Voter
from pykraft.quorum.rpc import FetchedRecords
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.narrowing import as_type
from tests.quorum.nodes import running_cluster

keys = st.builds(
    ReplicaKey,
    st.integers(0, 2**31 - 1),
    st.one_of(st.just(Uuid(bytes(16))), st.binary(min_size=16, max_size=16)),
)
epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
errors = st.sampled_from(ErrorCode)
leaders = st.none() | st.integers(0, 2**31 - 1)
addresses = st.none() | st.just(Address("host-7", 9093))
voters = st.builds(Voter, keys, st.just(Address("::1", 1)))
snapshots = st.builds(SnapshotId, offsets, epochs)
requests = st.one_of(
    st.builds(m.VoteRequest, st.text(), keys, keys, epochs, epochs, offsets),
    st.builds(m.BeginQuorumEpochRequest, st.text(), keys, keys, epochs, addresses),
    st.builds(m.EndQuorumEpochRequest, st.text(), keys, keys, epochs, st.lists(keys, max_size=4).map(tuple)),
    st.builds(
        m.FetchRequest,
        *(st.text(), keys, epochs, offsets, epochs, offsets, epochs, epochs, st.booleans(), epochs),
        st.none() | st.builds(Announcement, st.just(Address("host-7", 9093)), epochs),
    ),
    st.builds(m.FetchSnapshotRequest, st.text(), keys, epochs, snapshots, offsets, epochs),
    st.builds(m.AddRaftVoterRequest, st.text(), voters, epochs, st.booleans()),
    st.builds(m.RemoveRaftVoterRequest, st.text(), keys, epochs, st.booleans()),
    st.builds(m.UpdateRaftVoterRequest, st.text(), voters, epochs),
)
diverging = st.none() | st.builds(m.DivergingEpoch, epochs, offsets)
responses = st.one_of(
    st.builds(m.VoteResponse, st.text(), keys, errors, epochs, leaders, st.booleans()),
    st.builds(m.BeginQuorumEpochResponse, st.text(), keys, errors, epochs, leaders),
    st.builds(m.EndQuorumEpochResponse, st.text(), keys, errors, epochs, leaders),
    st.builds(m.FetchResponse, st.text(), keys, errors, epochs, leaders, offsets, diverging),
    st.builds(
        m.FetchSnapshotResponse,
        *(st.text(), keys, errors, epochs, leaders, snapshots, offsets, epochs, epochs),
        st.just(bytes(16)) | st.binary(),
    ),
    st.builds(m.VoterChangeResponse, st.text(), keys, errors, epochs, leaders, message=st.text()),
)
METHOD_OF_RESPONSE = {
    m.VoteResponse: rpc.METHODS[m.VoteRequest],
    m.BeginQuorumEpochResponse: rpc.METHODS[m.BeginQuorumEpochRequest],
    m.EndQuorumEpochResponse: rpc.METHODS[m.EndQuorumEpochRequest],
    m.FetchResponse: rpc.METHODS[m.FetchRequest],
    m.FetchSnapshotResponse: rpc.METHODS[m.FetchSnapshotRequest],
    m.VoterChangeResponse: rpc.METHODS[m.UpdateRaftVoterRequest],
}


@given(requests)
def test_requests_round_trip_through_protobuf(request: m.Request) -> None:
    method = rpc.METHODS[type(request)]
    assert rpc.decode_request(method, rpc.encode_request(request)) == request


@given(responses)
def test_responses_round_trip_through_protobuf(response: m.Response) -> None:
    method = METHOD_OF_RESPONSE[type(response)]
    assert rpc.decode_response(method, rpc.encode_response(response)) == response


@given(st.sampled_from(sorted(rpc.METHODS.values())), st.binary(max_size=200))
def test_random_bytes_are_a_value_error_or_a_message(method: str, data: bytes) -> None:
    for decode in (rpc.decode_request, rpc.decode_response):
        try:
            decode(method, data)
        except ValueError:
            continue


def _batch(base_offset: int, epoch: int, count: int) -> bytes:
    values = [RecordInput(None, b"v%d" % i, (), 1) for i in range(count)]
    return encode_batch(values, base_offset=base_offset, leader_epoch=epoch)


def _fetch_response(records: bytes) -> m.FetchResponse:
    return m.FetchResponse("c", ReplicaKey(1), ErrorCode.NONE, 3, 1, 2, payload=records)


def test_records_are_outlined_for_the_core() -> None:
    data = _batch(5, 2, 3) + _batch(8, 3, 1)
    answer = rpc.decode_response(rpc.METHODS[m.FetchRequest], rpc.encode_response(_fetch_response(data)))
    decoded = as_type(answer, m.FetchResponse)
    assert decoded.batches == (m.BatchSpan(5, 8, 2), m.BatchSpan(8, 9, 3))
    assert as_type(decoded.payload, FetchedRecords).data == data


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d + b"x", lambda d: d[:70] + b"\xff" + d[71:]]
)
def test_damaged_records_are_refused_as_a_whole(damage: Callable[[bytes], bytes]) -> None:
    data = damage(_batch(5, 2, 3))
    with pytest.raises(ValueError):
        rpc.decode_response(rpc.METHODS[m.FetchRequest], rpc.encode_response(_fetch_response(data)))


def test_directory_id_of_a_wrong_length_is_refused() -> None:
    request = rpc.encode_request(m.BeginQuorumEpochRequest("c", ReplicaKey(1), ReplicaKey(2), 3))
    with pytest.raises(ValueError, match="3 bytes"):
        rpc.decode_request(rpc.METHODS[m.BeginQuorumEpochRequest], request + b"\x12\x07\x08\x01\x12\x03abc")


@pytest.mark.parametrize("method", sorted(rpc.METHODS.values()))
@pytest.mark.loop(new=VirtualLoop)
async def test_node_answers_random_bytes_with_invalid_request_and_continues(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(voters=1) as cluster:
        replica = cluster.replicas[0]
        answer = await cluster.rpc.handlers[replica.address][method](b"\xff\xff\xff")
        assert rpc.decode_response(method, answer).error is ErrorCode.INVALID_REQUEST
        await cluster.commit(b"still here")
    assert not any(record.exc_info for record in caplog.records)
