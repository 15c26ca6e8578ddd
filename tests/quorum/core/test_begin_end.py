"""A leader announces itself with BeginQuorumEpoch, and resigns with EndQuorumEpoch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import LeaderChanged, PersistElectionState, Reply, Send
from pykraft.quorum.core.events import RequestFailed, ShutdownRequested, TimerFired
from pykraft.quorum.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
)
from pykraft.quorum.core.roles import Candidate, ElectionState, Follower, Resigned, Unattached
from pykraft.quorum.core.voters import ReplicaKey
from tests.narrowing import as_type
from tests.quorum.bench import CoreBench
from tests.quorum.fields import BeginFields


def _begin(b: CoreBench, **changed: Unpack[BeginFields]) -> BeginQuorumEpochRequest:
    return replace(BeginQuorumEpochRequest("c", b.keys[2], b.state.local, 5), **changed)


def _end(b: CoreBench, successors: Sequence[int], leader: int = 2, epoch: int = 5) -> EndQuorumEpochRequest:
    keys = tuple(b.keys[i] for i in successors)
    return EndQuorumEpochRequest("c", b.keys[leader], b.state.local, epoch, keys)


def test_announcement_makes_a_follower_and_is_durable_before_it_is_answered() -> None:
    b = CoreBench()
    assert b.ask(_begin(b)).error is ErrorCode.NONE
    kinds = [type(e) for e in b.effects]
    assert kinds.index(PersistElectionState) < kinds.index(Reply)
    assert isinstance(b.state.role, Follower)
    assert b.of(LeaderChanged)[-1].leader == b.keys[2]
    assert b.of(Send)[0].to == 2


def test_end_of_a_newer_leader_that_is_no_voter_known_here_is_taken_without_an_address() -> None:
    b = CoreBench(static=True)
    assert b.ask(replace(_end(b, (), leader=4), voter=b.keys[1])).error is ErrorCode.NONE
    assert (b.role(Follower).leader_id, b.state.epoch, b.state.leader_address) == (4, 5, None)


def test_announcement_in_the_epoch_of_our_vote_keeps_the_vote() -> None:
    b = CoreBench(election=ElectionState(5, None, ReplicaKey(3)))
    b.send(_begin(b))
    assert b.state.election == ElectionState(5, 2, ReplicaKey(3))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"voter": ReplicaKey(3)}, ErrorCode.INVALID_VOTER_KEY),
        ({"leader": ReplicaKey(8)}, ErrorCode.INVALID_REQUEST),
        ({"leader": ReplicaKey(1)}, ErrorCode.INVALID_REQUEST),
        ({"leader": ReplicaKey(3)}, ErrorCode.INVALID_REQUEST),  # the epoch has another leader
    ],
)
def test_bad_announcements_are_refused_and_change_nothing(changed: BeginFields, error: ErrorCode) -> None:
    b = CoreBench(election=ElectionState(5, 2))
    before = b.state.election
    assert b.ask(_begin(b, **changed)).error is error
    assert b.state.election == before


def test_leader_repeats_its_announcement_until_it_is_acknowledged() -> None:
    b = CoreBench()
    b.lead()
    for _ in range(3):
        for correlation_id in list(b.state.in_flight):
            b.step(RequestFailed(correlation_id))
        b.step(TimerFired(), after_ms=100)
        assert {e.to for e in b.of(Send)} == {2, 3}


def test_acknowledged_announcement_is_repeated_only_to_voters_that_do_not_fetch() -> None:
    b = CoreBench()
    b.lead()
    for node_id in (2, 3):
        b.answer(BeginQuorumEpochResponse("c", b.keys[node_id], ErrorCode.NONE, 1, 1))
    b.now_ms += 600
    b.fetch(2, 1, 1, high_watermark=1)
    b.step(TimerFired(), after_ms=400)
    assert {e.to for e in b.of(Send)} == {3}


def test_stale_leader_learns_of_the_newer_epoch_from_the_refusal() -> None:
    b = CoreBench()
    b.lead()
    refusal = BeginQuorumEpochResponse("c", b.keys[2], ErrorCode.FENCED_LEADER_EPOCH, 9, 3)
    b.answer(refusal)
    assert isinstance(b.state.role, Follower) and b.state.epoch == 9 and b.state.role.leader_id == 3


def test_first_successor_starts_an_election_at_once_and_the_next_later() -> None:
    first = CoreBench(election=ElectionState(5, 2))
    first.send(_end(first, [1, 3]))
    assert isinstance(first.state.role, Candidate) and first.state.epoch == 6
    second = CoreBench(election=ElectionState(5, 2))
    second.send(_end(second, [3, 1]))
    assert isinstance(second.state.role, Follower)
    assert second.state.role.fetch_deadline_ms == second.now_ms + 500
    second.step(TimerFired(), after_ms=500)
    assert isinstance(second.state.role, Candidate)


def test_stopping_leader_hands_over_to_the_longest_log_and_ends_when_acknowledged() -> None:
    b = CoreBench()
    b.lead()
    b.fetch(3, 1, 1, high_watermark=1)
    b.step(ShutdownRequested())
    assert isinstance(b.state.role, Resigned)
    requests = [e.request for e in b.of(Send)]
    assert as_type(requests[0], EndQuorumEpochRequest).preferred_successors == (b.keys[3], b.keys[2])
    assert not b.core.has_handed_over
    b.answer(EndQuorumEpochResponse("c", b.keys[3], ErrorCode.NONE, 1, None))
    b.step(RequestFailed(next(iter(b.state.in_flight))))
    assert b.core.has_handed_over
    b.step(TimerFired(), after_ms=60_000)
    assert isinstance(b.state.role, Resigned)  # it does not start another election
    assert b.core.next_deadline_ms is None


def test_resignation_of_a_replica_that_does_not_lead_the_epoch_is_refused_and_has_no_effect() -> None:
    b = CoreBench(election=ElectionState(5, 2))
    deadline_ms = b.role(Follower).fetch_deadline_ms
    answer = b.ask(_end(b, (1,), leader=3))
    assert (answer.error, answer.leader_id) == (ErrorCode.INVALID_REQUEST, 2)
    role = b.role(Follower)
    assert role.fetch_deadline_ms == deadline_ms and not role.epoch_has_ended


def test_successor_that_knows_no_leader_of_the_epoch_starts_an_election_at_once() -> None:
    b = CoreBench(election=ElectionState(5))
    b.role(Unattached)
    assert b.ask(_end(b, [1])).error is ErrorCode.NONE
    b.step(TimerFired())
    b.role(Candidate)


def test_announcement_is_repeated_in_good_time_however_short_the_timeouts_are() -> None:
    config = QuorumConfig(election_timeout_ms=1, request_timeout_ms=100)
    assert config.begin_request_timeout_ms == 1
    assert QuorumConfig(election_timeout_ms=500, request_timeout_ms=100).begin_request_timeout_ms == 100
    assert QuorumConfig(election_timeout_ms=100, request_timeout_ms=500).begin_request_timeout_ms == 50


def test_follower_that_learns_of_a_newer_epoch_waits_no_longer_than_for_an_election() -> None:
    """It may have fetched just now, and fetches may be waited for longer than elections."""
    config = QuorumConfig(election_timeout_ms=100, fetch_timeout_ms=10_000)
    b = CoreBench(config=config, end_offset=5, epoch_starts=[(1, 0)], election=ElectionState(1))
    b.send(_begin(b))
    assert b.role(Follower).fetch_deadline_ms >= b.now_ms + 10_000
    b.ask(VoteRequest("c", b.keys[3], b.state.local, 6, 0, 0))
    assert b.role(Unattached).election_deadline_ms <= b.now_ms + 200
