"""The control records of the metadata log, in Kafka's formats.

Key and value are message tables (``kafka_protocol.schema``) with their version in front: LeaderChange
(KIP-595), SnapshotHeader and SnapshotFooter (KIP-630), KRaftVersion and Voters (KIP-853). All are written in
version 0, as Kafka 4.3 writes them: its tools read every control record as version 0, whatever version it has
itself. Truncated or unknown input is a :class:`ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
    uuid,
)
from pykraft.kafka_protocol.codec.versioned import VERSION_BYTES, decode_versioned, encode_versioned
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.quorum.core.voters import HIGHEST_KRAFT_VERSION, ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address

DEFAULT_LISTENER = "CONTROLLER"

_M = TypeVar("_M", bound=Message)


class ControlType(IntEnum):
    """Types of control records that concern the quorum."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@message(versions="0")
class ControlKey(Message):
    kind: int = int16()


@struct
class VoterName:
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


@message(versions="0-1", flexible="0+")
class LeaderChange(Message):
    """Version 1 names directories too; earlier versions of pykraft wrote it. Kafka's tools cannot read it."""

    leader_id: int = int32()
    voters: list[VoterName] = array(VoterName)
    granting_voters: list[VoterName] = array(VoterName)


@message(versions="0", flexible="0+")
class SnapshotHeader(Message):
    last_contained_log_time_ms: int = int64()


@message(versions="0", flexible="0+")
class SnapshotFooter(Message):
    """Nothing but its version."""


@message(versions="0", flexible="0+")
class KRaftVersion(Message):
    level: int = int16()


@struct
class VoterEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class SupportedKRaftVersions:
    lowest: int = int16()
    highest: int = int16()


@struct
class DescribedVoter:
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_versions: SupportedKRaftVersions = nested(SupportedKRaftVersions)


@message(versions="0", flexible="0+")
class KRaftVoters(Message):
    voters: list[DescribedVoter] = array(DescribedVoter)


def control_record(kind: ControlType, value: bytes, timestamp_ms: int) -> RecordInput:
    return RecordInput(_encode(ControlKey(kind=kind)), value, (), timestamp_ms)


def control_type(key: bytes | None) -> int:
    """The type in a control record's key, whatever its version. :class:`ValueError` if there is none."""
    try:
        return ControlKey.decode_from(key or b"", VERSION_BYTES, 0)[0].kind
    except KafkaError:
        raise ValueError("a control record without a type") from None


def leader_change(leader_id: int, voters: Sequence[ReplicaKey], granting: Sequence[ReplicaKey]) -> bytes:
    """Ids only: version 0 has no directory ids. No decision depends on this record; it is for readers."""
    return _encode(
        LeaderChange(
            leader_id=leader_id,
            voters=[VoterName(voter_id=key.id) for key in voters],
            granting_voters=[VoterName(voter_id=key.id) for key in granting],
        )
    )


def snapshot_header(last_contained_log_time_ms: int) -> bytes:
    return _encode(SnapshotHeader(last_contained_log_time_ms=last_contained_log_time_ms))


def parse_snapshot_header(value: bytes) -> int:
    """The time of the last batch in the snapshot, in wall-clock milliseconds."""
    return parse(SnapshotHeader, value).last_contained_log_time_ms


def snapshot_footer() -> bytes:
    return _encode(SnapshotFooter())


def kraft_version(level: int = HIGHEST_KRAFT_VERSION) -> bytes:
    return _encode(KRaftVersion(level=level))


def voters_record(voters: VoterSet, listener: str = DEFAULT_LISTENER) -> bytes:
    """Each voter: id, directory id, one endpoint, and the range of kraft.version it supports."""
    supported = SupportedKRaftVersions(lowest=0, highest=HIGHEST_KRAFT_VERSION)
    return _encode(
        KRaftVoters(
            voters=[
                DescribedVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        VoterEndpoint(name=listener, host=voter.address.host, port=voter.address.port)
                    ],
                    kraft_versions=supported,
                )
                for voter in voters
            ]
        )
    )


def parse_voters_record(value: bytes) -> VoterSet:
    """The voter set; of several endpoints of a voter the first counts."""
    voters = []
    for voter in parse(KRaftVoters, value).voters:
        if not voter.endpoints:
            raise ValueError(f"voter {voter.voter_id} has no endpoint")
        address = Address(voter.endpoints[0].host, voter.endpoints[0].port)
        voters.append(Voter(ReplicaKey(voter.voter_id, voter.voter_directory_id), address))
    if not voters:
        raise ValueError("a voters record without voters")
    return VoterSet(voters)


def parse(table: type[_M], value: bytes) -> _M:
    """The value of a control record, in the version that it names. :class:`ValueError` if malformed."""
    try:
        return decode_versioned(table, value)
    except KafkaError as error:
        raise ValueError(f"malformed {table.__name__} record: {error.message}") from None


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


def _encode(value: Message) -> bytes:
    return encode_versioned(type(value), value, 0)
