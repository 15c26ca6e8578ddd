"""What a leader concludes from the fetches of one replica."""

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.progress import LATEST_MS, FetchProgress, majority_reached
from pykraft.quorum.core.voters import ReplicaKey


def progress() -> FetchProgress:
    return FetchProgress(ReplicaKey(2, Uuid(b"2" * 16)), 0, 1_000, 500)


def test_replica_that_fetches_from_the_end_has_caught_up_now() -> None:
    it = progress()
    it.record_fetch(9, 10, 2_000)
    assert (it.end_offset, it.last_caught_up_ms, it.last_fetch_ms) == (9, 1_000, 2_000)
    it.record_fetch(10, 10, 3_000)
    assert (it.end_offset, it.last_caught_up_ms, it.last_fetch_ms) == (10, 3_000, 3_000)


def test_replica_that_has_what_the_leader_had_at_its_last_fetch_had_caught_up_then() -> None:
    it = progress()
    it.record_fetch(10, 10, 2_000)
    it.record_fetch(10, 15, 3_000)
    assert it.last_caught_up_ms == 2_000
    it.record_fetch(14, 20, 4_000)
    assert it.last_caught_up_ms == 2_000, "it lacks one of those that were there at its last fetch"
    it.record_fetch(20, 30, 5_000)
    assert it.last_caught_up_ms == 4_000


def test_late_fetch_lowers_nothing() -> None:
    it = progress()
    it.record_fetch(10, 10, 3_000)
    it.record_fetch(4, 10, 2_000)
    it.record_contact(2_500)
    assert (it.end_offset, it.last_fetch_ms) == (10, 3_000)


@pytest.mark.parametrize(("after_ms", "is_believed"), [(LATEST_MS, False), (LATEST_MS + 1, True)])
def test_loss_that_is_not_repeated_in_time_was_not_its_own(after_ms: int, is_believed: bool) -> None:
    it = progress()
    it.record_fetch(10, 10, 1_000)
    assert not it.is_believed(2, 1_000, is_recovering=True)
    assert (it.losses, it.end_offset, it.is_recovering) == (2, 0, True)
    assert it.is_believed(1, 1_000 + after_ms, is_recovering=False) is is_believed
    assert it.losses == (1 if is_believed else 2)


def test_majority_has_reached_what_so_many_have() -> None:
    assert [majority_reached([7, 3, 5], majority) for majority in (1, 2, 3)] == [7, 5, 3]
