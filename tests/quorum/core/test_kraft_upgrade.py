"""Fixed voters become voters in the log (kraft.version 0 → 1), as the cores of leader and voters see it."""

from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.quorum.core.effects import AppendVoters, FlushLog, Send, TruncateTo, VotersChanged
from pykraft.quorum.core.events import ResponseReceived, TimerFired, UpgradeProposed
from pykraft.quorum.core.messages import (
    BatchSpan,
    BeginQuorumEpochRequest,
    DivergingEpoch,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RemoveRaftVoterRequest,
    VoteRequest,
)
from pykraft.quorum.core.roles import Candidate, ElectionState, Follower, Leader
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import Announcement, ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from tests.narrowing import as_type, present
from tests.quorum.bench import CoreBench
from tests.quorum.fields import WholeFetchFields, WholeFetchResponseFields
from tests.quorum.voter_changes import OTHER_DISK, address, answers, catch_up

OWN_NAME = Address("its-own-name", 9093)


def fetch(b: CoreBench, node_id: int, **changed: Unpack[WholeFetchFields]) -> None:
    """A fixed voter that holds the leader's log fetches, and says where it listens."""
    if "announced" not in changed:
        changed["announced"] = Announcement(address(node_id))
    b.fetch(node_id, b.state.log.end_offset, b.state.log.last_epoch, **changed)


def leader(*fetched: int, local_address: Address | None = OWN_NAME, voters: int = 3) -> CoreBench:
    """A leader (1) of fixed voters, from which these have fetched."""
    b = CoreBench(static=True, local_address=local_address, voters=voters)
    b.lead()
    for node_id in fetched:
        fetch(b, node_id)
    return b


def upgrade(b: CoreBench) -> VoterSet:
    """The set that the leader appends."""
    assert b.core.upgrade_objection(b.now_ms) is None
    b.step(UpgradeProposed(b.state.epoch))
    (appended,) = b.of(AppendVoters)
    return appended.voters


def objection(b: CoreBench) -> str:
    return present(b.core.upgrade_objection(b.now_ms))


def follower(**changed: Address | None) -> CoreBench:
    """A fixed voter (2) that follows 1 in epoch 1, with one record of that epoch; its fetch is open."""
    return CoreBench(
        node_id=2,
        static=True,
        election=ElectionState(1, 1),
        epoch_starts=[(1, 0)],
        end_offset=1,
        local_address=changed.get("local_address", OWN_NAME),
    )


def answer_fetch(b: CoreBench, **changed: Unpack[WholeFetchResponseFields]) -> None:
    response = FetchResponse("c", b.keys[1], ErrorCode.NONE, 1, 1, 1)
    b.step(ResponseReceived(present(b.role(Follower).fetch_correlation), replace(response, **changed)))


def in_the_log(b: CoreBench, *node_ids: int) -> VoterSet:
    return VoterSet([Voter(b.keys[node_id], address(node_id)) for node_id in node_ids])


# --- at the leader ------------------------------------------------------------------------------------------


def test_upgrade_is_one_batch_with_the_directory_and_the_own_address_of_every_voter() -> None:
    b = leader(2)
    fetch(b, 3, announced=Announcement(Address("three", 7)))
    before = b.state.log.end_offset
    voters = upgrade(b)
    assert b.of(AppendVoters) == [AppendVoters(before, before + 2, 1, voters)]
    assert b.of(FlushLog)[-1].end_offset == b.state.log.end_offset == before + 2
    assert list(voters) == [
        Voter(b.keys[1], OWN_NAME),
        Voter(b.keys[2], address(2)),
        Voter(b.keys[3], Address("three", 7)),
    ]
    assert b.state.voters == voters and voters.kraft_version == 1 and b.of(VotersChanged) != []


def test_leader_that_does_not_know_its_own_address_is_named_by_the_configured_one() -> None:
    assert present(upgrade(leader(2, 3, local_address=None)).get(1)).address == address(1)


def test_only_voter_upgrades_itself() -> None:
    b = CoreBench(static=True, voters=1, local_address=OWN_NAME)
    assert "first record" in objection(b)
    b.flush()
    assert list(upgrade(b)) == [Voter(b.keys[1], OWN_NAME)]


def test_upgrade_waits_for_a_commit_of_the_leaders_epoch() -> None:
    b = CoreBench(static=True, local_address=OWN_NAME)
    b.start_election()
    b.answer(b.vote_for(2))
    fetch(b, 2)
    fetch(b, 3)
    b.flush()
    assert b.state.high_watermark == b.state.log.end_offset and objection_or_none(b) is None
    b = CoreBench(static=True, local_address=OWN_NAME)
    b.lead()
    for node_id in (2, 3):
        b.fetch(node_id, 0, 0, announced=Announcement(address(node_id)))
    assert b.state.high_watermark == 0 and "first record" in objection(b)


def objection_or_none(b: CoreBench) -> str | None:
    return b.core.upgrade_objection(b.now_ms)


def test_voter_that_has_not_fetched_lately_is_named_in_the_objection() -> None:
    b = leader(2, 3)
    b.step(TimerFired(), after_ms=b.state.config.fetch_timeout_ms - 1)
    assert objection_or_none(b) is None
    fetch(b, 3)
    b.step(TimerFired(), after_ms=1)
    assert objection(b).startswith("voter 2 has not fetched for ")
    fetch(b, 2)
    assert objection_or_none(b) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"announced": None}, "voter 3 has not told this leader"),
        ({"replica": ReplicaKey(3)}, "voter 3 has not told this leader"),
        ({"announced": Announcement(address(3), 0)}, "voter 3 can run kraft.version 0 at most"),
    ],
)
def test_voter_that_cannot_be_named_in_the_log_prevents_the_upgrade(
    changed: WholeFetchFields, said: str
) -> None:
    b = leader(2)
    assert objection(b).startswith("voter 3 has not told this leader")
    fetch(b, 3, **changed)
    assert objection(b).startswith(said)
    fetch(b, 3)
    assert objection_or_none(b) is None


def test_leader_without_a_directory_id_does_not_upgrade() -> None:
    b = CoreBench(static=True, voters=1, local=ReplicaKey(1), local_address=OWN_NAME)
    b.flush()
    assert "directory id" in objection(b)


def test_next_leader_hears_the_voters_anew() -> None:
    b = leader(2, 3)
    assert objection_or_none(b) is None
    b.ask(VoteRequest("c", b.keys[2], ReplicaKey(1), 5, 1, 99))
    assert "does not lead" in objection(b)
    b.lead()
    catch_up(b, 2)
    assert b.state.high_watermark == b.state.log.end_offset
    assert "voter 2 has not told this leader" in objection(b)


def test_disk_that_fetched_last_is_the_one_that_is_named() -> None:
    b = leader(2, 3)
    fetch(b, 3, replica=ReplicaKey(3, OTHER_DISK), announced=None)
    assert objection(b).startswith("voter 3 has not told this leader"), "the old disk's address"
    fetch(b, 3, replica=ReplicaKey(3, OTHER_DISK))
    assert present(upgrade(b).get(3)).key == ReplicaKey(3, OTHER_DISK)


def test_voters_change_by_record_once_the_upgrade_is_committed() -> None:
    b = leader(2, 3)
    remove = RemoveRaftVoterRequest("c", b.keys[3], 1000)
    assert b.ask(remove).error is ErrorCode.UNSUPPORTED_VERSION
    upgrade(b)
    assert b.send(remove) is None and b.of(AppendVoters) == []
    b.flush()
    assert b.state.voters.ids == (1, 2, 3)
    catch_up(b, 2)
    assert b.state.voters == VoterSet([Voter(b.keys[1], OWN_NAME), Voter(b.keys[2], address(2))])
    b.flush()
    catch_up(b, 2)
    assert answers(b) == [ErrorCode.NONE]


def test_progress_that_was_made_before_the_upgrade_counts_after_it() -> None:
    b = leader(2, 3)
    before = {node_id: it.end_offset for node_id, it in b.role(Leader).progress.items()}
    upgrade(b)
    assert {node_id: it.end_offset for node_id, it in b.role(Leader).progress.items()} == before
    assert before == {2: 1, 3: 1} and not b.role(Leader).observers


# --- at the voters ------------------------------------------------------------------------------------------


def announced(b: CoreBench) -> Announcement | None:
    """What the replica says of itself with its next fetch."""
    answer_fetch(b)
    b.step(TimerFired(), after_ms=10_000)
    fetches = [send.request for send in b.of(Send) if isinstance(send.request, FetchRequest)]
    return as_type(fetches[-1], FetchRequest).announced


def test_fixed_voter_announces_its_address_with_every_fetch() -> None:
    b = follower()
    (first,) = b.of(Send)
    assert as_type(first.request, FetchRequest).announced == Announcement(OWN_NAME)
    answer_fetch(b, batches=(BatchSpan(1, 2, 1),))
    b.flush()
    (second,) = b.of(Send)
    assert as_type(second.request, FetchRequest).announced == Announcement(OWN_NAME)


@pytest.mark.parametrize(
    "b",
    [
        follower(local_address=None),
        CoreBench(node_id=4, static=True, election=ElectionState(1, 1), local_address=OWN_NAME),
        CoreBench(node_id=2, election=ElectionState(1, 1), local_address=OWN_NAME),
    ],
    ids=["address unknown", "observer", "voters in the log"],
)
def test_any_other_replica_announces_nothing(b: CoreBench) -> None:
    (sent,) = b.of(Send)
    assert as_type(sent.request, FetchRequest).announced is None


def test_voters_in_the_log_are_in_force_at_a_voter_that_holds_the_upgrade_and_fixed_again_without() -> None:
    b = follower()
    fixed, upgraded = b.state.voters, in_the_log(b, 1, 2, 3)
    answer_fetch(b, batches=(BatchSpan(1, 3, 1, upgraded),))
    assert b.state.voters == upgraded and b.state.is_voter
    b.flush()
    assert as_type(b.of(Send)[0].request, FetchRequest).announced is None
    answer_fetch(b, diverging=DivergingEpoch(1, 1))
    assert b.of(TruncateTo) == [TruncateTo(1)] and b.of(VotersChanged) == [VotersChanged(fixed)]
    assert b.state.voters == fixed and not b.state.voters.is_dynamic
    assert as_type(b.of(Send)[0].request, FetchRequest).announced == Announcement(OWN_NAME)


def test_voter_whose_disk_the_upgrade_does_not_name_is_an_observer() -> None:
    b = follower()
    voters = in_the_log(b, 1, 3).with_voter(Voter(ReplicaKey(2, OTHER_DISK), address(2)))
    answer_fetch(b, batches=(BatchSpan(1, 3, 1, voters),))
    assert not b.state.is_voter


@pytest.mark.parametrize("end_offset", [3, 9])
def test_restarted_voter_goes_by_the_log_whatever_its_configuration_says(end_offset: int) -> None:
    upgraded = VoterSet([Voter(ReplicaKey(i, CoreBench().keys[i].directory_id), address(i)) for i in (2, 4)])
    fixed = follower().voters
    b = CoreBench(
        node_id=2,
        history=VoterHistory(fixed, [(1, upgraded)], is_shared=False),
        epoch_starts=[(1, 0)],
        election=ElectionState(1, 1),
        end_offset=end_offset,
        local_address=OWN_NAME,
    )
    assert b.state.voters == upgraded and present(b.state.history.shared_at(end_offset)) == upgraded
    assert b.state.history.shared_at(1) is None, "no snapshot holds voters that only the configuration names"


# --- voters that do not hold the upgrade yet ----------------------------------------------------------------


def asks_for_vote(b: CoreBench, voter: ReplicaKey, *, pre_vote: bool) -> VoteRequest:
    """A candidate that was added after the upgrade."""
    return VoteRequest("c", b.keys[4], voter, 5, 1, 9, pre_vote)


@pytest.mark.parametrize("pre_vote", [False, True])
def test_fixed_voter_votes_for_a_candidate_that_it_does_not_know_but_that_holds_the_upgrade(
    pre_vote: bool,
) -> None:
    b = CoreBench(static=True)
    answer = b.ask(asks_for_vote(b, b.keys[1], pre_vote=pre_vote))
    assert answer.error is ErrorCode.NONE and answer.vote_granted


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize(
    ("directory_id", "error"),
    [(ZERO_UUID, ErrorCode.INCONSISTENT_VOTER_SET), (OTHER_DISK, ErrorCode.INVALID_VOTER_KEY)],
)
def test_fixed_voter_refuses_a_stranger_and_who_means_another_disk(
    directory_id: Uuid, error: ErrorCode, pre_vote: bool
) -> None:
    b = CoreBench(static=True)
    answer = b.ask(asks_for_vote(b, ReplicaKey(1, directory_id), pre_vote=pre_vote))
    assert answer.error is error and not answer.vote_granted and b.state.epoch == 0


def test_fixed_voter_follows_a_leader_that_it_does_not_know_but_that_holds_the_upgrade() -> None:
    b = CoreBench(static=True)
    begin = BeginQuorumEpochRequest("c", b.keys[4], ReplicaKey(1), 5, address(4))
    assert b.ask(begin).error is ErrorCode.INVALID_REQUEST and b.state.epoch == 0
    assert b.ask(replace(begin, voter=b.keys[1])).error is ErrorCode.NONE
    assert b.role(Follower).leader_address == address(4)
    end = EndQuorumEpochRequest("c", b.keys[4], ReplicaKey(1), 5, (b.keys[1],))
    assert b.ask(end).error is ErrorCode.INVALID_REQUEST
    assert b.ask(replace(end, voter=b.keys[1])).error is ErrorCode.NONE
    assert b.role(Candidate).granted == {1}, "it is the first successor"
