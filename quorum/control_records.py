"""The control records of the metadata log, in Kafka's formats.

Key of each: version 0 and a type, two bytes each. Values are flexible-version messages (KIP-482 encoding)
that begin with their own version: LeaderChange (KIP-595), SnapshotHeader and SnapshotFooter (KIP-630),
KRaftVersion and Voters (KIP-853). All are written in version 0, as Kafka 4.3 writes them: its tools read
every control record as version 0, whatever it says of itself. Truncated or unknown input is a
:class:`ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.primitives import read_uvarint, write_uvarint
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.rpc import RpcAddress

DEFAULT_LISTENER = "CONTROLLER"
KRAFT_VERSION = 1


class ControlType(IntEnum):
    """Types of control records that concern the quorum."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_record(kind: ControlType, value: bytes, timestamp_ms: int) -> RecordInput:
    return RecordInput(struct.pack(">hh", 0, kind), value, (), timestamp_ms)


def control_type(key: bytes | None) -> int:
    """The type in a control record's key. :class:`ValueError` if there is none."""
    if key is None or len(key) < 4:
        raise ValueError("a control record without a type")
    return int(struct.unpack_from(">hh", key)[1])


def leader_change(leader_id: int, voters: Sequence[ReplicaKey], granting: Sequence[ReplicaKey]) -> bytes:
    """Ids only: version 0 has no directory ids. Nobody decides by this record, it is there to be read."""
    out = bytearray(struct.pack(">hi", 0, leader_id))
    for keys in (voters, granting):
        write_uvarint(out, len(keys) + 1)
        for key in keys:
            out += struct.pack(">i", key.id) + b"\0"
    return bytes(out + b"\0")


def snapshot_header(last_contained_log_time_ms: int) -> bytes:
    return struct.pack(">hq", 0, last_contained_log_time_ms) + b"\0"


def parse_snapshot_header(value: bytes) -> int:
    """The time of the last batch in the snapshot, in wall-clock milliseconds."""
    if len(value) < 10 or value[:2] != b"\0\0":
        raise ValueError("not a snapshot header of version 0")
    return int(struct.unpack_from(">q", value, 2)[0])


def snapshot_footer() -> bytes:
    return struct.pack(">h", 0) + b"\0"


def kraft_version(level: int = KRAFT_VERSION) -> bytes:
    return struct.pack(">hh", 0, level) + b"\0"


def voters_record(voters: VoterSet, listener: str = DEFAULT_LISTENER) -> bytes:
    """Each voter: id, directory id, one endpoint, and the range of kraft.version it supports."""
    out = bytearray(struct.pack(">h", 0))
    write_uvarint(out, len(voters) + 1)
    for voter in voters:
        out += struct.pack(">i", voter.key.id) + voter.key.directory_id
        write_uvarint(out, 2)
        for text in (listener, voter.address.host):
            encoded = text.encode("utf-8")
            write_uvarint(out, len(encoded) + 1)
            out += encoded
        out += struct.pack(">H", voter.address.port) + b"\0"
        out += struct.pack(">hh", 0, KRAFT_VERSION) + b"\0"
        out += b"\0"
    return bytes(out + b"\0")


def parse_voters_record(value: bytes) -> VoterSet:
    """The voter set; of several endpoints of a voter the first counts."""
    try:
        return _parse_voters(value)
    except (struct.error, IndexError, UnicodeDecodeError, KafkaError) as error:
        raise ValueError(f"malformed voters record: {error}") from None


def find_voters(header: BatchHeader, data: bytes) -> VoterSet | None:
    """The voter set in a control batch, None if there is none. :class:`ValueError` if it is malformed."""
    if not header.is_control:
        return None
    try:
        records = decode_batch(data, header)
    except KafkaError as error:
        raise ValueError(str(error)) from None
    found = [r.value or b"" for r in records if control_type(r.key) == ControlType.KRAFT_VOTERS]
    return parse_voters_record(found[-1]) if found else None


def _parse_voters(value: bytes) -> VoterSet:
    (version,) = struct.unpack_from(">h", value)
    if version != 0:
        raise ValueError(f"voters record of version {version}, known is 0")
    count, position = read_uvarint(value, 2)
    voters = []
    for _ in range(count - 1):
        (node_id,) = struct.unpack_from(">i", value, position)
        directory_id = value[position + 4 : position + 20]
        if len(directory_id) != 16:
            raise ValueError("malformed voters record: cut short")
        endpoints, position = read_uvarint(value, position + 20)
        address: RpcAddress | None = None
        for _ in range(endpoints - 1):
            _, position = _read_string(value, position)
            host, position = _read_string(value, position)
            (port,) = struct.unpack_from(">H", value, position)
            position = _skip_tags(value, position + 2)
            address = address or RpcAddress(host, port)
        if address is None:
            raise ValueError(f"voter {node_id} has no endpoint")
        position = _skip_tags(value, position + 4)
        position = _skip_tags(value, position)
        voters.append(Voter(ReplicaKey(node_id, Uuid(directory_id)), address))
    if not voters:
        raise ValueError("a voters record without voters")
    return VoterSet(voters)


def _read_string(value: bytes, position: int) -> tuple[str, int]:
    length, position = read_uvarint(value, position)
    end = position + length - 1
    if length < 1 or end > len(value):
        raise ValueError("malformed voters record: a string is cut short")
    return value[position:end].decode("utf-8"), end


def _skip_tags(value: bytes, position: int) -> int:
    count, position = read_uvarint(value, position)
    for _ in range(count):
        _, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        position += size
    return position
