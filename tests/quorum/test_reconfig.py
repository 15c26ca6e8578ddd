"""Changing the voters, core by core: what a leader makes of it, and what followers do (KIP-853)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import AppendVoters, Reply, Send, TruncateTo, VotersChanged
from pykraft.quorum.core.events import RequestFailed, ResponseReceived, TimerFired
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BatchSpan,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DivergingEpoch,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterChangeResponse,
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
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.runtime.rpc import RpcAddress

OTHER_DISK = Uuid(b"other disk......")


def address(node_id):
    return RpcAddress("test", node_id)


def voter(b, node_id):
    return Voter(b.keys[node_id], address(node_id))


def add(b, node_id, **changed):
    return replace(AddRaftVoterRequest("c", voter(b, node_id), 1000), **changed)


def remove(b, node_id):
    return RemoveRaftVoterRequest("c", b.keys[node_id], 1000)


def leader(bench, voters=3, **options):
    """A leader (1) that has committed the first record of its epoch."""
    b = bench(voters=voters, local_address=address(1), **options)
    if voters == 1:
        b.flush()
    else:
        b.lead()
        catch_up(b, *range(2, b.voters.majority + 1))
    b.step(TimerFired(), after_ms=1)
    assert b.state.high_watermark == b.state.log.end_offset
    return b


def catch_up(b, *node_ids):
    """These fetch from the end of the leader's log, again and again as a follower does."""
    effects = []
    for node_id in node_ids:
        b.fetch(node_id, b.state.log.end_offset, b.state.log.last_epoch)
        effects += b.effects
    b.effects = effects


def probe_answered(b, node_id, **changed):
    b.answer(
        replace(BeginQuorumEpochResponse("c", b.keys[node_id], ErrorCode.NONE, b.state.epoch, 1), **changed)
    )


def answers(b):
    """Answers to changes among the last effects, as (error, message)."""
    return [
        e.response.error for e in b.effects if type(e) is Reply and type(e.response) is VoterChangeResponse
    ]


def appended(b):
    return [e.voters.ids for e in b.of(AppendVoters)]


def wait_for_answer(b, after_ms):
    b.step(TimerFired(), after_ms=after_ms)
    return answers(b)


# --- at the leader ------------------------------------------------------------------------------------------


def test_new_voter_counts_once_appended_and_the_answer_comes_with_the_commit(bench):
    b = leader(bench)
    assert b.ask(add(b, 4)) is None
    probe_answered(b, 4)
    assert appended(b) == []
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)] and b.state.voters.majority == 3
    b.flush()
    catch_up(b, 2)
    assert b.state.high_watermark < b.state.log.end_offset and answers(b) == []
    catch_up(b, 4)
    assert b.state.high_watermark == b.state.log.end_offset and answers(b) == [ErrorCode.NONE]


def test_whoever_does_not_wait_for_the_commit_is_answered_at_the_append(bench):
    b = leader(bench)
    b.ask(add(b, 4, ack_when_committed=False))
    probe_answered(b, 4)
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)] and answers(b) == [ErrorCode.NONE]


def test_second_change_waits_for_the_first_and_is_then_made(bench):
    b = leader(bench)
    assert b.ask(remove(b, 3)) is None and appended(b) == [(1, 2)]
    assert b.ask(remove(b, 2)) is None and appended(b) == []
    b.flush()
    catch_up(b, 2)
    assert answers(b) == [ErrorCode.NONE] and appended(b) == [(1,)]
    b.flush()
    assert answers(b) == [ErrorCode.NONE] and b.state.voters.ids == (1,)


def test_second_change_times_out_while_the_first_is_not_committed(bench):
    b = leader(bench)
    b.ask(remove(b, 3))
    b.ask(remove(b, 2))
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT]
    assert b.state.voters.ids == (1, 2)  # the first is under way all the same


def test_no_change_before_the_leader_has_committed_in_its_epoch(bench):
    b = bench(local_address=address(1))
    b.lead()
    assert b.ask(remove(b, 3)) is None and appended(b) == []
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    b.ask(remove(b, 3))
    catch_up(b, 2)
    assert appended(b) == [(1, 2)]


def test_fixed_voters_are_not_changed(bench):
    b = bench(static=True)
    b.lead()
    catch_up(b, 2)
    assert b.ask(add(b, 4)).error is ErrorCode.UNSUPPORTED_VERSION
    assert b.ask(remove(b, 3)).error is ErrorCode.UNSUPPORTED_VERSION


def test_change_is_refused_by_who_does_not_lead_and_by_another_cluster(bench):
    assert bench().ask(add(bench(), 4)).error is ErrorCode.NOT_CONTROLLER
    b = leader(bench)
    assert b.ask(replace(add(b, 4), cluster_id="other")).error is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("directory_id", [None, OTHER_DISK])
def test_id_among_the_voters_is_not_added_again_whatever_its_disk(bench, directory_id):
    b = leader(bench)
    key = ReplicaKey(2, directory_id or b.keys[2].directory_id)
    assert b.ask(add(b, 2, voter=Voter(key, address(2)))).error is ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("key", [ReplicaKey(2, OTHER_DISK), ReplicaKey(2), ReplicaKey(7, OTHER_DISK)])
def test_who_is_not_a_voter_by_id_and_directory_is_not_removed_or_moved(bench, key):
    b = leader(bench)
    assert b.ask(RemoveRaftVoterRequest("c", key, 1000)).error is ErrorCode.VOTER_NOT_FOUND
    moved = UpdateRaftVoterRequest("c", Voter(key, address(99)), 1000)
    assert b.ask(moved).error is ErrorCode.VOTER_NOT_FOUND


def test_replaced_disk_does_not_evict_the_one_under_its_id_that_is_alive(bench):
    """Two nodes with one id that both join by themselves would evict each other for ever."""
    b = leader(bench)
    request = RemoveRaftVoterRequest("c", b.keys[2], 1000, only_if_silent=True)
    b.ask(request)
    catch_up(b, 2)
    assert appended(b) == [] and wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    assert "node id used twice" in b.effects[0].response.message
    catch_up(b, 3)
    b.step(TimerFired(), after_ms=999)
    catch_up(b, 3)
    b.ask(request)
    assert appended(b) == [] and b.state.is_voter
    b.step(TimerFired(), after_ms=1)
    assert appended(b) == [(1, 3)]


def test_replaced_disk_does_not_evict_the_leader_itself(bench):
    b = leader(bench)
    b.ask(RemoveRaftVoterRequest("c", b.keys[1], 1000, only_if_silent=True))
    assert appended(b) == [] and wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]


def test_voter_without_a_directory_is_not_added(bench):
    """The set would count as fixed from then on."""
    b = leader(bench)
    b.ask(add(b, 4, voter=Voter(ReplicaKey(4), address(4))))
    assert answers(b) == [ErrorCode.INVALID_REQUEST] and appended(b) == []


def test_last_voter_is_not_removed(bench):
    b = leader(bench, voters=1)
    assert b.ask(remove(b, 1)).error is ErrorCode.INVALID_REQUEST


def test_new_voter_that_does_not_answer_at_its_address_is_not_added(bench):
    b = leader(bench)
    b.ask(add(b, 4))
    (probe,) = b.of(Send)
    assert probe.address == address(4) and isinstance(probe.request, BeginQuorumEpochRequest)
    catch_up(b, 4)
    b.step(RequestFailed(probe.correlation_id))
    assert appended(b) == []
    b.step(TimerFired(), after_ms=100)
    assert [s.address for s in b.of(Send)] == [address(4)]  # asked again
    probe_answered(b, 4, replica=ReplicaKey(4, OTHER_DISK))
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    assert b.state.voters == b.voters


def test_new_voter_is_not_probed_and_nobody_is_woken_while_another_change_is_on_its_way(bench):
    b = leader(bench)
    b.ask(add(b, 4))
    b.step(RequestFailed(b.of(Send)[0].correlation_id))  # will be asked again in 100 ms
    b.ask(remove(b, 3))
    b.step(TimerFired(), after_ms=100)
    assert b.of(Send) == [] and b.core.next_deadline_ms > b.now_ms
    b.flush()
    catch_up(b, 2)
    assert [s.address for s in b.of(Send)] == [address(4)]


def test_new_voter_that_lags_is_not_added(bench):
    b = leader(bench)
    b.fetch(4, 0, 0)
    b.ask(add(b, 4))
    probe_answered(b, 4)
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT] and b.state.voters == b.voters


def test_replaced_disk_that_lags_is_not_confused_with_the_one_that_has_caught_up(bench):
    b = leader(bench)
    catch_up(b, 4)
    b.ask(add(b, 4, voter=Voter(ReplicaKey(4, OTHER_DISK), address(4))))
    probe_answered(b, 4, replica=ReplicaKey(4, OTHER_DISK))
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]


def test_no_change_leaves_a_majority_that_cannot_vote(bench):
    """Were the leader to restart now, nobody could be elected ever again, though two of three are intact."""
    b = leader(bench)
    end_offset, epoch = b.state.log.end_offset, b.state.log.last_epoch
    b.fetch(3, end_offset, epoch, is_recovering=True, losses=1)
    for changed in (2, 1):
        assert b.ask(remove(b, changed)) is None and appended(b) == []
        assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
        catch_up(b, 2)
    assert b.ask(remove(b, 2)) is None and appended(b) == []
    b.fetch(3, end_offset, epoch, losses=1)
    assert appended(b) == [(1, 3)]


def test_no_change_counts_on_a_voter_that_may_recover_and_has_not_said_so(bench):
    """It has not fetched from this leader: were the leader to restart now, nobody could be elected."""
    b = leader(bench)
    end_offset, epoch = b.state.log.end_offset, b.state.log.last_epoch
    assert b.ask(remove(b, 2)) is None and appended(b) == []
    b.fetch(3, end_offset, epoch, is_recovering=True, losses=1)
    assert appended(b) == []
    b.fetch(3, end_offset, epoch, losses=1)
    assert appended(b) == [(1, 3)]


def test_no_change_counts_on_a_voter_that_has_fallen_silent(bench):
    b = leader(bench)
    catch_up(b, 3)
    b.step(TimerFired(), after_ms=2000)
    catch_up(b, 2)
    assert b.ask(remove(b, 2)) is None and appended(b) == []
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    assert b.ask(remove(b, 3)) is None and appended(b) == [(1, 2)]


def test_new_voter_counts_for_the_majority_that_it_joins(bench):
    b = leader(bench)
    b.ask(add(b, 4))
    probe_answered(b, 4)
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)], "3 is away, and need not be asked"


def test_voter_that_is_recovering_may_be_removed(bench):
    b = leader(bench)
    b.fetch(3, b.state.log.end_offset, b.state.log.last_epoch, is_recovering=True, losses=1)
    assert b.ask(remove(b, 3)) is None and appended(b) == [(1, 2)]


def test_removed_voter_completes_no_majority_any_more(bench):
    b = leader(bench)
    b.ask(remove(b, 3))
    b.flush()
    catch_up(b, 3)
    assert b.state.high_watermark < b.state.log.end_offset
    catch_up(b, 2)
    assert b.state.high_watermark == b.state.log.end_offset and answers(b) == [ErrorCode.NONE]


def test_removed_leader_leads_on_without_counting_itself_and_goes_with_the_commit(bench):
    b = leader(bench)
    catch_up(b, 3)
    assert b.ask(remove(b, 1)) is None and isinstance(b.state.role, Leader)
    b.flush()
    catch_up(b, 2)
    assert isinstance(b.state.role, Leader)  # one of two is no majority, and itself it is no voter
    catch_up(b, 3)
    assert answers(b) == [ErrorCode.NONE] and isinstance(b.state.role, Resigned)
    goodbyes = [s.request for s in b.of(Send) if isinstance(s.request, EndQuorumEpochRequest)]
    assert {key.id for key in goodbyes[0].preferred_successors} == {2, 3}
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Unattached)  # an observer now: it asks around, and does not stand
    assert [type(s.request) for s in b.of(Send)] == [FetchRequest]
    b.step(TimerFired(), after_ms=100_000)
    assert isinstance(b.state.role, Unattached)


def test_removed_leader_without_fetches_from_a_majority_of_the_others_resigns(bench):
    b = leader(bench)
    catch_up(b, 3)
    b.ask(remove(b, 1))
    assert appended(b) == [(2, 3)]
    b.step(TimerFired(), after_ms=3001)
    assert isinstance(b.state.role, Resigned)


def test_removed_leader_that_one_of_two_others_fetches_from_resigns(bench):
    b = leader(bench)
    catch_up(b, 3)
    b.ask(remove(b, 1))
    for _ in range(3):
        assert isinstance(b.state.role, Leader)
        b.step(TimerFired(), after_ms=1000)
        catch_up(b, 2)
    b.step(TimerFired(), after_ms=1)
    assert isinstance(b.state.role, Resigned)


def test_who_waits_is_told_when_leadership_is_lost(bench):
    b = leader(bench)
    b.ask(remove(b, 3))
    b.ask(VoteRequest("c", b.keys[2], b.keys[1], 9, 8, 99))
    assert answers(b) == [ErrorCode.NOT_CONTROLLER]


def test_too_many_waiting_changes_are_refused_at_once(bench):
    b = leader(bench)
    b.ask(remove(b, 3))
    for _ in range(15):
        assert b.ask(remove(b, 2)) is None
    assert b.ask(remove(b, 2)).error is ErrorCode.REQUEST_TIMED_OUT


def test_first_leader_of_voters_that_only_formatting_named_writes_them_into_the_log(bench):
    b = bench(voters=1, local_address=address(1), history=VoterHistory(voters_of(bench, 1), is_shared=False))
    effects = [e for e in b.effects if isinstance(e, AppendVoters)]
    assert [(e.base_offset, e.end_offset, e.voters.ids) for e in effects] == [(1, 3, (1,))]
    again = bench(voters=1, history=VoterHistory(voters_of(bench, 1), [(1, voters_of(bench, 1))]))
    assert again.of(AppendVoters) == []


def voters_of(bench, count):
    return bench(voters=count).voters


def test_leader_that_listens_elsewhere_than_the_set_says_changes_its_entry(bench):
    b = bench(voters=1, local_address=address(77))
    b.flush()
    assert [e.voters.get(1).address for e in b.of(AppendVoters)] == [address(77)]


def test_voter_is_moved(bench):
    b = leader(bench)
    moved = Voter(b.keys[2], address(77))
    b.ask(UpdateRaftVoterRequest("c", moved, 1000))
    assert [e.voters.get(2) for e in b.of(AppendVoters)] == [moved]
    b.flush()
    catch_up(b, 2)
    assert answers(b) == [ErrorCode.NONE]
    assert b.ask(UpdateRaftVoterRequest("c", moved, 1000)).error is ErrorCode.NONE
    assert b.of(AppendVoters) == []


# --- at a follower ------------------------------------------------------------------------------------------


def follower(bench, node_id=2, end_offset=1, **options):
    """Follows 1 in epoch 1, with one record of that epoch."""
    return bench(
        node_id=node_id,
        election=ElectionState(1, 1),
        epoch_starts=[(1, 0)],
        end_offset=end_offset,
        **options,
    )


def answer_fetch(b, **changed):
    """The leader answers the open fetch: by default, that there is nothing new."""
    response = FetchResponse("c", b.keys[1], ErrorCode.NONE, 1, 1, 1)
    b.step(ResponseReceived(b.state.role.fetch_correlation, replace(response, **changed)))


def receive(b, voters, high_watermark=1):
    span = BatchSpan(1, 2, 1, voters)
    answer_fetch(b, batches=(span,), payload="records", high_watermark=high_watermark)


def test_set_is_in_force_with_its_append_and_no_longer_after_truncation(bench):
    b = follower(bench, node_id=4)
    assert not b.state.is_voter
    receive(b, b.voters.with_voter(voter(b, 4)))
    assert b.state.is_voter and [e.voters.ids for e in b.of(VotersChanged)] == [(1, 2, 3, 4)]
    b.flush()
    b.ask(BeginQuorumEpochRequest("c", b.keys[2], b.keys[4], 2, address(2)))
    b.answer(FetchResponse("c", b.keys[2], ErrorCode.NONE, 2, 2, 1, diverging=DivergingEpoch(1, 1)))
    assert b.of(TruncateTo) == [TruncateTo(1)]
    assert not b.state.is_voter and b.state.voters == b.voters
    assert [e.voters.ids for e in b.of(VotersChanged)] == [(1, 2, 3)]


def test_new_voter_stands_when_its_leader_is_silent_and_a_removed_one_does_not_any_more(bench):
    b = follower(bench, node_id=4)
    receive(b, b.voters.with_voter(voter(b, 4)))
    b.flush()
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Prospective)
    b = follower(bench)
    receive(b, b.voters.without(2), high_watermark=2)
    b.flush()
    assert b.state.high_watermark == 2
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Follower)


def test_voter_whose_removal_is_not_committed_stands_but_does_not_count_itself(bench):
    """It may be the only one that holds the removal: 2 cannot win without its vote, nor get it."""
    b = bench(
        voters=2,
        election=ElectionState(1, 1),
        epoch_starts=[(1, 0)],
        end_offset=2,
        history=VoterHistory(voters_of(bench, 2), [(1, voters_of(bench, 2).without(1))]),
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


def test_vote_is_given_to_a_candidate_and_a_leader_is_followed_that_the_set_does_not_hold(bench):
    b = follower(bench)
    b.step(TimerFired(), after_ms=10_000)
    assert b.ask(VoteRequest("c", b.keys[5], b.keys[2], 2, 1, 9)).vote_granted
    answer = b.ask(BeginQuorumEpochRequest("c", b.keys[5], b.keys[2], 2, address(5)))
    assert answer.error is ErrorCode.NONE and answer.leader_address == address(5)
    (fetch,) = b.of(Send)
    assert (fetch.to, fetch.address) == (5, address(5))


def test_replaced_disk_does_not_vote_under_its_old_identity(bench):
    b = bench(node_id=2, local=ReplicaKey(2, OTHER_DISK))
    answer = b.ask(VoteRequest("c", b.keys[1], b.keys[2], 5, 0, 0))
    assert answer.error is ErrorCode.INVALID_VOTER_KEY and not answer.vote_granted


def test_who_knows_no_voters_asks_the_bootstrap_servers_and_follows_whom_they_name(bench):
    config = QuorumConfig(bootstrap_servers=(address(2), address(4)))
    b = bench(node_id=4, local_address=address(4), history=VoterHistory(NO_VOTERS), config=config)
    (fetch,) = b.of(Send)
    assert fetch.to < 0 and fetch.address == address(2)  # not itself
    hint = FetchResponse("c", b.keys[2], ErrorCode.FENCED_LEADER_EPOCH, 3, 1, leader_address=address(1))
    b.step(ResponseReceived(fetch.correlation_id, hint))
    assert isinstance(b.state.role, Follower) and [s.address for s in b.of(Send)] == [address(1)]


def test_nobody_to_ask_is_refused_at_start(bench):
    with pytest.raises(ValueError, match="no voters are known"):
        bench(history=VoterHistory(NO_VOTERS))


def caught_up(b):
    """The leader answers that there is nothing new."""
    answer_fetch(b)
    return [s.request for s in b.of(Send) if not isinstance(s.request, FetchRequest)]


def test_controller_joins_by_itself_once_it_has_caught_up(bench):
    config = QuorumConfig(auto_join=True)
    b = follower(bench, node_id=4, local_address=address(4), config=config)
    assert [type(s.request) for s in b.of(Send)] == [FetchRequest]
    (request,) = caught_up(b)
    assert isinstance(request, AddRaftVoterRequest) and request.voter == voter(b, 4)
    assert not request.ack_when_committed  # the commit may need its fetches
    assert caught_up(follower(bench, node_id=4, local_address=address(4))) == []


def test_controller_with_a_replaced_disk_has_the_old_one_removed_first(bench):
    config = QuorumConfig(auto_join=True)
    b = follower(bench, local=ReplicaKey(2, OTHER_DISK), local_address=address(2), config=config)
    (request,) = caught_up(b)
    assert request == RemoveRaftVoterRequest("c", b.keys[2], 1000, only_if_silent=True)
    b.answer(VoterChangeResponse("c", b.keys[1], ErrorCode.NONE, 1, 1))
    assert not [s for s in b.of(Send) if not isinstance(s.request, FetchRequest)]
    receive(b, b.voters.without(2))
    b.flush()
    b.step(TimerFired(), after_ms=1000)
    requests = [s.request for s in b.of(Send) if not isinstance(s.request, FetchRequest)]
    assert [type(request) for request in requests] == [AddRaftVoterRequest]


def test_voter_that_listens_elsewhere_tells_the_leader_until_the_set_shows_it(bench):
    b = follower(bench, local_address=address(77))
    (request,) = caught_up(b)
    assert request == UpdateRaftVoterRequest("c", Voter(b.keys[2], address(77)), 1000)
    correlation_id = next(c for c in b.state.in_flight if c == b.state.role.change_correlation)
    b.step(RequestFailed(correlation_id))
    b.step(TimerFired(), after_ms=1000)
    assert [type(s.request) for s in b.of(Send)] == [UpdateRaftVoterRequest]
    receive(b, VoterSet([voter(b, 1), Voter(b.keys[2], address(77)), voter(b, 3)]))
    b.step(RequestFailed(b.state.role.change_correlation))
    b.flush()
    answer_fetch(b)
    b.step(TimerFired(), after_ms=1900)
    assert b.of(Send) == [] and b.state.role.change_correlation is None


def test_leader_that_removes_itself_is_fetched_from_until_it_goes(bench):
    b = follower(bench)
    receive(b, b.voters.without(1))
    b.flush()
    assert [s.address for s in b.of(Send)] == [address(1)]


def test_observer_whose_leader_is_silent_is_told_of_its_new_address(bench):
    b = follower(bench, node_id=4)
    b.step(RequestFailed(b.state.role.fetch_correlation))
    b.step(TimerFired(), after_ms=10_000)
    asked = next(iter(b.state.in_flight.values()))
    told = FetchResponse(
        "c", b.keys[asked.id], ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1, leader_address=address(9)
    )
    b.step(ResponseReceived(b.state.role.fetch_correlation, told))
    assert b.state.leader_address == address(9)


def test_follower_is_told_of_its_leaders_new_address_by_the_leader(bench):
    b = follower(bench)
    b.ask(BeginQuorumEpochRequest("c", b.keys[1], b.keys[2], 1, address(9)))
    assert b.state.leader_address == address(9)
