"""Control records as JSON: Kafka's names, and hex for what is not known."""

from typing import Any

import pytest

from pykraft.kafka_protocol.codec.versioned import encode_versioned
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.quorum.control_json import control_to_json
from pykraft.quorum.control_records import (
    ControlType,
    LeaderChange,
    VoterName,
    control_record,
    kraft_version,
    leader_change,
    snapshot_footer,
    snapshot_header,
    voters_record,
)
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from tests.narrowing import as_type

DIRECTORIES = {number: Uuid(bytes([number]) * 16) for number in (1, 2)}
KEYS = {number: ReplicaKey(number, directory) for number, directory in DIRECTORIES.items()}
SHOWN = {number: uuid_to_str(directory) for number, directory in DIRECTORIES.items()}


def shown(kind: ControlType, value: bytes) -> dict[str, Any]:
    record = control_record(kind, value, 0)
    return control_to_json(as_type(record.key, bytes), as_type(record.value, bytes))


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (
            ControlType.LEADER_CHANGE,
            leader_change(2, [KEYS[1], KEYS[2]], [KEYS[2]]),
            {
                "version": 0,
                "leaderId": 2,
                "voters": [{"voterId": 1}, {"voterId": 2}],
                "grantingVoters": [{"voterId": 2}],
            },
        ),
        (ControlType.SNAPSHOT_HEADER, snapshot_header(77), {"version": 0, "lastContainedLogTimestamp": 77}),
        (ControlType.SNAPSHOT_FOOTER, snapshot_footer(), {"version": 0}),
        (ControlType.KRAFT_VERSION, kraft_version(1), {"version": 0, "kRaftVersion": 1}),
        (
            ControlType.KRAFT_VOTERS,
            voters_record(VoterSet([Voter(KEYS[2], Address("host", 9093))])),
            {
                "version": 0,
                "voters": [
                    {
                        "voterId": 2,
                        "voterDirectoryId": SHOWN[2],
                        "endpoints": [{"host": "host", "port": 9093}],
                    }
                ],
            },
        ),
    ],
)
def test_control_record_is_shown_with_the_names_of_kafka(
    kind: ControlType, value: bytes, data: dict[str, Any]
) -> None:
    assert shown(kind, value) == {"type": kind.name, "data": data}


def test_directories_of_voters_are_shown_where_they_were_written() -> None:
    names = [VoterName(voter_id=number, voter_directory_id=DIRECTORIES[number]) for number in (1, 2)]
    change = LeaderChange(leader_id=1, voters=names, granting_voters=names[:1])
    value = encode_versioned(LeaderChange, change, 1)
    assert shown(ControlType.LEADER_CHANGE, value)["data"] == {
        "version": 1,
        "leaderId": 1,
        "voters": [{"voterId": number, "voterDirectoryId": SHOWN[number]} for number in (1, 2)],
        "grantingVoters": [{"voterId": 1, "voterDirectoryId": SHOWN[1]}],
    }


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        (b"\0\0\0\2", b"\x00\x00\x01", "CONTROL_2"),
        (b"\0\0\0\3", None, "CONTROL_3"),
        (b"\0\0\0\x63", b"\x01\xff", "CONTROL_99"),
        (b"\0\0\0\x63", None, "CONTROL_99"),
        (b"\0\0\0", b"\1", "CONTROL"),
        (None, None, "CONTROL"),
    ],
)
def test_what_cannot_be_read_is_shown_in_hex(key: bytes | None, value: bytes | None, name: str) -> None:
    assert control_to_json(key, value) == {"type": name, "data": {"hex": (value or b"").hex()}}
