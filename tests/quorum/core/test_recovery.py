"""The core of a voter that lost flushed records: it neither votes nor counts until it has them again."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Unpack

import pytest

from pykraft.jepsen_like.simulation.quorum.invariants.history import History
from pykraft.jepsen_like.simulation.quorum.invariants.recovery import RecoveringIsNotCounted
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import EndRecovery, Reply, Send
from pykraft.quorum.core.events import (
    LogFlushed,
    RequestFailed,
    ResponseReceived,
    SnapshotChecked,
    TimerFired,
)
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import (
    BatchSpan,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    VoteRequest,
)
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState, Follower, Leader, Unattached
from pykraft.quorum.core.voters import ReplicaKey
from tests.narrowing import as_type
from tests.quorum.bench import CoreBench
from tests.quorum.fields import WholeFetchResponseFields, WholeVoteFields


def recovering(
    end_offset: int | None = 5, *, voters: int = 3, election: ElectionState | None = None
) -> CoreBench:
    """Node 1, whose log ends at 3 in epoch 5, and was flushed up to ``end_offset``."""
    return CoreBench(
        voters=voters,
        election=election or ElectionState(5, 2),
        epoch_starts=[(4, 0)],
        end_offset=3,
        recovery=Recovery(end_offset),
        losses=1,
    )


def vote_request(b: CoreBench, *, epoch: int = 6, **changed: Unpack[WholeVoteFields]) -> VoteRequest:
    request = VoteRequest("c", b.keys[3], b.state.local, epoch, 5, 100, False)
    return replace(request, **changed)


def fetched(b: CoreBench, *ends: int, epoch: int = 5, leader: int = 2) -> FetchResponse:
    """The leader's answer with batches that continue at the log's end."""
    spans, base = [], b.state.log.end_offset
    for end in ends:
        spans.append(BatchSpan(base, end, epoch))
        base = end
    return FetchResponse("c", b.keys[leader], ErrorCode.NONE, b.state.epoch, leader, 0, batches=tuple(spans))


# --- what it does not do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [False, True])
def test_recovering_voter_grants_neither_vote_nor_pre_vote(pre_vote: bool) -> None:
    b = recovering(election=ElectionState(5))
    assert b.ask(vote_request(b, pre_vote=pre_vote)).vote_granted is False
    intact = CoreBench(election=ElectionState(5), epoch_starts=[(4, 0)], end_offset=3)
    assert intact.ask(vote_request(intact, pre_vote=pre_vote)).vote_granted is True


def test_recovering_voter_learns_of_the_epoch_that_it_does_not_vote_in() -> None:
    b = recovering()
    assert b.ask(vote_request(b, epoch=9)).vote_granted is False
    assert b.state.election == ElectionState(9)


@pytest.mark.parametrize("election", [ElectionState(5), ElectionState(5, 2), ElectionState(5, 1)])
def test_recovering_voter_never_starts_an_election_and_searches_the_leader(election: ElectionState) -> None:
    b = recovering(election=election)
    asked = set()
    for _ in range(30):
        for effect in b.of(Send):
            assert isinstance(effect.request, FetchRequest) and effect.request.is_recovering
            asked.add(effect.to)
            b.step(RequestFailed(effect.correlation_id))
        b.step(TimerFired(), after_ms=10_000)
        assert isinstance(b.state.role, Unattached | Follower)
    assert asked == {2, 3}


def test_recovering_voter_does_not_succeed_a_resigning_leader() -> None:
    b = recovering()
    b.send(EndQuorumEpochRequest("c", b.keys[2], b.keys[1], 5, (b.keys[1], b.keys[3])))
    b.step(TimerFired(), after_ms=10_000)
    assert not [effect for effect in b.of(Send) if isinstance(effect.request, VoteRequest)]


def test_recovering_voter_that_knows_no_other_voter_does_not_elect_itself() -> None:
    b = recovering(voters=1, election=ElectionState(5))
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Unattached)


# --- how it ends -----------------------------------------------------------------------------------------


def test_recovery_ends_when_all_that_had_been_flushed_is_flushed_again() -> None:
    b = recovering()
    b.answer(fetched(b, 4))
    b.flush()
    assert b.of(EndRecovery) == [] and as_type(b.of(Send)[0].request, FetchRequest).is_recovering
    b.answer(fetched(b, 5, 6))
    assert b.of(EndRecovery) == [], "not flushed"
    b.step(LogFlushed(6, b.state.log.generation))
    assert [type(effect) for effect in b.effects] == [EndRecovery, Send]
    assert b.of(EndRecovery) == [EndRecovery(6)]
    request = b.of(Send)[0].request
    assert (
        as_type(request, FetchRequest).is_recovering,
        as_type(request, FetchRequest).losses,
        as_type(request, FetchRequest).fetch_offset,
    ) == (False, 1, 6)


def test_recovery_ends_when_the_leader_has_nothing_more() -> None:
    b = recovering(end_offset=None)
    b.answer(fetched(b, 4))
    b.flush()
    assert b.state.recovery is not None
    b.answer(fetched(b))
    assert b.of(EndRecovery) == [EndRecovery(4)]
    b.ask_first()
    assert {as_type(effect.request, VoteRequest).pre_vote for effect in b.of(Send)} == {True}, (
        "it starts elections again"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"replica": ReplicaKey(3, Uuid(b"\3" * 16))},
        {"epoch": 4},
        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"snapshot_id": SnapshotId(9, 5)},
    ],
)
def test_only_the_leader_can_answer_that_there_is_nothing_more(changed: WholeFetchResponseFields) -> None:
    b = recovering()
    (asked,) = b.of(Send)
    b.step(ResponseReceived(asked.correlation_id, replace(fetched(b), **changed)))
    assert b.state.recovery is not None


def test_recovery_ends_with_a_snapshot_that_covers_the_loss() -> None:
    for end_offset, ends in ((4, False), (5, True)):
        b = recovering()
        snapshot_id = SnapshotId(end_offset, 5)
        b.answer(replace(fetched(b), snapshot_id=snapshot_id))
        b.answer(
            FetchSnapshotResponse(
                "c", b.keys[2], ErrorCode.NONE, 5, 2, snapshot_id, 0, size_bytes=1, checksum=1, data=b"x"
            )
        )
        b.step(SnapshotChecked(1, True))
        assert (b.of(EndRecovery) != []) is ends


def test_answers_are_sent_only_after_the_end_of_the_recovery_is_durable() -> None:
    b = recovering(election=ElectionState(5, 2))
    b.answer(fetched(b))
    kinds = [type(effect) for effect in b.effects]
    assert kinds.index(EndRecovery) < kinds.index(Send) and Reply not in kinds


# --- what its leader makes of it -------------------------------------------------------------------------


def leader_of_three() -> CoreBench:
    b = CoreBench(voters=3)
    b.lead()
    return b


def test_leader_counts_nothing_for_a_recovering_voter_and_reverts_what_it_counted() -> None:
    b = leader_of_three()
    b.fetch(2, 1, 1)
    assert b.state.high_watermark == 1
    progress = b.role(Leader).progress[2]
    assert progress.end_offset == 1
    b.fetch(2, 1, 1, is_recovering=True, losses=1)
    assert progress.end_offset == 0 and progress.last_fetch_ms == b.now_ms
    b.fetch(2, 1, 1, losses=0)
    assert progress.end_offset == 0, "a late fetch from before the loss"
    b.fetch(2, 1, 1, losses=1)
    assert progress.end_offset == 1 and b.state.high_watermark == 1


def test_report_of_a_loss_of_another_disk_delays_no_commit_forever() -> None:
    b = leader_of_three()
    b.fetch(2, 1, 1, is_recovering=True, losses=(1 << 31) - 1)
    for _ in range(70):
        b.fetch(2, 1, 1)
        b.step(TimerFired(), after_ms=1000)
    assert b.role(Leader).progress[2].end_offset == 1 and b.state.high_watermark == 1


def test_invariant_distinguishes_a_recovering_voter_from_its_former_disk() -> None:
    """The checker knows losses by node id: a stranger that has lost records was never counted."""
    b = leader_of_three()
    b.fetch(2, 1, 1, losses=1)
    history = History()
    history.lost_batches[2], history.losses[2] = [], 1
    view = SimpleNamespace(id=2, key=ReplicaKey(2, Uuid(b"other disk......")), core_state=b.state)
    history.replicas = [view]
    RecoveringIsNotCounted().after_step(view, history)
    view.key = b.keys[2]
    with pytest.raises(InvariantViolation, match="counts 1 for 2"):
        RecoveringIsNotCounted().after_step(view, history)


def test_leader_commits_nothing_because_of_a_recovering_voter() -> None:
    b = leader_of_three()
    b.fetch(2, 1, 1, is_recovering=True, losses=1)
    assert b.state.high_watermark == 0
    b.fetch(3, 1, 1)
    assert b.state.high_watermark == 1


def test_fetches_of_a_recovering_voter_count_as_contact_for_its_leader() -> None:
    b = leader_of_three()
    for _ in range(10):
        b.fetch(2, 1, 1, is_recovering=True, losses=1)
        b.step(TimerFired(), after_ms=1000)
    assert isinstance(b.state.role, Leader)


def test_recovering_without_a_loss_is_refused() -> None:
    b = leader_of_three()
    assert b.fetch_at_once(2, 1, 1, is_recovering=True).error is ErrorCode.INVALID_REQUEST
    assert b.fetch_at_once(2, 1, 1, losses=-1).error is ErrorCode.INVALID_REQUEST
