"""Replication by pulling, and the high watermark, on the core alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import (
    AdvanceHighWatermark,
    AppendFetched,
    FlushLog,
    PeerDisbelieved,
    Reply,
    ReplyWithRecords,
    Send,
    TruncateTo,
)
from pykraft.quorum.core.events import LogFlushed, Proposed, RequestFailed, ResponseReceived, TimerFired
from pykraft.quorum.core.messages import BatchSpan, DivergingEpoch, FetchRequest, FetchResponse
from pykraft.quorum.core.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from pykraft.quorum.core.voters import ReplicaKey
from tests.narrowing import as_type, present
from tests.quorum.bench import CoreBench
from tests.quorum.fields import FetchResponseFields, WholeFetchFields


def _follower(epoch_starts: Sequence[tuple[int, int]] = (), end_offset: int = 0) -> CoreBench:
    b = CoreBench(election=ElectionState(5, 2), epoch_starts=epoch_starts, end_offset=end_offset)
    assert isinstance(b.state.role, Follower)
    return b


def _records(
    b: CoreBench,
    *spans: tuple[int, int, int],
    high_watermark: int = 0,
    **changed: Unpack[FetchResponseFields],
) -> FetchResponse:
    batches = tuple(BatchSpan(*span) for span in spans)
    answer = FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2, high_watermark, None, batches, "bytes")
    return replace(answer, **changed)


# --- the leader ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"fetch_offset": 3, "last_fetched_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_fetches_are_refused(changed: WholeFetchFields, error: ErrorCode) -> None:
    b = CoreBench()
    b.lead()
    answer = b.fetch(2, 0, 0, **changed)
    assert present(answer).error is error and present(answer).epoch == 1 and present(answer).leader_id == 1
    assert b.role(Leader).progress[2].end_offset == 0


def test_leader_that_gets_a_request_of_a_later_epoch_resigns_even_if_only_an_observer_knows_it() -> None:
    """The observer would never follow this leader, and no other replica may know of the epoch."""
    b = CoreBench(voters=3)
    b.lead()
    answer = b.fetch(4, 0, 0, epoch=3)
    assert (present(answer).error, present(answer).epoch, present(answer).leader_id) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        3,
        None,
    )
    assert isinstance(b.state.role, Unattached) and b.state.epoch == 3
    b.start_election()
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Leader) and b.state.epoch == 4


def test_replica_that_does_not_lead_refuses_and_names_the_leader() -> None:
    b = _follower()
    answer = b.fetch(3, 0, 0)
    assert present(answer).error is ErrorCode.NOT_LEADER_OR_FOLLOWER and present(answer).leader_id == 2


def test_high_watermark_is_what_a_majority_has_flushed() -> None:
    b = CoreBench(voters=5)
    b.start_election()
    b.answer(b.vote_for(2))
    b.answer(b.vote_for(3))
    b.step(Proposed(1, 4, "x"))
    b.flush()
    b.fetch(2, 5, 1)
    assert b.state.high_watermark == 0
    b.fetch(3, 3, 1)
    assert b.state.high_watermark == 3
    b.fetch(4, 5, 1)
    assert b.state.high_watermark == 5


def test_leaders_own_unflushed_records_do_not_count() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(2, 1, 1)
    assert b.state.high_watermark == 1
    b.step(Proposed(1, 2, "x"))
    b.fetch(2, 3, 1)
    assert b.state.high_watermark == 1
    b.flush()
    assert b.state.high_watermark == 3


def test_two_followers_commit_without_the_leaders_disk() -> None:
    b = CoreBench()
    b.lead()
    b.step(Proposed(1, 2, "x"))
    b.fetch(2, 3, 1)
    b.fetch(3, 3, 1)
    assert b.state.log.flushed_offset == 1 and b.state.high_watermark == 3


def test_records_of_an_earlier_epoch_commit_only_with_one_of_our_own() -> None:
    b = CoreBench(election=ElectionState(1, 1), epoch_starts=[(1, 0)], end_offset=6)
    b.lead()
    assert b.state.epoch == 2
    b.fetch(2, 6, 1)
    assert b.state.high_watermark == 0
    b.fetch(2, 7, 2)
    assert b.state.high_watermark == 7


def test_observer_does_not_count_and_neither_does_a_voters_other_disk() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(4, 1, 1)
    b.fetch(2, 1, 1, replica=ReplicaKey(2, b.keys[8].directory_id))
    assert b.state.high_watermark == 0
    assert len(b.role(Leader).observers) == 2


def test_voter_given_by_id_alone_counts_with_any_directory() -> None:
    b = CoreBench(static=True)
    b.start_election()
    b.answer(b.vote_for(2))
    b.flush()
    b.fetch(2, 1, 1)
    assert b.state.high_watermark == 1


def test_progress_of_a_voter_does_not_count_for_the_disk_that_replaced_its_own() -> None:
    b = CoreBench(static=True)
    b.start_election()
    b.answer(b.vote_for(2))
    b.flush()
    b.fetch(3, 0, 0)
    b.fetch(2, 1, 1)
    assert b.state.high_watermark == 1
    b.step(Proposed(1, 3, "x"))
    b.fetch(2, 4, 1)
    b.fetch(2, 0, 0, replica=ReplicaKey(2, b.keys[8].directory_id))
    b.flush()
    assert b.state.high_watermark == 1, "the disk that held the rest is gone"
    b.fetch(2, 4, 1, replica=ReplicaKey(2, b.keys[8].directory_id))
    assert b.state.high_watermark == 4


def test_late_fetch_does_not_revert_progress() -> None:
    b = CoreBench()
    b.lead()
    b.step(Proposed(1, 3, "x"))
    b.flush()
    b.fetch(2, 4, 1)
    b.fetch(2, 1, 1)
    assert b.role(Leader).progress[2].end_offset == 4 and b.state.high_watermark == 4


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (9, 4, DivergingEpoch(4, 8)),  # longer in an epoch we have
        (6, 3, DivergingEpoch(2, 5)),  # an epoch we never had
        (3, 1, DivergingEpoch(0, 0)),  # older than all of ours
        (5, 2, None),
        (8, 4, None),
        (0, 0, None),
    ],
)
def test_fetch_that_does_not_match_is_answered_with_the_diverging_epoch(
    offset: int, last_epoch: int, diverging: DivergingEpoch | None
) -> None:
    b = CoreBench(election=ElectionState(4, 1), epoch_starts=[(2, 0), (4, 5)], end_offset=8)
    b.lead()
    answer = b.fetch(2, offset, last_epoch)
    assert present(answer).diverging == diverging
    if diverging is not None:
        assert b.role(Leader).progress[2].end_offset == 0


def test_fetch_waits_for_records_and_is_answered_by_a_proposal() -> None:
    b = CoreBench()
    b.lead()
    assert b.fetch(2, 1, 1, high_watermark=1) is None
    b.step(Proposed(1, 2, "x"))
    (answer,) = b.of(ReplyWithRecords)
    assert (answer.start_offset, answer.end_offset) == (1, 3)
    kinds = [type(e).__name__ for e in b.effects]
    assert kinds.index("AppendProposal") < kinds.index("ReplyWithRecords")


def test_waiting_fetch_is_answered_by_a_commit_it_can_use() -> None:
    b = CoreBench()
    b.lead()
    assert b.fetch(3, 1, 1, high_watermark=1) is None
    b.step(Proposed(1, 1, "x"))
    assert b.fetch(3, 2, 1, high_watermark=1) is None
    b.fetch(2, 2, 1, high_watermark=1)
    assert b.state.high_watermark == 2
    assert len(b.of(Reply)) == 2 and {
        as_type(e.response, FetchResponse).high_watermark for e in b.of(Reply)
    } == {2}
    assert not b.role(Leader).parked, "each is answered once"


def test_waiting_fetch_ends_after_its_time() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(2, 1, 1, high_watermark=1, max_wait_ms=300)
    assert present(b.core.next_deadline_ms) <= b.now_ms + 300
    b.step(TimerFired(), after_ms=299)
    assert b.of(Reply) == []
    b.step(TimerFired(), after_ms=1)
    assert len(b.of(Reply)) == 1 and b.of(Reply)[0].response.error is ErrorCode.NONE


def test_new_fetch_of_a_replica_releases_its_earlier_one() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(2, 1, 1, high_watermark=1)
    b.fetch(2, 1, 1, high_watermark=1)
    assert [e.token for e in b.of(Reply)] == [b.token - 1]
    assert len(b.role(Leader).parked) == 1


def test_leader_without_fetches_from_a_majority_resigns_and_answers_waiting_fetches() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(2, 1, 1, high_watermark=1)
    b.fetch(4, 1, 1, high_watermark=1)
    b.step(TimerFired(), after_ms=2_999)
    assert isinstance(b.state.role, Leader)
    b.fetch(4, 1, 1, high_watermark=1)
    b.step(TimerFired(), after_ms=1)
    assert isinstance(b.state.role, Resigned)
    assert [e.response.error for e in b.of(Reply)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert {type(e.request).__name__ for e in b.of(Send)} == {"EndQuorumEpochRequest"}


# --- the follower ----------------------------------------------------------------------------------------


def test_follower_fetches_from_its_flushed_end_and_waits_for_the_flush() -> None:
    b = _follower()
    (send,) = b.of(Send)
    assert send.to == 2 and as_type(send.request, FetchRequest).fetch_offset == 0
    b.answer(_records(b, (0, 3, 4), (3, 5, 5), high_watermark=5))
    assert [type(e) for e in b.effects] == [AppendFetched, FlushLog]
    assert b.state.high_watermark == 0
    b.flush()
    (send,) = b.of(Send)
    assert (
        as_type(send.request, FetchRequest).fetch_offset,
        as_type(send.request, FetchRequest).last_fetched_epoch,
    ) == (5, 5)
    assert b.of(AdvanceHighWatermark) == [AdvanceHighWatermark(5)]
    assert as_type(send.request, FetchRequest).high_watermark == 5


def test_follower_commits_no_further_than_its_own_flushed_log() -> None:
    b = _follower()
    b.answer(_records(b, (0, 3, 5), high_watermark=100))
    b.flush()
    assert b.state.high_watermark == 3


def test_partial_flush_commits_only_what_it_covers() -> None:
    b = _follower()
    b.answer(_records(b, (0, 3, 5), (3, 6, 5), high_watermark=6))
    b.step(LogFlushed(3, 0))
    assert b.state.high_watermark == 3 and b.of(Send) == []
    b.step(LogFlushed(6, 0))
    assert b.state.high_watermark == 6


@pytest.mark.parametrize(
    "spans",
    [
        [(1, 2, 5)],
        [(0, 1, 5), (2, 3, 5)],
        [(0, 2, 5), (1, 3, 5)],
        [(0, 1, 5), (1, 2, 4)],
        [(0, 1, 6)],
        [(0, 0, 5)],
    ],
)
def test_records_that_do_not_continue_the_log_are_not_used(spans: list[tuple[int, int, int]]) -> None:
    b = _follower()
    b.answer(_records(b, *spans))
    assert b.of(AppendFetched) == [] and b.state.log.end_offset == 0


def test_diverging_follower_truncates_and_asks_again() -> None:
    b = _follower(epoch_starts=[(1, 0), (3, 4), (4, 6)], end_offset=9)
    b.answer(_records(b, diverging=DivergingEpoch(3, 5)))
    kinds = [type(e) for e in b.effects]
    assert kinds == [TruncateTo, Send]
    assert b.of(TruncateTo) == [TruncateTo(5)]
    assert (
        as_type(b.of(Send)[0].request, FetchRequest).fetch_offset,
        as_type(b.of(Send)[0].request, FetchRequest).last_fetched_epoch,
    ) == (5, 3)
    b.answer(_records(b, diverging=DivergingEpoch(2, 4)))
    assert b.of(TruncateTo) == [TruncateTo(4)]


def test_truncation_below_the_high_watermark_is_refused_and_reported() -> None:
    b = _follower()
    b.answer(_records(b, (0, 3, 5), high_watermark=3))
    b.flush()
    b.answer(_records(b, diverging=DivergingEpoch(0, 0)))
    assert b.of(TruncateTo) == [] and b.state.log.end_offset == 3
    assert "offsets below 3 are committed" in b.of(PeerDisbelieved)[0].reason


def test_answer_to_an_older_fetch_is_ignored() -> None:
    b = _follower()
    first = next(iter(b.state.in_flight))
    b.step(RequestFailed(first))
    b.step(TimerFired(), after_ms=20)
    assert len(b.of(Send)) == 1
    b.step(ResponseReceived(first, _records(b, (0, 3, 5))))
    assert b.of(AppendFetched) == []


def test_answer_from_a_replica_that_is_not_the_leader_is_not_used() -> None:
    b = CoreBench(node_id=4, election=ElectionState(5, 2))
    b.step(TimerFired(), after_ms=5_000)
    b.step(RequestFailed(next(iter(b.state.in_flight))))
    while not b.of(Send) or b.of(Send)[0].to == 2:
        for correlation_id in list(b.state.in_flight):
            b.step(RequestFailed(correlation_id))
        b.step(TimerFired(), after_ms=30)
    asked = b.of(Send)[0].to
    b.answer(_records(b, (0, 3, 5), replica=b.keys[asked]))
    assert b.of(AppendFetched) == []


def test_follower_without_successful_fetches_starts_an_election() -> None:
    b = _follower()
    answer = FetchResponse("c", b.keys[2], ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, None)
    for _ in range(5):
        b.answer(answer)
        b.step(TimerFired(), after_ms=20)
    assert isinstance(b.state.role, Follower)
    b.step(TimerFired(), after_ms=2_200)
    assert isinstance(b.state.role, Prospective) and b.state.epoch == 5
    b.answer(b.vote_for(3))
    assert isinstance(b.state.role, Candidate) and b.state.epoch == 6


def test_observer_asks_the_voters_until_it_finds_the_leader() -> None:
    b = CoreBench(node_id=4)
    assert isinstance(b.state.role, Unattached)
    (send,) = b.of(Send)
    assert isinstance(send.request, FetchRequest) and send.request.epoch == 0
    refused = FetchResponse("c", b.keys[send.to], ErrorCode.FENCED_LEADER_EPOCH, 7, 3)
    b.answer(refused)
    assert isinstance(b.state.role, Follower) and b.state.role.leader_id == 3
    assert b.of(Send)[0].to == 3
    b.step(TimerFired(), after_ms=60_000)
    assert not isinstance(b.state.role, Candidate)


def test_fetches_are_held_for_less_than_the_timeouts_of_their_senders() -> None:
    assert QuorumConfig().fetch_wait_ms == 500
    assert QuorumConfig(fetch_timeout_ms=300).fetch_wait_ms == 100
    assert QuorumConfig(request_timeout_ms=150).fetch_wait_ms == 50


def test_late_fetch_of_an_earlier_epoch_counts_neither_as_contact_nor_as_progress() -> None:
    """What it confirms ends before the current epoch begins: it commits nothing, and it is not current."""
    b = CoreBench()
    b.lead()
    b.fetch(2, 1, 1)
    b.step(TimerFired(), after_ms=10_000)  # resigns
    b.start_election()
    b.answer(b.vote_for(3))
    role = b.state.role
    assert isinstance(role, Leader) and b.state.epoch == 2
    b.now_ms += 1
    assert b.fetch_at_once(2, 1, 1, epoch=1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert role.progress[2].end_offset == 0 and role.progress[2].last_fetch_ms == role.elected_at_ms


def test_one_lost_message_does_not_cost_an_election() -> None:
    for config in (
        QuorumConfig(),
        QuorumConfig(request_timeout_ms=30_000),
        QuorumConfig(fetch_timeout_ms=500),
    ):
        again_ms = config.fetch_request_timeout_ms + config.retry_backoff_ms
        assert again_ms + config.fetch_wait_ms < config.fetch_timeout_ms
        assert config.begin_request_timeout_ms + 5 * config.retry_backoff_ms < config.election_timeout_ms


def test_fetches_and_announcements_carry_the_shorter_deadlines() -> None:
    b = CoreBench(election=ElectionState(4, 2, None))
    assert [send.timeout_ms for send in b.of(Send)] == [b.state.config.fetch_request_timeout_ms]
    b = CoreBench()
    b.start_election()
    b.answer(b.vote_for(2))
    assert {send.timeout_ms for send in b.of(Send)} == {b.state.config.begin_request_timeout_ms}
