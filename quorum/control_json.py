"""Control records of the metadata log and of snapshots as JSON, for people and tools.

Reads what :mod:`.control_records` writes. A type or version it does not know is shown in hex.
"""

from __future__ import annotations

import struct
from typing import Any

from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.primitives import read_uvarint
from pykraft.quorum.control_records import ControlType, control_type, parse_voters_record


def control_to_json(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``{"type", "data"}`` of one control record, with Kafka's names."""
    kind = control_type(key)
    data = value or b""
    try:
        name = ControlType(kind).name
        return {"type": name, "data": _parse(ControlType(kind), data)}
    except (ValueError, IndexError, struct.error):
        return {"type": f"CONTROL_{kind}", "data": {"hex": data.hex()}}


def _parse(kind: ControlType, value: bytes) -> dict[str, Any]:
    (version,) = struct.unpack_from(">h", value)
    match kind:
        case ControlType.LEADER_CHANGE:
            return _leader_change(version, value)
        case ControlType.SNAPSHOT_HEADER:
            (time_ms,) = struct.unpack_from(">q", value, 2)
            return {"version": version, "lastContainedLogTimestamp": time_ms}
        case ControlType.SNAPSHOT_FOOTER:
            return {"version": version}
        case ControlType.KRAFT_VERSION:
            (level,) = struct.unpack_from(">h", value, 2)
            return {"version": version, "kRaftVersion": level}
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


def _leader_change(version: int, value: bytes) -> dict[str, Any]:
    """Version 1 names directories too; earlier versions of pykraft wrote it. Kafka's tools cannot read it."""
    if version not in (0, 1):
        raise ValueError(f"leader change of version {version}")
    (leader_id,) = struct.unpack_from(">i", value, 2)
    voters, position = _read_keys(version, value, 6)
    granting, _ = _read_keys(version, value, position)
    return {"version": version, "leaderId": leader_id, "voters": voters, "grantingVoters": granting}


def _read_keys(version: int, value: bytes, position: int) -> tuple[list[dict[str, Any]], int]:
    count, position = read_uvarint(value, position)
    keys = []
    for _ in range(count - 1):
        (node_id,) = struct.unpack_from(">i", value, position)
        key: dict[str, Any] = {"voterId": node_id}
        position += 4
        if version >= 1:
            key["voterDirectoryId"] = uuid_to_str(Uuid(value[position : position + 16]))
            position += 16
        position += 1  # an empty list of tagged fields
        keys.append(key)
    return keys, position
