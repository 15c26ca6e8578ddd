"""Which voter set applies at which offset."""

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.voter_history import VoterHistory
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address

KEYS = {i: ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in range(1, 6)}


def voters(*ids: int) -> VoterSet:
    return VoterSet([Voter(KEYS[i], Address("h", i)) for i in ids])


A, B, C = voters(1, 2), voters(1, 2, 3), voters(2, 3)


def test_newest_set_applies_and_each_from_its_record_on() -> None:
    history = VoterHistory(A, [(5, B), (9, C)])
    assert history.current == C and history.current_offset == 9
    assert [history.at(end) for end in (0, 5, 6, 9, 10, 99)] == [A, A, B, B, C, C]


@pytest.mark.parametrize(("end_offset", "left"), [(10, C), (9, B), (6, B), (5, A), (0, A)])
def test_truncation_reverts_the_sets_whose_records_it_drops(end_offset: int, left: VoterSet) -> None:
    history = VoterHistory(A, [(5, B), (9, C)])
    history.truncate(end_offset)
    assert history.current == left


def test_set_at_a_new_log_start_becomes_the_base() -> None:
    history = VoterHistory(A, [(5, B), (9, C)], is_shared=False)
    history.forget_before(8)
    assert history.at(0) == B and history.current == C and history.is_shared
    history.truncate(9)
    assert history.current == B
    history.forget_before(8)
    assert history.current == B


def test_snapshot_replaces_everything() -> None:
    history = VoterHistory(A, [(5, B)])
    history.replace(C)
    assert history.current == C and history.at(0) == C and history.current_offset == -1


def test_only_sets_in_the_log_or_a_snapshot_are_replicated() -> None:
    history = VoterHistory(A, is_shared=False)
    assert not history.is_shared
    history.append(0, A)
    assert history.is_shared
    history.truncate(0)
    assert not history.is_shared


def test_removed_voter_is_known_until_the_removal_is_committed() -> None:
    history = VoterHistory(B, [(9, C)])
    assert history.names_since(KEYS[1], 9) and not history.names_since(KEYS[1], 10)
    assert history.names_since(KEYS[3], 10)
    assert not VoterHistory(NO_VOTERS).names_since(KEYS[1], 0)


def test_records_must_come_in_order() -> None:
    with pytest.raises(AssertionError):
        VoterHistory(A, [(5, B), (5, C)])


def test_set_with_one_changed_voter_keeps_the_others() -> None:
    moved = Voter(KEYS[2], Address("h", 99))
    assert A.with_voter(moved).get(2) == moved and A.with_voter(moved).get(1) == A.get(1)
    assert B.without(1) == C and B.without(9) == B
    assert NO_VOTERS.majority == 1 and not NO_VOTERS.is_voter(KEYS[1])


def test_snapshot_holds_the_voters_that_are_replicated_and_no_others() -> None:
    history = VoterHistory(A, [(5, B)], is_shared=False)
    assert [history.shared_at(end) for end in (0, 5, 6, 99)] == [None, None, B, B]
    history.forget_before(5)
    assert history.shared_at(5) is None
    history.forget_before(6)
    assert history.shared_at(6) == B
    assert VoterHistory(A).shared_at(1) == A


def test_snapshot_without_voters_removes_those_of_the_log() -> None:
    history = VoterHistory(A, [(5, B)], is_shared=False)
    history.replace(None)
    assert history.current == A and not history.is_shared
