"""Snapshots in the core: which replica must fetch one, in which pieces, and when it replaces the log."""

from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum import rpc
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AdvanceLogStart,
    AppendSnapshotChunk,
    CheckSnapshot,
    InstallSnapshot,
    Reply,
    ReplyWithSnapshot,
    Send,
)
from pykraft.quorum.core.events import (
    LogFlushed,
    Proposed,
    RequestFailed,
    ResponseReceived,
    RetentionReached,
    SnapshotChecked,
    SnapshotTaken,
    TimerFired,
)
from pykraft.quorum.core.log_shape import BEGINNING, LogShape, SnapshotId
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
)
from pykraft.quorum.core.roles import ElectionState, Follower, Leader
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from tests.narrowing import as_type, present
from tests.quorum.bench import CoreBench
from tests.quorum.fields import FetchSnapshotFields, FetchSnapshotResponseFields

ID = SnapshotId(40, 3)


def _leader() -> CoreBench:
    """A leader of epoch 1 with ten batches; its log starts at offset 6."""
    b = CoreBench()
    b.lead()
    for _ in range(9):
        b.step(Proposed(1, 1, b""))
        b.step(LogFlushed(b.state.log.end_offset, 0))
    b.fetch(2, 10, 1)
    b.step(SnapshotTaken(SnapshotId(6, 1)))
    b.step(RetentionReached(SnapshotId(6, 1)))
    assert b.of(AdvanceLogStart) == [AdvanceLogStart(SnapshotId(6, 1))]
    return b


def _follower() -> CoreBench:
    """A follower of 2 in epoch 5 with records 0 to 9 of epoch 2, which is told to fetch snapshot 40-3."""
    b = CoreBench(election=ElectionState(5, 2), epoch_starts=[(2, 0)], end_offset=10)
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2, 50, snapshot_id=ID))
    return b


def _asked(b: CoreBench) -> Request:
    return b.of(Send)[-1].request


class OtherFile(TypedDict, total=False):
    size_bytes: int
    checksum: int


def _piece(
    b: CoreBench,
    position: int,
    data: bytes,
    size_bytes: int = 10,
    checksum: int = 77,
    **changed: Unpack[FetchSnapshotResponseFields],
) -> FetchSnapshotResponse:
    response = FetchSnapshotResponse(
        "c", b.keys[2], ErrorCode.NONE, b.state.epoch, 2, ID, position, size_bytes, checksum, data
    )
    return replace(response, **changed)


# --- at the leader ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "epoch", "is_sent"),
    [(0, 0, True), (5, 1, True), (6, 1, False), (10, 1, False)],
)
def test_replica_whose_log_ends_before_the_leaders_begins_is_referred_to_the_snapshot(
    offset: int, epoch: int, is_sent: bool
) -> None:
    b = _leader()
    answer = b.fetch(3, offset, epoch)
    assert (answer is not None and answer.snapshot_id == SnapshotId(6, 1)) is is_sent
    assert b.role(Leader).progress[3].end_offset == (0 if is_sent else offset)


@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (20, 4, "snapshot"),  # at the start, but its last record is another
        (20, 6, "snapshot"),
        (25, 3, "snapshot"),  # parts from us before the start
        (20, 5, "records"),
        (25, 5, "diverging"),  # our records of epoch 5 end at 22
        (22, 5, "records"),
        (23, 7, "records"),
    ],
)
def test_point_of_divergence_is_known_only_after_the_log_start(offset: int, epoch: int, answer: str) -> None:
    b = CoreBench()
    log = LogShape(30, [(5, 20), (7, 22)], SnapshotId(20, 5))
    b.state.log, b.state.snapshot = log, SnapshotId(20, 5)
    b.state.election = ElectionState(8)
    b.start_election()
    b.answer(b.vote_for(2))
    response = b.fetch(3, offset, epoch)
    got = (
        "diverging"
        if present(response).diverging
        else "snapshot"
        if present(response).snapshot_id
        else "records"
    )
    assert got == answer


def test_piece_is_served_within_both_limits_and_counts_as_contact() -> None:
    b = _leader()
    b.now_ms += 100
    request = FetchSnapshotRequest("c", b.keys[3], 1, SnapshotId(6, 1), 5, 1 << 30)
    assert b.send(request) is None
    (reply,) = b.of(ReplyWithSnapshot)
    assert (reply.max_bytes, reply.response.position) == (1 << 20, 5)
    assert b.role(Leader).progress[3].last_fetch_ms == b.now_ms
    b.send(replace(request, max_bytes=7))
    assert b.of(ReplyWithSnapshot)[0].max_bytes == 7


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"position": -1}, ErrorCode.INVALID_REQUEST),
        ({"max_bytes": 0}, ErrorCode.INVALID_REQUEST),
        ({"replica": ReplicaKey(1)}, ErrorCode.INVALID_REQUEST),
        ({"snapshot_id": BEGINNING}, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
def test_bad_snapshot_fetches_are_refused(changed: FetchSnapshotFields, error: ErrorCode) -> None:
    b = _leader()
    request = FetchSnapshotRequest("c", b.keys[3], 1, SnapshotId(6, 1), 0, 100)
    assert b.ask(replace(request, **changed)).error is error
    assert b.of(ReplyWithSnapshot) == []


def test_only_the_leader_serves_snapshots() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    request = FetchSnapshotRequest("c", b.keys[3], 5, ID, 0, 100)
    assert b.ask(request).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_log_is_not_deleted_where_no_snapshot_replaces_it() -> None:
    b = CoreBench()
    b.lead()
    with pytest.raises(AssertionError, match="no snapshot replaces the log"):
        b.step(RetentionReached(SnapshotId(1, 1)))


# --- at the follower -------------------------------------------------------------------------------------


def test_pieces_are_fetched_one_after_the_other_then_checked_then_installed() -> None:
    b = _follower()
    assert _asked(b) == FetchSnapshotRequest("c", b.keys[1], 5, ID, 0, 1 << 20)
    b.answer(_piece(b, 0, b"0123"))
    assert b.of(AppendSnapshotChunk) == [AppendSnapshotChunk(ID, 0, b"0123")]
    assert as_type(_asked(b), FetchSnapshotRequest).position == 4
    b.answer(_piece(b, 4, b"456789"))
    (check,) = b.of(CheckSnapshot)
    assert check == CheckSnapshot(ID, check.attempt, 77)
    assert b.of(InstallSnapshot) == [] and b.state.log.end_offset == 10
    b.step(SnapshotChecked(check.attempt, True))
    kinds = [type(e) for e in b.effects]
    assert kinds.index(InstallSnapshot) < kinds.index(AdvanceHighWatermark) < kinds.index(Send)
    assert (b.state.log.start, b.state.log.end_offset, b.state.log.flushed_offset) == (ID, 40, 40)
    assert b.state.high_watermark == 40 and b.state.snapshot == ID and b.state.download is None
    request = _asked(b)
    assert isinstance(request, FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch) == (40, 3)


def test_voters_of_an_installed_snapshot_are_the_voters() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123456789"))
    (check,) = b.of(CheckSnapshot)
    added = Voter(ReplicaKey(9, Uuid(bytes([9]) * 16)), Address("test", 9))
    b.step(SnapshotChecked(check.attempt, True, VoterSet([*b.voters.voters, added])))
    assert b.state.voters.ids == (*b.voters.ids, 9)


def test_lost_answer_costs_one_piece() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    b.step(RequestFailed(present(b.role(Follower).fetch_correlation)))
    b.step(TimerFired(), after_ms=20)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 4


def test_repeated_piece_is_not_written_twice() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    b.answer(_piece(b, 0, b"0123"))
    assert b.of(AppendSnapshotChunk) == []
    b.step(TimerFired(), after_ms=20)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 4


def _new_leader(b: CoreBench, epoch: int = 6, leader: int = 3) -> None:
    b.send(BeginQuorumEpochRequest("c", b.keys[leader], b.state.local, epoch))
    response = FetchResponse("c", b.keys[leader], ErrorCode.NONE, epoch, leader, snapshot_id=ID)
    b.answer(response)


def test_fetch_continues_at_a_new_leader_with_the_same_file() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    _new_leader(b)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 4
    b.answer(_piece(b, 4, b"45", replica=b.keys[3], leader_id=3))
    assert b.of(AppendSnapshotChunk) == [AppendSnapshotChunk(ID, 4, b"45")]


@pytest.mark.parametrize("other", [{"checksum": 78}, {"size_bytes": 11}])
def test_fetch_starts_over_at_a_new_leader_with_another_file_of_that_id(
    other: OtherFile,
) -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    _new_leader(b)
    b.answer(_piece(b, 4, b"45", replica=b.keys[3], leader_id=3, **other))
    assert b.of(AppendSnapshotChunk) == []
    b.step(TimerFired(), after_ms=20)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 0


def test_records_are_fetched_from_a_new_leader_that_still_has_them() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    b.send(BeginQuorumEpochRequest("c", b.keys[3], b.state.local, 6))
    assert as_type(_asked(b), FetchRequest).fetch_offset == 10


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_plain_fetch_follows_if_the_snapshot_no_longer_exists(error: ErrorCode) -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123"))
    b.answer(_piece(b, 4, b"", error=error))
    b.step(TimerFired(), after_ms=20)
    assert isinstance(_asked(b), FetchRequest) and b.state.download is None


def test_damaged_snapshot_is_fetched_again() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123456789"))
    (check,) = b.of(CheckSnapshot)
    b.step(SnapshotChecked(check.attempt, False))
    assert b.of(InstallSnapshot) == []
    b.step(TimerFired(), after_ms=1_000)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 0


def test_follower_that_checks_a_snapshot_and_its_leader_stay_in_contact() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123456789"))
    for _ in range(20):
        b.step(TimerFired(), after_ms=b.state.config.fetch_wait_ms)
        assert as_type(_asked(b), FetchSnapshotRequest).position == 10
        b.answer(_piece(b, 10, b""))
        assert b.of(CheckSnapshot) == []
    assert isinstance(b.state.role, Follower)


def test_snapshot_checked_under_a_former_leader_does_not_replace_records_of_the_new_one() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123456789"))
    (check,) = b.of(CheckSnapshot)
    b.send(BeginQuorumEpochRequest("c", b.keys[3], b.state.local, 6))
    b.step(SnapshotChecked(check.attempt, True))
    assert b.of(InstallSnapshot) == [] and b.state.log.end_offset == 10
    response = FetchResponse("c", b.keys[3], ErrorCode.NONE, 6, 3, snapshot_id=ID)
    b.answer(response)
    assert as_type(_asked(b), FetchSnapshotRequest).position == 10  # nothing is fetched twice
    b.answer(_piece(b, 10, b"", replica=b.keys[3], leader_id=3))
    (check,) = b.of(CheckSnapshot)
    b.step(SnapshotChecked(check.attempt, True))
    assert b.of(InstallSnapshot) == [InstallSnapshot(ID)]


def test_check_of_an_earlier_attempt_is_ignored() -> None:
    b = _follower()
    b.answer(_piece(b, 0, b"0123456789"))
    (first,) = b.of(CheckSnapshot)
    b.step(TimerFired(), after_ms=b.state.config.fetch_wait_ms)
    b.answer(_piece(b, 10, b"", error=ErrorCode.SNAPSHOT_NOT_FOUND))
    b.step(TimerFired(), after_ms=20)
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2, snapshot_id=ID))
    b.step(SnapshotChecked(first.attempt, True))
    assert b.of(InstallSnapshot) == [] and b.state.log.end_offset == 10


@pytest.mark.parametrize("snapshot_id", [SnapshotId(4, 2), SnapshotId(40, 6), SnapshotId(40, 0)])
def test_snapshot_that_no_true_leader_names_is_not_fetched(snapshot_id: SnapshotId) -> None:
    b = CoreBench(election=ElectionState(5, 2), epoch_starts=[(2, 0)], end_offset=10)
    b.state.high_watermark = 4
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2, snapshot_id=snapshot_id))
    assert b.state.download is None and b.of(Send) == []


def test_late_piece_of_another_role_is_ignored() -> None:
    b = _follower()
    correlation_id = b.role(Follower).fetch_correlation
    b.ask_first()
    b.step(ResponseReceived(present(correlation_id), _piece(b, 0, b"0123")))
    assert b.of(AppendSnapshotChunk) == []


def test_piece_that_answers_another_request_is_ignored() -> None:
    b = _follower()
    other = present(b.role(Follower).fetch_correlation) + 100
    b.state.in_flight[other] = b.keys[2]
    b.step(ResponseReceived(other, _piece(b, 0, b"0123")))
    assert b.of(AppendSnapshotChunk) == []
    b.answer(_piece(b, 0, b"0123"))
    assert [chunk.data for chunk in b.of(AppendSnapshotChunk)] == [b"0123"], "the one that was asked for"


def test_piece_that_answers_a_candidate_is_ignored() -> None:
    b = CoreBench()
    b.ask_first()
    b.answer(_piece(b, 0, b"0123"))
    assert b.of(AppendSnapshotChunk) == []


# --- the outline of a log that starts at a snapshot ------------------------------------------------------


def test_log_after_a_snapshot_knows_epochs_from_its_start_on() -> None:
    log = LogShape(50, [(3, 40), (6, 45)], ID)
    assert (log.last_epoch, log.start_offset) == (6, 40)
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 3, 5, 6, 9)] == [
        (3, 40),
        (3, 45),
        (3, 45),
        (6, 50),
        (6, 50),
    ]
    assert [log.epoch_of(offset) for offset in (39, 40, 44, 45, 49)] == [3, 3, 3, 6, 6]
    empty = LogShape(40, (), ID)
    assert (empty.last_epoch, empty.end_offset_for_epoch(7), empty.epoch_of(39)) == (3, (3, 40), 3)


def test_log_start_moves_with_the_epoch_at_that_offset() -> None:
    log = LogShape(50, [(1, 0), (3, 20), (6, 45)])
    log.advance_start(ID)
    assert (log.start, log.epoch_starts, log.generation) == (ID, ((3, 40), (6, 45)), 0)
    log.advance_start(SnapshotId(50, 6))
    assert log.epoch_starts == ((6, 50),) and log.last_epoch == 6
    log.append(51, 8)
    assert log.end_offset_for_epoch(6) == (6, 50) and log.end_offset_for_epoch(8) == (8, 51)


def test_log_is_never_truncated_below_its_start() -> None:
    log = LogShape(50, [(3, 40)], ID)
    log.truncate(40)
    assert log.last_epoch == 3 and log.end_offset == 40
    log.append(41, 4)
    with pytest.raises(AssertionError):
        log.truncate(39)


# --- on the wire -----------------------------------------------------------------------------------------


def test_snapshot_messages_round_trip_through_protobuf() -> None:
    b = CoreBench()
    request = FetchSnapshotRequest("c", b.keys[3], 5, ID, 1 << 40, 1 << 20)
    method = rpc.METHODS[FetchSnapshotRequest]
    assert rpc.decode_request(method, rpc.encode_request(request)) == request
    response = FetchSnapshotResponse(
        "c", b.keys[2], ErrorCode.NONE, 5, 2, ID, 1 << 40, 1 << 41, 0xFFFFFFFF, b"data"
    )
    assert rpc.decode_response(method, rpc.encode_response(response)) == response
    refused = rpc.refusal(method, "c", b.keys[2], ErrorCode.INVALID_REQUEST)
    assert rpc.decode_response(method, rpc.encode_response(refused)) == refused
    answer = FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2, 9, snapshot_id=ID)
    fetch = rpc.METHODS[FetchRequest]
    assert rpc.decode_response(fetch, rpc.encode_response(answer)) == answer


def test_refusal_is_answered_at_once() -> None:
    b = _leader()
    request = FetchSnapshotRequest("c", b.keys[3], 9, ID, 0, 100)
    b.send(request)
    assert len(b.of(Reply)) == 1
