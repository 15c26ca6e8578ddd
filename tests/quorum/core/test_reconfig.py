"""Changing the voters, as the core of a leader does it (KIP-853)."""

from dataclasses import replace
from typing import Unpack

import pytest

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.effects import AppendVoters, Reply, Send
from pykraft.quorum.core.events import RequestFailed, TimerFired
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterChangeResponse,
    VoteRequest,
)
from pykraft.quorum.core.reconfig import MAX_WAIT_MS, changes_deadline_ms
from pykraft.quorum.core.roles import Leader, Resigned, Unattached
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import ReplicaKey, Voter
from tests.narrowing import as_type, present
from tests.quorum.bench import CoreBench
from tests.quorum.fields import AddVoterFields, BeginResponseFields
from tests.quorum.voter_changes import OTHER_DISK, address, answers, catch_up, voter, voters_of


def add(b: CoreBench, node_id: int, **changed: Unpack[AddVoterFields]) -> AddRaftVoterRequest:
    return replace(AddRaftVoterRequest("c", voter(b, node_id), 1000), **changed)


def remove(b: CoreBench, node_id: int) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest("c", b.keys[node_id], 1000)


def leader(voters: int = 3) -> CoreBench:
    """A leader (1) that has committed the first record of its epoch."""
    b = CoreBench(voters=voters, local_address=address(1))
    if voters == 1:
        b.flush()
    else:
        b.lead()
        catch_up(b, *range(2, b.voters.majority + 1))
    b.step(TimerFired(), after_ms=1)
    assert b.state.high_watermark == b.state.log.end_offset
    return b


def probe_answered(b: CoreBench, node_id: int, **changed: Unpack[BeginResponseFields]) -> None:
    b.answer(
        replace(BeginQuorumEpochResponse("c", b.keys[node_id], ErrorCode.NONE, b.state.epoch, 1), **changed)
    )


def appended(b: CoreBench) -> list[tuple[int, ...]]:
    return [e.voters.ids for e in b.of(AppendVoters)]


def wait_for_answer(b: CoreBench, after_ms: int) -> list[ErrorCode]:
    b.step(TimerFired(), after_ms=after_ms)
    return answers(b)


def test_new_voter_counts_once_appended_and_the_answer_comes_with_the_commit() -> None:
    b = leader()
    assert b.send(add(b, 4)) is None
    probe_answered(b, 4)
    assert appended(b) == []
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)] and b.state.voters.majority == 3
    b.flush()
    catch_up(b, 2)
    assert b.state.high_watermark < b.state.log.end_offset and answers(b) == []
    catch_up(b, 4)
    assert b.state.high_watermark == b.state.log.end_offset and answers(b) == [ErrorCode.NONE]


def test_change_without_waiting_for_the_commit_is_answered_at_the_append() -> None:
    b = leader()
    b.send(add(b, 4, ack_when_committed=False))
    probe_answered(b, 4)
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)] and answers(b) == [ErrorCode.NONE]


def test_second_change_waits_for_the_first_and_is_then_made() -> None:
    b = leader()
    assert b.send(remove(b, 3)) is None and appended(b) == [(1, 2)]
    assert b.send(remove(b, 2)) is None and appended(b) == []
    b.flush()
    catch_up(b, 2)
    assert answers(b) == [ErrorCode.NONE] and appended(b) == [(1,)]
    b.flush()
    assert answers(b) == [ErrorCode.NONE] and b.state.voters.ids == (1,)


def test_second_change_times_out_while_the_first_is_not_committed() -> None:
    b = leader()
    b.send(remove(b, 3))
    b.send(remove(b, 2))
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT]
    assert b.state.voters.ids == (1, 2)  # the first is still in progress


def test_no_change_before_the_leader_has_committed_in_its_epoch() -> None:
    b = CoreBench(local_address=address(1))
    b.lead()
    assert b.send(remove(b, 3)) is None and appended(b) == []
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    b.send(remove(b, 3))
    catch_up(b, 2)
    assert appended(b) == [(1, 2)]


def test_fixed_voters_are_not_changed() -> None:
    b = CoreBench(static=True)
    b.lead()
    catch_up(b, 2)
    assert b.ask(add(b, 4)).error is ErrorCode.UNSUPPORTED_VERSION
    assert b.ask(remove(b, 3)).error is ErrorCode.UNSUPPORTED_VERSION


def test_change_is_refused_by_a_replica_that_does_not_lead_and_for_another_cluster() -> None:
    assert CoreBench().ask(add(CoreBench(), 4)).error is ErrorCode.NOT_CONTROLLER
    b = leader()
    assert b.ask(replace(add(b, 4), cluster_id="other")).error is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("directory_id", [None, OTHER_DISK])
def test_present_voter_id_is_not_added_again_with_any_disk(directory_id: Uuid | None) -> None:
    b = leader()
    key = ReplicaKey(2, directory_id or b.keys[2].directory_id)
    assert b.ask(add(b, 2, voter=Voter(key, address(2)))).error is ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("key", [ReplicaKey(2, OTHER_DISK), ReplicaKey(2), ReplicaKey(7, OTHER_DISK)])
def test_replica_that_is_no_voter_by_id_and_directory_is_not_removed_or_moved(key: ReplicaKey) -> None:
    b = leader()
    assert b.ask(RemoveRaftVoterRequest("c", key, 1000)).error is ErrorCode.VOTER_NOT_FOUND
    moved = UpdateRaftVoterRequest("c", Voter(key, address(99)), 1000)
    assert b.ask(moved).error is ErrorCode.VOTER_NOT_FOUND


def test_replaced_disk_does_not_evict_the_one_under_its_id_that_is_alive() -> None:
    """Two nodes with one id that both join automatically would evict each other without end."""
    b = leader()
    request = RemoveRaftVoterRequest("c", b.keys[2], 1000, only_if_silent=True)
    b.send(request)
    catch_up(b, 2)
    assert appended(b) == [] and wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    assert "node id used twice" in present(as_type(b.of(Reply)[0].response, VoterChangeResponse).message)
    catch_up(b, 3)
    b.step(TimerFired(), after_ms=999)
    catch_up(b, 3)
    b.send(request)
    assert appended(b) == [] and b.state.is_voter
    b.step(TimerFired(), after_ms=1)
    assert appended(b) == [(1, 3)]


def test_replaced_disk_does_not_evict_the_leader_itself() -> None:
    b = leader()
    b.send(RemoveRaftVoterRequest("c", b.keys[1], 1000, only_if_silent=True))
    assert appended(b) == [] and wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]


def test_voter_without_a_directory_is_not_added() -> None:
    """The voter set would count as fixed from then on."""
    b = leader()
    b.send(add(b, 4, voter=Voter(ReplicaKey(4), address(4))))
    assert answers(b) == [ErrorCode.INVALID_REQUEST] and appended(b) == []


def test_last_voter_is_not_removed() -> None:
    b = leader(voters=1)
    assert b.ask(remove(b, 1)).error is ErrorCode.INVALID_REQUEST


def test_new_voter_that_does_not_answer_at_its_address_is_not_added() -> None:
    b = leader()
    b.send(add(b, 4))
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


def test_new_voter_is_not_probed_while_another_change_is_in_progress() -> None:
    b = leader()
    b.send(add(b, 4))
    b.step(RequestFailed(b.of(Send)[0].correlation_id))  # asked again after 100 ms
    b.send(remove(b, 3))
    b.step(TimerFired(), after_ms=100)
    assert b.of(Send) == [] and present(b.core.next_deadline_ms) > b.now_ms
    b.flush()
    catch_up(b, 2)
    assert [s.address for s in b.of(Send)] == [address(4)]


def test_new_voter_that_lags_is_not_added() -> None:
    b = leader()
    b.fetch(4, 0, 0)
    b.send(add(b, 4))
    probe_answered(b, 4)
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT] and b.state.voters == b.voters


def test_replaced_disk_that_lags_is_not_confused_with_the_one_that_has_caught_up() -> None:
    b = leader()
    catch_up(b, 4)
    b.send(add(b, 4, voter=Voter(ReplicaKey(4, OTHER_DISK), address(4))))
    probe_answered(b, 4, replica=ReplicaKey(4, OTHER_DISK))
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]


def test_no_change_leaves_a_majority_that_cannot_vote() -> None:
    """If the leader restarted now, no leader could ever be elected, although two of three are intact."""
    b = leader()
    end_offset, epoch = b.state.log.end_offset, b.state.log.last_epoch
    b.fetch(3, end_offset, epoch, is_recovering=True, losses=1)
    for changed in (2, 1):
        assert b.send(remove(b, changed)) is None and appended(b) == []
        assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
        catch_up(b, 2)
    assert b.send(remove(b, 2)) is None and appended(b) == []
    b.fetch(3, end_offset, epoch, losses=1)
    assert appended(b) == [(1, 3)]


def test_no_change_counts_on_a_voter_that_may_recover_and_has_not_said_so() -> None:
    """It has not fetched from this leader: if the leader restarted now, no leader could be elected."""
    b = leader()
    end_offset, epoch = b.state.log.end_offset, b.state.log.last_epoch
    assert b.send(remove(b, 2)) is None and appended(b) == []
    b.fetch(3, end_offset, epoch, is_recovering=True, losses=1)
    assert appended(b) == []
    b.fetch(3, end_offset, epoch, losses=1)
    assert appended(b) == [(1, 3)]


def test_no_change_counts_on_a_voter_that_has_fallen_silent() -> None:
    b = leader()
    catch_up(b, 3)
    b.step(TimerFired(), after_ms=2000)
    catch_up(b, 2)
    assert b.send(remove(b, 2)) is None and appended(b) == []
    assert wait_for_answer(b, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
    assert b.send(remove(b, 3)) is None and appended(b) == [(1, 2)]


def test_new_voter_counts_for_the_majority_that_it_joins() -> None:
    b = leader()
    b.send(add(b, 4))
    probe_answered(b, 4)
    catch_up(b, 4)
    assert appended(b) == [(1, 2, 3, 4)], "3 is down, and is not needed"


def test_recovering_voter_may_be_removed() -> None:
    b = leader()
    b.fetch(3, b.state.log.end_offset, b.state.log.last_epoch, is_recovering=True, losses=1)
    assert b.send(remove(b, 3)) is None and appended(b) == [(1, 2)]


def test_removed_voter_no_longer_completes_a_majority() -> None:
    b = leader()
    b.send(remove(b, 3))
    b.flush()
    catch_up(b, 3)
    assert b.state.high_watermark < b.state.log.end_offset
    catch_up(b, 2)
    assert b.state.high_watermark == b.state.log.end_offset and answers(b) == [ErrorCode.NONE]


def test_removed_leader_leads_without_counting_itself_and_resigns_at_the_commit() -> None:
    b = leader()
    catch_up(b, 3)
    assert b.send(remove(b, 1)) is None and isinstance(b.state.role, Leader)
    b.flush()
    catch_up(b, 2)
    assert isinstance(b.state.role, Leader)  # one of two is no majority, and the leader itself is no voter
    catch_up(b, 3)
    assert answers(b) == [ErrorCode.NONE] and isinstance(b.state.role, Resigned)
    end_requests = [s.request for s in b.of(Send) if isinstance(s.request, EndQuorumEpochRequest)]
    assert {key.id for key in end_requests[0].preferred_successors} == {2, 3}
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(
        b.state.role, Unattached
    )  # an observer now: it searches for the leader and starts no election
    assert [type(s.request) for s in b.of(Send)] == [FetchRequest]
    b.step(TimerFired(), after_ms=100_000)
    assert isinstance(b.state.role, Unattached)


def test_removed_leader_without_fetches_from_a_majority_of_the_others_resigns() -> None:
    b = leader()
    catch_up(b, 3)
    b.send(remove(b, 1))
    assert appended(b) == [(2, 3)]
    b.step(TimerFired(), after_ms=3001)
    assert isinstance(b.state.role, Resigned)


def test_removed_leader_that_one_of_two_others_fetches_from_resigns() -> None:
    b = leader()
    catch_up(b, 3)
    b.send(remove(b, 1))
    for _ in range(3):
        assert isinstance(b.state.role, Leader)
        b.step(TimerFired(), after_ms=1000)
        catch_up(b, 2)
    b.step(TimerFired(), after_ms=1)
    assert isinstance(b.state.role, Resigned)


def test_waiting_changes_are_answered_when_leadership_is_lost() -> None:
    b = leader()
    b.send(remove(b, 3))
    b.send(VoteRequest("c", b.keys[2], b.keys[1], 9, 8, 99))
    assert answers(b) == [ErrorCode.NOT_CONTROLLER]


def test_too_many_waiting_changes_are_refused_at_once() -> None:
    b = leader()
    b.send(remove(b, 3))
    for _ in range(15):
        assert b.send(remove(b, 2)) is None
    assert b.ask(remove(b, 2)).error is ErrorCode.REQUEST_TIMED_OUT


def test_first_leader_of_voters_that_only_formatting_named_writes_them_into_the_log() -> None:
    b = CoreBench(voters=1, local_address=address(1), history=VoterHistory(voters_of(1), is_shared=False))
    effects = [e for e in b.effects if isinstance(e, AppendVoters)]
    assert [(e.base_offset, e.end_offset, e.voters.ids) for e in effects] == [(1, 3, (1,))]
    again = CoreBench(voters=1, history=VoterHistory(voters_of(1), [(1, voters_of(1))]))
    assert again.of(AppendVoters) == []


def test_leader_with_an_address_other_than_in_the_set_updates_its_entry() -> None:
    b = CoreBench(voters=1, local_address=address(77))
    b.flush()
    assert [present(e.voters.get(1)).address for e in b.of(AppendVoters)] == [address(77)]


def test_voter_is_moved() -> None:
    b = leader()
    moved = Voter(b.keys[2], address(77))
    b.send(UpdateRaftVoterRequest("c", moved, 1000))
    assert [e.voters.get(2) for e in b.of(AppendVoters)] == [moved]
    b.flush()
    catch_up(b, 2)
    assert answers(b) == [ErrorCode.NONE]
    assert b.ask(UpdateRaftVoterRequest("c", moved, 1000)).error is ErrorCode.NONE
    assert b.of(AppendVoters) == []


def test_the_change_that_waits_least_is_answered_first() -> None:
    b = leader()
    b.send(remove(b, 3))
    first, second, third = (replace(remove(b, 2), timeout_ms=wait_ms) for wait_ms in (900, 300, 600))
    for request in (first, second, third):
        assert b.send(request) is None
    deadline_ms = changes_deadline_ms(b.role(Leader))
    assert deadline_ms == b.now_ms + 300
    assert wait_for_answer(b, 299) == []
    assert wait_for_answer(b, 1) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(300, 300), (10 * MAX_WAIT_MS, MAX_WAIT_MS)])
def test_change_waits_no_longer_than_it_may(asked_ms: int, waits_ms: int) -> None:
    b = leader()
    b.send(remove(b, 3))
    b.send(replace(remove(b, 2), timeout_ms=asked_ms))
    assert b.role(Leader).changes[-1].deadline_ms == b.now_ms + waits_ms


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_change_that_would_wait_and_may_not_is_answered_at_once(timeout_ms: int) -> None:
    b = leader()
    b.send(remove(b, 3))
    assert b.ask(replace(remove(b, 2), timeout_ms=timeout_ms)).error is ErrorCode.REQUEST_TIMED_OUT
