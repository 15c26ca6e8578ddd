"""Changing the voters, as the cores of followers and observers see it (KIP-853)."""

from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Send, TruncateTo, VotersChanged
from pykraft.quorum.core.events import RequestFailed, ResponseReceived, TimerFired
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BatchSpan,
    BeginQuorumEpochRequest,
    DivergingEpoch,
    FetchRequest,
    FetchResponse,
    RemoveRaftVoterRequest,
    Request,
    UpdateRaftVoterRequest,
    VoterChangeResponse,
    VoteRequest,
)
from pykraft.quorum.core.roles import Candidate, ElectionState, Follower, Leader, Prospective, Resigned
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from tests.narrowing import present
from tests.quorum.bench import CoreBench
from tests.quorum.fields import WholeFetchResponseFields
from tests.quorum.voter_changes import OTHER_DISK, address, catch_up, voter, voters_of


def follower(
    node_id: int = 2,
    end_offset: int = 1,
    local: ReplicaKey | None = None,
    local_address: Address | None = None,
    config: QuorumConfig | None = None,
) -> CoreBench:
    """A follower of 1 in epoch 1, with one record of that epoch."""
    return CoreBench(
        node_id=node_id,
        election=ElectionState(1, 1),
        epoch_starts=[(1, 0)],
        end_offset=end_offset,
        local=local,
        local_address=local_address,
        config=config,
    )


def answer_fetch(b: CoreBench, **changed: Unpack[WholeFetchResponseFields]) -> None:
    """The leader answers the open fetch, by default without new records."""
    response = FetchResponse("c", b.keys[1], ErrorCode.NONE, 1, 1, 1)
    b.step(ResponseReceived(present(b.role(Follower).fetch_correlation), replace(response, **changed)))


def receive(b: CoreBench, voters: VoterSet, high_watermark: int = 1) -> None:
    span = BatchSpan(1, 2, 1, voters)
    answer_fetch(b, batches=(span,), payload="records", high_watermark=high_watermark)


def test_voter_set_applies_from_its_append_until_a_truncation() -> None:
    b = follower(node_id=4)
    assert not b.state.is_voter
    receive(b, b.voters.with_voter(voter(b, 4)))
    assert b.state.is_voter and [e.voters.ids for e in b.of(VotersChanged)] == [(1, 2, 3, 4)]
    b.flush()
    b.send(BeginQuorumEpochRequest("c", b.keys[2], b.keys[4], 2, address(2)))
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 2, 2, 1, diverging=DivergingEpoch(1, 1)))
    assert b.of(TruncateTo) == [TruncateTo(1)]
    assert not b.state.is_voter and b.state.voters == b.voters
    assert [e.voters.ids for e in b.of(VotersChanged)] == [(1, 2, 3)]


def test_new_voter_starts_an_election_when_its_leader_is_silent_and_a_removed_one_does_not() -> None:
    b = follower(node_id=4)
    receive(b, b.voters.with_voter(voter(b, 4)))
    b.flush()
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Prospective)
    b = follower()
    receive(b, b.voters.without(2), high_watermark=2)
    b.flush()
    assert b.state.high_watermark == 2
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Follower)


def test_voter_whose_removal_is_not_committed_starts_an_election_without_counting_itself() -> None:
    """It may be the only replica with the removal: 2 cannot win without its vote, and does not get it."""
    b = CoreBench(
        voters=2,
        election=ElectionState(1, 1),
        epoch_starts=[(1, 0)],
        end_offset=2,
        history=VoterHistory(voters_of(2), [(1, voters_of(2).without(1))]),
    )
    assert not b.state.is_voter
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Prospective) and b.state.role.granted == set()
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Candidate) and b.state.role.granted == set()
    b.answer(b.vote_for(2))
    assert isinstance(b.state.role, Leader)
    b.flush()
    assert b.state.high_watermark == 0
    catch_up(b, 2)
    assert b.state.high_watermark == 3 and isinstance(b.state.role, Resigned)


def test_candidate_outside_the_voter_set_gets_a_vote_and_such_a_leader_is_followed() -> None:
    b = follower()
    b.step(TimerFired(), after_ms=10_000)
    assert b.ask(VoteRequest("c", b.keys[5], b.keys[2], 2, 1, 9)).vote_granted
    answer = b.ask(BeginQuorumEpochRequest("c", b.keys[5], b.keys[2], 2, address(5)))
    assert answer.error is ErrorCode.NONE and answer.leader_address == address(5)
    (fetch,) = b.of(Send)
    assert (fetch.to, fetch.address) == (5, address(5))


def test_replaced_disk_does_not_vote_under_its_old_identity() -> None:
    b = CoreBench(node_id=2, local=ReplicaKey(2, OTHER_DISK))
    answer = b.ask(VoteRequest("c", b.keys[1], b.keys[2], 5, 0, 0))
    assert answer.error is ErrorCode.INVALID_VOTER_KEY and not answer.vote_granted


def test_replica_without_voters_asks_the_bootstrap_servers_and_follows_the_leader_they_name() -> None:
    config = QuorumConfig(bootstrap_servers=(address(2), address(4)))
    b = CoreBench(node_id=4, local_address=address(4), history=VoterHistory(NO_VOTERS), config=config)
    (fetch,) = b.of(Send)
    assert fetch.to < 0 and fetch.address == address(2)  # not itself
    hint = FetchResponse("c", b.keys[2], ErrorCode.FENCED_LEADER_EPOCH, 3, 1, leader_address=address(1))
    b.step(ResponseReceived(fetch.correlation_id, hint))
    assert isinstance(b.state.role, Follower) and [s.address for s in b.of(Send)] == [address(1)]


def test_start_without_voters_and_bootstrap_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="no voters are known"):
        CoreBench(history=VoterHistory(NO_VOTERS))


def caught_up(b: CoreBench) -> list[Request]:
    """The leader answers without new records."""
    answer_fetch(b)
    return [s.request for s in b.of(Send) if not isinstance(s.request, FetchRequest)]


def test_controller_joins_by_itself_once_it_has_caught_up() -> None:
    config = QuorumConfig(auto_join=True)
    b = follower(node_id=4, local_address=address(4), config=config)
    assert [type(s.request) for s in b.of(Send)] == [FetchRequest]
    (request,) = caught_up(b)
    assert isinstance(request, AddRaftVoterRequest) and request.voter == voter(b, 4)
    assert not request.ack_when_committed  # the commit may need its fetches
    assert caught_up(follower(node_id=4, local_address=address(4))) == []


def test_controller_with_a_replaced_disk_has_the_old_one_removed_first() -> None:
    config = QuorumConfig(auto_join=True)
    b = follower(local=ReplicaKey(2, OTHER_DISK), local_address=address(2), config=config)
    (request,) = caught_up(b)
    assert request == RemoveRaftVoterRequest("c", b.keys[2], 1000, only_if_silent=True)
    b.answer(VoterChangeResponse("c", b.keys[1], ErrorCode.NONE, 1, 1))
    assert not [s for s in b.of(Send) if not isinstance(s.request, FetchRequest)]
    receive(b, b.voters.without(2))
    b.flush()
    b.step(TimerFired(), after_ms=1000)
    requests = [s.request for s in b.of(Send) if not isinstance(s.request, FetchRequest)]
    assert [type(request) for request in requests] == [AddRaftVoterRequest]


def test_voter_with_a_new_address_reports_it_to_the_leader_until_the_set_has_it() -> None:
    b = follower(local_address=address(77))
    (request,) = caught_up(b)
    assert request == UpdateRaftVoterRequest("c", Voter(b.keys[2], address(77)), 1000)
    correlation_id = next(c for c in b.state.in_flight if c == b.role(Follower).change_correlation)
    b.step(RequestFailed(correlation_id))
    b.step(TimerFired(), after_ms=1000)
    assert [type(s.request) for s in b.of(Send)] == [UpdateRaftVoterRequest]
    receive(b, VoterSet([voter(b, 1), Voter(b.keys[2], address(77)), voter(b, 3)]))
    b.step(RequestFailed(present(b.role(Follower).change_correlation)))
    b.flush()
    answer_fetch(b)
    b.step(TimerFired(), after_ms=1900)
    assert b.of(Send) == [] and b.role(Follower).change_correlation is None


def test_leader_that_removes_itself_is_followed_until_it_resigns() -> None:
    b = follower()
    receive(b, b.voters.without(1))
    b.flush()
    assert [s.address for s in b.of(Send)] == [address(1)]


def test_observer_whose_leader_does_not_respond_learns_its_new_address() -> None:
    b = follower(node_id=4)
    b.step(RequestFailed(present(b.role(Follower).fetch_correlation)))
    b.step(TimerFired(), after_ms=10_000)
    asked = next(iter(b.state.in_flight.values()))
    notified = FetchResponse(
        "c", b.keys[asked.id], ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1, leader_address=address(9)
    )
    b.step(ResponseReceived(present(b.role(Follower).fetch_correlation), notified))
    assert b.state.leader_address == address(9)


def test_follower_learns_its_leaders_new_address_from_the_leader() -> None:
    b = follower()
    b.send(BeginQuorumEpochRequest("c", b.keys[1], b.keys[2], 1, address(9)))
    assert b.state.leader_address == address(9)
