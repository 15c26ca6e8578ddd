"""What a replica tells its observer, and when."""

from typing import Any

from pykraft.broker.replicas.partition.observer import PartitionObserver
from tests.broker.partitions import acknowledge, append, make, state, stored


class Told(PartitionObserver):
    """With the end of the log and the high watermark that the observer finds."""

    def __init__(self) -> None:
        self.words: list[tuple[str, int, int]] = []

    def note(self, what: str, partition: Any) -> None:
        self.words.append((what, partition.log.log_end_offset, partition.high_watermark))

    def became_leader(self, partition: Any) -> None:
        assert partition.is_leader
        self.note("leads", partition)

    def high_watermark_moved(self, partition: Any) -> None:
        self.note("moved", partition)

    def log_truncated(self, partition: Any) -> None:
        self.note("truncated", partition)

    def log_restarted(self, partition: Any) -> None:
        self.note("restarted", partition)

    def records_deleted(self, partition: Any) -> None:
        self.note(f"deleted to {partition.log.log_start_offset}", partition)

    def records_read(self, partition: Any, offset: int) -> None:
        self.note(f"read from {offset}", partition)


def test_leader_is_observed_when_it_leads_commits_deletes_and_is_read() -> None:
    told = Told()
    partition = make(observer=told)
    partition.apply(state(1), 0)
    append(partition)
    append(partition)
    acknowledge(partition, 2, 2, 3, epoch=-1)
    assert told.words == [("leads", 0, 0), ("moved", 2, 2)]
    assert partition.read_committed(1, 1000, at_least_one=True) is not None
    assert partition.read_committed(2, 1000, at_least_one=True) is None
    partition.delete_records(1)
    assert told.words[2:] == [("read from 1", 2, 2), ("deleted to 1", 2, 2)]


def test_follower_is_observed_when_it_learns_truncates_and_starts_over() -> None:
    told = Told()
    partition = make(observer=told)
    partition.apply(state(2), 0)
    for offset in range(3):
        partition.append_as_follower(memoryview(stored(offset, 0)), 0)
    partition.follow(2, 0)
    partition.follow(2, 0)
    partition.truncate_to(2)
    partition.restart_at(7)
    assert told.words == [("moved", 3, 2), ("truncated", 2, 2), ("restarted", 7, 7)]
