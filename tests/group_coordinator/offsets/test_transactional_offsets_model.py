"""Random commits, transactions, markers, deletions and failovers against a model that keeps every record."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import pytest

from pykraft.group_coordinator.offsets.delete import handle_offset_delete
from pykraft.group_coordinator.offsets.delete_groups import handle_delete_groups
from pykraft.group_coordinator.offsets.large_deletions import LargeGroupDeletion, LargeOffsetDelete
from pykraft.group_coordinator.state.commits import TopicCommit, write_commit
from pykraft.group_coordinator.state.offset_table import rows_of
from pykraft.group_coordinator.state.prepared_change import PreparedChange
from pykraft.group_coordinator.state.records import OffsetCommitValue
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group_coordinator.tools import topic_id
from tests.group_coordinator.transactional_log import TransactionalLab, commit_request, load_state

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1, 2, 3), (1, 2, 3)
Key = tuple[str, str, int]


class Written(NamedTuple):
    """An offset, and the place of its record among all records."""

    offset: int
    place: int


class Model:
    """As Kafka tells it: each offset with the place of its record; the later record wins."""

    def __init__(self) -> None:
        self.committed: dict[Key, Written] = {}
        self.pending: dict[int, dict[Key, Written]] = {}

    def end(self, producer_id: int, *, commits: bool) -> None:
        for key, written in self.pending.pop(producer_id, {}).items():
            older = self.committed.get(key)
            if commits and (older is None or older.place < written.place):
                self.committed[key] = written

    def delete(self, key: Key) -> None:
        self.committed.pop(key, None)
        for one in self.pending.values():
            one.pop(key, None)

    def open_keys(self) -> set[Key]:
        return {key for one in self.pending.values() for key in one}

    def keys_of(self, group_id: str) -> list[Key]:
        return [key for key in {*self.committed, *self.open_keys()} if key[0] == group_id]


class Play:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.lab = TransactionalLab()
        self.model = Model()
        self.written = 0

    def step(self) -> None:
        steps = (self.commit, self.commit_large, self.commit_in_transaction, self.end, self.delete_offsets)
        more = (self.delete_group, self.fail_over)
        weights = (5, 2, 9, 6, 2, 1, 1)
        self.rng.choices((*steps, *more), weights)[0]()
        self.check()

    def _offsets(self) -> tuple[str, str, Mapping[int, Written]]:
        group_id, topic = self.rng.choice(GROUPS), self.rng.choice(TOPICS)
        offsets = {}
        for partition in sorted(self.rng.sample(PARTITIONS, self.rng.randint(1, 3))):
            self.written += 1
            offsets[partition] = Written(self.rng.randrange(1000), self.written)
        return group_id, topic, offsets

    def _plain(self) -> list[TopicCommit]:
        group_id, topic, offsets = self._offsets()
        commits = []
        for partition, written in offsets.items():
            self.model.committed[group_id, topic, partition] = written
            value = OffsetCommitValue(written.offset, 0, "", 5, None, topic_id(topic))
            commits.append(TopicCommit(group_id, topic, rows_of(partition, value)))
        return commits

    def commit(self) -> None:
        result = CoordinatorResult(None, tuple(self._plain()))
        self.lab.apply(lambda _: result)

    def commit_large(self) -> None:
        commits = self._plain()
        change = PreparedChange(commits[0].group_id)
        for commit in commits:
            write_commit(change.builder, commit)
            change.add(commit.topic, commit.rows)
        self.lab.apply(lambda _: CoordinatorResult(None, (change,)))

    def commit_in_transaction(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        group_id, topic, offsets = self._offsets()
        for partition, written in offsets.items():
            self.model.pending.setdefault(producer_id, {})[group_id, topic, partition] = written
        by_partition = {partition: written.offset for partition, written in offsets.items()}
        request = commit_request(by_partition, producer_id, topic=topic, group_id=group_id)
        assert set(self.lab.commit(request)) == {0}

    def end(self) -> None:
        producer_id, commits = self.rng.choice(PRODUCERS), self.rng.random() < 0.7
        self.model.end(producer_id, commits=commits)
        self.lab.end(producer_id, commits=commits)
        assert producer_id not in self.lab.state.pending.by_producer

    def delete_offsets(self) -> None:
        group_id, topic, offsets = self._offsets()
        if not self.model.keys_of(group_id):
            return
        asked = [OffsetDeleteRequestPartition(partition_index=partition) for partition in offsets]
        request = OffsetDeleteRequest(
            group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)]
        )
        for partition in offsets:
            self.model.delete((group_id, topic, partition))
        if self.rng.random() < 0.5:
            large = LargeOffsetDelete(request, self.lab.topics, 1 << 20)
            for _ in large.prepare(self.lab.state):
                pass
            self.lab.apply(large.decide)
        else:
            self.lab.apply(lambda state: handle_offset_delete(state, request, self.lab.topics))

    def delete_group(self) -> None:
        group_id = self.rng.choice(GROUPS)
        for key in self.model.keys_of(group_id):
            self.model.delete(key)
        if self.rng.random() < 0.5:
            large = LargeGroupDeletion(group_id, 1 << 20)
            for _ in large.prepare(self.lab.state):
                pass
            self.lab.apply(large.decide)
        else:
            self.lab.apply(lambda state: handle_delete_groups(state, [group_id], 1 << 20))

    def fail_over(self) -> None:
        before = self.lab.state
        self.lab.fail_over()
        assert as_told(self.lab.state) == as_told(before)
        assert self.lab.state == before

    def check(self) -> None:
        state, model = self.lab.state, self.model
        assert as_told(state) == {key: written.offset for key, written in model.committed.items()}
        opened = {
            (group_id, topic, partition)
            for group_id, topics in state.pending.open.items()
            for topic, lines in topics.items()
            for partition in lines
        }
        assert opened == model.open_keys()
        assert state.group_ids() == {key[0] for key in {*model.committed, *opened}}


def as_told(state: ShardState) -> dict[Key, int]:
    return {
        (group_id, topic, partition): value.offset
        for group_id, topics in state.offsets.items()
        for topic, offsets in topics.items()
        for partition, value in offsets.items()
    }


@pytest.mark.parametrize("seed", range(40))
def test_what_counts_is_what_the_model_says(seed: int) -> None:
    play = Play(seed)
    for _ in range(120):
        play.step()
    assert load_state(play.lab.log) == play.lab.state
    for producer_id in PRODUCERS:
        play.lab.end(producer_id, commits=True)
        play.model.end(producer_id, commits=True)
    play.check()
    assert not play.lab.state.pending.open and not play.lab.state.pending.by_producer
