"""Control records of the metadata log and of snapshots as JSON, for people and tools.

Reads what :mod:`.control_records` writes. A type or version it does not know is shown in hex.
"""

from __future__ import annotations

from typing import Any

from pykraft.kafka_protocol.codec.versioned import read_version
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.quorum.control_records import (
    ControlType,
    KRaftVersion,
    LeaderChange,
    SnapshotHeader,
    VoterName,
    control_type,
    parse,
    parse_voters_record,
)


def control_to_json(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``{"type", "data"}`` of one control record, with Kafka's names."""
    data, name = value or b"", "CONTROL"
    try:
        kind = control_type(key)
        name = f"CONTROL_{kind}"
        return {"type": ControlType(kind).name, "data": _parse(ControlType(kind), data)}
    except (ValueError, KafkaError):
        return {"type": name, "data": {"hex": data.hex()}}


def _parse(kind: ControlType, value: bytes) -> dict[str, Any]:
    version = read_version(value)
    match kind:
        case ControlType.LEADER_CHANGE:
            change = parse(LeaderChange, value)
            return {
                "version": version,
                "leaderId": change.leader_id,
                "voters": [_name(voter, version) for voter in change.voters],
                "grantingVoters": [_name(voter, version) for voter in change.granting_voters],
            }
        case ControlType.SNAPSHOT_HEADER:
            time_ms = parse(SnapshotHeader, value).last_contained_log_time_ms
            return {"version": version, "lastContainedLogTimestamp": time_ms}
        case ControlType.SNAPSHOT_FOOTER:
            return {"version": version}
        case ControlType.KRAFT_VERSION:
            return {"version": version, "kRaftVersion": parse(KRaftVersion, value).level}
        case ControlType.KRAFT_VOTERS:
            return {
                "version": version,
                "voters": [
                    {
                        "voterId": voter.key.id,
                        "voterDirectoryId": uuid_to_str(voter.key.directory_id),
                        "endpoints": [{"host": voter.address.host, "port": voter.address.port}],
                    }
                    for voter in parse_voters_record(value)
                ],
            }


def _name(voter: VoterName, version: int) -> dict[str, Any]:
    if version == 0:
        return {"voterId": voter.voter_id}
    return {"voterId": voter.voter_id, "voterDirectoryId": uuid_to_str(voter.voter_directory_id)}
