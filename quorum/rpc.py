"""Core messages to protobuf bytes and back: the only file that knows the generated classes.

A fetch answer's records travel as the bytes of whole batches; here they are checked (CRC, framing) and
outlined as :class:`BatchSpan` so that the core can judge them unseen. Anything malformed is a
:class:`ValueError`, never a half-filled message. Sources: proto/quorum/pb/quorum.proto; ``make proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import DecodeError

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, iter_headers
from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.control_records import find_voters
from pykraft.quorum.core import messages as m
from pykraft.quorum.core.log_shape import BEGINNING, SnapshotId
from pykraft.quorum.core.voters import Announcement, ReplicaKey, Voter
from pykraft.quorum.pb import quorum_pb2 as pb
from pykraft.runtime.address import MAX_HOST_LENGTH, MAX_PORT, Address

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Quorum"].full_name
METHODS: Mapping[type[m.Request], str] = MappingProxyType(
    {
        m.VoteRequest: f"/{_SERVICE}/Vote",
        m.BeginQuorumEpochRequest: f"/{_SERVICE}/BeginQuorumEpoch",
        m.EndQuorumEpochRequest: f"/{_SERVICE}/EndQuorumEpoch",
        m.FetchRequest: f"/{_SERVICE}/Fetch",
        m.FetchSnapshotRequest: f"/{_SERVICE}/FetchSnapshot",
        m.AddRaftVoterRequest: f"/{_SERVICE}/AddRaftVoter",
        m.RemoveRaftVoterRequest: f"/{_SERVICE}/RemoveRaftVoter",
        m.UpdateRaftVoterRequest: f"/{_SERVICE}/UpdateRaftVoter",
    }
)


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The payload of a decoded fetch answer: whole batches and their headers, as the log wants them."""

    data: bytes
    headers: tuple[BatchHeader, ...]


def encode_request(request: m.Request) -> bytes:
    match request:
        case m.VoteRequest():
            message: Any = pb.VoteRequest(
                cluster_id=request.cluster_id,
                candidate=_key(request.candidate),
                voter=_key(request.voter),
                epoch=request.epoch,
                last_epoch=request.last_epoch,
                last_offset=request.last_offset,
                pre_vote=request.pre_vote,
            )
        case m.BeginQuorumEpochRequest():
            message = pb.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                leader=_key(request.leader),
                voter=_key(request.voter),
                epoch=request.epoch,
                leader_address=_address(request.leader_address),
            )
        case m.EndQuorumEpochRequest():
            message = pb.EndQuorumEpochRequest(
                cluster_id=request.cluster_id,
                leader=_key(request.leader),
                voter=_key(request.voter),
                epoch=request.epoch,
                preferred_successors=[_key(key) for key in request.preferred_successors],
            )
        case m.FetchRequest():
            message = pb.FetchRequest(
                cluster_id=request.cluster_id,
                replica=_key(request.replica),
                epoch=request.epoch,
                fetch_offset=request.fetch_offset,
                last_fetched_epoch=request.last_fetched_epoch,
                high_watermark=request.high_watermark,
                max_wait_ms=request.max_wait_ms,
                max_bytes=request.max_bytes,
                is_recovering=request.is_recovering,
                losses=request.losses,
                announced=_announcement(request.announced),
            )
        case m.FetchSnapshotRequest():
            message = pb.FetchSnapshotRequest(
                cluster_id=request.cluster_id,
                replica=_key(request.replica),
                epoch=request.epoch,
                snapshot_id=_snapshot_id(request.snapshot_id),
                position=request.position,
                max_bytes=request.max_bytes,
            )
        case m.AddRaftVoterRequest():
            message = pb.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter=_voter(request.voter),
                timeout_ms=request.timeout_ms,
                ack_when_committed=request.ack_when_committed,
            )
        case m.RemoveRaftVoterRequest():
            message = pb.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter=_key(request.voter),
                timeout_ms=request.timeout_ms,
                only_if_silent=request.only_if_silent,
            )
        case m.UpdateRaftVoterRequest():
            message = pb.UpdateRaftVoterRequest(
                cluster_id=request.cluster_id, voter=_voter(request.voter), timeout_ms=request.timeout_ms
            )
    return bytes(message.SerializeToString())


def decode_request(method: str, data: bytes) -> m.Request:
    """:class:`ValueError` for bytes that are not this method's request."""
    return _DECODE_REQUEST[method](data)


def _decode_vote_request(data: bytes) -> m.Request:
    p = _parse(pb.VoteRequest(), data)
    return m.VoteRequest(
        p.cluster_id,
        _from_key(p.candidate),
        _from_key(p.voter),
        p.epoch,
        p.last_epoch,
        p.last_offset,
        p.pre_vote,
    )


def _decode_begin_request(data: bytes) -> m.Request:
    p = _parse(pb.BeginQuorumEpochRequest(), data)
    leader, voter = _from_key(p.leader), _from_key(p.voter)
    return m.BeginQuorumEpochRequest(p.cluster_id, leader, voter, p.epoch, _from_address(p.leader_address))


def _decode_end_request(data: bytes) -> m.Request:
    p = _parse(pb.EndQuorumEpochRequest(), data)
    successors = tuple(_from_key(key) for key in p.preferred_successors)
    return m.EndQuorumEpochRequest(p.cluster_id, _from_key(p.leader), _from_key(p.voter), p.epoch, successors)


def _decode_fetch_request(data: bytes) -> m.Request:
    p = _parse(pb.FetchRequest(), data)
    return m.FetchRequest(
        p.cluster_id,
        _from_key(p.replica),
        p.epoch,
        p.fetch_offset,
        p.last_fetched_epoch,
        p.high_watermark,
        p.max_wait_ms,
        p.max_bytes,
        p.is_recovering,
        p.losses,
        _from_announcement(p.announced),
    )


def _decode_fetch_snapshot_request(data: bytes) -> m.Request:
    p = _parse(pb.FetchSnapshotRequest(), data)
    return m.FetchSnapshotRequest(
        p.cluster_id,
        _from_key(p.replica),
        p.epoch,
        _from_snapshot_id(p.snapshot_id),
        p.position,
        p.max_bytes,
    )


def _decode_add_voter_request(data: bytes) -> m.Request:
    p = _parse(pb.AddRaftVoterRequest(), data)
    return m.AddRaftVoterRequest(p.cluster_id, _from_voter(p.voter), p.timeout_ms, p.ack_when_committed)


def _decode_remove_voter_request(data: bytes) -> m.Request:
    p = _parse(pb.RemoveRaftVoterRequest(), data)
    return m.RemoveRaftVoterRequest(p.cluster_id, _from_key(p.voter), p.timeout_ms, p.only_if_silent)


def _decode_update_voter_request(data: bytes) -> m.Request:
    p = _parse(pb.UpdateRaftVoterRequest(), data)
    return m.UpdateRaftVoterRequest(p.cluster_id, _from_voter(p.voter), p.timeout_ms)


_DECODE_REQUEST: dict[str, Callable[[bytes], m.Request]] = {
    METHODS[m.VoteRequest]: _decode_vote_request,
    METHODS[m.BeginQuorumEpochRequest]: _decode_begin_request,
    METHODS[m.EndQuorumEpochRequest]: _decode_end_request,
    METHODS[m.FetchRequest]: _decode_fetch_request,
    METHODS[m.FetchSnapshotRequest]: _decode_fetch_snapshot_request,
    METHODS[m.AddRaftVoterRequest]: _decode_add_voter_request,
    METHODS[m.RemoveRaftVoterRequest]: _decode_remove_voter_request,
    METHODS[m.UpdateRaftVoterRequest]: _decode_update_voter_request,
}

_RESPONSES: dict[str, tuple[Any, Any]] = {
    METHODS[m.VoteRequest]: (pb.VoteResponse, m.VoteResponse),
    METHODS[m.BeginQuorumEpochRequest]: (pb.BeginQuorumEpochResponse, m.BeginQuorumEpochResponse),
    METHODS[m.EndQuorumEpochRequest]: (pb.EndQuorumEpochResponse, m.EndQuorumEpochResponse),
    METHODS[m.FetchRequest]: (pb.FetchResponse, m.FetchResponse),
    METHODS[m.FetchSnapshotRequest]: (pb.FetchSnapshotResponse, m.FetchSnapshotResponse),
    METHODS[m.AddRaftVoterRequest]: (pb.VoterChangeResponse, m.VoterChangeResponse),
    METHODS[m.RemoveRaftVoterRequest]: (pb.VoterChangeResponse, m.VoterChangeResponse),
    METHODS[m.UpdateRaftVoterRequest]: (pb.VoterChangeResponse, m.VoterChangeResponse),
}


def encode_response(response: m.Response) -> bytes:
    """A FetchResponse carries its ``payload`` (bytes of whole batches, or None) as records."""
    common: dict[str, Any] = {
        "cluster_id": response.cluster_id,
        "replica": _key(response.replica),
        "error_code": int(response.error),
        "epoch": response.epoch,
    }
    if response.leader_id is not None:
        common["leader_id"] = response.leader_id
        common["leader_address"] = _address(response.leader_address)
    match response:
        case m.VoteResponse():
            message: Any = pb.VoteResponse(
                **common, vote_granted=response.vote_granted, pre_vote=response.pre_vote
            )
        case m.BeginQuorumEpochResponse():
            message = pb.BeginQuorumEpochResponse(**common)
        case m.EndQuorumEpochResponse():
            message = pb.EndQuorumEpochResponse(**common)
        case m.VoterChangeResponse():
            message = pb.VoterChangeResponse(**common, message=response.message)
        case m.FetchResponse():
            message = pb.FetchResponse(**common, high_watermark=response.high_watermark)
            if response.diverging is not None:
                message.diverging.epoch = response.diverging.epoch
                message.diverging.end_offset = response.diverging.end_offset
            if response.payload is not None:
                assert isinstance(response.payload, bytes)
                message.records = response.payload
            if response.snapshot_id is not None:
                message.snapshot_id.CopyFrom(_snapshot_id(response.snapshot_id))
        case m.FetchSnapshotResponse():
            message = pb.FetchSnapshotResponse(
                **common,
                snapshot_id=_snapshot_id(response.snapshot_id),
                position=response.position,
                size_bytes=response.size_bytes,
                checksum=response.checksum,
                data=response.data,
            )
    return bytes(message.SerializeToString())


def decode_response(method: str, data: bytes) -> m.Response:
    """:class:`ValueError` for bytes that are not this method's response, or records that are damaged."""
    wire, core = _RESPONSES[method]
    p = _parse(wire(), data)
    try:
        error = ErrorCode(p.error_code)
    except ValueError:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    leader_id = p.leader_id if p.HasField("leader_id") else None
    common = (p.cluster_id, _from_key(p.replica), error, p.epoch, leader_id)
    address = _from_address(p.leader_address)
    if wire is pb.VoteResponse:
        return m.VoteResponse(*common, p.vote_granted, p.pre_vote, address)
    if wire is pb.VoterChangeResponse:
        return m.VoterChangeResponse(*common, address, p.message)
    if wire is pb.FetchSnapshotResponse:
        asked = _from_snapshot_id(p.snapshot_id)
        return m.FetchSnapshotResponse(*common, asked, p.position, p.size_bytes, p.checksum, p.data, address)
    if wire is not pb.FetchResponse:
        response: m.Response = core(*common, address)
        return response
    diverging = None
    if p.HasField("diverging"):
        diverging = m.DivergingEpoch(p.diverging.epoch, p.diverging.end_offset)
    headers = outline_batches(p.records)
    payload = FetchedRecords(p.records, headers) if headers else None
    spans = _outline_spans(p.records, headers)
    snapshot_id = _from_snapshot_id(p.snapshot_id) if p.HasField("snapshot_id") else None
    return m.FetchResponse(*common, p.high_watermark, diverging, spans, payload, address, snapshot_id)


def _outline_spans(data: bytes, headers: tuple[BatchHeader, ...]) -> tuple[m.BatchSpan, ...]:
    spans = []
    position = 0
    for h in headers:
        end = position + h.size_bytes
        voters = find_voters(h, data[position:end]) if h.is_control else None
        spans.append(m.BatchSpan(h.base_offset, h.next_offset, h.partition_leader_epoch, voters))
        position = end
    return tuple(spans)


def outline_batches(data: bytes) -> tuple[BatchHeader, ...]:
    """The headers of the batches that ``data`` consists of. :class:`ValueError` if one is cut or damaged."""
    headers = []
    end = 0
    try:
        for position, header in iter_headers(data):
            if not crc_is_valid(data, position, header):
                raise ValueError(f"the record batch at offset {header.base_offset} has a bad CRC")
            if header.last_offset_delta + 1 != header.record_count:
                raise ValueError(
                    f"the record batch at offset {header.base_offset} counts its records wrongly"
                )
            headers.append(header)
            end = position + header.size_bytes
    except KafkaError as error:
        raise ValueError(str(error)) from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the last whole record batch")
    return tuple(headers)


def refusal(
    method: str, cluster_id: str, replica: ReplicaKey, error: ErrorCode, epoch: int = 0
) -> m.Response:
    """An answer of this method that carries nothing but an error."""
    core = _RESPONSES[method][1]
    common = (cluster_id, replica, error, epoch, None)
    if core is m.VoteResponse:
        return m.VoteResponse(*common, False)
    if core is m.FetchSnapshotResponse:
        return m.FetchSnapshotResponse(*common, BEGINNING, 0)
    response: m.Response = core(*common)
    return response


def _parse(message: Any, data: bytes) -> Any:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name}: {error}") from error
    return message


def _key(key: ReplicaKey) -> pb.ReplicaKey:
    directory_id = b"" if key.directory_id == ZERO_UUID else bytes(key.directory_id)
    return pb.ReplicaKey(id=key.id, directory_id=directory_id)


def _snapshot_id(snapshot_id: SnapshotId) -> pb.SnapshotId:
    return pb.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)


def _from_snapshot_id(snapshot_id: pb.SnapshotId) -> SnapshotId:
    return SnapshotId(snapshot_id.end_offset, snapshot_id.epoch)


def _from_key(key: pb.ReplicaKey) -> ReplicaKey:
    if not key.directory_id:
        return ReplicaKey(key.id)
    if len(key.directory_id) != 16:
        raise ValueError(f"a directory id of {len(key.directory_id)} bytes")
    return ReplicaKey(key.id, Uuid(key.directory_id))


def _address(address: Address | None) -> pb.Address | None:
    return None if address is None else pb.Address(host=address.host, port=address.port)


def _from_address(address: pb.Address) -> Address | None:
    if not address.host:
        return None
    if not (address.host.isascii() and address.host.isprintable() and len(address.host) <= MAX_HOST_LENGTH):
        raise ValueError("an address whose host is none")
    if not 0 < address.port <= MAX_PORT:
        raise ValueError(f"an address with port {address.port}")
    return Address(address.host, address.port)


def _announcement(announced: Announcement | None) -> pb.Announcement | None:
    if announced is None:
        return None
    return pb.Announcement(
        address=_address(announced.address), highest_kraft_version=announced.highest_kraft_version
    )


def _from_announcement(announced: pb.Announcement) -> Announcement | None:
    address = _from_address(announced.address)
    return None if address is None else Announcement(address, announced.highest_kraft_version)


def _voter(voter: Voter) -> pb.Voter:
    return pb.Voter(key=_key(voter.key), address=_address(voter.address))


def _from_voter(voter: pb.Voter) -> Voter:
    address = _from_address(voter.address)
    if address is None:
        raise ValueError("a voter without an address")
    return Voter(_from_key(voter.key), address)
