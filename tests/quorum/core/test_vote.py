"""Elections: candidacy, granting and counting votes."""

from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import AppendLeaderChange, FlushLog, PersistElectionState, Reply, Send
from pykraft.quorum.core.events import RequestFailed, ResponseReceived, TimerFired
from pykraft.quorum.core.messages import VoteRequest
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
from tests.quorum.bench import CoreBench
from tests.quorum.fields import VoteFields


def _request(
    b: CoreBench,
    candidate: int = 2,
    epoch: int = 5,
    last_epoch: int = 0,
    last_offset: int = 0,
    **changed: Unpack[VoteFields],
) -> VoteRequest:
    request = VoteRequest("c", b.keys[candidate], b.state.local, epoch, last_epoch, last_offset)
    return replace(request, **changed)


def test_vote_is_persisted_with_the_directory_id_before_it_is_answered() -> None:
    b = CoreBench()
    assert b.ask(_request(b)).vote_granted
    assert [type(e) for e in b.effects if isinstance(e, PersistElectionState | Reply)] == [
        PersistElectionState,
        Reply,
    ]
    assert b.of(PersistElectionState) == [PersistElectionState(ElectionState(5, None, b.keys[2]))]


def test_second_candidate_of_an_epoch_is_refused_and_the_first_gets_the_same_answer_again() -> None:
    b = CoreBench()
    assert b.ask(_request(b, 2)).vote_granted
    assert not b.ask(_request(b, 3)).vote_granted
    assert b.ask(_request(b, 2)).vote_granted
    assert b.of(PersistElectionState) == []


def test_same_node_with_another_directory_is_another_candidate() -> None:
    b = CoreBench()
    assert b.ask(_request(b, 2)).vote_granted
    other_disk = ReplicaKey(2, b.keys[7].directory_id)
    assert not b.ask(replace(_request(b), candidate=other_disk)).vote_granted


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(2, 10, True), (2, 11, True), (3, 1, True), (2, 9, False), (1, 99, False), (0, 0, False)],
)
def test_only_a_log_at_least_as_up_to_date_gets_the_vote(
    last_epoch: int, last_offset: int, granted: bool
) -> None:
    b = CoreBench(election=ElectionState(2), epoch_starts=[(1, 0), (2, 5)], end_offset=10)
    answer = b.ask(_request(b, last_epoch=last_epoch, last_offset=last_offset))
    assert answer.error is ErrorCode.NONE and answer.vote_granted is granted
    assert b.state.epoch == 5  # the epoch is adopted either way


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"voter": ReplicaKey(9)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter": ReplicaKey(1, Uuid(b"another dir id.."))}, ErrorCode.INVALID_VOTER_KEY),
        ({"last_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_vote_requests_are_refused_and_change_nothing(changed: VoteFields, error: ErrorCode) -> None:
    b = CoreBench(election=ElectionState(2))
    before = b.state.election
    answer = b.ask(_request(b, **changed))
    assert answer.error is error and not answer.vote_granted
    assert b.state.election == before and b.of(PersistElectionState) == []


def test_observer_votes_as_it_may_be_a_voter_without_knowing_it() -> None:
    b = CoreBench(node_id=4)
    assert b.ask(_request(b)).vote_granted


def test_observer_of_fixed_voters_refuses_to_vote() -> None:
    b = CoreBench(node_id=4, static=True)
    assert b.ask(_request(b, voter=ReplicaKey(4))).error is ErrorCode.INCONSISTENT_VOTER_SET


@pytest.mark.parametrize("pre_vote", [False, True])
def test_candidate_that_the_fixed_voters_do_not_name_gets_no_vote(pre_vote: bool) -> None:
    """Its own configuration may name it, but no replica would follow it."""
    b = CoreBench(static=True)
    request = _request(b, voter=ReplicaKey(1), pre_vote=pre_vote)
    answer = b.ask(replace(request, candidate=b.keys[4]))
    assert answer.error is ErrorCode.INCONSISTENT_VOTER_SET and not answer.vote_granted
    assert b.state.election == ElectionState()


def test_follower_and_leader_do_not_vote_in_their_epoch() -> None:
    follower = CoreBench(election=ElectionState(5, 3))
    assert isinstance(follower.state.role, Follower)
    assert not follower.ask(_request(follower, last_offset=99, last_epoch=4)).vote_granted
    leader = CoreBench()
    leader.lead()
    answer = leader.ask(_request(leader, 3, epoch=1, last_offset=99))
    assert not answer.vote_granted and answer.leader_id == 1


def test_replica_that_knows_the_leader_of_the_epoch_grants_no_vote_even_if_its_set_lacks_that_leader() -> (
    None
):
    b = CoreBench(election=ElectionState(5, 4))
    assert isinstance(b.state.role, Unattached)
    assert not b.ask(_request(b, epoch=5)).vote_granted
    assert b.state.election == ElectionState(5, 4)


def test_candidacy_is_durable_before_votes_are_requested() -> None:
    b = CoreBench()
    b.start_election()
    kinds = [type(e) for e in b.effects]
    assert kinds.index(PersistElectionState) < kinds.index(Send)
    assert b.state.election == ElectionState(1, None, b.keys[1])
    assert {e.to for e in b.of(Send)} == {2, 3}


def test_majority_makes_a_leader_that_appends_a_leader_change_first() -> None:
    b = CoreBench()
    b.start_election()
    b.answer(b.vote_for(2))
    kinds = [type(e) for e in b.effects]
    assert kinds.index(PersistElectionState) < kinds.index(AppendLeaderChange) < kinds.index(FlushLog)
    (change,) = b.of(AppendLeaderChange)
    assert (change.offset, change.epoch, change.leader_id) == (0, 1, 1)
    assert change.granting_voters == (b.keys[1], b.keys[2])
    assert b.state.election.leader_id == 1


def test_one_vote_of_five_is_not_a_majority_and_a_repeated_one_does_not_count_twice() -> None:
    b = CoreBench(voters=5)
    b.start_election()
    correlation_id = next(c for c, to in b.state.in_flight.items() if to.id == 2)
    b.answer(b.vote_for(2))
    b.step(ResponseReceived(correlation_id, b.vote_for(2)))
    assert isinstance(b.state.role, Candidate)
    b.answer(b.vote_for(3))
    assert isinstance(b.state.role, Leader)


def test_vote_from_another_disk_at_a_voters_address_does_not_count() -> None:
    b = CoreBench()
    b.start_election()
    stranger = ReplicaKey(2, b.keys[8].directory_id)
    b.answer(b.vote_for(2, replica=stranger))
    assert isinstance(b.state.role, Candidate) and b.state.role.granted == {1}


def test_vote_of_an_earlier_election_does_not_count() -> None:
    b = CoreBench()
    b.start_election()
    old = dict(b.state.in_flight)
    late = b.vote_for(2)
    b.step(TimerFired(), after_ms=10_000)
    b.start_election()
    assert isinstance(b.state.role, Candidate) and b.state.epoch > late.epoch
    for correlation_id in old:
        b.step(ResponseReceived(correlation_id, late))
    assert isinstance(b.state.role, Candidate) and b.state.role.granted == {1}


def test_higher_epoch_in_an_answer_ends_the_candidacy() -> None:
    b = CoreBench()
    b.start_election()
    b.answer(b.vote_for(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=9))
    assert isinstance(b.state.role, Unattached) and b.state.epoch == 9
    b.start_election()
    b.answer(b.vote_for(3, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=20, leader_id=2))
    assert isinstance(b.state.role, Follower) and b.state.role.leader_id == 2


def test_lost_election_backs_off_at_random_and_longer_each_time() -> None:
    b = CoreBench()
    b.start_election()
    waits = []
    for _ in range(8):
        role = b.state.role
        assert isinstance(role, Prospective | Candidate)
        for node_id in (2, 3):
            b.answer(b.vote_for(node_id, granted=False))
        assert role.lost
        waits.append(role.deadline_ms - b.now_ms)
        b.step(TimerFired(), after_ms=waits[-1])
        again = b.state.role
        assert isinstance(again, Prospective | Candidate) and again is not role
        assert again.retries == role.retries + 1
    assert all(1 <= wait <= 1000 for wait in waits)
    assert max(waits[:2]) <= 100 < max(waits)


def test_unreachable_voter_is_asked_again_in_the_same_epoch() -> None:
    b = CoreBench()
    b.start_election()
    correlation_id = next(c for c, to in b.state.in_flight.items() if to.id == 3)
    b.step(RequestFailed(correlation_id))
    b.step(TimerFired(), after_ms=20)
    assert [e.to for e in b.of(Send)] == [3]
    b.answer(b.vote_for(3))
    assert isinstance(b.state.role, Leader)


def test_single_voter_leads_at_start() -> None:
    b = CoreBench(voters=1)
    assert isinstance(b.state.role, Leader) and b.state.epoch == 1


def test_restarted_leader_is_resigned_in_its_epoch_and_does_not_vote_in_it() -> None:
    b = CoreBench(election=ElectionState(4, 1, ReplicaKey(1)))
    assert isinstance(b.state.role, Resigned) and b.state.epoch == 4
    assert not b.ask(_request(b, epoch=4, last_epoch=3, last_offset=99)).vote_granted
    b.start_election()
    assert isinstance(b.state.role, Candidate) and b.state.epoch == 5


def test_restarted_candidate_keeps_its_vote_but_does_not_continue() -> None:
    b = CoreBench(election=ElectionState(4, None, ReplicaKey(1)))
    assert isinstance(b.state.role, Unattached)
    assert not b.ask(_request(b, epoch=4, last_epoch=3, last_offset=99)).vote_granted


def test_candidate_that_cannot_win_does_not_delay_the_others() -> None:
    b = CoreBench(election=ElectionState(2), epoch_starts=[(2, 0)], end_offset=10)
    deadline_ms = b.role(Unattached).election_deadline_ms
    for epoch in range(3, 30):
        b.send(_request(b, epoch=epoch, last_epoch=1, last_offset=1))
    assert b.role(Unattached).election_deadline_ms <= deadline_ms


def test_log_newer_than_the_quorum_state_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="quorum-state"):
        CoreBench(election=ElectionState(1), epoch_starts=[(3, 0)], end_offset=4)
