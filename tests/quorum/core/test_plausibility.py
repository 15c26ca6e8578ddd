"""Impossible messages are refused before anything is written, and no correct replica is locked out."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum import calls, rpc
from pykraft.quorum.calls import Calls
from pykraft.quorum.core.effects import PeerDisbelieved, PersistElectionState, TruncateTo
from pykraft.quorum.core.events import Event, RequestAbandoned, TimerFired
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DivergingEpoch,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
)
from pykraft.quorum.core.plausibility import MAX_EPOCH, MAX_OFFSET, MOST_SUCCESSORS, EpochsExhaustedError
from pykraft.quorum.core.reconfig import MAX_WAIT_MS, MAX_WAITING
from pykraft.quorum.core.roles import ElectionState, Follower, Leader, Prospective, Unattached
from pykraft.quorum.core.state import MOST_AHEAD
from pykraft.quorum.core.voters import ReplicaKey, Voter
from pykraft.quorum.pb import quorum_pb2 as pb
from pykraft.runtime.address import Address
from pykraft.runtime.grpc_rpc import GrpcTransport
from tests.narrowing import as_type
from tests.quorum.bench import CoreBench
from tests.quorum.fields import (
    BeginFields,
    EndFields,
    FetchFields,
    FetchSnapshotFields,
    WholeFetchResponseFields,
    WholeVoteFields,
)
from tests.rpc_handlers import RpcHandlers
from tests.unexpected import unexpected

EPOCH = 5
INT32_MAX = 2**31 - 1


def vote(b: CoreBench, epoch: int, **changed: Unpack[WholeVoteFields]) -> VoteRequest:
    request = VoteRequest("c", b.keys[2], b.state.local, epoch, 0, 0)
    return replace(request, **changed)


def begin(b: CoreBench, epoch: int, **changed: Unpack[BeginFields]) -> BeginQuorumEpochRequest:
    return replace(BeginQuorumEpochRequest("c", b.keys[2], b.state.local, epoch), **changed)


def end(b: CoreBench, epoch: int, **changed: Unpack[EndFields]) -> EndQuorumEpochRequest:
    return replace(EndQuorumEpochRequest("c", b.keys[2], b.state.local, epoch, ()), **changed)


def fetch(b: CoreBench, epoch: int, **changed: Unpack[FetchFields]) -> FetchRequest:
    return replace(FetchRequest("c", b.keys[2], epoch, 0, 0, 0, 500, 1 << 20), **changed)


def fetch_snapshot(b: CoreBench, epoch: int, **changed: Unpack[FetchSnapshotFields]) -> FetchSnapshotRequest:
    return replace(FetchSnapshotRequest("c", b.keys[2], epoch, SnapshotId(1, 1), 0, 1), **changed)


REQUESTS: list[Callable[..., Request]] = [vote, begin, end, fetch, fetch_snapshot]


def follower() -> CoreBench:
    b = CoreBench(election=ElectionState(EPOCH, 2))
    assert isinstance(b.state.role, Follower)
    return b


def leader() -> CoreBench:
    b = CoreBench(election=ElectionState(EPOCH - 1))
    b.lead()
    assert b.state.epoch == EPOCH
    return b


def prospective() -> CoreBench:
    b = CoreBench(election=ElectionState(EPOCH))
    b.ask_first()
    assert isinstance(b.state.role, Prospective)
    return b


ROLES = [follower, leader, prospective]


def assert_refused(b: CoreBench, request: Request, error: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    before, role = b.state.election, type(b.state.role)
    answer = b.ask(request)
    assert answer is not None and answer.error is error
    assert (b.state.election, type(b.state.role)) == (before, role)
    assert b.of(PersistElectionState) == []


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize(
    "epoch", [INT32_MAX, INT32_MAX - 1, MAX_EPOCH + 1, MAX_EPOCH, EPOCH + MOST_AHEAD + 20_000]
)
def test_epoch_too_far_ahead_is_refused_by_every_call_in_every_role_and_never_written(
    role: Callable[[], CoreBench], request_of: Callable[[CoreBench, int], Request], epoch: int
) -> None:
    b = role()
    assert_refused(b, request_of(b, epoch))
    assert b.of(PeerDisbelieved)


@pytest.mark.parametrize("role", ROLES)
def test_pre_vote_in_an_epoch_too_far_ahead_is_refused(role: Callable[[], CoreBench]) -> None:
    b = role()
    assert_refused(b, vote(b, INT32_MAX, pre_vote=True))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "change",
    [
        lambda b: vote(b, EPOCH, last_offset=MAX_OFFSET + 1),
        lambda b: vote(b, EPOCH, candidate=ReplicaKey(-1)),
        lambda b: begin(b, EPOCH, leader=ReplicaKey(-(2**31))),
        lambda b: end(b, EPOCH, leader=ReplicaKey(-7)),
        lambda b: end(b, EPOCH, preferred_successors=tuple(map(ReplicaKey, range(MOST_SUCCESSORS + 1)))),
        lambda b: fetch(b, EPOCH, fetch_offset=2**63 - 1, last_fetched_epoch=1),
        lambda b: fetch(b, EPOCH, replica=ReplicaKey(-1)),
        lambda b: fetch_snapshot(b, EPOCH, snapshot_id=SnapshotId(2**63 - 1, 1)),
        lambda b: fetch_snapshot(b, EPOCH, position=-(2**63)),
    ],
)
def test_impossible_offsets_and_ids_are_refused(
    role: Callable[[], CoreBench], change: Callable[[CoreBench], Request]
) -> None:
    b = role()
    assert_refused(b, change(b))


def test_answer_of_an_epoch_too_far_ahead_counts_as_lost() -> None:
    b = prospective()
    b.answer(b.vote_for(2, granted=False, epoch=INT32_MAX, leader_id=3))
    assert b.state.election == ElectionState(EPOCH)
    assert b.of(PersistElectionState) == [] and b.of(PeerDisbelieved)
    assert 2 in b.role(Prospective).retry_at_ms, "it is asked again"


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": INT32_MAX},
        {"epoch": EPOCH + 1, "leader_id": -3},
        {"high_watermark": -1},
        {"diverging": DivergingEpoch(-1, 0)},
        {"diverging": DivergingEpoch(0, 2**63 - 1)},
        {"snapshot_id": SnapshotId(2**63 - 1, 5)},
    ],
)
def test_impossible_answer_to_a_fetch_changes_nothing_and_the_fetch_is_repeated(
    changed: WholeFetchResponseFields,
) -> None:
    b = follower()
    answer = FetchResponse("c", b.keys[2], ErrorCode.NONE, EPOCH, 2)
    b.answer(replace(answer, **changed))
    assert b.state.election == ElectionState(EPOCH, 2) and b.state.download is None
    assert b.of(PersistElectionState) == [] and b.of(TruncateTo) == [] and b.of(PeerDisbelieved)
    b.step(TimerFired(), after_ms=20)
    assert b.state.in_flight


# --- no correct replica is locked out --------------------------------------------------------------------


def test_replica_that_was_down_for_very_long_follows_at_once() -> None:
    b = CoreBench(election=ElectionState(EPOCH))
    assert b.ask(vote(b, EPOCH + MOST_AHEAD)).vote_granted
    assert b.state.epoch == EPOCH + MOST_AHEAD


def test_replica_without_a_leader_accepts_more_epochs_the_longer_it_waits() -> None:
    """It was down for more epochs than are accepted at once, and takes part again without help."""
    b = CoreBench(election=ElectionState(EPOCH))
    far = EPOCH + 3 * MOST_AHEAD
    assert_refused(b, vote(b, far))
    b.step(TimerFired(), after_ms=2 * MOST_AHEAD)
    assert isinstance(b.state.role, Prospective)
    assert b.ask(vote(b, far)).vote_granted


@pytest.mark.parametrize("asked_after_ms", [1, 700])
def test_time_waited_counts_for_the_message_that_ends_it(asked_after_ms: int) -> None:
    """No timer need fire first: an epoch a millisecond is accepted, and not one more."""
    far = EPOCH + MOST_AHEAD + asked_after_ms
    b, other = CoreBench(election=ElectionState(EPOCH)), CoreBench(election=ElectionState(EPOCH))
    for one in (b, other):
        one.now_ms += asked_after_ms
    assert_refused(other, vote(other, far + 1))
    assert b.ask(vote(b, far)).vote_granted
    assert_refused(b, vote(b, far + 1))


def test_time_with_a_leader_gives_no_epochs_to_the_message_that_ends_it() -> None:
    b = leader()
    b.now_ms += 700
    assert b.ask(vote(b, EPOCH + MOST_AHEAD)).error is ErrorCode.NONE
    assert_refused(b, vote(b, EPOCH + MOST_AHEAD + 1))


def test_replica_with_a_leader_accumulates_no_epochs() -> None:
    b = leader()
    for _ in range(3000):
        b.step(TimerFired(), after_ms=1000)
        for node_id in (2, 3):
            b.fetch(node_id, 1, EPOCH)
    assert isinstance(b.state.role, Leader)
    assert_refused(b, vote(b, EPOCH + MOST_AHEAD + 2000))


def test_unknown_client_that_raises_the_epoch_step_by_step_gets_a_thousand_epochs_a_second() -> None:
    b = CoreBench(election=ElectionState(EPOCH))
    for _ in range(10_000):
        b.send(vote(b, b.state.epoch + MOST_AHEAD))
        b.send(vote(b, b.state.epoch + 1000))
        b.step(TimerFired(), after_ms=1)
    candidacies = 10_000
    assert b.state.epoch <= EPOCH + MOST_AHEAD + 10_000 + candidacies


def test_peers_in_our_own_epoch_are_accepted_even_if_no_epochs_are_left_for_others() -> None:
    b = leader()
    b.state.epoch_allowance.left = -3
    answer = b.fetch(2, 1, EPOCH)
    assert answer is None or answer.error is ErrorCode.NONE
    assert b.of(PeerDisbelieved) == []


def test_no_election_starts_after_the_last_epoch() -> None:
    b = CoreBench(election=ElectionState(MAX_EPOCH))
    b.ask_first()
    with pytest.raises(EpochsExhaustedError, match=f"epoch {MAX_EPOCH} is the last one"):
        b.answer(b.vote_for(2))
    assert b.state.epoch == MAX_EPOCH


# --- places are freed ------------------------------------------------------------------------------------


def add_voter(b: CoreBench, node_id: int = 4, timeout_ms: int = 1000) -> AddRaftVoterRequest:
    return AddRaftVoterRequest("c", Voter(b.keys[node_id], Address("test", node_id)), timeout_ms)


def test_change_of_the_voters_does_not_wait_for_days() -> None:
    b = leader()
    assert b.send(add_voter(b, timeout_ms=INT32_MAX)) is None
    assert as_type(b.state.role, Leader).changes[0].deadline_ms <= b.now_ms + MAX_WAIT_MS


def test_places_of_disconnected_callers_are_free() -> None:
    b = leader()
    tokens = []
    for _ in range(MAX_WAITING):
        assert b.send(add_voter(b)) is None
        tokens.append(b.token)
    assert b.ask(add_voter(b)).error is ErrorCode.REQUEST_TIMED_OUT, "too many wait"
    for token in tokens:
        b.step(RequestAbandoned(token))
    assert as_type(b.state.role, Leader).changes == []
    assert b.send(add_voter(b)) is None


def test_fetch_of_a_disconnected_caller_is_not_kept() -> None:
    b = leader()
    assert b.fetch(2, 1, EPOCH, high_watermark=1) is None
    b.step(RequestAbandoned(b.token))
    assert b.role(Leader).parked == {}


def test_replica_that_no_longer_leads_answers_waiting_calls() -> None:
    b = leader()
    b.send(add_voter(b))
    token = b.token
    b.send(vote(b, EPOCH + 1))
    assert isinstance(b.state.role, Unattached)
    b.step(RequestAbandoned(token))


# --- on the wire -----------------------------------------------------------------------------------------


async def test_disconnected_caller_leaves_nothing_behind() -> None:
    events: list[Event] = []
    table = RpcHandlers()
    asked = Calls("c", ReplicaKey(1), GrpcTransport(unexpected), events.append)
    asked.register(table)
    asked.open()
    method = rpc.METHODS[FetchRequest]
    request = rpc.encode_request(FetchRequest("c", ReplicaKey(2), 1, 0, 0, 0, 500, 100))
    call = asyncio.ensure_future(table.handlers[method](request))
    await asyncio.sleep(0)
    assert len(asked._waiting) == 1
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await asyncio.sleep(0)
    assert asked._waiting == {}
    assert events[-1] == RequestAbandoned(0)
    asked.reply(0, FetchResponse("c", ReplicaKey(1), ErrorCode.NONE, 1, 1))  # too late, and harmless


async def test_request_that_is_too_large_is_refused_unread(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        events: list[Event] = []
        table = RpcHandlers()
        asked = Calls("c", ReplicaKey(1), GrpcTransport(unexpected), events.append)
        asked.register(table)
        asked.open()
        method = rpc.METHODS[EndQuorumEpochRequest]
        for _ in range(1000):
            answer = rpc.decode_response(
                method, await table.handlers[method](bytes(calls.MAX_REQUEST_BYTES + 1))
            )
            assert answer.error is ErrorCode.INVALID_REQUEST
        assert events == []
    assert len(caplog.records) == 1, "a flood must not fill the disk with log lines"


@pytest.mark.parametrize(
    "address", [("h", 0), ("h", -1), ("h", 65_536), ("h", INT32_MAX), ("\0", 1), ("h" * 256, 1), ("ä", 1)]
)
def test_invalid_address_makes_a_malformed_request(address: tuple[str, int]) -> None:
    message = pb.BeginQuorumEpochRequest(cluster_id="c", epoch=1)
    message.leader_address.host, message.leader_address.port = address
    with pytest.raises(ValueError, match="an address"):
        rpc.decode_request(rpc.METHODS[BeginQuorumEpochRequest], message.SerializeToString())


@pytest.mark.parametrize(
    ("offset", "is_believed"), [(0, True), (MAX_OFFSET, True), (MAX_OFFSET + 1, False), (-1, False)]
)
def test_every_offset_that_a_log_can_have_is_believed(offset: int, is_believed: bool) -> None:
    b = CoreBench(election=ElectionState(EPOCH))
    b.send(fetch(b, EPOCH, fetch_offset=offset))
    assert (not b.of(PeerDisbelieved)) is is_believed
