"""A coordinator is checked while it is the newest; its successor must have the same state."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.group_coordinator.shard import GroupShard
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.records import GroupRecord
from pykraft.jepsen_like.simulation.cluster.checks.group_watch import GroupWatch
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map
from tests.simulation.test_group_checks import Written, commit_of, group_at, image, member_at


def fail(name: str, detail: str) -> None:
    raise InvariantViolation(name, detail)


def watch() -> GroupWatch:
    return GroupWatch(fail, image, lambda: 0.0)


def shard(leader_epoch: int, *records: GroupRecord) -> GroupShard:
    writer = Written(*records)
    made = GroupShard(0, leader_epoch, writer)
    writer.load(made)
    return made


class Clock:
    now_s = 0.0


class Log:
    def __init__(self, *records: GroupRecord) -> None:
        inputs = [RecordInput(key, value) for key, value in map(encode_record, records)]
        self._batches = [encode_batch([one], base_offset=offset) for offset, one in enumerate(inputs)]
        self.log_end_offset = len(inputs)
        self.cleaned_end_offset = 0

    def iter_batches(self, start_offset: int, end_offset: int) -> Any:
        return [(header, data) for data in self._batches[:end_offset] for _, header in iter_headers(data)]


def machine(*records: GroupRecord) -> Any:
    replica = SimpleNamespace(log=Log(*records))
    replicas = SimpleNamespace(table=SimpleNamespace(find=lambda topic, index: replica))
    return cast(Any, SimpleNamespace(id=1, alive=True, parts=SimpleNamespace(replicas=replicas)))


def test_a_coordinator_whose_log_lacks_what_was_committed_is_found() -> None:
    looking = watch()
    looking.committed(shard(1, commit_of(1), commit_of(2)))
    with pytest.raises(InvariantViolation, match="a_coordinator_knows_what_was_committed"):
        looking.loaded(machine(commit_of(1)), shard(2, commit_of(1)))


@pytest.mark.parametrize(("newest_epoch", "is_found"), [(1, True), (2, False)])
def test_a_coordinator_that_lost_its_log_may_load_it_only_if_it_is_replaced(
    newest_epoch: int, is_found: bool
) -> None:
    topic = TopicImage(
        OFFSETS_TOPIC, Uuid(b"o" * 16), (PartitionRegistration((1,), (1,), 1, newest_epoch, 0),)
    )
    newest = MetadataImage(
        offset=1, topics_by_id=Map({topic.id: topic}), topic_ids=Map({topic.name: topic.id})
    )
    found: list[str] = []
    looking = GroupWatch(lambda name, detail: found.append(name), lambda: newest, lambda: 0.0)
    looking.committed(shard(1, commit_of(1), commit_of(2)))
    looking.loaded(machine(), shard(1))
    assert found == ["a_coordinator_knows_what_was_committed"] * is_found


def test_a_coordinator_whose_log_says_something_else_is_found() -> None:
    looking = watch()
    looking.committed(shard(1, commit_of(1), commit_of(2)))
    with pytest.raises(InvariantViolation, match="committed_offsets_are_what_the_log_says"):
        looking.loaded(machine(commit_of(1), commit_of(3)), shard(2, commit_of(1), commit_of(3)))


def test_a_coordinator_that_knows_what_was_committed_is_right() -> None:
    looking = watch()
    looking.committed(shard(1, commit_of(1), commit_of(2)))
    looking.loaded(
        machine(commit_of(1), commit_of(2), commit_of(3)), shard(2, commit_of(1), commit_of(2), commit_of(3))
    )
    assert looking.replays == 1


def test_a_log_that_was_compacted_beyond_what_was_seen_is_not_compared() -> None:
    """What a coordinator had committed last was not seen, if none that followed had loaded it meanwhile."""
    looking = watch()
    looking.committed(shard(1, commit_of(1), commit_of(2)))
    following = machine(commit_of(3), commit_of(4), commit_of(4))
    following.parts.replicas.table.find("", 0).log.cleaned_end_offset = 3
    looking.loaded(following, shard(2, commit_of(3), commit_of(4), commit_of(4)))
    assert looking.replays == 0
    following.parts.replicas.table.find("", 0).log.cleaned_end_offset = 2
    with pytest.raises(InvariantViolation, match="committed_offsets_are_what_the_log_says"):
        looking.loaded(following, shard(2, commit_of(3), commit_of(4), commit_of(4)))


def test_epochs_of_a_coordinator_that_was_replaced_are_old_news() -> None:
    looking = watch()
    looking.committed(shard(2, group_at(5), member_at(5)))
    looking.committed(shard(1, group_at(4), member_at(4)))
    with pytest.raises(InvariantViolation, match="group_epochs_monotone"):
        looking.committed(shard(3, group_at(4), member_at(4)))


def test_what_was_not_guaranteed_may_be_lost_by_the_next_coordinator_only() -> None:
    looking = watch()
    looking.committed(shard(1, group_at(5), member_at(5)))
    looking.exempt(0, 1)
    looking.committed(shard(1, group_at(6), member_at(6)))
    looking.loaded(machine(group_at(4)), shard(2, group_at(4)))
    looking.committed(shard(2, group_at(4), member_at(4)))
    with pytest.raises(InvariantViolation, match="group_epochs_monotone"):
        looking.committed(shard(2, group_at(3), member_at(3)))


def test_group_that_converges_later_than_three_heartbeats_after_its_last_change_is_found() -> None:
    clock = Clock()
    looking = GroupWatch(fail, image, lambda: clock.now_s)
    looking.calm("g", 3.0)
    looking.committed(shard(1, group_at(5), member_at(4)))
    clock.now_s = 2.9
    looking.committed(shard(1, group_at(5), member_at(4), commit_of(1)))
    assert looking.convergences == 0
    clock.now_s = 3.1
    with pytest.raises(InvariantViolation, match="a_group_converges_in_time"):
        looking.committed(shard(1, group_at(5), member_at(5)))
