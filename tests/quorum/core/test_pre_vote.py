"""Pre-votes: which replicas grant them, and that asking for them changes nothing (KIP-996)."""

from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import LeaderChanged, PersistElectionState, Send
from pykraft.quorum.core.events import RequestFailed, ResponseReceived, ShutdownRequested, TimerFired
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchResponse,
    VoteRequest,
)
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
from tests.quorum.fields import VoteFields


def _pre_vote(
    b: CoreBench,
    candidate: int = 3,
    epoch: int = 5,
    last_epoch: int = 0,
    last_offset: int = 0,
    **changed: Unpack[VoteFields],
) -> VoteRequest:
    request = VoteRequest("c", b.keys[candidate], b.state.local, epoch, last_epoch, last_offset, True)
    return replace(request, **changed)


def _follower() -> CoreBench:
    """A follower of 2 in epoch 5 that has just got an answer from it."""
    b = CoreBench(election=ElectionState(5, 2))
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2))
    return b


def test_pre_vote_persists_nothing_and_keeps_the_epoch() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    b.ask_first()
    assert isinstance(b.state.role, Prospective)
    assert b.of(PersistElectionState) == [] and b.state.election == ElectionState(5, 2)
    requests = [as_type(effect.request, VoteRequest) for effect in b.of(Send)]
    assert {request.voter.id for request in requests} == {2, 3}
    assert all(request.pre_vote and request.epoch == 5 for request in requests)
    assert b.of(LeaderChanged) == [LeaderChanged(None, 5)]


def test_majority_of_pre_votes_makes_a_candidate_of_the_next_epoch_in_the_same_step() -> None:
    b = CoreBench(voters=5)
    b.ask_first()
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Prospective)
    b.answer(b.vote_for(3))
    assert isinstance(b.state.role, Candidate) and b.state.role.granted == {1}
    assert b.of(PersistElectionState) == [PersistElectionState(ElectionState(1, None, b.keys[1]))]
    assert {(e.to, as_type(e.request, VoteRequest).pre_vote) for e in b.of(Send)} == {
        (n, False) for n in (2, 3, 4, 5)
    }


def test_granted_pre_vote_is_no_vote() -> None:
    b = CoreBench(voters=5)
    b.ask_first()
    early = b.vote_for(2)
    b.answer(early)
    b.answer(b.vote_for(3))
    b.answer(replace(early, epoch=1))
    assert isinstance(b.state.role, Candidate) and b.state.role.granted == {1}


@pytest.mark.parametrize("epoch", [5, 9])
def test_pre_vote_changes_nothing_at_the_voter_that_grants_it(epoch: int) -> None:
    b = CoreBench(election=ElectionState(5))
    deadline_ms = b.role(Unattached).election_deadline_ms
    answer = b.ask(_pre_vote(b, epoch=epoch))
    assert answer.vote_granted and answer.pre_vote and answer.epoch == 5
    assert b.of(PersistElectionState) == [] and b.state.election == ElectionState(5)
    assert b.role(Unattached).election_deadline_ms == deadline_ms
    assert b.ask(_pre_vote(b, candidate=2)).vote_granted  # any number of voters may ask


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(2, 10, True), (2, 11, True), (5, 1, True), (2, 9, False), (1, 99, False)],
)
def test_pre_vote_needs_a_log_at_least_as_up_to_date(
    last_epoch: int, last_offset: int, granted: bool
) -> None:
    b = CoreBench(election=ElectionState(2), epoch_starts=[(1, 0), (2, 5)], end_offset=10)
    answer = b.ask(_pre_vote(b, last_epoch=last_epoch, last_offset=last_offset))
    assert answer.error is ErrorCode.NONE and answer.vote_granted is granted


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"voter": ReplicaKey(9)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter": ReplicaKey(1, Uuid(b"another dir id.."))}, ErrorCode.INVALID_VOTER_KEY),
        ({"last_epoch": 6}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_pre_votes_are_refused(changed: VoteFields, error: ErrorCode) -> None:
    b = CoreBench(election=ElectionState(5))
    answer = b.ask(_pre_vote(b, **changed))
    assert answer.error is error and not answer.vote_granted


def test_follower_refuses_while_its_leader_answers_and_grants_once_it_is_silent() -> None:
    b = _follower()
    assert not b.ask(_pre_vote(b)).vote_granted
    b.now_ms += 999
    assert not b.ask(_pre_vote(b, epoch=8)).vote_granted
    b.now_ms += 1
    assert isinstance(b.state.role, Follower) and b.ask(_pre_vote(b)).vote_granted


def test_follower_that_has_not_fetched_from_its_leader_yet_grants() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    assert isinstance(b.state.role, Follower) and b.ask(_pre_vote(b)).vote_granted
    b.send(BeginQuorumEpochRequest("c", b.keys[2], b.state.local, 5))
    assert not b.ask(_pre_vote(b)).vote_granted


def test_leader_refuses_and_names_itself() -> None:
    b = CoreBench()
    b.lead()
    answer = b.ask(_pre_vote(b, epoch=1, last_epoch=1, last_offset=9))
    assert not answer.vote_granted and answer.leader_id == 1


def test_former_leader_grants() -> None:
    b = CoreBench(election=ElectionState(5, 1))
    assert isinstance(b.state.role, Resigned) and b.ask(_pre_vote(b)).vote_granted


def test_answer_of_the_leader_itself_ends_the_pre_vote_but_that_of_another_replica_does_not() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    b.ask_first()
    b.answer(b.vote_for(3, granted=False, leader_id=2))
    assert isinstance(b.state.role, Prospective)
    b.answer(b.vote_for(2, granted=False, leader_id=2))
    assert isinstance(b.state.role, Follower) and b.state.election == ElectionState(5, 2)
    assert b.of(PersistElectionState) == []


def test_unknown_leader_named_by_another_replica_is_followed() -> None:
    b = CoreBench(election=ElectionState(5))
    b.ask_first()
    b.answer(b.vote_for(3, granted=False, leader_id=2))
    assert isinstance(b.state.role, Follower) and b.state.role.leader_id == 2


def test_announcement_ends_the_pre_vote() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    b.ask_first()
    begin = BeginQuorumEpochRequest("c", b.keys[2], b.state.local, 5)
    assert b.ask(replace(begin, leader=b.keys[3])).error is ErrorCode.INVALID_REQUEST
    assert isinstance(b.state.role, Prospective)
    assert b.ask(begin).error is ErrorCode.NONE
    assert isinstance(b.state.role, Follower)


def test_higher_epoch_in_a_refusal_is_adopted_and_its_pre_vote_follows_soon() -> None:
    b = CoreBench(election=ElectionState(5))
    b.ask_first()
    b.answer(b.vote_for(3, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=9))
    role = b.state.role
    assert isinstance(role, Unattached) and b.state.epoch == 9
    assert role.election_deadline_ms <= b.now_ms + 50


def test_prospective_may_still_vote_in_its_epoch() -> None:
    b = CoreBench(election=ElectionState(5))
    b.ask_first()
    vote = VoteRequest("c", b.keys[3], b.state.local, 5, 0, 0)
    assert b.ask(vote).vote_granted
    assert b.state.election == ElectionState(5, None, b.keys[3]) and isinstance(b.state.role, Unattached)


def test_refused_pre_votes_back_off_and_never_raise_the_epoch() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    b.ask_first()
    for retries in range(12):
        role = b.state.role
        assert isinstance(role, Prospective) and role.retries == retries
        b.answer(b.vote_for(3, granted=False, leader_id=2))
        correlation_id = next(c for c, to in b.state.in_flight.items() if to.id == 2)
        b.step(RequestFailed(correlation_id))
        assert role.lost and 1 <= role.deadline_ms - b.now_ms <= 1000
        b.step(TimerFired(), after_ms=role.deadline_ms - b.now_ms)
    assert b.state.epoch == 5


def test_candidate_that_lost_starts_again_with_a_pre_vote() -> None:
    b = CoreBench()
    b.start_election()
    for node_id in (2, 3):
        b.answer(b.vote_for(node_id, granted=False))
    b.step(TimerFired(), after_ms=1_000)
    assert isinstance(b.state.role, Prospective) and b.state.epoch == 1


def test_successor_skips_the_pre_vote_and_gets_votes_at_once_from_informed_voters() -> None:
    successor = _follower()
    end = EndQuorumEpochRequest("c", successor.keys[2], successor.state.local, 5, (successor.keys[1],))
    successor.send(end)
    assert isinstance(successor.state.role, Candidate) and successor.state.epoch == 6
    notified = _follower()
    notified.send(replace(end, preferred_successors=(notified.keys[3], notified.keys[1])))
    assert notified.ask(_pre_vote(notified)).vote_granted


def test_answer_in_flight_when_the_epoch_ended_does_not_delay_the_succession() -> None:
    b = _follower()
    keys = (b.keys[3], b.keys[1])
    b.send(EndQuorumEpochRequest("c", b.keys[2], b.state.local, 5, keys))
    deadline_ms = b.role(Follower).fetch_deadline_ms
    correlation_id = b.role(Follower).fetch_correlation
    b.step(ResponseReceived(present(correlation_id), FetchResponse("c", b.keys[2], ErrorCode.NONE, 5, 2)))
    assert b.role(Follower).fetch_deadline_ms == deadline_ms == b.now_ms + 500
    b.step(TimerFired(), after_ms=500)
    assert isinstance(b.state.role, Candidate)


def test_stopping_replica_starts_no_pre_vote() -> None:
    b = CoreBench()
    b.ask_first()
    b.step(ShutdownRequested())
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Prospective) and b.core.next_deadline_ms is None
    b.step(TimerFired(), after_ms=60_000)
    assert b.of(Send) == []


def test_stopping_candidate_may_still_win_but_starts_no_new_election() -> None:
    b = CoreBench()
    b.start_election()
    b.step(ShutdownRequested())
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Leader)
