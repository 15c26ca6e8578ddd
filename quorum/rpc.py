"""Core messages to protobuf bytes and back: the only file that knows the generated classes.

A fetch answer's records travel as the bytes of whole batches; here they are checked (CRC, framing) and
outlined as :class:`BatchSpan` so that the core can judge them unseen. Anything malformed is a
:class:`ValueError`, never a half-filled message. Sources: proto/quorum/pb/quorum.proto; ``make proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from google.protobuf.message import DecodeError

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.records import BatchHeader, crc_is_valid, iter_headers
from pykraft.quorum import messages as m
from pykraft.quorum.pb import quorum_pb2 as pb
from pykraft.quorum.voters import ReplicaKey

SERVICE = "/pykraft.quorum.Quorum/"
METHODS: Mapping[type[m.Request], str] = MappingProxyType(
    {
        m.VoteRequest: SERVICE + "Vote",
        m.BeginQuorumEpochRequest: SERVICE + "BeginQuorumEpoch",
        m.EndQuorumEpochRequest: SERVICE + "EndQuorumEpoch",
        m.FetchRequest: SERVICE + "Fetch",
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
            )
        case m.BeginQuorumEpochRequest():
            message = pb.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                leader=_key(request.leader),
                voter=_key(request.voter),
                epoch=request.epoch,
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
            )
    return bytes(message.SerializeToString())


def decode_request(method: str, data: bytes) -> m.Request:
    """:class:`ValueError` for bytes that are not this method's request."""
    return _DECODE_REQUEST[method](data)


def _decode_vote_request(data: bytes) -> m.Request:
    p = _parse(pb.VoteRequest(), data)
    return m.VoteRequest(
        p.cluster_id, _from_key(p.candidate), _from_key(p.voter), p.epoch, p.last_epoch, p.last_offset
    )


def _decode_begin_request(data: bytes) -> m.Request:
    p = _parse(pb.BeginQuorumEpochRequest(), data)
    return m.BeginQuorumEpochRequest(p.cluster_id, _from_key(p.leader), _from_key(p.voter), p.epoch)


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
    )


_DECODE_REQUEST: dict[str, Callable[[bytes], m.Request]] = {
    METHODS[m.VoteRequest]: _decode_vote_request,
    METHODS[m.BeginQuorumEpochRequest]: _decode_begin_request,
    METHODS[m.EndQuorumEpochRequest]: _decode_end_request,
    METHODS[m.FetchRequest]: _decode_fetch_request,
}

_RESPONSES: dict[str, tuple[Any, Any]] = {
    METHODS[m.VoteRequest]: (pb.VoteResponse, m.VoteResponse),
    METHODS[m.BeginQuorumEpochRequest]: (pb.BeginQuorumEpochResponse, m.BeginQuorumEpochResponse),
    METHODS[m.EndQuorumEpochRequest]: (pb.EndQuorumEpochResponse, m.EndQuorumEpochResponse),
    METHODS[m.FetchRequest]: (pb.FetchResponse, m.FetchResponse),
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
    match response:
        case m.VoteResponse():
            message: Any = pb.VoteResponse(**common, vote_granted=response.vote_granted)
        case m.BeginQuorumEpochResponse():
            message = pb.BeginQuorumEpochResponse(**common)
        case m.EndQuorumEpochResponse():
            message = pb.EndQuorumEpochResponse(**common)
        case m.FetchResponse():
            message = pb.FetchResponse(**common, high_watermark=response.high_watermark)
            if response.diverging is not None:
                message.diverging.epoch = response.diverging.epoch
                message.diverging.end_offset = response.diverging.end_offset
            if response.payload is not None:
                assert isinstance(response.payload, bytes)
                message.records = response.payload
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
    if wire is pb.VoteResponse:
        return m.VoteResponse(*common, p.vote_granted)
    if wire is not pb.FetchResponse:
        response: m.Response = core(*common)
        return response
    diverging = None
    if p.HasField("diverging"):
        diverging = m.DivergingEpoch(p.diverging.epoch, p.diverging.end_offset)
    headers = outline_batches(p.records)
    spans = tuple(m.BatchSpan(h.base_offset, h.next_offset, h.partition_leader_epoch) for h in headers)
    payload = FetchedRecords(p.records, headers) if headers else None
    return m.FetchResponse(*common, p.high_watermark, diverging, spans, payload)


def outline_batches(data: bytes) -> tuple[BatchHeader, ...]:
    """The headers of the batches that ``data`` consists of. :class:`ValueError` if one is cut or damaged."""
    headers = []
    end = 0
    try:
        for position, header in iter_headers(data):
            if not crc_is_valid(data, position, header):
                raise ValueError(f"the record batch at offset {header.base_offset} has a bad CRC")
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
    response: m.Response = m.VoteResponse(*common, False) if core is m.VoteResponse else core(*common)
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


def _from_key(key: pb.ReplicaKey) -> ReplicaKey:
    if not key.directory_id:
        return ReplicaKey(key.id)
    if len(key.directory_id) != 16:
        raise ValueError(f"a directory id of {len(key.directory_id)} bytes")
    return ReplicaKey(key.id, Uuid(key.directory_id))
