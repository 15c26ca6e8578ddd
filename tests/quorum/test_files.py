"""quorum-state, the bootstrap checkpoint and control records, byte for byte."""

import json

import pytest

from pykraft.kafka_protocol.ids import Uuid, uuid_from_str
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.quorum import bootstrap, control_records, state_store
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.rpc import outline_batches
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.memory_disk import MemoryDisk

DIRECTORY_ID = uuid_from_str("JEXY6aqzQY-32P5TStzaFg")
VOTERS = VoterSet(
    [
        Voter(ReplicaKey(2, Uuid(bytes(range(16)))), Address("host-2", 9093)),
        Voter(ReplicaKey(1, DIRECTORY_ID), Address("::1", 65535)),
    ]
)


def test_quorum_state_is_kafkas_json() -> None:
    data = state_store.encode_quorum_state(ElectionState(7, 3, ReplicaKey(3, DIRECTORY_ID)))
    assert json.loads(data) == {
        "leaderId": 3,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": "JEXY6aqzQY-32P5TStzaFg",
        "data_version": 1,
    }


@pytest.mark.parametrize(
    "state",
    [
        ElectionState(),
        ElectionState(4),
        ElectionState(4, 1),
        ElectionState(4, None, ReplicaKey(2, DIRECTORY_ID)),
        ElectionState(4, 1, ReplicaKey(2)),
    ],
)
def test_quorum_state_reads_back_as_written(state: ElectionState) -> None:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    store = state_store.QuorumStateStore(disk, "/d")
    assert store.read() == ElectionState()
    store.write(state)
    assert store.read() == state


def test_quorum_state_of_version_0_is_read() -> None:
    data = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}'
    )
    assert state_store.decode_quorum_state(data) == ElectionState(2, 1)


def test_bootstrap_checkpoint_reads_back_with_its_voters() -> None:
    disk = MemoryDisk()
    bootstrap.write_bootstrap_voters(disk, "/d/__cluster_metadata-0", VOTERS, 1_700_000_000_000)
    assert disk.list("/d/__cluster_metadata-0") == ["00000000000000000000-0000000000.checkpoint"]
    found = bootstrap.read_bootstrap_voters(disk, "/d/__cluster_metadata-0")
    assert found == VOTERS and found.ids == (1, 2) and found.majority == 2
    assert bootstrap.read_bootstrap_voters(disk, "/elsewhere") is None


def test_bootstrap_checkpoint_holds_the_four_control_records_in_order() -> None:
    data = bootstrap.encode_bootstrap(VOTERS, 1_700_000_000_000)
    headers = outline_batches(data)
    assert [h.is_control for h in headers] == [True, True] and [h.base_offset for h in headers] == [0, 3]
    records = decode_batch(data, headers[0]) + decode_batch(data[headers[0].size_bytes :], headers[1])
    assert [control_records.control_type(r.key) for r in records] == [3, 5, 6, 4]
    assert records[1].value == bytes.fromhex("0000 0001 00")
    assert records[3].value == bytes.fromhex("0000 00")


def test_voters_record_is_pinned() -> None:
    voters = VoterSet([Voter(ReplicaKey(1, Uuid(bytes(range(16)))), Address("h", 9093))])
    assert control_records.voters_record(voters) == bytes.fromhex(
        "0000"  # version
        "02 00000001 000102030405060708090a0b0c0d0e0f"  # one voter
        "02 0b 434f4e54524f4c4c4552 02 68 2385 00"  # one endpoint: CONTROLLER, h, 9093
        "0000 0001 00"  # kraft.version 0 to 1
        "00 00"
    )


def test_leader_change_record_is_pinned() -> None:
    key = ReplicaKey(1, Uuid(bytes(range(16))))
    assert control_records.leader_change(1, [key], [key]) == bytes.fromhex(
        "0000 00000001"  # version, leader
        "02 00000001 00"  # voters
        "02 00000001 00"  # who granted
        "00"
    )


def test_snapshot_frames_are_pinned() -> None:
    header = control_records.snapshot_header(77)
    assert header == bytes.fromhex("0000 000000000000004d 00")
    assert control_records.parse_snapshot_header(header) == 77
    assert control_records.snapshot_footer() == bytes.fromhex("0000 00")
    record = control_records.control_record(control_records.ControlType.SNAPSHOT_HEADER, header, 0)
    assert record.key == bytes.fromhex("0000 0003")
    for malformed in (b"", header[:-1], b"\0\1" + header[2:]):
        with pytest.raises(ValueError):
            control_records.parse_snapshot_header(malformed)
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(ValueError, match="without a type"):
            control_records.control_type(key)


def test_a_damaged_bootstrap_checkpoint_stops_the_start_and_names_the_file() -> None:
    whole = bootstrap.encode_bootstrap(VOTERS, 0)
    first = outline_batches(whole)[0].size_bytes
    flipped = bytearray(whole)
    flipped[100] ^= 1
    for damaged in (b"", whole[:-1], whole[:first], whole[first:], bytes(flipped), b"\0" * 200):
        disk = MemoryDisk()
        disk.make_dirs("/d")
        disk.write_atomic(f"/d/{bootstrap.BOOTSTRAP_CHECKPOINT}", damaged)
        with pytest.raises(bootstrap.BootstrapError, match=r"/d/0{20}-0{10}\.checkpoint"):
            bootstrap.read_bootstrap_voters(disk, "/d")


def test_every_truncation_of_a_voters_record_is_a_value_error() -> None:
    whole = control_records.voters_record(VOTERS)
    for length in range(len(whole) - 2):
        with pytest.raises(ValueError):
            control_records.parse_voters_record(whole[:length])


def test_two_voters_with_one_id_are_refused() -> None:
    voter = Voter(ReplicaKey(1), Address("h", 1))
    with pytest.raises(ValueError, match="twice"):
        VoterSet([voter, voter])


def test_voters_record_without_voters_is_refused() -> None:
    with pytest.raises(ValueError, match="without voters"):
        control_records.parse_voters_record(control_records.voters_record(VoterSet([])))


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**30])
def test_quorum_state_in_an_epoch_that_no_election_can_follow_is_refused_with_a_clear_message(
    epoch: int,
) -> None:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    disk.write_atomic("/d/quorum-state", state_store.encode_quorum_state(ElectionState(epoch)))
    with pytest.raises(
        state_store.QuorumStateError, match=f"leaderEpoch is {epoch}, and no election can follow"
    ):
        state_store.QuorumStateStore(disk, "/d").read()
