"""Core messages to protobuf bytes and back: the only file that knows the generated classes.

A fetch answer's records travel as the bytes of whole batches; here they are checked (CRC, framing) and
outlined as :class:`BatchSpan` so that the core can judge them unseen. Anything malformed is a
:class:`ValueError`, never a half-filled message. Sources: proto/quorum/pb/quorum.proto; ``make proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

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
    {core: f"/{_SERVICE}/{core.__name__.removesuffix('Request')}" for core in get_args(m.Request)}
)
_REQUESTS: Final = {method: core for core, method in METHODS.items()}
_RESPONSES: Final[Mapping[str, Any]] = {
    METHODS[core]: m.VoterChangeResponse
    if core in get_args(m.VoterChangeRequest)
    else getattr(m, core.__name__.replace("Request", "Response"))
    for core in METHODS
}
_WIRE: Final[Mapping[type, Any]] = {
    core: getattr(pb, core.__name__)
    for core in (
        *(*get_args(m.Request), *get_args(m.Response)),
        *(Address, Announcement, m.DivergingEpoch, SnapshotId, Voter),
    )
}
"""The generated class of each class of the core. Fields have the same names, except for these:"""
_CORE_NAMES: Final = {"error_code": "error", "records": "payload"}


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The payload of a decoded fetch answer: whole batches and their headers, as the log wants them."""

    data: bytes
    headers: tuple[BatchHeader, ...]


def encode_request(request: m.Request) -> bytes:
    return bytes(_to_wire(request).SerializeToString())


def decode_request(method: str, data: bytes) -> m.Request:
    """:class:`ValueError` for bytes that are not this method's request."""
    core = _REQUESTS[method]
    return core(**_read(_parse(core, data)))


def encode_response(response: m.Response) -> bytes:
    """A FetchResponse carries its ``payload`` (bytes of whole batches, or None) as records."""
    message = _to_wire(response)
    if response.leader_id is None:
        message.ClearField("leader_address")
    return bytes(message.SerializeToString())


def decode_response(method: str, data: bytes) -> m.Response:
    """:class:`ValueError` for bytes that are not this method's response, or records that are damaged."""
    core = _RESPONSES[method]
    p = _parse(core, data)
    values = _read(p)
    try:
        values["error"] = ErrorCode(p.error_code)
    except ValueError:
        values["error"] = ErrorCode.UNKNOWN_SERVER_ERROR
    if not p.HasField("leader_id"):
        values["leader_id"] = None
    if core is m.FetchResponse:
        values |= {name: None for name in ("diverging", "snapshot_id") if not p.HasField(name)}
        headers = outline_batches(p.records)
        values["payload"] = FetchedRecords(p.records, headers) if headers else None
        values["batches"] = _outline_spans(p.records, headers)
    response: m.Response = core(**values)
    return response


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
    core = _RESPONSES[method]
    common = (cluster_id, replica, error, epoch, None)
    if core is m.VoteResponse:
        return m.VoteResponse(*common, False)
    if core is m.FetchSnapshotResponse:
        return m.FetchSnapshotResponse(*common, BEGINNING, 0)
    response: m.Response = core(*common)
    return response


def _parse(core: type, data: bytes) -> Any:
    message = _WIRE[core]()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name}: {error}") from error
    return message


def _to_wire(value: Any) -> Any:
    if isinstance(value, ReplicaKey):
        directory_id = b"" if value.directory_id == ZERO_UUID else bytes(value.directory_id)
        return pb.ReplicaKey(id=value.id, directory_id=directory_id)
    wire = _WIRE.get(type(value))
    if wire is not None:
        names = wire.DESCRIPTOR.fields_by_name
        return wire(**{name: _to_wire(getattr(value, _CORE_NAMES.get(name, name))) for name in names})
    if isinstance(value, tuple):
        return [_to_wire(item) for item in value]
    return value


def _read(message: Any) -> dict[str, Any]:
    """The values of a message's fields by their names in the core."""
    names = message.DESCRIPTOR.fields_by_name
    return {_CORE_NAMES.get(name, name): _from_wire(getattr(message, name)) for name in names}


def _from_wire(value: Any) -> Any:
    if isinstance(value, int | str | bytes):
        return value
    checked = _CHECKED.get(type(value))
    if checked is not None:
        return checked(value)
    return tuple(_from_wire(item) for item in value)


def _from_key(key: pb.ReplicaKey) -> ReplicaKey:
    if not key.directory_id:
        return ReplicaKey(key.id)
    if len(key.directory_id) != 16:
        raise ValueError(f"a directory id of {len(key.directory_id)} bytes")
    return ReplicaKey(key.id, Uuid(key.directory_id))


def _from_address(address: pb.Address) -> Address | None:
    if not address.host:
        return None
    if not (address.host.isascii() and address.host.isprintable() and len(address.host) <= MAX_HOST_LENGTH):
        raise ValueError("an address with an invalid host")
    if not 0 < address.port <= MAX_PORT:
        raise ValueError(f"an address with port {address.port}")
    return Address(address.host, address.port)


def _from_announcement(announced: pb.Announcement) -> Announcement | None:
    address = _from_address(announced.address)
    return None if address is None else Announcement(address, announced.highest_kraft_version)


def _from_voter(voter: pb.Voter) -> Voter:
    address = _from_address(voter.address)
    if address is None:
        raise ValueError("a voter without an address")
    return Voter(_from_key(voter.key), address)


_CHECKED: Final[Mapping[type, Callable[[Any], Any]]] = {
    pb.Address: _from_address,
    pb.Announcement: _from_announcement,
    pb.DivergingEpoch: lambda it: m.DivergingEpoch(it.epoch, it.end_offset),
    pb.ReplicaKey: _from_key,
    pb.SnapshotId: lambda it: SnapshotId(it.end_offset, it.epoch),
    pb.Voter: _from_voter,
}
