"""Checks group coordinators at work: whenever a shard commits, and when another coordinator takes it over.

A coordinator that was replaced and does not know it yet is not checked: its state is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.jepsen_like.simulation.cluster.checks.group_checks import (
    GroupChecks,
    check_replay,
    check_stable_group,
    check_targets,
    find_unstable,
)
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.markers import COMMIT
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.kafka_protocol.records import BatchHeader

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.group_coordinator.shard import GroupShard
    from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
    from pykraft.jepsen_like.simulation.cluster.view import Machine
    from pykraft.metadata_log.image import MetadataImage


class _Seen(NamedTuple):
    """The commits known to a coordinator in ``leader_epoch``, up to ``offset`` (exclusive)."""

    leader_epoch: int
    offset: int
    state: ShardState


@dataclass(slots=True)
class _Convergence:
    """When the last change of a group began; ``is_over`` once it is complete."""

    within_s: float
    change: tuple[int, int, int] = (-1, -1, -1)
    since_s: float = 0.0
    is_over: bool = False


_NOTHING = _Seen(-1, -1, EMPTY_STATE)


class GroupWatch:
    """``fail`` is called with the broken invariant, and how; ``image`` is the newest committed image.

    ``replays``: how often a shard was compared with a log; ``convergences``: how often a group was
    reconciled after a change.
    """

    def __init__(
        self,
        fail: Callable[[str, str], None],
        image: Callable[[], MetadataImage],
        now_s: Callable[[], float],
    ) -> None:
        self._fail = fail
        self._image = image
        self._now_s = now_s
        self._calm: dict[str, _Convergence] = {}
        self._checks = GroupChecks()
        self._seen: dict[int, _Seen] = {}
        self._exempted: dict[int, int] = {}
        self.replays = 0
        self.convergences = 0

    def exempt(self, partition: int, leader_epoch: int) -> None:
        """The records committed to a shard up to ``leader_epoch`` are no longer guaranteed."""
        self._seen.pop(partition, None)
        self._exempted[partition] = leader_epoch
        self._checks.tails_lost()

    def committed(self, shard: GroupShard) -> None:
        """The committed state of a shard may have changed."""
        if self._is_old(shard):
            return
        seen = self._seen.get(shard.partition, _NOTHING)
        state = shard.committed
        if state is seen.state and shard.leader_epoch == seen.leader_epoch:
            return
        self._seen[shard.partition] = _Seen(shard.leader_epoch, shard._timeline.committed_offset, state)
        with self._failing():
            for group in self._checks.look(state):
                check_targets(group, self._image())
                self._converge(group, shard.leader_epoch)

    def loaded(self, machine: Machine, shard: GroupShard) -> None:
        """Another coordinator has loaded a shard: its log must hold everything that was committed before."""
        seen = self._seen.get(shard.partition)
        if seen is None or self._is_old(shard) or self._is_over(shard):
            return
        replica = _replica(machine, shard.partition)
        if replica is not None and replica.log.log_end_offset < seen.offset:
            detail = f"{machine.id} coordinates {replica} with {replica.log.log_end_offset} of {seen.offset}"
            self._fail("a_coordinator_knows_what_was_committed", detail)
        self._compare(machine, shard.partition, seen)

    def calm(self, group_id: str, within_s: float) -> None:
        """Members no longer join, leave or subscribe: after every change of the target, or of the
        coordinator, the group must be reconciled within so many seconds."""
        self._calm[group_id] = _Convergence(within_s)

    def _converge(self, group: ConsumerGroup, leader_epoch: int) -> None:
        known = self._calm.get(group.group_id)
        if known is None:
            return
        change = (group.epoch, group.assignment_epoch, leader_epoch)
        if known.change != change:
            known.change, known.since_s = change, self._now_s()
        took_s = self._now_s() - known.since_s
        if took_s > known.within_s and not known.is_over:
            self._fail("a_group_converges_in_time", f"{group.group_id} takes {took_s:.3f} s: {group}")
        is_over = find_unstable(group) is None
        self.convergences += is_over and not known.is_over
        known.is_over = is_over

    def check_stable(self, machines: Iterable[Machine], group_id: str) -> None:
        """By now the members of a group must own their targets."""
        for machine in machines:
            for shard in shards_of(machine):
                group = shard.committed.consumer_group(group_id)
                if group is not None and not self._is_old(shard):
                    with self._failing():
                        check_stable_group(group)
                        check_targets(group, self._image())

    def everything_agrees(self, machines: Iterable[Machine]) -> None:
        """Every replica's log must give the state of the coordinators."""
        for partition, seen in self._seen.items():
            for machine in machines:
                self._compare(machine, partition, seen)

    def _is_old(self, shard: GroupShard) -> bool:
        partition, leader_epoch = shard.partition, shard.leader_epoch
        newest = self._seen.get(partition, _NOTHING).leader_epoch
        return leader_epoch < newest or leader_epoch <= self._exempted.get(partition, -1)

    def _is_over(self, shard: GroupShard) -> bool:
        """Whether its leadership is over. A starting broker learns of former ones before it learns that."""
        topic = self._image().topic(OFFSETS_TOPIC)
        return topic is not None and shard.leader_epoch < topic.partitions[shard.partition].leader_epoch

    def _compare(self, machine: Machine, partition: int, seen: _Seen) -> None:
        replica = _replica(machine, partition)
        if replica is None or replica.log.log_end_offset < seen.offset:
            return
        if replica.log.cleaned_end_offset > seen.offset:
            return  # of a key that has been written again since, what was seen may be gone
        with self._failing(), suppress(OSError):  # the product has to find what cannot be read
            check_replay(partition, seen.state, _records(replica, seen.offset))
            self.replays += 1

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except InvariantViolation as violation:
            self._fail(violation.name, violation.detail)


def shards_of(machine: Machine) -> list[GroupShard]:
    """The shards that a machine's coordinator has loaded."""
    groups = machine.parts.groups
    hosted = [] if groups is None or not machine.alive else groups._hosted.values()
    return [one.shard for one in hosted if one.shard.loaded]


def _replica(machine: Machine, partition: int) -> Partition | None:
    replicas = machine.parts.replicas
    return None if replicas is None or not machine.alive else replicas.table.find(OFFSETS_TOPIC, partition)


def _records(replica: Partition, end_offset: int) -> Iterator[Record]:
    return effective_records(
        (header, decode_batch(data, header)) for header, data in replica.log.iter_batches(0, end_offset)
    )


def effective_records(batches: Iterable[tuple[BatchHeader, Sequence[Record]]]) -> Iterator[Record]:
    """The records that count, in the order in which they do: those of a transaction when its marker says so,
    and then only if no record behind them, with the same key, has counted by then."""
    waiting: dict[int, list[Record]] = {}
    counted: dict[bytes | None, int] = {}
    for header, records in batches:
        if not header.is_control:
            if header.is_transactional:
                waiting.setdefault(header.producer_id, []).extend(records)
                continue
            for record in records:
                counted[_key(record)] = record.offset
                yield record
        elif header.producer_id in waiting:
            ended = waiting.pop(header.producer_id)
            for record in ended if _is_commit(records) else ():
                if counted.get(_key(record), -1) < record.offset:
                    counted[_key(record)] = record.offset
                    yield record


def _is_commit(marker: Sequence[Record]) -> bool:
    """By the key of a control record: two bytes version, two bytes kind."""
    return bool(marker) and int.from_bytes((marker[0].key or b"")[2:4], "big") == COMMIT


def _key(record: Record) -> bytes | None:
    return None if record.key is None else bytes(record.key)
